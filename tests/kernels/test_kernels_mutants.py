"""Wrong recurrences, each with one term broken: the ladder's comparison has to refuse every one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from kernels_ladder import OPERATORS, SIZES, TOLERANCE, errors, everything
from torch import Tensor

from models.kernels import cpu
from models.kernels.select import reference
from models.kernels.select.reference import min_max

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")

Function = Callable[..., object]


def scan(step: Callable[..., Tensor], h: Tensor, *sequences: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for inputs in zip(*sequences, strict=True):
        h = step(h, *inputs)
        states.append(h)
    return torch.stack(states), h


def rnn(step: Callable[..., Tensor]) -> Function:
    return lambda u, W_rec, h0: scan(lambda h, u_t: step(h, u_t, W_rec), h0, u)


def indrnn(step: Callable[..., Tensor]) -> Function:
    return lambda u, U, h0: scan(lambda h, u_t: step(h, u_t, U), h0, u)


def projected(function: Function, project: Callable[..., Tensor] = F.linear) -> Function:
    """The projection, right or wrong, before a recurrence that is right."""
    return lambda x, W_in, b, *rest, **named: function(project(x, W_in, b), *rest, **named)


def right_rnn(u: Tensor, W_rec: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    return scan(lambda h, u_t: torch.relu(u_t + h @ W_rec.T), h0, u)


def right_indrnn(u: Tensor, U: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
    return scan(lambda h, u_t: torch.relu(u_t + U * h), h0, u)


PROJECTIONS: dict[str, Callable[..., Tensor]] = {
    "b left out": lambda x, W, b: F.linear(x, W),
    "b twice": lambda x, W, b: F.linear(x, W, 2 * b),
    "no gradient of b": lambda x, W, b: F.linear(x, W, b.detach()),
    "no gradient of W_in": lambda x, W, b: F.linear(x, W.detach(), b),
    "no gradient of x": lambda x, W, b: F.linear(x.detach(), W, b),
    "input a step late": lambda x, W, b: F.linear(x.roll(1, 0), W, b),
    "last column left out": lambda x, W, b: F.linear(x[..., :-1], W[:, :-1], b),
    "first step left out of the gradients": lambda x, W, b: torch.cat(
        [F.linear(x[:1], W, b).detach(), F.linear(x[1:], W, b)]
    ),
}


def select(
    short: Callable[[Tensor], Tensor] = lambda h_short: h_short.detach(),
    long: Callable[[Tensor], Tensor] = lambda h: h.detach(),
    mm: Callable[[Tensor], Tensor] = min_max,
    from_short: Callable[[Tensor], Tensor] = lambda W_ss: W_ss.T,
    from_long: Callable[[Tensor], Tensor] = lambda W_ls: W_ls.T,
    bias: Callable[[Tensor], Tensor] = lambda b_s: b_s,
    into_long: Callable[[Tensor], Tensor] = lambda W_s: W_s.T,
    selected: Callable[[Tensor, Tensor], Tensor] = lambda S, h_short: S * h_short,
    threshold: Callable[[Tensor], Tensor] = lambda b: b,
    carried: Callable[[Tensor, Tensor], Tensor] = lambda U, h: U * h,
) -> Function:
    def function(h_short, W_ss, b_s, W_ls, W_s, U, b_thre, b_long, h0):  # type: ignore[no-untyped-def]
        def step(h: Tensor, h_short_t: Tensor) -> Tensor:
            v = short(h_short_t) @ from_short(W_ss) + long(h) @ from_long(W_ls) + bias(b_s)
            S = torch.relu(mm(v) - threshold(b_thre))
            return torch.relu(selected(S, h_short_t) @ into_long(W_s) + carried(U, h) + b_long)

        return scan(step, h0, h_short)

    return function


def lstm(
    order: tuple[int, int, int, int] = (0, 1, 2, 3),
    kept: Callable[[Tensor], Tensor] = lambda c: c,
    squashed: Callable[[Tensor], Tensor] = torch.tanh,
    back: Callable[[Tensor], Tensor] = lambda h: h,
) -> Function:
    def function(u: Tensor, W_rec: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, c, states = h0, c0, []
        for u_t in u:
            parts = (u_t + back(h) @ W_rec.T).chunk(4, dim=-1)
            i, f, g, o = (parts[k] for k in order)
            c = torch.sigmoid(f) * kept(c) + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * squashed(c)
            states.append(h)
        return torch.stack(states), h, c

    return function


def noisy_lstm(
    zoned: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda d, old, new: d * old + (1 - d) * new,
    masks: tuple[int, int, int] = (0, 1, 2),
    read: Callable[[Tensor, Tensor], Tensor] = lambda new_c, c: new_c,
    dropped: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda m, kept, update: kept + m * update,
) -> Callable[[str], Function]:
    """Of the name of an operator with noise."""

    def of(name: str) -> Function:
        def function(**arguments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            given = OPERATORS[name].options(arguments)
            u, W_rec, h, c = arguments.values()
            states = []
            for t, u_t in enumerate(u):
                values = list(given["rates"]) if "rates" in given else [given["noise"][t] >> k & 1 for k in range(3)]
                d_c, d_h, off = (values[k] for k in masks)
                i, f, g, o = (u_t + h @ W_rec.T).chunk(4, dim=-1)
                new_c = dropped(1 - off, torch.sigmoid(f) * c, torch.sigmoid(i) * torch.tanh(g))
                next_c = zoned(d_c, c, new_c)
                h = zoned(d_h, h, torch.sigmoid(o) * torch.tanh(read(new_c, next_c)))
                c = next_c
                states.append(h)
            return torch.stack(states), h, c

        return function

    return of


NOISY_MUTANTS = {
    "the past not carried back": noisy_lstm(zoned=lambda d, old, new: d * old.detach() + (1 - d) * new),
    "the new not carried back": noisy_lstm(zoned=lambda d, old, new: d * old + (1 - d) * new.detach()),
    "old and new swapped": noisy_lstm(zoned=lambda d, old, new: d * new + (1 - d) * old),
    "masks of c and h swapped": noisy_lstm(masks=(1, 0, 2)),
    "mask of c for both": noisy_lstm(masks=(0, 0, 2)),
    "another mask for the update": noisy_lstm(masks=(0, 1, 1)),
    "h from the c that was kept": noisy_lstm(read=lambda new_c, c: c),
    "the memory dropped as well": noisy_lstm(dropped=lambda m, kept, update: m * (kept + update)),
    "the update not dropped": noisy_lstm(dropped=lambda m, kept, update: kept + update),
    "no gradient of the update": noisy_lstm(dropped=lambda m, kept, update: kept + m * update.detach()),
}


def gru(
    order: tuple[int, int, int] = (0, 1, 2),
    candidate: Callable[..., Tensor] = lambda u_n, r, v_n, b_new: torch.tanh(u_n + r * (v_n + b_new)),
    mixed: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda z, n, h: (1 - z) * n + z * h,
    back: Callable[[Tensor], Tensor] = lambda h: h,
) -> Function:
    def function(u: Tensor, W_rec: Tensor, b_new: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        def step(h: Tensor, u_t: Tensor) -> Tensor:
            from_u, from_h = u_t.chunk(3, dim=-1), (back(h) @ W_rec.T).chunk(3, dim=-1)
            r, z = (torch.sigmoid(from_u[k] + from_h[k]) for k in order[:2])
            return mixed(z, candidate(from_u[2], r, from_h[2], b_new), h)

        return scan(step, h0, u)

    return function


def shift(b: Tensor) -> Tensor:
    return b + 1e-3


RIGHT_OF_PROJECTED = {"projected_rnn_relu": right_rnn, "projected_indrnn": right_indrnn, "projected_lstm": lstm()}

MUTANTS: dict[str, tuple[str, Function]] = {
    "rnn: W transposed": ("rnn_relu", rnn(lambda h, u, W: torch.relu(u + h @ W))),
    "rnn: tanh for relu": ("rnn_relu", rnn(lambda h, u, W: torch.tanh(u + h @ W.T))),
    "rnn: no gradient through time": ("rnn_relu", rnn(lambda h, u, W: torch.relu(u + h.detach() @ W.T))),
    "rnn: no gradient of W": ("rnn_tanh", rnn(lambda h, u, W: torch.tanh(u + h @ W.detach().T))),
    "rnn: linear derivative": ("rnn_tanh", rnn(lambda h, u, W: _straight_through(torch.tanh, u + h @ W.T))),
    "rnn: no gradient of u": ("rnn_tanh", rnn(lambda h, u, W: torch.tanh(u.detach() + h @ W.T))),
    "rnn: output scaled by 1 + 1e-4": ("rnn_relu", rnn(lambda h, u, W: (1 + 1e-4) * torch.relu(u + h @ W.T))),
    "indrnn: no U in the reverse scan": ("indrnn", indrnn(lambda h, u, U: torch.relu(u + _value_of(U, h)))),
    "indrnn: no gradient of U": ("indrnn", indrnn(lambda h, u, U: torch.relu(u + U.detach() * h))),
    "indrnn: no relu'": ("indrnn", indrnn(lambda h, u, U: _straight_through(torch.relu, u + U * h))),
    "indrnn: U squared": ("indrnn", indrnn(lambda h, u, U: torch.relu(u + U * U * h))),
    "select: uncut gradient of S into h": ("select", select(long=lambda h: h)),
    "select: uncut gradient of S into h~": ("select", select(short=lambda h_short: h_short)),
    "select: min and max differentiated": ("select", select(mm=lambda v: min_max(v, exact_gradient=True))),
    "select: mm without gradient": ("select", select(mm=lambda v: min_max(v).detach())),
    "select: mm not divided": ("select", select(mm=lambda v: v - v.detach().amin(-1, keepdim=True))),
    "select: W_ss transposed": ("select", select(from_short=lambda W: W)),
    "select: W_ls transposed": ("select", select(from_long=lambda W: W)),
    "select: no gradient of W_ss": ("select", select(from_short=lambda W: W.detach().T)),
    "select: no gradient of W_ls": ("select", select(from_long=lambda W: W.detach().T)),
    "select: no gradient of b_s": ("select", select(bias=lambda b: b.detach())),
    "select: b_s off by 1e-3": ("select", select(bias=lambda b: b + 1e-3 * torch.arange(len(b)) / len(b))),
    "select: W_s transposed": ("select", select(into_long=lambda W: W)),
    "select: no U in the reverse scan": ("select", select(carried=lambda U, h: _value_of(U, h))),
    "select: no gradient of U": ("select", select(carried=lambda U, h: U.detach() * h)),
    "select: no gradient of h~": ("select", select(selected=lambda S, h: S * h.detach())),
    "select: no gradient of S": ("select", select(selected=lambda S, h: S.detach() * h)),
    "select: no gradient of b_thre": ("select", select(threshold=lambda b: b.detach())),
    "select: threshold off by 1e-3": ("select", select(threshold=shift)),
    "lstm: i and f swapped": ("lstm", lstm(order=(1, 0, 2, 3))),
    "lstm: g and o swapped": ("lstm", lstm(order=(0, 1, 3, 2))),
    "lstm: cell not carried back": ("lstm", lstm(kept=lambda c: c.detach())),
    "lstm: tanh(c) without derivative": ("lstm", lstm(squashed=lambda c: _straight_through(torch.tanh, c))),
    "lstm: c not squashed": ("lstm", lstm(squashed=lambda c: c)),
    "lstm: no gradient through h": ("lstm", lstm(back=lambda h: h.detach())),
    "gru: r and z swapped": ("gru", gru(order=(1, 0, 2))),
    "gru: 1 − z and z swapped": ("gru", gru(mixed=lambda z, n, h: z * n + (1 - z) * h)),
    "gru: past not carried back": ("gru", gru(mixed=lambda z, n, h: (1 - z) * n + z * h.detach())),
    "gru: no gradient of z": ("gru", gru(mixed=lambda z, n, h: (1 - z.detach()) * n + z.detach() * h)),
    "gru: no gradient through the product": ("gru", gru(back=lambda h: h.detach())),
    "gru: no gradient of r": ("gru", gru(candidate=lambda u, r, v, b: torch.tanh(u + r.detach() * (v + b)))),
    "gru: b_new not reset": ("gru", gru(candidate=lambda u, r, v, b: torch.tanh(u + r * v + b))),
    "gru: reset of u as well": ("gru", gru(candidate=lambda u, r, v, b: torch.tanh(r * (u + v + b)))),
    "gru: tanh without derivative": (
        "gru",
        gru(candidate=lambda u, r, v, b: _straight_through(torch.tanh, u + r * (v + b))),
    ),
    **{
        f"{name}: {mistake}": (name, projected(function, project))
        for name, function in RIGHT_OF_PROJECTED.items()
        for mistake, project in PROJECTIONS.items()
    },
    **{
        f"{name}: {mistake}": (name, mutant(name))
        for name in ("lstm_noise", "lstm_rates")
        for mistake, mutant in NOISY_MUTANTS.items()
    },
}


def _straight_through(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The function's value with the derivative of the identity."""
    return x + (function(x) - x).detach()


def _value_of(U: Tensor, h: Tensor) -> Tensor:
    """``U ∘ h`` whose derivative in h forgets U."""
    return U * h.detach() + (h - h.detach())


LADDER = [size for size in SIZES if size[0] > 1 and size[2] > 1]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_term_is_caught(name: str) -> None:
    """At every size with more than one step and unit, far beyond the coarsest tolerance in use."""
    operator_name, mutant = MUTANTS[name]
    operator = OPERATORS[operator_name]
    for T, B, N in LADDER:
        fused = everything(operator.fused, operator.arguments(T, B, N, torch.float32))
        wrong = everything(mutant, operator.arguments(T, B, N))
        assert max(errors(fused, wrong).values()) > 5 * TOLERANCE[torch.float32], (T, B, N)


@pytest.mark.parametrize("operator_name", OPERATORS)
def test_the_unbroken_form_passes(operator_name: str) -> None:
    """The mutants' scaffolding is not what the ladder refuses."""
    forms = {
        "rnn_relu": rnn(lambda h, u, W: torch.relu(u + h @ W.T)),
        "rnn_tanh": rnn(lambda h, u, W: torch.tanh(u + h @ W.T)),
        "projected_rnn_relu": projected(right_rnn),
        "projected_rnn_tanh": projected(rnn(lambda h, u, W: torch.tanh(u + h @ W.T))),
        "indrnn": indrnn(lambda h, u, U: torch.relu(u + U * h)),
        "projected_indrnn": projected(right_indrnn),
        "select": select(),
        "gru": gru(),
        "lstm": lstm(),
        "projected_lstm": projected(lstm()),
        "lstm_noise": noisy_lstm()("lstm_noise"),
        "lstm_rates": noisy_lstm()("lstm_rates"),
    }
    operator = OPERATORS[operator_name]
    for T, B, N in LADDER:
        fused = everything(operator.fused, operator.arguments(T, B, N, torch.float32))
        right = everything(forms[operator_name], operator.arguments(T, B, N))
        assert max(errors(fused, right).values()) < TOLERANCE[torch.float32], (T, B, N)


def test_reference_itself_is_not_a_mutant() -> None:
    arguments = OPERATORS["select"].arguments(5, 3, 9)
    found = everything(select(), arguments)
    assert max(errors(found, everything(reference.select_scan, arguments)).values()) < 1e-14
