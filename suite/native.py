"""C++ that is compiled on first use, kept in the cache folder, and loaded from there.

The cache key covers sources, flags, compiler and CPU, so a cache folder carried to another machine is never loaded
there. Beside each library lies its sha256: a file that does not match it is built again, because mapping half a
library kills the process. A library enters the cache only after it has passed its check. A folder that other users may
write to is not trusted, and one that cannot be written to is not needed: the library is then built for this process
alone. Compiler: ``$CXX``, else c++, g++ or clang++.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from suite.files import cache_folder, flush_to_disk, sha256
from suite.machine import cpu_signature

FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC")
TIMEOUT_SECONDS = 300.0
STALE_SECONDS = 3600.0  # age from which an unfinished build is one that was killed

Check = Callable[[ctypes.CDLL], None]
logger = logging.getLogger(__name__)


class BuildError(RuntimeError):
    """C++ could not be compiled or loaded; the message says why in one sentence."""


def load(
    name: str,
    sources: Sequence[Path],
    flag_sets: Sequence[Sequence[str]] = (FLAGS,),
    check: Check = lambda library: None,
    include: Path | None = None,
) -> ctypes.CDLL:
    """The library made of ``sources[0]``, from the cache if it is there; BuildError if it cannot be had.

    name: words joined by underscores. sources: the file to compile, then everything that it includes. flag_sets: tried
    in this order. check: raises if the loaded library computes wrong numbers; a cached one is then built once more.
    include: where headers are looked for besides the folder of the first source.
    """
    compiler = _compiler()
    version = _run([*compiler, "--version"]).stdout
    problem = ""
    for flags in flag_sets:
        library = cache_folder() / "native" / f"{name}-{_key(sources, flags, version)}.so"
        with contextlib.suppress(BuildError, OSError):
            return _checked(_open(library), check)
        logger.warning("compiling the %s with %s, once, up to half a minute …", name.replace("_", " "), compiler[0])
        headers = [f"-I{include}"] if include else []
        try:
            return _build([*compiler, *flags, *headers, str(sources[0])], library, check)
        except (BuildError, OSError) as error:
            problem = str(error)
    raise BuildError(problem)


def _key(sources: Sequence[Path], flags: Sequence[str], compiler_version: str) -> str:
    texts = [(path.name, sha256(path.read_bytes())) for path in sources]
    return sha256(repr([texts, list(flags), compiler_version, cpu_signature()]))[:32]


def _compiler() -> list[str]:
    if chosen := os.environ.get("CXX"):
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


def _checked(library: ctypes.CDLL, check: Check) -> ctypes.CDLL:
    try:
        check(library)
    except Exception as error:  # a symbol that is missing, numbers that are wrong
        raise BuildError(str(error)) from error
    return library


def _open(library: Path) -> ctypes.CDLL:
    """Load a cached library, if it is whole and nobody else could have written it."""
    for path in (library.parent, library):
        if not _is_ours(path):
            raise BuildError(f"{path} can be written by other users, so it is not loaded")
    if sha256(library.read_bytes()) != _digest_file(library).read_text().strip():
        raise BuildError(f"{library} does not match its sha256")
    return ctypes.CDLL(str(library))


def _is_ours(path: Path) -> bool:
    status = path.stat()
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _build(command: list[str], library: Path, check: Check) -> ctypes.CDLL:
    """Compile, check, and keep the library, if there is a place that only we can write to."""
    work, kept = _workplace(library.parent)
    with work as scratch:
        built = Path(scratch) / "built.so"
        _run([*command, "-o", str(built)])
        # Loaded from here, not from where it goes: for a path that it has seen, dlopen gives back what it has loaded.
        loaded = _checked(ctypes.CDLL(str(built)), check)
        if kept:
            with contextlib.suppress(OSError):  # a full disk costs the next process a compilation, not this one
                _keep(built, library)
    return loaded


def _workplace(folder: Path) -> tuple[tempfile.TemporaryDirectory[str], bool]:
    """A folder to build in, and whether what is built there can be kept in ``folder``."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        if _is_ours(folder):
            _remove_stale(folder)
            return tempfile.TemporaryDirectory(prefix=".build-", dir=folder, ignore_cleanup_errors=True), True
    return tempfile.TemporaryDirectory(prefix="durnn-suite-", ignore_cleanup_errors=True), False


def _keep(built: Path, library: Path) -> None:
    digest = built.with_name("digest")
    digest.write_text(sha256(built.read_bytes()) + "\n")
    for path in (built, digest):
        path.chmod(0o644)
        flush_to_disk(path)
    # The digest goes first: a kill in between leaves a pair that does not match, and that is built again.
    os.replace(digest, _digest_file(library))
    os.replace(built, library)
    flush_to_disk(library.parent)


def _remove_stale(folder: Path) -> None:
    """What killed builds left behind."""
    for leftover in folder.glob(".build-*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(leftover)
