"""Named weight initialisers; each fills a matrix ``(rows, fan_in)`` in place from an explicit generator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

Initialiser = Callable[[Tensor, Generator | None], Tensor]


def _kaiming(slope: float) -> Initialiser:
    return lambda W, generator: nn.init.kaiming_uniform_(W, a=slope, generator=generator)


def _per_square_block(fill: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Fill each ``(N, N)`` block of a ``(gates·N, N)`` matrix on its own, so that every gate starts alike."""

    def fill_blocks(W: Tensor) -> Tensor:
        for block in W.split(W.shape[1], dim=0):
            fill(block)
        return W

    return fill_blocks


def _orthogonal(gain: float) -> Initialiser:
    return lambda W, generator: _per_square_block(
        lambda block: nn.init.orthogonal_(block, gain=gain, generator=generator)
    )(W)


def _orthogonal_whole(gain: float) -> Initialiser:
    return lambda W, generator: nn.init.orthogonal_(W, gain=gain, generator=generator)


def _uniform(most: float) -> Initialiser:
    return lambda W, generator: nn.init.uniform_(W, -most, most, generator=generator)


def _identity_candidate(W: Tensor, generator: Generator | None) -> Tensor:
    """An LSTM's recurrent matrix, gates i, f, g, o: g starts as the identity, the others are orthogonal as one."""
    N = W.shape[1]
    if W.shape[0] != 4 * N:
        raise ValueError(f"identity-candidate is for matrices (4 N, N) of four gates, not for {tuple(W.shape)}.")
    gates = nn.init.orthogonal_(torch.empty(3 * N, N), generator=generator)
    W[: 2 * N], W[3 * N :] = gates[: 2 * N], gates[2 * N :]
    nn.init.eye_(W[2 * N : 3 * N])
    return W


INITIALISERS: dict[str, Initialiser] = {
    "zeros": lambda W, generator: nn.init.zeros_(W),
    "identity": lambda W, generator: _per_square_block(nn.init.eye_)(W),
    "orthogonal": _orthogonal(1.0),
    "orthogonal-0.99": _orthogonal(0.99),
    "orthogonal-0.9": _orthogonal(0.9),
    "orthogonal-0.5": _orthogonal(0.5),
    "orthogonal-whole": _orthogonal_whole(1.0),
    "orthogonal-whole-0.001": _orthogonal_whole(0.001),
    "identity-candidate": _identity_candidate,
    "glorot": lambda W, generator: nn.init.xavier_uniform_(W, generator=generator),
    "glorot-0.1": lambda W, generator: nn.init.xavier_uniform_(W, gain=0.1, generator=generator),
    "kaiming": _kaiming(0.0),
    "kaiming-2": _kaiming(2.0),
    "kaiming-8": _kaiming(8.0),
    "uniform-fan-in": lambda W, generator: nn.init.uniform_(
        W, -1 / math.sqrt(W.shape[1]), 1 / math.sqrt(W.shape[1]), generator=generator
    ),
    "uniform-0.08": _uniform(0.08),
    "uniform-0.1": _uniform(0.1),
    "normal-0.001": lambda W, generator: nn.init.normal_(W, std=0.001, generator=generator),
    "normal-1": lambda W, generator: nn.init.normal_(W, std=1.0, generator=generator),
}


@torch.no_grad()
def initialise_(W: Tensor, name: str, generator: Generator | None, argument: str) -> None:
    """Fill ``W`` in place by the initialiser called ``name``; ``argument`` is the option it came from."""
    if name not in INITIALISERS:
        raise ValueError(f"{argument}={name!r} is not an initialiser; known are {', '.join(INITIALISERS)}.")
    INITIALISERS[name](W, generator)
