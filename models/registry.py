"""Names of the zoo: ``@register("name")`` on a class makes it known to ``build`` and to every registry-wide test."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from models.base import RecurrentNet, SharedOptions

Net = TypeVar("Net", bound=type[RecurrentNet])
_REGISTRY: dict[str, tuple[type[RecurrentNet], dict[str, Any]]] = {}


def register(name: str, **preset: Any) -> Callable[[Net], Net]:
    """Make a class known as ``name``, built with the options ``preset``."""

    def add(cls: Net) -> Net:
        if name in _REGISTRY:
            raise ValueError(f"A model called {name!r} is registered already.")
        _REGISTRY[name] = (cls, preset)
        return cls

    return add


def names() -> list[str]:
    """Everything that ``build`` knows."""
    return sorted(_REGISTRY)


def options(name: str) -> dict[str, Any]:
    """The options of a model with their defaults, shared ones included."""
    cls, preset = _lookup(name)
    known: dict[str, Any] = dict.fromkeys(SharedOptions.__annotations__)
    for key, parameter in inspect.signature(cls.__init__).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            known[key] = parameter.default
    return {key: value for key, value in known.items() if key not in preset}


def build(name: str, input_size: int, hidden_size: int, num_layers: int = 1, **given: Any) -> RecurrentNet:
    """Build a model of the zoo: ``build("durnn", input_size=2, hidden_size=128, length=100)``."""
    cls, preset = _lookup(name)
    known = options(name)
    for option in given:
        if option not in known:
            raise ValueError(
                f"Model {name!r} has no option {option!r}{_nearest(option, known)}; known are {', '.join(known)}."
            )
    return cls(input_size, hidden_size, num_layers, **preset, **given)


def _lookup(name: str) -> tuple[type[RecurrentNet], dict[str, Any]]:
    if name not in _REGISTRY:
        raise ValueError(f"There is no model {name!r}{_nearest(name, _REGISTRY)}; known are {', '.join(names())}.")
    return _REGISTRY[name]


def _nearest(word: object, known: Any) -> str:
    close = get_close_matches(str(word), list(known), n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
