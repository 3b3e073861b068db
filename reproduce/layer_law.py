"""Trains a 3-layer IndRNN whose last layer is held to short memory, beside the paper's 2-layer one, and plots what each
unit of each layer puts out: the paper concludes from the latter that layers before a short one learn nothing long.
"""

import sys
from pathlib import Path

if not __package__:  # started as a script: find the checkout, so that no installation is needed
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from reproduce.start import main

if __name__ == "__main__":
    main("layer_law")
