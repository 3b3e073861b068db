"""What a family is written on: ``Part``, anything that is trained, and ``Cell``, one recurrent layer.

A new family is a Cell (``project`` and ``step``, and ``scan`` where it has a kernel) and three lines that name it:

    @register("lstm")
    class LSTM(Stack):
        cell = LSTMCell
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from models.initialisers import initialise_
from models.kernels import MOST_PROJECTED
from models.noise import dropout_between
from models.norms import norm_after, norm_before
from models.states import LayerState
from suite.files import nearest


class Part(nn.Module):
    """What every trainable part shares: a cell, an input, a readout, a whole model."""

    decayed: tuple[str, ...] = ()
    """Names of own parameters that take weight decay; all others take none."""
    penalty_names: tuple[str, ...] = ()
    """Names of the terms that ``penalties`` may hold."""

    def __init__(self) -> None:
        super().__init__()
        self._collected: dict[str, Tensor] = {}

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Every option with its default; ``...`` stands for one that must be given."""
        return declared_options(cls)

    def collect(self, name: str, value: Tensor) -> None:
        """Keep a term for the loss; it stands for this part until the next forward in training mode replaces it."""
        if name not in self.penalty_names:
            raise ValueError(f"{type(self).__name__} collected a penalty {name!r} that its penalty_names do not hold.")
        self._collected[name] = value

    def penalties(self) -> dict[str, Tensor]:
        """Terms for the loss that the last forward in training mode collected, summed over this part and those inside.

        Each is a scalar; what multiplies it is the caller's business.
        """
        total = dict(self._collected)
        for part in _parts_inside(self):
            for name, value in part.penalties().items():
                total[name] = total[name] + value if name in total else value
        return total

    def constrain_(self) -> None:
        """Project constrained parameters back onto their sets; by default those of the parts inside."""
        for part in _parts_inside(self):
            part.constrain_()

    def on_epoch(self, epoch: int) -> None:
        """Told by a training that an epoch begins, from 0, or goes on after a resume; by default the parts inside are.

        For values that follow the training's progress. They are no weights: whoever resumes is told the epoch again.
        """
        for part in _parts_inside(self):
            part.on_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_collected": {}}  # collected terms hang on a graph, which cannot be copied


def decayed_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that the parts inside a module declare as ``decayed``, each once, in the module's order."""
    chosen: set[int] = set()
    for part in module.modules():
        if isinstance(part, Part):
            own = dict(part.named_parameters(remove_duplicate=False))
            for name in part.decayed:
                if name not in own:
                    raise ValueError(
                        f"{type(part).__name__}.decayed names {name!r}, which is none of its parameters "
                        f"({nearest(name, own)})."
                    )
                chosen.add(id(own[name]))
    return [parameter for parameter in module.parameters() if id(parameter) in chosen]


def _parts_inside(module: nn.Module, seen: set[nn.Module] | None = None) -> Iterator[Part]:
    """The nearest parts below a module, each once."""
    seen = set() if seen is None else seen
    for child in module._modules.values():
        if child is None or child in seen:
            continue
        seen.add(child)
        if isinstance(child, Part):
            yield child
        else:
            yield from _parts_inside(child, seen)


@dataclass(frozen=True)
class Slot:
    """The place of a cell in its model, and the shared options as they apply there.

    index, count: which of how many layers, from below.
    above: hidden_size of the layer above, None at the top.
    length, norm, dropout_per, backend, start, start_noise: as ``RecurrentNet`` takes them.
    dropout: probabilities of the (short, long) half; a cell without halves takes the second.
    generator: source of all initial weights, None for torch's global one.
    """

    input_size: int
    hidden_size: int
    index: int = 0
    count: int = 1
    above: int | None = None
    length: int | None = None
    norm: str | None = None
    dropout: tuple[float, float] = (0.0, 0.0)
    dropout_per: str = "sequence"
    backend: str = "auto"
    start: str = "zeros"
    start_noise: float = 0.0
    generator: Generator | None = None

    @property
    def is_last(self) -> bool:
        return self.index == self.count - 1

    def matrix(self, rows: int, columns: int, init: str, argument: str = "init") -> nn.Parameter:
        """A matrix filled by the initialiser called ``init``, which came from the option ``argument``.

        An initialiser that ends in "/L" is divided by the length: a sum over the sequence then starts at order one.
        """
        W = torch.empty(rows, columns)
        initialise_(W, init.removesuffix("/L"), self.generator, argument)
        if init.endswith("/L"):
            if self.length is None:
                raise ValueError(f"{argument}={init!r} is divided by the number of steps and needs length.")
            W.div_(self.length)
        return nn.Parameter(W)

    def uniform(self, size: int, low: float, high: float) -> nn.Parameter:
        """A vector from U(low, high)."""
        return nn.Parameter(torch.empty(size).uniform_(low, high, generator=self.generator))

    def memories(self, size: int, chrono: int) -> Tensor:
        """log U(1, chrono − 1): biases of gates that keep, whose memories then last up to ``chrono`` steps (Tallec and
        Ollivier 2018)."""
        if isinstance(chrono, bool) or not isinstance(chrono, int) or chrono < 3:
            raise ValueError(f"chrono={chrono!r} is neither 0 nor a number of steps from 3 up.")
        return self.uniform(size, 1.0, chrono - 1.0).detach().log()

    def needed_length(self, cell: Cell) -> int:
        """``length`` for a cell that cannot do without."""
        if self.length is None:
            family = type(cell).__name__.removesuffix("Cell")
            raise ValueError(f"{family} needs length, the number of steps its constraints refer to.")
        return self.length


class Cell(Part, ABC):
    """One recurrent layer. A family writes ``__init__``, ``project`` and ``step``, and ``scan`` if it has a kernel.

    The options of a family are the keyword-only arguments of its ``__init__``, declared there and nowhere else.

    states: name -> width of each state, in the order in which tuples of states hold them; each is real and (B, width).
    size: width of the output. The output is what ``step`` returns as y_t; where it is a state, that one is called "h".
    projected: width of u_t, what ``project`` gives for one step.
    """

    noisy: tuple[str, ...] = ("h",)
    """States that ``start_noise`` acts on; Cooijmans et al. put it on h_0 and leave c_0 alone."""
    unlearned: tuple[str, ...] = ()
    """States that start at zero also with ``start="learned"``."""
    scans_to_h: bool = False
    """``scan`` gives y and, by itself, the state h that is its last step: see ``RecurrentNet.last_output``."""

    def __init__(
        self,
        slot: Slot,
        *,
        states: Mapping[str, int] | None = None,
        size: int | None = None,
        projected: int | None = None,
    ) -> None:
        super().__init__()
        N = slot.hidden_size
        self.states: dict[str, int] = dict(states) if states else {"h": N}
        self.input_size, self.hidden_size, self.size = slot.input_size, N, size or N
        self.backend, self.start, self.start_noise = slot.backend, slot.start, slot.start_noise
        self.before = norm_before(slot.norm, projected or N, slot.length)
        self.after = norm_after(slot.norm, self.size)
        self.dropout = dropout_between(slot.dropout[1], slot.dropout_per)
        if slot.start_noise and not set(self.noisy) <= set(self.states):
            raise ValueError(f"{type(self).__name__} has no state {' or '.join(self.noisy)} for start_noise to act on.")
        if slot.start == "learned":
            for name, width in self.states.items():
                if name in self.unlearned:
                    continue
                self.register_parameter(f"start_{name}", nn.Parameter(self.first_start(name, width, slot)))

    def first_start(self, name: str, width: int, slot: Slot) -> Tensor:
        """Where a learned initial state begins: (width,), zeros unless a family says otherwise."""
        return torch.zeros(width)

    def initial(self, B: int, like: Tensor | None = None) -> LayerState:
        """The states before the first step, each (B, width), of the type and device of ``like`` or the parameters."""
        like = next(self.parameters()) if like is None else like
        learned = [name for name in self.states if self.start == "learned" and name not in self.unlearned]
        state = [
            getattr(self, f"start_{name}").expand(B, -1) if name in learned else like.new_zeros(B, width)
            for name, width in self.states.items()
        ]
        if self.start_noise and self.training:
            noisy = zip(self.states, state, strict=True)
            state = [s + self.start_noise * torch.randn_like(s) if name in self.noisy else s for name, s in noisy]
        return tuple(state)

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """u, all that does not read the state, for the whole sequence: (T, B, input_size) -> (T, B, projected)."""

    @abstractmethod
    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """The equations of one step, in the paper's order: (B, projected) and states -> y_t (B, size) and new states.

        Normalisation and dropout of the shared options stand outside, in ``project`` and ``finish``.
        """

    def begin(self, T: int, B: int) -> None:
        """Called before the first step of a sequence, by ``scan`` or Lockstep: draw masks that hold over time, say."""

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """All steps: (T, B, projected) -> outputs (T, B, size) and the states after the last step."""
        self.begin(u.shape[0], u.shape[1])
        outputs = []
        for u_t in u:  # not u[t], whose backward would be quadratic in T
            y_t, state = self.step(u_t, state)
            outputs.append(y_t)
        return torch.stack(outputs), state

    def step_among(
        self, u_t: Tensor, state: LayerState, below: LayerState | None, above: LayerState | None
    ) -> tuple[Tensor, LayerState]:
        """``step`` within a Lockstep: sees the new states of the layer below and the previous ones of the layer above.

        Either is None at its end of the model.
        """
        return self.step(u_t, state)

    def forward(self, x: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        """(T, B, input_size) and the states before -> outputs (T, B, size) and the states after."""
        if state is None:
            state = self.initial(x.shape[1], x)
        y, state = self.run(x, state)
        return self.finish(y), state

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """``project`` and ``scan``; a family whose kernel can project its input itself lets it."""
        return self.scan(self.project(x), state)

    @property
    def projects_inside(self) -> bool:
        """True where u is ``W_in x + b`` of a W_in that a kernel may read at each step, so that u is never stored."""
        return isinstance(self.before, nn.Identity) and cast(Tensor, self.W_in).numel() <= MOST_PROJECTED

    @property
    def ends_as_state(self) -> bool:
        """True where the last output is the state h as ``scan`` gave it, with nothing done in ``finish``."""
        return self.scans_to_h and isinstance(self.after, nn.Identity) and self.dropout.p == 0

    def affine(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """``N(W x) + b`` with the norm that stands before the recurrence: (T, B, M) -> (T, B, rows of W)."""
        if isinstance(self.before, nn.Identity):
            return F.linear(x, W, b)
        return self.before(F.linear(x, W)) + b

    def finish(self, y: Tensor) -> Tensor:
        """Normalisation and dropout between the states and the next layer; the states themselves stay raw."""
        return self.dropout(self.after(y))

    def traces(self, x: Tensor, state: LayerState | None = None) -> dict[str, Tensor]:
        """What the parts of this layer put out, for figures: name -> (T, B, N), the layer's output last."""
        return {"output": self(x, state)[0]}


def declared_options(cls: type) -> dict[str, Any]:
    """The keyword-only arguments of a class with their defaults; ``...`` stands for one that must be given.

    Those of a base class count as well where the class hands unknown keywords on to it.
    """
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if "__init__" not in base.__dict__:
            continue
        parameters = inspect.signature(base.__dict__["__init__"]).parameters.values()
        for p in parameters:
            if p.kind is inspect.Parameter.KEYWORD_ONLY:
                found.setdefault(p.name, ... if p.default is inspect.Parameter.empty else p.default)
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            break
    return found
