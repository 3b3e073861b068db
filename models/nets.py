"""Models made of cells, with the interface of ``torch.nn.LSTM``: ``y, state = net(x, state)``."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.base import Cell, Part, Slot, decayed_parameters, declared_options
from models.noise import PER, check_deviation
from models.norms import NORMS
from models.states import LayerState, State, pack, unpack
from suite.files import nearest

BACKENDS = ("auto", "reference", "fused")
STARTS = ("zeros", "learned")


class RecurrentNet(Part, ABC):
    """A model made of cells of one family. Options that all share:

    length: number of steps L that constraints and per-step statistics refer to.
    batch_first: sequences are (B, T, ·) instead of (T, B, ·).
    norm: None, "after" (BatchNorm over batch and time after the activation), "frame" (per-step statistics, before
        the recurrence), "sequence" (statistics over batch and time, before the recurrence), or "frame+after",
        "sequence+after".
    dropout: probability, after every sublayer (the last included); or a pair (short, long half).
    dropout_per: "sequence", one mask over time, or "step", a fresh mask at each step.
    backend: "auto", "reference" or "fused", see models.kernels.
    start: "zeros", or "learned", one trained vector ``start_<state>`` per cell and state.
    start_noise: standard deviation of Gaussian noise on h_0 in training, from torch's global generator; 0 draws none.
    seed: makes the initial weights a function of this number alone; None draws from torch's global generator.
    device, dtype: of the parameters.

    hidden_size: one number, or one per layer. ``state`` is, for each of ``state_names``, one tensor (num_layers, B, N),
    or a tuple of (B, N_l) where the layers' widths differ; a single state stands by itself, several form a tuple.
    ``size`` is the width of y.
    """

    cell: ClassVar[type[Cell]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "cell" in cls.__dict__:
            clash = sorted(set(declared_options(cls.cell)) & set(declared_options(RecurrentNet)))
            if clash:
                raise TypeError(f"{cls.cell.__name__} declares {', '.join(clash)}, which every model has already.")
            cls.__doc__ = "\n\n".join(inspect.cleandoc(doc) for doc in (cls.__doc__, cls.cell.__doc__) if doc)

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *,
        length: int | None = None,
        batch_first: bool = False,
        norm: str | None = None,
        dropout: float | tuple[float, float] = 0.0,
        dropout_per: str = "sequence",
        backend: str = "auto",
        start: str = "zeros",
        start_noise: float = 0.0,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        _check_positive("input_size", input_size)
        _check_positive("num_layers", num_layers)
        widths = _widths(hidden_size, num_layers)
        if length is not None:
            _check_positive("length", length)
        _check_choice("norm", norm, (None, *NORMS))
        _check_choice("dropout_per", dropout_per, PER)
        _check_choice("backend", backend, BACKENDS)
        _check_choice("start", start, STARTS)
        start_noise = check_deviation("start_noise", start_noise)
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype={dtype!r} is not a torch.dtype; use torch.float32 or torch.float64.")
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"dtype={dtype} is not a floating-point type; use torch.float32 or torch.float64.")
        for option in options:
            if option not in declared_options(self.cell):
                raise TypeError(f"{type(self).__name__} has no option {option!r} ({nearest(option, self.options())}).")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, len(widths)
        self.length, self.batch_first, self.norm, self.dropout = length, batch_first, norm, dropout
        self.dropout_per, self.backend, self.start, self.start_noise = dropout_per, backend, start, start_noise
        shared: dict[str, Any] = {
            "count": len(widths),
            "length": length,
            "norm": norm,
            "dropout": _dropout_pair(dropout),
            "dropout_per": dropout_per,
            "backend": backend,
            "start": start,
            "start_noise": start_noise,
            "generator": None if seed is None else torch.Generator().manual_seed(seed),
        }
        cells: list[Cell] = []
        for index, width in enumerate(widths):
            below = cells[-1].size if cells else input_size
            above = widths[index + 1] if index + 1 < len(widths) else None
            cells.append(self.cell(Slot(below, width, index=index, above=above, **shared), **options))
        self.layers = nn.ModuleList(cells)
        if len({tuple(cell.states) for cell in cells}) > 1:
            raise TypeError(f"The layers of {type(self).__name__} have different states; give all of them the same.")
        self._widths = {name: tuple(cell.states[name] for cell in cells) for name in cells[0].states}
        self.to(device=device, dtype=dtype)
        self.constrain_()

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Every option with its default: the shared ones and those of the family."""
        return declared_options(cls) | declared_options(cls.cell)

    @property
    def cells(self) -> list[Cell]:
        return list(self.layers)  # type: ignore[arg-type]

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(self._widths)

    @property
    def size(self) -> int:
        """Width of y."""
        return self.cells[-1].size

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        x = self._time_major(x)  # (T, B, input_size)
        y, finals = self.run(x, self._first(state, x))
        return y.transpose(0, 1) if self.batch_first else y, pack(finals, self._widths)

    def last_output(self, y: Tensor, state: State) -> Tensor:
        """y of the last step, (B, size), given what ``forward`` returned.

        Taken from the state where that holds it: the gradient of ``y[-1]`` is a sequence of zeros but for one step.
        """
        if not self.cells[-1].ends_as_state:
            return y[:, -1] if self.batch_first else y[-1]
        by_name = (state,) if len(self._widths) == 1 else state
        return by_name[self.state_names.index("h")][-1]  # type: ignore[return-value]

    @abstractmethod
    def run(self, x: Tensor, states: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        """Time-major x and the states of every layer before the first step -> y and the states after the last."""

    @abstractmethod
    def traces(self, x: Tensor, state: State | None = None) -> list[dict[str, Tensor]]:
        """``Cell.traces`` of every layer from below, for figures; time-major also with ``batch_first``."""

    def parameter_groups(self, weight_decay: float) -> list[dict[str, object]]:
        """Optimiser groups: what the cells declare as decayed, and the rest."""
        decayed = decayed_parameters(self)
        ids = set(map(id, decayed))
        free = [parameter for parameter in self.parameters() if id(parameter) not in ids]
        return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]

    def _first(self, state: State | None, x: Tensor) -> list[LayerState]:
        if state is None:
            return [cell.initial(x.shape[1], x) for cell in self.layers]  # type: ignore[operator]
        return unpack(state, self._widths, x, type(self).__name__)

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
        if x.dtype != parameter.dtype and x.is_floating_point() and torch.is_autocast_enabled(x.device.type):
            x = x.to(parameter.dtype)  # another layer under autocast gave it
        if x.dtype != parameter.dtype or x.device != parameter.device:
            raise ValueError(
                f"{name} has {parameter.dtype} parameters on {parameter.device} and got x of {x.dtype} on {x.device}; "
                f"convert one of them with .to()."
            )
        return x.transpose(0, 1) if self.batch_first else x

    def __repr__(self) -> str:
        defaults = {"num_layers": 1} | declared_options(RecurrentNet)
        shown = {name: getattr(self, name) for name in defaults if name not in ("seed", "device", "dtype")}
        options = "".join(f", {name}={value!r}" for name, value in shown.items() if value != defaults[name])
        return f"{type(self).__name__}({self.input_size}, {self.hidden_size}{options})"


class Stack(RecurrentNet):
    """Layer by layer: each layer runs over the whole sequence before the next begins."""

    def run(self, x: Tensor, states: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        finals = []
        for layer, state in zip(self.layers, states, strict=True):
            x, final = layer(x, state)
            finals.append(final)
        return x, finals

    def traces(self, x: Tensor, state: State | None = None) -> list[dict[str, Tensor]]:
        x, found = self._time_major(x), []
        for cell, first in zip(self.cells, self._first(state, x), strict=True):
            found.append(cell.traces(x, first))
            x = next(reversed(found[-1].values()))
        return found


class Lockstep(RecurrentNet):
    """Step by step: all layers run within one time step, so that a layer can read its neighbours (``step_among``).

    Only the first layer projects the whole sequence at once. Cells that normalise or drop do so inside themselves.
    """

    def __init__(self, input_size: int, hidden_size: int | Sequence[int], num_layers: int = 1, **options: Any) -> None:
        super().__init__(input_size, hidden_size, num_layers, **options)
        if self.norm is not None or any(_dropout_pair(self.dropout)):
            raise ValueError(
                f"{type(self).__name__} runs its layers in lockstep and takes neither norm nor dropout between them."
            )

    def run(self, x: Tensor, states: list[LayerState]) -> tuple[Tensor, list[LayerState]]:
        ys, finals = self.run_all(x, states)
        return self.gather(ys), finals

    def run_all(self, x: Tensor, states: list[LayerState]) -> tuple[list[Tensor], list[LayerState]]:
        """The outputs of all layers, each (T, B, N_l), and the states after the last step."""
        cells, last = self.cells, len(states) - 1
        for cell in cells:
            cell.begin(x.shape[0], x.shape[1])
        outputs: list[list[Tensor]] = [[] for _ in cells]
        for u_t in cells[0].project(x):
            previous, states = states, []
            for index, cell in enumerate(cells):
                u = u_t if index == 0 else cell.project(outputs[index - 1][-1].unsqueeze(0))[0]
                below = states[-1] if index > 0 else None
                above = previous[index + 1] if index < last else None
                y_t, state = cell.step_among(u, previous[index], below, above)
                outputs[index].append(y_t)
                states.append(state)
        return [cell.finish(torch.stack(y)) for cell, y in zip(cells, outputs, strict=True)], states

    def gather(self, ys: list[Tensor]) -> Tensor:
        """y from the outputs of all layers, each (T, B, N_l): the last one's, unless a family joins them."""
        return ys[-1]

    def traces(self, x: Tensor, state: State | None = None) -> list[dict[str, Tensor]]:
        x = self._time_major(x)
        ys, _ = self.run_all(x, self._first(state, x))
        return [{"output": y} for y in ys]


def _check_positive(argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{argument}={value!r} is not a positive whole number.")


def _check_choice(argument: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise ValueError(f"{argument}={value!r} is not known; allowed are {', '.join(map(repr, allowed))}.")


def _widths(hidden_size: int | Sequence[int], num_layers: int) -> list[int]:
    per_layer = hidden_size if isinstance(hidden_size, tuple | list) else [hidden_size]
    for width in per_layer:
        _check_positive("hidden_size", width)
    if not isinstance(hidden_size, tuple | list):
        return [*per_layer] * num_layers
    if not hidden_size or num_layers not in (1, len(hidden_size)):
        raise ValueError(f"hidden_size={hidden_size!r} does not give one width for each of num_layers={num_layers}.")
    return list(hidden_size)


def _dropout_pair(dropout: float | Sequence[float]) -> tuple[float, float]:
    pair = tuple(dropout) if isinstance(dropout, tuple | list) else (dropout, dropout)
    if len(pair) != 2 or not all(isinstance(p, int | float) and 0 <= p < 1 for p in pair):
        raise ValueError(f"dropout={dropout!r} is neither a probability in [0, 1) nor a pair (short, long) of them.")
    return pair
