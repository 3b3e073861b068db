"""Argument checks of the recurrences: one sentence per mistake, before anything touches memory.

Shapes are written as letters; a letter stands for the same size wherever it appears, ``4N`` for four times N.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

ACTIVATIONS = ("relu", "tanh")

SHAPES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rnn_scan": {"u": ("T", "B", "N"), "W_rec": ("N", "N"), "h0": ("B", "N")},
    "indrnn_scan": {"u": ("T", "B", "N"), "U": ("N",), "h0": ("B", "N")},
    "select_scan": {
        "h_short": ("T", "B", "N"),
        "W_ss": ("N", "N"),
        "b_s": ("N",),
        "W_ls": ("N", "N"),
        "W_s": ("N", "N"),
        "U": ("N",),
        "b_thre": (),
        "b_long": ("N",),
        "h0": ("B", "N"),
    },
    "lstm_scan": {"u": ("T", "B", "4N"), "W_rec": ("4N", "N"), "h0": ("B", "N"), "c0": ("B", "N")},
    "gru_scan": {"u": ("T", "B", "3N"), "W_rec": ("3N", "N"), "b_new": ("N",), "h0": ("B", "N")},
}


def check_shapes(op: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless the tensors have the shapes of ``SHAPES[op]`` and there is at least one step and unit."""
    expected = SHAPES[op]
    for name in expected:
        if not isinstance(tensors[name], Tensor):
            raise TypeError(f"{op}: {name} must be a torch.Tensor, got {type(tensors[name]).__name__}.")
    for name, letters in expected.items():
        if tensors[name].dim() != len(letters):
            raise ValueError(
                f"{op}: {name} must have the shape ({', '.join(letters)}), got {tuple(tensors[name].shape)}."
            )
    h0 = tensors["h0"]
    sequence = next(iter(expected))
    sizes = {"T": tensors[sequence].shape[0], "B": h0.shape[0], "N": h0.shape[1]}
    sizes |= {"3N": 3 * sizes["N"], "4N": 4 * sizes["N"]}
    if sizes["T"] == 0 or sizes["N"] == 0:
        raise ValueError(
            f"{op}: needs at least one step and one unit, got {sequence} of shape {tuple(tensors[sequence].shape)} "
            f"and h0 of shape {tuple(h0.shape)}."
        )
    for name, letters in expected.items():
        wanted = tuple(sizes[letter] for letter in letters)
        if tuple(tensors[name].shape) != wanted:
            raise ValueError(
                f"{op}: {name} must have the shape ({', '.join(letters)}) = {wanted} to fit h0 of shape "
                f"{tuple(h0.shape)}, got {tuple(tensors[name].shape)}."
            )


def check_same_kind(op: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless all tensors share one device and one dtype."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.device != first.device:
            raise ValueError(
                f"{op}: all tensors must be on one device, {first_name} is on {first.device} and {name} on "
                f"{tensor.device}."
            )
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{op}: all tensors must have one dtype, {first_name} has {first.dtype} and {name} {tensor.dtype}."
            )


def check_activation(op: str, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"{op}: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
