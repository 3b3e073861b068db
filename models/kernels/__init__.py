"""The recurrences of the zoo, one folder each; ``backend`` chooses who computes them.

A folder holds ``reference.py`` (plain torch, the ground truth), ``op.py`` (the declaration), and where there are fused
forms ``cpu.h`` (C++ loops) and ``triton.py``. To add a recurrence, add its folder, one line here, and one line to
``scan.cpp`` if it has a ``cpu.h``; ``recurrence.py`` says what to declare.
"""

from models.kernels.bernoulli.op import bernoulli
from models.kernels.gru.op import gru_scan
from models.kernels.indrnn.op import indrnn_scan, narrow_indrnn_scan
from models.kernels.lstm.op import lstm_scan, narrow_lstm_scan
from models.kernels.recurrence import BACKENDS
from models.kernels.rnn.op import narrow_rnn_scan, rnn_scan
from models.kernels.select.op import select_scan

NARROW = 4
"""Width of an input up to which a recurrence projects it itself, in its form called ``narrow_…_scan``."""

__all__ = [
    "BACKENDS",
    "NARROW",
    "bernoulli",
    "gru_scan",
    "indrnn_scan",
    "lstm_scan",
    "narrow_indrnn_scan",
    "narrow_lstm_scan",
    "narrow_rnn_scan",
    "rnn_scan",
    "select_scan",
]
