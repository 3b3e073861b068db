"""No read and no write outside the tensors: every one of them ends where memory that may not be touched begins."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import math
import mmap
import sys
from typing import Any

import pytest
import torch
from kernels_ladder import OPERATORS, Operator, check, everything
from test_kernels_runtime import in_child
from torch import Tensor

from models.kernels import cpu

pytestmark = [
    pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect and fork"),
]


def before_guard(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A NaN-filled tensor whose last byte is the last one before a page without access."""
    size = math.prod(shape) * like.element_size()
    pages = -(-size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + pages * mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    offset = pages * mmap.PAGESIZE - size
    return (
        torch.frombuffer(memory, dtype=like.dtype, count=math.prod(shape), offset=offset)
        .reshape(shape)
        .fill_(math.nan if like.is_floating_point() else 0)
    )


def _guarded(value: Any) -> Any:
    return before_guard(tuple(value.shape), value).copy_(value) if isinstance(value, Tensor) else value


def test_the_guard_works() -> None:
    tensor = before_guard((3,), torch.zeros(1))

    def write(size: int) -> None:
        faulthandler.disable()  # the expected crash is not news
        ctypes.memset(tensor.data_ptr(), 0, size)

    assert in_child(lambda: write(12)) == 0
    assert in_child(lambda: write(13)) < 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS.keys())
def test_stays_inside_its_tensors(operator: Operator, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_empty", before_guard)

    def child() -> None:
        torch.set_num_threads(1)
        for T, B, N in [(1, 1, 1), (2, 3, 7), (3, 5, 17), (2, 13, 33)]:
            arguments = operator.arguments(T, B, N, dtype)
            guarded = {name: _guarded(tensor) for name, tensor in arguments.items()}
            options = {name: _guarded(option) for name, option in operator.options(arguments).items()}
            found = everything(functools.partial(operator.fused, **options), guarded)
            check(found, everything(operator.plain, arguments), 1e-4)

    assert in_child(child) == 0
