"""Argument checks of the recurrences: one sentence per mistake, before anything touches memory.

Shapes are written as letters, ``("T", "B", "N")``; a letter stands for the same size wherever it appears, ``4N`` for
four times N. T is the first size of the first sequence, B and N are those of ``h0``, which every recurrence has, and I
(columns of an input that is projected inside, see ``projected.h``) is that of the first tensor with this letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Letters = tuple[str, ...]
Shapes = Mapping[str, Letters]
Sizes = Mapping[str, int]


def sizes_of(shapes: Shapes, tensors: Mapping[str, Tensor]) -> Sizes:
    """What the letters stand for, read off tensors of these shapes."""
    B, N = tensors["h0"].shape
    columns = next((tensors[name].shape[letters.index("I")] for name, letters in shapes.items() if "I" in letters), 0)
    return letter_sizes(tensors[_sequence(shapes)].shape[0], B, N, columns)


def letter_sizes(T: int, B: int, N: int, columns: int = 0) -> Sizes:
    return {"T": T, "B": B, "N": N, "2N": 2 * N, "3N": 3 * N, "4N": 4 * N, "9N": 9 * N, "2": 2, "3": 3, "I": columns}


def shape_of(letters: Letters, sizes: Sizes) -> tuple[int, ...]:
    return tuple([sizes[letter] for letter in letters])


def _sequence(shapes: Shapes) -> str:
    return next(name for name, letters in shapes.items() if "T" in letters)


def check_shapes(op: str, shapes: Shapes, tensors: Mapping[str, Any]) -> Sizes:
    """Raise unless all are tensors of the given shapes, with at least one step, unit and input; returns the sizes.

    shapes: of these tensors and maybe of others.
    """
    shapes = {name: shapes[name] for name in tensors}
    for name, tensor in tensors.items():
        letters = shapes[name]
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{op}: {name} must be a torch.Tensor, got {type(tensor).__name__}.")
        if tensor.dim() != len(letters):
            raise ValueError(f"{op}: {name} must have the shape ({', '.join(letters)}), got {tuple(tensor.shape)}.")
    sizes, sequence, h0 = sizes_of(shapes, tensors), _sequence(shapes), tensors["h0"]
    if sizes["T"] == 0 or sizes["N"] == 0:
        raise ValueError(
            f"{op}: needs at least one step and one unit, got {sequence} of shape {tuple(tensors[sequence].shape)} "
            f"and h0 of shape {tuple(h0.shape)}."
        )
    if sizes["I"] == 0 and any("I" in letters for letters in shapes.values()):
        raise ValueError(f"{op}: needs an input of at least one column, got none.")
    for name, tensor in tensors.items():
        wanted = shape_of(shapes[name], sizes)
        if tensor.shape != wanted:
            raise ValueError(
                f"{op}: {name} must have the shape ({', '.join(shapes[name])}) = {wanted} to fit h0 of shape "
                f"{tuple(h0.shape)}, got {tuple(tensor.shape)}."
            )
    return sizes


def check_same_kind(op: str, tensors: Mapping[str, Tensor], dtypes: Mapping[str, torch.dtype]) -> None:
    """Raise ValueError unless all tensors share one device and one dtype, but for those that have their own."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.device != first.device:
            raise ValueError(
                f"{op}: all tensors must be on one device, {first_name} is on {first.device} and {name} on "
                f"{tensor.device}."
            )
        if name in dtypes:
            if tensor.dtype != dtypes[name]:
                raise ValueError(f"{op}: {name} must have the dtype {dtypes[name]}, got {tensor.dtype}.")
        elif tensor.dtype != first.dtype:
            raise ValueError(
                f"{op}: all tensors must have one dtype, {first_name} has {first.dtype} and {name} {tensor.dtype}."
            )


def check_word(op: str, option: str, word: object, allowed: Sequence[str]) -> None:
    """Raise ValueError unless an option's value is one of the allowed words."""
    if word not in allowed:
        raise ValueError(f"{op}: {option} must be one of {', '.join(allowed)}, got {word!r}.")
