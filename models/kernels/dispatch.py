"""One function per recurrence; ``backend`` chooses who computes it: ``auto``, ``reference`` or ``fused``."""

from __future__ import annotations

from torch import Tensor

from models.kernels import reference


def rnn_scan(u: Tensor, W_rec: Tensor, h0: Tensor, activation: str = "relu", backend: str = "auto") -> Tensor:
    return reference.rnn_scan(u, W_rec, h0, activation)


def indrnn_scan(u: Tensor, U: Tensor, h0: Tensor, backend: str = "auto") -> Tensor:
    return reference.indrnn_scan(u, U, h0)


def select_scan(
    h_short: Tensor,
    a: Tensor,
    W_ls: Tensor,
    W_s: Tensor,
    U: Tensor,
    b_thre: Tensor,
    b_long: Tensor,
    h0: Tensor,
    exact_minmax: bool = False,
    backend: str = "auto",
) -> Tensor:
    return reference.select_scan(h_short, a, W_ls, W_s, U, b_thre, b_long, h0, exact_minmax)


def lstm_scan(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor, backend: str = "auto") -> tuple[Tensor, Tensor]:
    return reference.lstm_scan(u, W_rec, h0, c0)


def gru_scan(u: Tensor, W_rec: Tensor, b_new: Tensor, h0: Tensor, backend: str = "auto") -> Tensor:
    return reference.gru_scan(u, W_rec, b_new, h0)
