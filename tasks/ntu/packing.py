"""All clips of a set in one memory-mapped array, made once and kept in the cache.

A packed set is a folder with `frames.npy`, float32 (frames of all clips + 1, 150), whose last row is zeros,
`index.json`, which says where each clip lies, and one more array for each preprocessing that was asked for. The folder
and each file get their names only when they are complete, so whatever is found under a name is whole; a seal beside
each file tells whether it is still what was written. The name of the folder contains a digest of the code that reads
clips and chooses people, the name of a preprocessed array one of the code of its preprocessing.
"""

import errno
import functools
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from suite.files import sha256
from suite.machine import cores
from tasks.code_digest import code_digest
from tasks.download import CacheError, ExplicitSourceError, data_cache
from tasks.ntu import seal
from tasks.ntu.bodies import select_people
from tasks.ntu.clip import BODIES, COORDINATES, JOINTS
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.readers import official_npy, text
from tasks.ntu.readers.clip_sets import ClipSet
from tasks.ntu.shards import write_shards

LAYOUT = 2  # of the files in a packed set
_INDEX, _FRAMES = "index.json", "frames.npy"

Report = Callable[[int], None]


class Packed:
    """A packed set, open for reading."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        seal.check(folder / _INDEX)
        index = json.loads((folder / _INDEX).read_text())
        self.names: list[str] = index["names"]
        self.lengths = np.array(index["lengths"], dtype=np.int64)  # (clips,)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.zero_row = int(self.lengths.sum())
        self.sha256: str = index["sha256"]  # of the raw frames
        self.without_bodies: list[str] = index["without_bodies"]
        self._open(folder / _FRAMES)

    def frames(self, convention: str) -> np.ndarray:
        """The frames under a preprocessing convention, (rows, 150) float32, memory-mapped."""
        if convention == "raw":
            return self._open(self.folder / _FRAMES)
        path = self.folder / f"frames-{convention}.{code_digest(CONVENTIONS[convention])}.npy"
        with suppress(OSError, ValueError):
            return self._open(path)
        with _explained(self.folder), FileLock(self.folder / f".lock-{convention}"):
            with suppress(OSError, ValueError):
                return self._open(path)  # another process has made it meanwhile
            self._convert(convention, path)
            return self._open(path)

    def clip(self, convention: str, number: int) -> np.ndarray:
        """One clip, (T, 2, 25, 3)."""
        start = self.starts[number]
        rows = self.frames(convention)[start : start + self.lengths[number]]
        return np.array(rows).reshape(-1, BODIES, JOINTS, 3)

    def _open(self, path: Path) -> np.ndarray:
        seal.check(path)
        frames = np.load(path, mmap_mode="r", allow_pickle=False)
        if frames.shape != (self.zero_row + 1, COORDINATES) or frames.dtype != np.float32:
            raise ValueError(f"{path} is not of the size that the index says")
        return frames.view(np.ndarray)

    def _convert(self, convention: str, path: Path) -> None:
        for pattern in (f".frames-{convention}.*", f".seal-frames-{convention}.*"):  # of a process that was killed
            for leftover in self.folder.glob(pattern):
                leftover.unlink()
        temporary = self.folder / f".{path.name}-{os.getpid()}"
        try:
            with _progress(f"NTU: {convention}", len(self.names)) as report:
                _, digest = _write_array(temporary, self.zero_row, self._converted(convention, report))
            # The seal goes first: a kill in between leaves a pair that does not match, and that is made again.
            seal.seal(temporary, digest, final=path)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _converted(self, convention: str, report: Report) -> Iterator[bytes]:
        source = self.frames("raw")
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            clip = source[start : start + length].reshape(-1, BODIES, JOINTS, 3)
            yield CONVENTIONS[convention](clip).astype("<f4", copy=False).tobytes()
            report(1)


def pack(clips: ClipSet, label: str, processes: int | None = None) -> Packed:
    """The packed form of a set of clips: from the cache, or made now with `processes` (default: one for each core)."""
    key = sha256(f"{LAYOUT} {_reading_digest()} {clips.signature}")[:16]
    home = data_cache() / "ntu" / f"{label}-{key}"
    found = _open(home)
    if found is not None:
        return found
    with _explained(home.parent):
        home.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(home.parent / f".lock-{home.name}"):
            found = _open(home)  # another process may have finished while this one waited
            if found is None:
                _make(clips, label, home, processes or cores())
                found = Packed(home)
    return found


@functools.cache
def _reading_digest() -> str:
    """Stands for everything that turns the bytes of a file into frames."""
    compiled = Path(text.__file__).with_name("skeleton.cpp").read_bytes()
    return code_digest(text.parse, official_npy.parse, select_people) + sha256(compiled)[:16]


def _open(home: Path) -> Packed | None:
    """The packed set if it is complete; a damaged one counts as absent."""
    try:
        return Packed(home)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(clips: ClipSet, label: str, home: Path, processes: int) -> None:
    for leftover in home.parent.glob(f".packing-{home.name}-*"):  # of a process that was killed
        shutil.rmtree(leftover)
    if home.exists():
        shutil.rmtree(home)
    with tempfile.TemporaryDirectory(
        prefix=f".packing-{home.name}-", dir=home.parent, ignore_cleanup_errors=True
    ) as scratch:
        folder = Path(scratch, "packed")
        folder.mkdir()
        with _progress(f"NTU: packing {label}", len(clips.names)) as report:
            shards = write_shards(clips, Path(scratch), processes, report)
        names = [name for shard in shards for name in shard.names]
        lengths = [length for shard in shards for length in shard.lengths]
        if not names:
            raise ExplicitSourceError(f"none of the {len(clips.names)} clips holds a body")
        digest = _join(folder / _FRAMES, [shard.path for shard in shards], sum(lengths))
        index: dict[str, Any] = {
            "sha256": digest,
            "without_bodies": [name for shard in shards for name in shard.without_bodies],
            "lengths": lengths,
            "names": names,
        }
        content = json.dumps(index).encode()
        with (folder / _INDEX).open("wb") as stream:
            stream.write(content)
            _flush(stream)
        seal.seal(folder / _INDEX, sha256(content))
        os.replace(folder, home)


def _join(path: Path, shards: list[Path], rows: int) -> str:
    """Write the shards as one sealed array and remove them; returns the sha256 of the frames."""
    frames, digest = _write_array(path, rows, _blocks(shards))
    seal.seal(path, digest)
    return frames


def _blocks(shards: list[Path]) -> Iterator[bytes]:
    for shard in shards:
        with shard.open("rb") as part:
            while block := part.read(1 << 22):
                yield block
        shard.unlink()


def _write_array(path: Path, rows: int, blocks: Iterable[bytes]) -> tuple[str, str]:
    """Write frames and the row of zeros as one .npy file; returns the sha256 of the frames and that of the file."""
    header = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": (rows + 1, COORDINATES)}
    np.lib.format.write_array_header_1_0(header, about)
    zeros = bytes(4 * COORDINATES)
    frames, whole = hashlib.sha256(), hashlib.sha256(header.getvalue())
    with path.open("wb") as stream:
        stream.write(header.getvalue())
        for block in blocks:
            frames.update(block)
            whole.update(block)
            stream.write(block)
        whole.update(zeros)
        stream.write(zeros)
        _flush(stream)
    return frames.hexdigest(), whole.hexdigest()


def _flush(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


@contextmanager
def _progress(title: str, total: int) -> Iterator[Report]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(title, total=total)
        yield lambda count: progress.advance(bar, count)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what can go wrong with the cache folder into a message that says what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full (NTU RGB+D 60 needs 3 GB)" if full else str(error.strerror or error)
        raise CacheError(
            f"NTU clips cannot be packed in {folder}: {what}. Make room or give the folder write permission, or set"
            " DURNN_CACHE to another folder."
        ) from error
