"""Trains the models of Figure 2 on the adding problem with noise on the unmarked numbers: the paper calls DuRNN noise
resistant and adds none. Runs that figure 2 has done are taken over.
"""

import sys
from pathlib import Path

if not __package__:  # started as a script: find the checkout, so that no installation is needed
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from reproduce.start import main

if __name__ == "__main__":
    main("noise")
