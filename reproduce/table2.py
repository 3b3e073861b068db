"""Rebuilds the table from runs on the characters of the Penn Treebank, or on a synthetic stand-in if it cannot be had.
Rows whose model is not in the zoo are listed with the paper's numbers.
"""

import sys
from pathlib import Path

if not __package__:  # started as a script: find the checkout, so that no installation is needed
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from reproduce.start import main

if __name__ == "__main__":
    main("table2")
