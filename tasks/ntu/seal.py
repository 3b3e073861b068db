"""Seals of large files: what is needed to trust a file without reading it.

A seal holds size, time of the last change, and sha256 of its file. A file with that size and time is taken as it is;
one of that size with another time, such as a copy, is read once in full.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from suite.files import write_atomic


class BrokenSealError(ValueError):
    """A file is not what its seal says."""


def seal(path: Path, sha256: str, final: Path | None = None) -> None:
    """Write the seal of a finished file with a known sha256; `final` is its name if it is about to get another."""
    status = path.stat()
    write_atomic(_seal_of(final or path), json.dumps([status.st_size, status.st_mtime_ns, sha256]).encode())


def check(path: Path) -> None:
    """Raise BrokenSealError or OSError unless the file is the one that was sealed."""
    status = path.stat()
    try:
        size, mtime_ns, sha256 = json.loads(_seal_of(path).read_bytes())
    except (ValueError, TypeError) as error:
        raise BrokenSealError(f"the seal of {path} cannot be read") from error
    if status.st_size != size:
        raise BrokenSealError(f"{path} has {status.st_size} bytes instead of {size}")
    if status.st_mtime_ns == mtime_ns:
        return
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise BrokenSealError(f"{path} has changed since it was written")
    with suppress(OSError):  # in a folder that cannot be written to, the next one has to read it again
        seal(path, sha256)


def _seal_of(path: Path) -> Path:
    return path.with_name(f"seal-{path.name}.json")
