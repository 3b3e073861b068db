"""The model zoo: one interface, ``torch.nn.LSTM``'s, for every family.

>>> import torch, models
>>> net = models.build("durnn", input_size=2, hidden_size=128, length=100)
>>> y, state = net(torch.randn(100, 50, 2))  # time-major
>>> net.constrain_()  # after optimizer.step()

``models.inputs`` and ``models.readouts`` hold what stands before and behind a model.
"""

from models import inputs, readouts, skeleton, view_adaptation
from models.base import Cell, Part, Slot, decayed_parameters
from models.durnn import DuRNN
from models.feed_forward import FeedForward
from models.gru import GRU
from models.hm_lstm import HMLSTM
from models.hyper_lstm import HyperLSTM
from models.indrnn import IndRNN
from models.lru import LRU
from models.lstm import LSTM
from models.mingru import MinGRU
from models.mrnn import MRNN
from models.nets import Lockstep, RecurrentNet, Stack
from models.part_lstm import PartLSTM
from models.registry import build, names, needs, options, paper, register
from models.rnn import IRNN, RNN
from models.st_lstm import STLSTM
from models.states import State, detach, state_from_tensors, state_tensors
from models.urnn import URNN

__all__ = [
    "GRU",
    "HMLSTM",
    "IRNN",
    "LRU",
    "LSTM",
    "MRNN",
    "RNN",
    "STLSTM",
    "URNN",
    "Cell",
    "DuRNN",
    "FeedForward",
    "HyperLSTM",
    "IndRNN",
    "Lockstep",
    "MinGRU",
    "Part",
    "PartLSTM",
    "RecurrentNet",
    "Slot",
    "Stack",
    "State",
    "build",
    "decayed_parameters",
    "detach",
    "inputs",
    "names",
    "needs",
    "options",
    "paper",
    "readouts",
    "register",
    "skeleton",
    "state_from_tensors",
    "state_tensors",
    "view_adaptation",
]
