"""Builds and binds skeleton.cpp: compiled once with the machine's C++ compiler, kept in the cache folder."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tasks.download import cache_folder
from tasks.ntu.clip import JOINTS, Clip

_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC")
_SMALLEST_BODY = 600  # no body is written in fewer bytes: 25 lines of twelve fields

NativeReader = Callable[[bytes], Clip | None]


@functools.cache
def reader() -> NativeReader | None:
    """The compiled reader, or None (after one warning) where it cannot be built."""
    try:
        library = _load()
    except (OSError, subprocess.SubprocessError) as error:
        warnings.warn(
            f"the fast .skeleton reader could not be built ({error}); reading line by line, some 20 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    function = library.read_skeleton
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, *[ctypes.c_void_p] * 4]

    def read(data: bytes) -> Clip | None:
        capacity = len(data) // _SMALLEST_BODY + 1
        length = ctypes.c_int64()
        frame = np.empty(capacity, dtype=np.int64)
        body = np.empty(capacity, dtype=np.uint64)
        joints = np.empty((capacity, JOINTS, 3), dtype=np.float32)
        seen = function(
            data,
            len(data),
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


def _load() -> ctypes.CDLL:
    source = Path(__file__).with_name("skeleton.cpp").read_bytes()
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    key = hashlib.sha256(source + repr((_FLAGS, compiler, platform.machine())).encode()).hexdigest()[:16]
    folder = cache_folder().parent / "native"
    library = folder / f"skeleton-{key}.so"
    if library.is_file():
        return ctypes.CDLL(str(library))
    if compiler is None:
        raise OSError("there is no C++ compiler")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            built = _compile(compiler, source, Path(work))
            os.replace(built, library)
        return ctypes.CDLL(str(library))
    except PermissionError:  # a read-only cache: build for this process alone
        with tempfile.TemporaryDirectory() as work:
            return ctypes.CDLL(str(_compile(compiler, source, Path(work))))


def _compile(compiler: str, source: bytes, work: Path) -> Path:
    (work / "skeleton.cpp").write_bytes(source)
    built = work / "skeleton.so"
    command = [compiler, *_FLAGS, "skeleton.cpp", "-o", built.name]
    subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=300)
    return built
