"""Names of the zoo: ``@register("name")`` makes a class known to ``build`` and to every registry-wide test.

``Registry`` is the one implementation behind the names of models, inputs and readouts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from models.base import Part
from models.nets import RecurrentNet
from suite.files import nearest

NEEDS = {
    "length": "the number of steps, as the option length",
    "symbols": "one-hot vectors as input",
    "skeleton": "the joints of two bodies as input",
}
SKELETON_SIZE = 2 * 25 * 3
"""Input size of a frame of two bodies with 25 joints in space."""

Kind = TypeVar("Kind", bound=Part)
Class = TypeVar("Class", bound=type[Part])


@dataclass(frozen=True)
class Entry(Generic[Kind]):
    """What is known under a name: a class, with the options that the name presets and those of them that it fixes."""

    cls: type[Kind]
    preset: dict[str, Any]
    fixed: frozenset[str]
    needs: frozenset[str]
    paper: str

    def options(self) -> dict[str, Any]:
        known = self.cls.options() | copy.deepcopy(self.preset)
        return {option: default for option, default in known.items() if option not in self.fixed}


class Registry(Generic[Kind]):
    """Names for one kind of part, say "model"."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.entries: dict[str, Entry[Kind]] = {}

    def register(
        self, name: str, *, needs: Iterable[str] = (), paper: str = "", fixed: Iterable[str] = (), **preset: Any
    ) -> Callable[[Class], Class]:
        """Make a class known as ``name``, its options defaulting to ``preset``.

        needs: what it cannot be built or run without, in the words of ``NEEDS``.
        paper: who published it.
        fixed: names of presets that the name itself states, so that nobody may give them.
        """
        if name in self.entries:
            raise ValueError(f"A {self.kind} called {name!r} is registered already.")
        for word in needs:
            if word not in NEEDS:
                raise ValueError(f"{name!r} cannot need {word!r} ({nearest(word, NEEDS)}).")

        def add(cls: Class) -> Class:
            known = cls.options()
            for option in [*preset, *fixed]:
                if option not in known:
                    raise ValueError(f"{cls.__name__} has no option {option!r} ({nearest(option, known)}).")
            self.entries[name] = Entry(cls, preset, frozenset(fixed), frozenset(needs), paper)  # type: ignore[arg-type]
            return cls

        return add

    def names(self) -> list[str]:
        return sorted(self.entries)

    def entry(self, name: str) -> Entry[Kind]:
        if name not in self.entries:
            raise ValueError(f"There is no {self.kind} {name!r} ({nearest(name, self.names())}).")
        return self.entries[name]

    def options(self, name: str) -> dict[str, Any]:
        return self.entry(name).options()

    def build(self, name: str, *sizes: Any, **given: Any) -> Kind:
        entry = self.entry(name)
        known = entry.options()
        for option in given:
            if option not in known:
                raise ValueError(
                    f"{self.kind.capitalize()} {name!r} has no option {option!r} ({nearest(option, known)})."
                )
        for option, default in known.items():
            if default is ... and option not in given:
                raise ValueError(f"{self.kind.capitalize()} {name!r} needs the option {option!r}.")
        return entry.cls(*sizes, **copy.deepcopy(entry.preset) | given)


ZOO: Registry[RecurrentNet] = Registry("model")
register = ZOO.register


def names() -> list[str]:
    """Everything that ``build`` knows."""
    return ZOO.names()


def options(name: str) -> dict[str, Any]:
    """The options of a model with the defaults that it has under this name, shared ones included."""
    return ZOO.options(name)


def needs(name: str) -> frozenset[str]:
    """What a model cannot be built or run without, in the words of ``NEEDS``."""
    return ZOO.entry(name).needs


def paper(name: str) -> str:
    """Who published a model."""
    return ZOO.entry(name).paper


def build(name: str, input_size: int, hidden_size: Any, num_layers: int = 1, **given: Any) -> RecurrentNet:
    """Build a model of the zoo: ``build("durnn", input_size=2, hidden_size=128, length=100)``."""
    return ZOO.build(name, input_size, hidden_size, num_layers, **given)


def example(
    name: str, input_size: int = 3, hidden_size: Any = 8, num_layers: int = 1, *, length: int = 20, **given: Any
) -> RecurrentNet:
    """A model with what it needs, for tests and benchmarks that run over the whole zoo.

    Its ``input_size`` is another than asked for where the model can only read a skeleton.
    """
    if "skeleton" in needs(name):
        input_size = SKELETON_SIZE
    return build(name, input_size, hidden_size, num_layers, length=length, **given)


def example_input(name: str, net: RecurrentNet, T: int, B: int, generator: Generator | None = None) -> Tensor:
    """A time-major input (T, B, input_size) of a kind that ``net``, an ``example`` of ``name``, can read."""
    like = next(net.parameters())
    if "symbols" in needs(name):
        symbols = torch.randint(net.input_size, (T, B), generator=generator)
        return F.one_hot(symbols, net.input_size).to(like)
    return torch.randn(T, B, net.input_size, generator=generator).to(like)
