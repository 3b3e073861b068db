"""How a model's state is laid out, cut from its graph, and taken apart for a checkpoint.

Inside a model a layer's state is a tuple, one tensor (B, width) per name. Outside it is turned round: for each name one
tensor (num_layers, B, N), or a tuple of (B, N_l) where the layers' widths differ. A single name stands by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

import torch
from torch import Tensor

LayerState = tuple[Tensor, ...]
State = Union[Tensor, tuple["State", ...]]  # noqa: UP007 (a string cannot stand beside |)
Widths = Mapping[str, tuple[int, ...]]
"""Name of a state -> its width in each layer."""


def pack(layers: Sequence[LayerState], widths: Widths) -> State:
    """The states of all layers, as a model returns them."""
    by_name = zip(*layers, strict=True)  # for each name, (B, N_l) of every layer
    packed: list[State] = [
        torch.stack(of_layers) if len(set(of_widths)) == 1 else of_layers
        for of_layers, of_widths in zip(by_name, widths.values(), strict=True)
    ]
    return tuple(packed) if len(packed) > 1 else packed[0]


def unpack(state: State, widths: Widths, x: Tensor, model: str) -> list[LayerState]:
    """The inverse of ``pack`` for the batch and type of x (T, B, ·); what does not fit is refused in one sentence.

    A state of a narrower floating-point type, which a model returns under autocast, is widened.
    """
    named = (state,) if len(widths) == 1 and (isinstance(state, Tensor) or not _uniform(widths)) else state
    if isinstance(named, Tensor) or not isinstance(named, tuple | list) or len(named) != len(widths):
        raise _misfit(state, widths, x, model)
    by_name: list[Sequence[Tensor]] = []
    for given, of_widths in zip(named, widths.values(), strict=True):
        if len(set(of_widths)) == 1:
            if not _fits(given, (len(of_widths), x.shape[1], of_widths[0]), x):
                raise _misfit(state, widths, x, model)
            by_name.append([_widened(given[layer], x) for layer in range(len(of_widths))])  # type: ignore[arg-type]
        else:
            shapes = [(x.shape[1], width) for width in of_widths]
            if not isinstance(given, tuple | list) or len(given) != len(shapes):
                raise _misfit(state, widths, x, model)
            if not all(_fits(part, shape, x) for part, shape in zip(given, shapes, strict=True)):
                raise _misfit(state, widths, x, model)
            by_name.append([_widened(part, x) for part in given])  # type: ignore[arg-type]
    return list(zip(*by_name, strict=True))


def detach(state: State | None) -> State | None:
    """The same state, cut from its graph, for truncated back-propagation."""
    if state is None or isinstance(state, Tensor):
        return state if state is None else state.detach()
    return tuple(detach(part) for part in state)  # type: ignore[misc]


def state_tensors(state: State | None) -> dict[str, Tensor]:
    """A state under names, for a checkpoint: "only" for one tensor, else "0", "1", … and "1.0" within a tuple."""
    if state is None:
        return {}
    if isinstance(state, Tensor):
        return {"only": state}
    named = {}
    for index, part in enumerate(state):
        for name, tensor in state_tensors(part).items():
            named[str(index) if name == "only" else f"{index}.{name}"] = tensor
    return named


def state_from_tensors(named: Mapping[str, Tensor]) -> State | None:
    """The inverse of ``state_tensors``."""
    if not named:
        return None
    if "only" in named:
        return named["only"]
    groups: dict[int, dict[str, Tensor]] = {}
    for name, tensor in named.items():
        index, _, rest = name.partition(".")
        groups.setdefault(int(index), {})[rest or "only"] = tensor
    return tuple(state_from_tensors(groups[index]) for index in sorted(groups))  # type: ignore[misc]


def _uniform(widths: Widths) -> bool:
    return all(len(set(of_widths)) == 1 for of_widths in widths.values())


def _fits(given: object, shape: tuple[int, ...], x: Tensor) -> bool:
    if not isinstance(given, Tensor) or given.shape != shape or not given.is_floating_point():
        return False
    return given.dtype == x.dtype or torch.promote_types(given.dtype, x.dtype) == x.dtype


def _widened(given: Tensor, x: Tensor) -> Tensor:
    return given if given.dtype == x.dtype else given.to(x.dtype)


def _misfit(state: object, widths: Widths, x: Tensor, model: str) -> Exception:
    B = x.shape[1]
    shapes = {
        name: str((len(of_widths), B, of_widths[0]))
        if len(set(of_widths)) == 1
        else f"({', '.join(str((B, width)) for width in of_widths)})"
        for name, of_widths in widths.items()
    }
    same = len(set(shapes.values())) == 1
    expected = ", ".join(shapes) if same else ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    each = f", each {next(iter(shapes.values()))} {x.dtype}" if same else f", each {x.dtype}"
    kind = ValueError if all(isinstance(part, Tensor) for part in _leaves(state)) else TypeError
    return kind(f"{model} takes state ({expected}){each}; got {_described(state)}.")


def _leaves(state: object) -> list[object]:
    return [leaf for part in state for leaf in _leaves(part)] if isinstance(state, tuple | list) else [state]


def _described(state: object) -> str:
    if isinstance(state, Tensor):
        return f"{tuple(state.shape)} {state.dtype}"
    if isinstance(state, tuple | list):
        return f"({', '.join(map(_described, state))})"
    return "None" if state is None else type(state).__name__
