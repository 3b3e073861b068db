"""An option for training on long sequences with a CPU."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


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
