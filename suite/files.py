"""Files: the cache folder, atomic writes, hashes; and the name that somebody probably meant."""

from __future__ import annotations

import difflib
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path


def cache_folder() -> Path:
    """``$DURNN_CACHE``, else ``~/.cache/durnn-suite``; for a user without a home, a folder of theirs under /tmp."""
    given = os.environ.get("DURNN_CACHE")
    if given:
        return expanded(given).absolute()
    try:
        return Path.home() / ".cache" / "durnn-suite"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"durnn-suite-{os.getuid()}"


def expanded(path: str | Path) -> Path:
    """The path with ``~`` and ``~user`` replaced by a home folder; ValueError if there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{path}: there is no home folder to put in the place of ~; write the path out") from None


def write_atomic(path: Path, data: bytes) -> None:
    """Write so that ``path`` is either untouched or complete; a partial file is removed on error."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)


def flush_to_disk(path: Path) -> None:
    """Return only when the content of a file, or the names in a folder, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(*parts: bytes | str) -> str:
    """sha256 (hex) of the parts, one after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def nearest(name: object, known: Iterable[object]) -> str:
    """The end of an error message: the closest known name, or all of them."""
    names = list(map(str, known))
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names) or 'none'}"
