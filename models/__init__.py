"""The model zoo: one interface, ``torch.nn.LSTM``'s, for every family.

>>> import torch, models
>>> net = models.build("durnn", input_size=2, hidden_size=128, length=100)
>>> y, state = net(torch.randn(100, 50, 2))  # time-major
>>> net.constrain_()  # after optimizer.step()
"""

from models.base import RecurrentNet
from models.durnn import DuRNN
from models.gru import GRU
from models.indrnn import IndRNN
from models.lstm import LSTM
from models.registry import build, names, options, register
from models.rnn import IRNN, RNN

__all__ = [
    "GRU",
    "IRNN",
    "LSTM",
    "RNN",
    "DuRNN",
    "IndRNN",
    "RecurrentNet",
    "build",
    "names",
    "options",
    "register",
]
