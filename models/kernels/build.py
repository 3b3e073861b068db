"""Compiles ``scan.cpp`` on first use, keeps the result in a cache folder, and loads it.

The cache key covers source, flags, compiler and CPU, so a cache folder carried to another machine is never loaded
there. Folder: ``$DURNN_CACHE``, else ``~/.cache/durnn-suite``. Compiler: ``$CXX``, else c++, g++ or clang++.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = (Path(__file__).with_name("scan.cpp"), *sorted(Path(__file__).parent.glob("*.h")))
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-shared",
    "-fPIC",
    "-pthread",
)
FLAG_SETS = ((*FLAGS, "-march=native"), FLAGS)
"""Tried in this order."""
TIMEOUT_SECONDS = 120

logger = logging.getLogger(__name__)


class BuildError(RuntimeError):
    """The fused recurrences could not be compiled or loaded; the message says why in one sentence."""


def cache_folder() -> Path:
    return Path(os.environ.get("DURNN_CACHE") or Path.home() / ".cache" / "durnn-suite")


def load() -> ctypes.CDLL:
    """The compiled library, from the cache if it is there; BuildError if it cannot be had."""
    compiler = _compiler()
    version = _run([*compiler, "--version"]).stdout
    problem = ""
    for flags in FLAG_SETS:
        library = cache_folder() / f"scan-{_key(flags, version)}.so"
        try:
            return ctypes.CDLL(str(library))
        except OSError:  # not there yet, or damaged
            pass
        try:
            _compile(compiler, flags, library)
            return ctypes.CDLL(str(library))
        except (BuildError, OSError) as error:
            problem = str(error)
            with contextlib.suppress(OSError):
                library.unlink()
    raise BuildError(problem)


def _compiler() -> list[str]:
    chosen = os.environ.get("CXX")
    if chosen:
        return shlex.split(chosen)
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise BuildError("no C++ compiler was found (c++, g++, clang++ or $CXX)")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} could not be run: {error}") from error
    if done.returncode != 0:
        first_line = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise BuildError(f"{command[0]} failed with exit code {done.returncode}: {first_line}")
    return done


def _key(flags: tuple[str, ...], compiler_version: str) -> str:
    digest = hashlib.sha256()
    for part in (*(source.read_text() for source in SOURCES), *flags, compiler_version, _cpu()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def _cpu() -> str:
    """Model and instruction sets of this CPU: what ``-march=native`` looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    named = ("vendor_id", "cpu family", "model", "flags", "CPU ", "Features")
    return platform.machine() + "\n".join(line for line in lines if line.startswith(named))


def _compile(compiler: list[str], flags: tuple[str, ...], library: Path) -> None:
    logger.warning("compiling the fused recurrences with %s, once, a few seconds …", compiler[0])
    library.parent.mkdir(parents=True, exist_ok=True)
    # A name of our own and a rename: processes that compile at the same time never see half a file.
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=library.parent)
    os.close(handle)
    try:
        _run([*compiler, *flags, str(SOURCES[0]), "-o", unfinished])
        os.replace(unfinished, library)
    finally:
        Path(unfinished).unlink(missing_ok=True)
