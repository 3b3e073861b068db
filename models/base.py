"""The interface that all families share: ``y, state = net(x, state)``, as ``torch.nn.LSTM``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, TypedDict

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from models.initialisers import initialise_
from models.parts import NORMS, TimeSharedDropout, norm_after, norm_before

State = Tensor | tuple[Tensor, ...]
BACKENDS = ("auto", "reference", "fused")


class SharedOptions(TypedDict, total=False):
    """Options of every model.

    length: number of steps L that constraints and per-step statistics refer to.
    batch_first: sequences are (B, T, ·) instead of (T, B, ·).
    norm: None, "after" (BatchNorm over batch and time after the activation), "frame" (per-step statistics, before
        the recurrence), "sequence" (statistics over batch and time, before the recurrence), or "frame+after",
        "sequence+after".
    dropout: probability, one mask over time, after every sublayer (the last included).
    backend: "auto", "reference" or "fused", see models.kernels.
    seed: makes the initial weights a function of this number alone; None draws from torch's global generator.
    device, dtype: of the parameters.
    """

    length: int | None
    batch_first: bool
    norm: str | None
    dropout: float | tuple[float, float]
    backend: str
    seed: int | None
    device: torch.device | str | None
    dtype: torch.dtype | None


class RecurrentLayer(nn.Module):
    """One layer: takes a time-major sequence and its initial states, returns outputs and final states."""

    states: ClassVar[tuple[str, ...]] = ("h",)

    def __init__(self, input_size: int, hidden_size: int, net: RecurrentNet) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.backend = input_size, hidden_size, net.backend
        self.before = norm_before(net.norm, net.gates * hidden_size, net.length)
        self.after = norm_after(net.norm, hidden_size)
        self.dropout = TimeSharedDropout(net.dropout_pair[1])

    def matrix(self, rows: int, columns: int, init: str, generator: Generator | None, argument: str) -> nn.Parameter:
        W = torch.empty(rows, columns)
        initialise_(W, init, generator, argument)
        return nn.Parameter(W)

    def project(self, x: Tensor, W_in: Tensor, b: Tensor) -> Tensor:
        """``N(W_in x) + b`` for the whole sequence: (T, B, M) -> (T, B, rows of W_in)."""
        if isinstance(self.before, nn.Identity):
            return F.linear(x, W_in, b)
        return self.before(F.linear(x, W_in)) + b

    def finish(self, h: Tensor) -> Tensor:
        """Normalisation and dropout between the states and the next layer; the states themselves stay raw."""
        return self.dropout(self.after(h))

    @torch.no_grad()
    def constrain_(self) -> None:
        """Project constrained parameters back onto their sets; most families have none."""


class RecurrentNet(nn.Module):
    """A stack of recurrent layers. ``state`` is ``(num_layers, B, hidden_size)``, or a tuple of such, one per state."""

    gates: ClassVar[int] = 1
    needs_length: ClassVar[bool] = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        length: int | None = None,
        batch_first: bool = False,
        norm: str | None = None,
        dropout: float | tuple[float, float] = 0.0,
        backend: str = "auto",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for argument, value in (
            ("input_size", input_size),
            ("hidden_size", hidden_size),
            ("num_layers", num_layers),
        ):
            _check_positive(argument, value)
        if length is not None:
            _check_positive("length", length)
        elif self.needs_length:
            raise ValueError(f"{type(self).__name__} needs length, the number of steps its constraints refer to.")
        if norm is not None and norm not in NORMS:
            raise ValueError(f"norm={norm!r} is not known; allowed are None, {', '.join(map(repr, NORMS))}.")
        if backend not in BACKENDS:
            raise ValueError(f"backend={backend!r} is not known; allowed are {', '.join(map(repr, BACKENDS))}.")
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"dtype={dtype} is not a floating-point type; use torch.float32 or torch.float64.")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.length, self.batch_first, self.norm, self.dropout, self.backend = (
            length,
            batch_first,
            norm,
            dropout,
            backend,
        )
        self.dropout_pair = _dropout_pair(dropout)
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(
            self.make_layer(input_size if index == 0 else hidden_size, index, generator) for index in range(num_layers)
        )
        self.to(device=device, dtype=dtype)
        self.constrain_()

    def make_layer(self, input_size: int, index: int, generator: Generator | None) -> RecurrentLayer:
        raise NotImplementedError

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.layers[0].states  # type: ignore[return-value]

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        x = self._time_major(x)  # (T, B, M)
        initial = self._unpack(state, x)
        finals = []
        for index, layer in enumerate(self.layers):
            x, final = layer(x, tuple(s[index] for s in initial))
            finals.append(final)
        stacked = tuple(torch.stack(s) for s in zip(*finals, strict=True))  # each (num_layers, B, N)
        y = x.transpose(0, 1) if self.batch_first else x
        return y, stacked if len(stacked) > 1 else stacked[0]

    @torch.no_grad()
    def constrain_(self) -> None:
        """Project every constrained parameter back onto its set; call it after ``optimizer.step()``."""
        for layer in self.layers:
            layer.constrain_()  # type: ignore[operator]

    def parameter_groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Optimiser groups: decay on input and selection matrices only, none on recurrent weights, biases and norms."""
        decayed: list[nn.Parameter] = []
        free: list[nn.Parameter] = []
        for name, parameter in self.named_parameters():
            leaf = name.rsplit(".", 1)[-1]
            (decayed if leaf.startswith("W_") and leaf != "W_rec" else free).append(parameter)
        return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]

    def _time_major(self, x: Tensor) -> Tensor:
        name, layout = type(self).__name__, "(B, T, input_size)" if self.batch_first else "(T, B, input_size)"
        if not isinstance(x, Tensor) or x.dim() != 3:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} takes x of shape {layout} and got {got}.")
        if x.shape[2] != self.input_size:
            raise ValueError(f"{name} was built for input_size={self.input_size} and got x of shape {tuple(x.shape)}.")
        if 0 in x.shape[:2]:
            raise ValueError(f"{name} needs at least one step and one sample and got x of shape {tuple(x.shape)}.")
        parameter = next(self.parameters())
        if x.dtype != parameter.dtype or x.device != parameter.device:
            raise ValueError(
                f"{name} has {parameter.dtype} parameters on {parameter.device} and got x of {x.dtype} on {x.device}; "
                f"convert one of them with .to()."
            )
        return x.transpose(0, 1) if self.batch_first else x

    def _unpack(self, state: State | None, x: Tensor) -> tuple[Tensor, ...]:
        shape, count = (self.num_layers, x.shape[1], self.hidden_size), len(self.state_names)
        if state is None:
            return (x.new_zeros(shape),) * count
        given = (state,) if isinstance(state, Tensor) else tuple(state)
        if len(given) != count or any(s.shape != shape or s.dtype != x.dtype for s in given):
            got = ", ".join(f"{tuple(s.shape)} {s.dtype}" for s in given)
            raise ValueError(
                f"{type(self).__name__} takes state ({', '.join(self.state_names)}), each {shape} {x.dtype}; got {got}."
            )
        return given

    def extra_options(self) -> Iterator[tuple[str, object]]:
        """Name and value of what ``repr`` shows besides the sizes."""
        defaults = {
            "num_layers": 1,
            "length": None,
            "batch_first": False,
            "norm": None,
            "dropout": 0.0,
            "backend": "auto",
        }
        return ((name, getattr(self, name)) for name, default in defaults.items() if getattr(self, name) != default)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.extra_options())
        return f"{type(self).__name__}({self.input_size}, {self.hidden_size}{options})"


def _check_positive(argument: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{argument}={value!r} is not a positive whole number.")


def _dropout_pair(dropout: float | Sequence[float]) -> tuple[float, float]:
    pair = (dropout, dropout) if isinstance(dropout, int | float) else tuple(dropout)
    if len(pair) != 2 or not all(isinstance(p, int | float) and 0 <= p < 1 for p in pair):
        raise ValueError(f"dropout={dropout!r} is neither a probability in [0, 1) nor a pair (short, long) of them.")
    return pair
