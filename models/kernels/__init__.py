"""The recurrences of the zoo, one folder each; ``backend`` chooses who computes them."""

from models.kernels.gru.op import gru_scan
from models.kernels.indrnn.op import indrnn_scan
from models.kernels.lstm.op import lstm_scan
from models.kernels.recurrence import BACKENDS
from models.kernels.rnn.op import rnn_scan
from models.kernels.select.op import select_scan

__all__ = ["BACKENDS", "gru_scan", "indrnn_scan", "lstm_scan", "rnn_scan", "select_scan"]
