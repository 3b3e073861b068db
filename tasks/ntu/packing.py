"""All clips of a set in one memory-mapped array, made once and kept in the cache.

A packed set is a folder with `frames.npy`, float32 (frames of all clips + 1, 150), whose last row is zeros,
`index.json`, which says where each clip lies, and one more array for each preprocessing that was asked for. The folder
and each file get their names only when they are complete, so whatever is found under a name is whole.
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from suite.machine import cores
from tasks.download import DataError, data_cache
from tasks.ntu.clip import BODIES, FEATURES, JOINTS
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.readers.clip_sets import ClipSet
from tasks.ntu.shards import write_shards

VERSION = 1  # of the layout and of the rules that turn a file into frames
_INDEX, _FRAMES = "index.json", "frames.npy"

Report = Callable[[int], None]


class Packed:
    """A packed set, open for reading."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = json.loads((folder / _INDEX).read_text())
        if index["version"] != VERSION:
            raise ValueError("written by another version")
        self.names: list[str] = index["names"]
        self.lengths = np.array(index["lengths"], dtype=np.int64)  # (clips,)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.zero_row = int(self.lengths.sum())
        self.sha256: str = index["sha256"]  # of the raw frames
        self.without_bodies: list[str] = index["without_bodies"]
        self._check(folder / _FRAMES)

    def frames(self, convention: str) -> np.ndarray:
        """The frames under a preprocessing convention, (rows, 150) float32, memory-mapped."""
        if convention == "raw":
            return self._check(self.folder / _FRAMES)
        path = self.folder / f"frames-{convention}-{VERSION}.npy"
        with suppress(OSError, ValueError):
            return self._check(path)
        with _explained(self.folder), FileLock(self.folder / f".lock-{convention}"):
            with suppress(OSError, ValueError):
                return self._check(path)  # another process has made it meanwhile
            self._convert(convention, path)
            return self._check(path)

    def clip(self, convention: str, number: int) -> np.ndarray:
        """One clip, (T, 2, 25, 3)."""
        start = self.starts[number]
        rows = self.frames(convention)[start : start + self.lengths[number]]
        return np.array(rows).reshape(-1, BODIES, JOINTS, 3)

    def _check(self, path: Path) -> np.ndarray:
        frames = np.load(path, mmap_mode="r", allow_pickle=False)
        if frames.shape != (self.zero_row + 1, FEATURES) or frames.dtype != np.float32:
            raise ValueError(f"{path} is not of the size that the index says")
        return frames.view(np.ndarray)

    def _convert(self, convention: str, path: Path) -> None:
        source = self.frames("raw")
        for leftover in self.folder.glob(f".{path.name}-*"):
            leftover.unlink()
        temporary = self.folder / f".{path.name}-{os.getpid()}"
        try:
            with _progress(f"NTU: {convention}", len(self.names)) as report, temporary.open("wb") as stream:
                _write_header(stream, source.shape)
                for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
                    clip = source[start : start + length].reshape(-1, BODIES, JOINTS, 3)
                    stream.write(CONVENTIONS[convention](clip).astype("<f4", copy=False).tobytes())
                    report(1)
                stream.write(bytes(4 * FEATURES))
                _flush(stream)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def pack(clips: ClipSet, label: str, processes: int | None = None) -> Packed:
    """The packed form of a set of clips: from the cache, or made now with `processes` (default: one for each core)."""
    key = hashlib.sha256(f"{VERSION} {clips.signature}".encode()).hexdigest()[:16]
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
            raise DataError(f"none of the {len(clips.names)} clips holds a body")
        digest = _join(folder / _FRAMES, [shard.path for shard in shards], sum(lengths))
        index: dict[str, Any] = {
            "version": VERSION,
            "sha256": digest,
            "without_bodies": [name for shard in shards for name in shard.without_bodies],
            "lengths": lengths,
            "names": names,
        }
        with (folder / _INDEX).open("w") as stream:
            json.dump(index, stream)
            _flush(stream)
        os.replace(folder, home)


def _join(path: Path, shards: list[Path], rows: int) -> str:
    """Write the shards and the row of zeros as one .npy file; returns the sha256 of the frames."""
    digest = hashlib.sha256()
    with path.open("wb") as stream:
        _write_header(stream, (rows + 1, FEATURES))
        for shard in shards:
            with shard.open("rb") as part:
                while block := part.read(1 << 22):
                    digest.update(block)
                    stream.write(block)
            shard.unlink()
        stream.write(bytes(4 * FEATURES))
        _flush(stream)
    return digest.hexdigest()


def _write_header(stream: Any, shape: tuple[int, ...]) -> None:
    about = {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, about)


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
        raise DataError(
            f"NTU clips cannot be packed in {folder}: {what}. Make room or give the folder write permission, or set"
            " DURNN_CACHE to another folder."
        ) from error
