"""Trains RNN-tanh, LSTM, IRNN, a 2-layer IndRNN and DuRNN on sequences of 100, 500, 1000 and 5000 steps and
draws validation error over updates on a logarithmic scale. Data is generated, nothing is downloaded.
"""

import sys
from pathlib import Path

if not __package__:  # started as a script: find the checkout, so that no installation is needed
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from reproduce.start import main

if __name__ == "__main__":
    main("figure2")
