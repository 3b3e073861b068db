"""Binds skeleton.cpp, the fast reader of `.skeleton` text."""

import ctypes
import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from suite import native
from tasks.ntu.clip import JOINTS, MAX_FRAMES, Clip

_SMALLEST_BODY = 600  # no body is written in fewer bytes: 25 lines of twelve fields
_SAMPLE = b"2\n0\n1\n7 0 0 0 0 0 0 0 0 2\n25\n" + b"0.5 -2.25 3e0 0 0 0 0 0 0 0 0 2\n" * JOINTS

NativeReader = Callable[[bytes], Clip | None]


@functools.cache
def reader() -> NativeReader | None:
    """The compiled reader, or None (after one warning) where it cannot be built; it returns None for a file that is
    not of the usual form."""
    try:
        library = native.load("skeleton_reader", [Path(__file__).with_name("skeleton.cpp")], check=_check)
    except native.BuildError as error:
        warnings.warn(
            f"the fast .skeleton reader could not be built ({error}); reading line by line, some 20 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return _bind(library)


def _bind(library: ctypes.CDLL) -> NativeReader:
    function = library.read_skeleton
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 4]

    def read(data: bytes) -> Clip | None:
        capacity = len(data) // _SMALLEST_BODY + 1
        length = ctypes.c_int64()
        frame = np.empty(capacity, dtype=np.int64)
        body = np.empty(capacity, dtype=np.uint64)
        joints = np.empty((capacity, JOINTS, 3), dtype=np.float32)
        seen = function(
            data,
            len(data),
            MAX_FRAMES,
            capacity,
            ctypes.byref(length),
            frame.ctypes.data,
            body.ctypes.data,
            joints.ctypes.data,
        )
        if seen < 0:
            return None
        return Clip(length.value, frame[:seen], body[:seen], joints[:seen])

    return read


def _check(library: ctypes.CDLL) -> None:
    clip = _bind(library)(_SAMPLE)
    if clip is None or (clip.length, clip.frame.tolist(), clip.body.tolist()) != (2, [1], [7]):
        raise ValueError("the compiled reader does not read a simple file")
    if not (clip.joints == (0.5, -2.25, 3.0)).all():
        raise ValueError("the compiled reader reads wrong numbers")
