"""The fused recurrences on a GPU: the Triton implementation of the operators in ``models.kernels.ops``.

While a layer's weights fit on chip, one program runs the whole sequence of 16 samples and loads the weights once;
above that size (``triton_common.RESIDENT_UNITS``) each step is one ``torch.mm`` and one fused pointwise kernel.
Products inside kernels are IEEE float32 unless torch's own switch allows TF32, as for ``torch.mm``.

Verified in Triton's interpreter (``TRITON_INTERPRET=1``, CPU tensors) against the reference, and compiled ahead of
time to PTX and cubin for sm_80 and sm_90 (``python -m models.kernels.triton_aot``). It has not run on hardware.
"""

from __future__ import annotations

from functools import cache

import torch

from models.kernels import reference
from models.kernels.triton_common import INTERPRETED
from models.kernels.triton_lstm import lstm_backward, lstm_forward
from models.kernels.triton_rnn import indrnn_backward, indrnn_forward, rnn_backward, rnn_forward
from models.kernels.triton_select import select_backward, select_forward

__all__ = [
    "available",
    "indrnn_backward",
    "indrnn_forward",
    "lstm_backward",
    "lstm_forward",
    "problem",
    "rnn_backward",
    "rnn_forward",
    "select_backward",
    "select_forward",
]


def available() -> bool:
    """True if a kernel compiles and computes the right numbers here; tried once, on one small sequence."""
    return problem() is None


@cache
def problem() -> str | None:
    """Why the kernels cannot be used here, in one sentence; None if they can."""
    if not torch.cuda.is_available() and not INTERPRETED:
        return "torch sees no CUDA GPU."
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    u, W_rec, h0 = (torch.randn(*shape, generator=generator) for shape in ((2, 3, 5), (5, 5), (3, 5)))
    try:
        y = rnn_forward(u.to(device), W_rec.to(device), h0.to(device), "relu", precision="ieee").cpu()
    except Exception as error:  # a driver, a compiler or a device that Triton cannot use fails in many ways
        return f"a Triton kernel failed on {device}: {error}"
    if not torch.allclose(y, reference.rnn_scan(u, W_rec, h0), rtol=1e-4, atol=1e-4):
        return f"a Triton kernel computed wrong numbers on {device}."
    return None
