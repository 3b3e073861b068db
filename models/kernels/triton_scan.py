"""The fused recurrences on a GPU: the Triton kernels of each folder's ``triton.py``.

While a layer's weights fit on chip, one program runs the whole sequence of 16 samples and loads the weights once;
above that size (``triton_common.OnChip``) each step is one ``torch.mm`` and one fused pointwise kernel.
Products inside kernels are IEEE float32 unless torch's own switch allows TF32, as for ``torch.mm``.

Verified in Triton's interpreter (``TRITON_INTERPRET=1``, CPU tensors) against the reference, and compiled ahead of
time to PTX and cubin for sm_80 and sm_90 (``python -m models.kernels.triton_aot``). It has not run on hardware.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from models.kernels.availability import in_a_fresh_thread
from models.kernels.checks import Sizes, shape_of
from models.kernels.operators import Operator
from models.kernels.rnn import reference
from models.kernels.rnn import triton as rnn
from models.kernels.triton_common import INTERPRETED


def compute(
    operator: Operator, tensors: Sequence[Tensor | None], words: Sequence[str], sizes: Sizes
) -> tuple[Tensor, ...]:
    """The outputs of an operator, by the function of its folder's ``triton.py`` that is called like its direction.

    Before the direction may stand ``projected_``, as before the folder's name in that of the recurrence.
    """
    module = importlib.import_module(f"models.kernels.{operator.folder}.triton")
    function = operator.recurrence.removesuffix(operator.folder) + operator.direction
    if operator.direction == "backward":
        return getattr(module, function)(*_with_whole_gradient(operator, tensors, sizes), *words)
    results = getattr(module, function)(*tensors, *words)
    y, *others = results if isinstance(results, tuple) else (results,)
    return y, y[-1].clone(), *others


def _with_whole_gradient(
    operator: Operator, tensors: Sequence[Tensor | None], sizes: Sizes
) -> tuple[Tensor | None, ...]:
    """The inputs of a backward with those of y and y_last as one gradient of all steps, and zeros for absent ones."""
    named = dict(zip(operator.inputs, tensors, strict=True))
    like = next(tensor for tensor in tensors if tensor is not None)
    incoming = {
        name: like.new_zeros(shape_of(operator.inputs[name], sizes)) if tensor is None else tensor.clone()
        for name, tensor in named.items()
        if name.startswith("grad_")
    }
    incoming["grad_y"][-1] += incoming["grad_y_last"]
    whole = named | incoming
    del whole["grad_y_last"]
    return tuple(whole.values())


def available() -> bool:
    """True if a kernel compiles and computes the right numbers here; tried once, on one small sequence."""
    return problem() is None


@cache
def problem() -> str | None:
    """Why the kernels cannot be used here, in one sentence; None if they can."""
    if not torch.cuda.is_available() and not INTERPRETED:
        return "torch sees no CUDA GPU."
    return in_a_fresh_thread(_try_a_kernel)


def _try_a_kernel() -> str | None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator("cpu").manual_seed(0)
    shapes = ((2, 3, 5), (5, 5), (3, 5))
    u, W_rec, h0 = (torch.randn(*shape, generator=generator, device="cpu", dtype=torch.float32) for shape in shapes)
    try:
        y = rnn.forward(u.to(device), W_rec.to(device), h0.to(device), "relu", precision="ieee").cpu()
    except Exception as error:  # a driver, a compiler or a device that Triton cannot use fails in many ways
        return f"a Triton kernel failed on {device}: {error}"
    if not torch.allclose(y, reference.rnn_scan(u, W_rec, h0)[0], rtol=1e-4, atol=1e-4):
        return f"a Triton kernel computed wrong numbers on {device}."
    return None
