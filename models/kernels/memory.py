"""Memory of long sequences on a CPU, whose first touch costs as much as the arithmetic on it.

A fresh page is zeroed by the kernel when it is first written, and malloc gives large tensors back at every step.
``large_tensor`` keeps the memory of the fused recurrences for the next step; ``keep_freed_memory`` does the same for
every tensor of the process, if asked.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
import weakref

import torch
from torch import Tensor

LARGE = 1 << 20
"""Bytes from which a tensor is worth keeping the memory of; malloc keeps smaller ones by itself."""

MOST_KEPT = 1 << 30
"""Bytes kept at most while no tensor uses them; the longest unused go first."""

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h

_kept: list[mmap.mmap] = []  # ascending by when they were given back
_lock = threading.RLock()  # a tensor may die, and its memory come back, while this thread holds the lock
if hasattr(os, "register_at_fork"):
    # A fork while another thread holds it would leave the child a lock that nobody opens.
    os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.RLock()))


def large_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised CPU tensor; when it is freed, its memory waits for the next one of the same size."""
    count = math.prod(shape)
    size = count * dtype.itemsize
    with _lock:
        block = next((block for block in reversed(_kept) if len(block) == size), None)
        if block is not None:
            _kept.remove(block)
    if block is None:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)  # one first touch per 2 MB instead of one per 4 kB
    view = (ctypes.c_char * size).from_buffer(block)  # lives as long as the tensor's storage
    weakref.finalize(view, _give_back, block).atexit = False
    return torch.frombuffer(view, dtype=dtype, count=count).view(shape)


def _give_back(block: mmap.mmap) -> None:
    with _lock:
        _kept.append(block)
        while sum(map(len, _kept)) > MOST_KEPT:
            del _kept[0]


def release_kept_memory() -> None:
    """Return the memory that no tensor uses to the system."""
    with _lock:
        _kept.clear()


def keep_freed_memory() -> bool:
    """Make malloc keep freed memory for the next step, for the whole process; False where malloc is not glibc's.

    By default glibc returns tensors above 32 MB to the kernel at once, and every step pays again for the first touch
    of each page. The price is a higher peak, since freed memory stays with the process.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
