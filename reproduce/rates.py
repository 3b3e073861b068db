"""Trains RNN-tanh, IRNN and DuRNN on the adding problem at the paper's rate and at ten times it: the paper says that
too large a rate makes the first two unstable. Runs that figure 2 has done are taken over.
"""

import sys
from pathlib import Path

if not __package__:  # started as a script: find the checkout, so that no installation is needed
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from reproduce.start import main

if __name__ == "__main__":
    main("rates")
