"""Trains DuRNN with δ = 1, with the gradients through its selection left in, and either of its halves alone on the
adding problem: sentences of the paper speak of them that no figure of its shows. Runs of figure 2 are taken over.
"""

import sys
from pathlib import Path

if not __package__:  # started as a script: find the checkout, so that no installation is needed
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from reproduce.start import main

if __name__ == "__main__":
    main("ablations")
