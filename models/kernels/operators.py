"""One direction of a fused recurrence as a torch operator, independent of who computes it.

An operator takes named tensors and words (such as an activation) and returns named tensors; shapes are letters. It is
computed by the implementation of the tensors' device, ``IMPLEMENTATIONS``, which gets contiguous, checked tensors of
one dtype (float32 or float64) on one device and returns newly allocated contiguous ones.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from models.kernels.checks import Letters, Shapes, Sizes, check_same_kind, check_shapes, check_word, shape_of

IMPLEMENTATIONS: dict[str, str] = {"cpu": "models.kernels.cpu", "cuda": "models.kernels.triton_scan"}
"""Device type -> module with the functions of ``Implementation``."""

DTYPES = (torch.float32, torch.float64)

MOST_REMEMBERED = 1000
"""Combinations of shapes, dtypes and devices of which an operator remembers that they are right."""


class Implementation(Protocol):
    """Who computes the operators on a kind of device."""

    def compute(
        self, operator: Operator, tensors: Sequence[Tensor | None], words: Sequence[str], sizes: Sizes
    ) -> tuple[Tensor, ...]:
        """The outputs of an operator, in order. sizes: what the letters of its shapes stand for."""

    def problem(self) -> str | None:
        """Why this cannot be used here, in one sentence; None if it can."""


def implementation(device_type: str) -> Implementation:
    """Who computes the fused recurrences on a device; ValueError if nobody does."""
    if device_type not in IMPLEMENTATIONS:
        raise ValueError(f"no fused recurrences for device type {device_type!r}; use backend='reference'.")
    name = IMPLEMENTATIONS[device_type]
    return cast(Implementation, sys.modules.get(name) or importlib.import_module(name))


class Operator:
    """``durnn::<recurrence>_<direction>``.

    folder: where its implementations are; a recurrence and its form with the projection inside share one. label: what
    error messages begin with. optional: inputs that may be None, with a dtype where they have their own. words: option
    -> what it may be, at most one. products: products of a sample's units with an (N, N) matrix in one step, 0 if the
    loop is elementwise. constants: numbers that the C++ loop takes besides tensors and sizes.
    """

    def __init__(
        self,
        folder: str,
        recurrence: str,
        direction: str,
        label: str,
        inputs: Shapes,
        outputs: Shapes,
        optional: Mapping[str, torch.dtype | None],
        words: Mapping[str, Letters],
        products: int,
        constants: tuple[float, ...] = (),
    ) -> None:
        self.folder, self.recurrence, self.direction, self.label = folder, recurrence, direction, label
        self.name = f"{recurrence}_{direction}"
        self.inputs, self.outputs, self.words = inputs, outputs, words
        self.optional = {name: optional[name] for name in inputs if name in optional}
        self.dtypes = {name: dtype for name, dtype in self.optional.items() if dtype is not None}
        self.products, self.constants = products, constants
        tensors = [f"Tensor? {name}" if name in optional else f"Tensor {name}" for name in inputs]
        taken = ", ".join([*tensors, *(f"str {option}" for option in words)])
        made = "Tensor" if len(outputs) == 1 else f"({', '.join('Tensor' for _ in outputs)})"
        self.call = torch.library.custom_op(
            f"durnn::{self.name}", self._compute, mutates_args=(), schema=f"({taken}) -> {made}"
        )
        self.call.register_fake(self._fake)
        self._right: dict[
            tuple[Any, ...], Sizes
        ] = {}  # what has been checked: a training asks the same again and again

    def _compute(self, *arguments: Any) -> Tensor | tuple[Tensor, ...]:
        tensors, words = arguments[: len(self.inputs)], arguments[len(self.inputs) :]
        kinds = (*((None if t is None else (t.shape, t.dtype, t.device)) for t in tensors), *words)
        sizes = self._right.get(kinds)
        if sizes is None:
            sizes = self._checked(arguments)[2]
            if len(self._right) < MOST_REMEMBERED:
                self._right[kinds] = sizes
        if in_forward_mode():
            raise RuntimeError(f"{self.label}: the fused recurrences have no forward-mode derivative.")
        with torch.no_grad():
            contiguous = [None if tensor is None else tensor.contiguous() for tensor in tensors]
            return _unwrapped(implementation(_first(tensors).device.type).compute(self, contiguous, words, sizes))

    def _fake(self, *arguments: Any) -> Tensor | tuple[Tensor, ...]:
        tensors, _words, sizes = self._checked(arguments)
        like = _first(tensors)
        return _unwrapped(tuple(like.new_empty(shape_of(letters, sizes)) for letters in self.outputs.values()))

    def given(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without the optional ones that are None."""
        absent = [name for name in self.optional if tensors[name] is None]
        return {name: tensors[name] for name in tensors if name not in absent} if absent else tensors

    def _checked(self, arguments: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], tuple[str, ...], Sizes]:
        tensors, words = arguments[: len(self.inputs)], arguments[len(self.inputs) :]
        named = self.given(dict(zip(self.inputs, tensors, strict=True)))
        sizes = check_shapes(self.label, self.inputs, named)
        check_same_kind(self.label, named, self.dtypes)
        if _first(tensors).dtype not in DTYPES:
            raise ValueError(
                f"{self.label}: the fused recurrences take float32 or float64, got {_first(tensors).dtype}; use "
                "backend='reference'."
            )
        for (option, allowed), word in zip(self.words.items(), words, strict=True):
            check_word(self.label, option, word, allowed)
        return tensors, words, sizes


def _first(tensors: Sequence[Tensor | None]) -> Tensor:
    """The first that is not None, which has the dtype and the device of all."""
    return next(tensor for tensor in tensors if tensor is not None)


def _unwrapped(results: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    return results[0] if len(results) == 1 else results


def in_forward_mode() -> bool:
    """True inside ``torch.func.jvp``, ``jacfwd`` and ``forward_ad.dual_level``: tangents do not reach an operator."""
    return forward_ad._current_level >= 0


def weight_gradient(grad: Tensor, y: Tensor, h0: Tensor) -> Tensor:
    """``Σ_t grad_t y_{t-1}ᵀ`` with ``y_{-1} = h0``, without copying the sequence.

    grad: (T, B, M), y: (T, B, N), h0: (B, N) -> (M, N)
    """
    total = torch.mm(grad[0].T, h0)
    return total.addmm_(grad[1:].flatten(0, 1).T, y[:-1].flatten(0, 1)) if len(grad) > 1 else total
