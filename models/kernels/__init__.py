"""The recurrences of the zoo, one folder each; ``backend`` chooses who computes them.

A folder holds ``reference.py`` (plain torch, the ground truth), ``op.py`` (the declaration), and where there are fused
forms ``cpu.h`` (C++ loops) and ``triton.py``. To add a recurrence, add its folder, one line here, and one line to
``scan.cpp`` if it has a ``cpu.h``; ``recurrence.py`` says what to declare.
"""

from models.kernels.bernoulli.op import bernoulli
from models.kernels.gru.op import gru_scan
from models.kernels.indrnn.op import indrnn_scan, projected_indrnn_scan
from models.kernels.lstm.op import lstm_scan, projected_lstm_scan
from models.kernels.normed_lstm.op import normed_lstm_scan
from models.kernels.recurrence import BACKENDS
from models.kernels.rnn.op import projected_rnn_scan, rnn_scan
from models.kernels.select.op import select_scan

MOST_PROJECTED = 1 << 20
"""Numbers of a W_in up to which a recurrence projects its input itself, in its form called ``projected_…_scan``: larger
ones do not stay in a cache from step to step, and are multiplied with the whole sequence at once."""

__all__ = [
    "BACKENDS",
    "MOST_PROJECTED",
    "bernoulli",
    "gru_scan",
    "indrnn_scan",
    "lstm_scan",
    "normed_lstm_scan",
    "projected_indrnn_scan",
    "projected_lstm_scan",
    "projected_rnn_scan",
    "rnn_scan",
    "select_scan",
]
