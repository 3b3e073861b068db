"""From a source to checked bytes: cache, locks, atomic writes, and what to say when nothing can be had."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from suite.files import cache_folder, expanded, sha256, write_atomic
from tasks.sources import DataSet, File, UnavailableError, data_set, read_local

_SCRATCH = ".fetch-"  # prefix of folders that a killed process may leave behind
_PARTS = ".*.part"  # what it may leave of a file
_ROOM = 2  # times the size of a data set: what a source delivers, and what is kept


class DataError(RuntimeError):
    """Data could not be had or could not be kept; the message says what to do."""


class ExplicitSourceError(DataError):
    """Data that somebody named cannot be used, so that nothing else may be used in its place."""


class CacheError(DataError):
    """The cache folder cannot take data that could be had elsewhere, so that nothing may be used in its place."""


def data_cache() -> Path:
    """Where data is kept: `data` in the suite's cache folder."""
    return cache_folder() / "data"


def load(name: str, folder: str | Path | None = None) -> dict[str, bytes]:
    """The checked content of a data set's files, by file name.

    Looked for in `folder`, in the folder that `DURNN_DATA` names, in the cache, and then at each source in turn;
    what a source delivers goes to the cache. Either folder may hold the files directly or in a subfolder that is
    called like the data set, and is only read.
    """
    wanted = data_set(name)
    console = Console(stderr=True, highlight=False)
    reasons: list[tuple[str, str]] = []
    for label, local in _local_folders(folder):
        if local is None:
            reasons.append((label, "not set"))
            continue
        if not local.is_dir():
            raise ExplicitSourceError(f"{label}: {local} is not a folder.")
        try:
            return _read_folder(wanted, local)
        except UnavailableError as reason:
            reasons.append((f"{label} ({local})", str(reason)))
            if "sha256" in str(reason):
                console.print(
                    f"{wanted.title}: {local}: {reason}; looking elsewhere",
                    style="yellow",
                    soft_wrap=True,
                    markup=False,
                )
    cached = _read_cache(wanted)
    if cached is not None:
        return cached
    with _writable(wanted) as home:
        cached = _read_cache(wanted)  # another process may have finished while this one waited
        if cached is not None:
            return cached
        return _fetch(wanted, home, reasons, console)


def _local_folders(folder: str | Path | None) -> Iterator[tuple[str, Path | None]]:
    if folder is not None:
        yield "folder argument", expanded(folder)
    environment = os.environ.get("DURNN_DATA")
    yield "DURNN_DATA folder", expanded(environment) if environment else None


def _read_folder(wanted: DataSet, folder: Path) -> dict[str, bytes]:
    """The content of all files of a data set, checked, from `folder` or its subfolder named like the data set."""
    contents = {}
    for file in wanted.files:
        content = None
        for home in (folder / wanted.name, folder):
            content = content if content is not None else read_local(file, home)
        if content is None:
            raise UnavailableError(f"{file.name} is not there")
        _check(file, content)
        contents[file.name] = content
    return contents


def _check(file: File, content: bytes) -> None:
    if sha256(content) != file.sha256:
        raise UnavailableError(
            f"{file.name} has the wrong content: {len(content)} bytes with sha256 {sha256(content)[:12]}…,"
            f" expected {file.size} bytes with {file.sha256[:12]}…"
        )


def _read_cache(wanted: DataSet) -> dict[str, bytes] | None:
    """The cached content if it is complete and correct. A damaged file counts as absent and is fetched again."""
    try:
        return _read_folder(wanted, data_cache())
    except (OSError, UnavailableError):
        return None


@contextmanager
def _writable(wanted: DataSet) -> Iterator[Path]:
    """The data set's folder in the cache, with its lock held; what killed processes left there is removed."""
    home = data_cache() / wanted.name
    size = sum(file.size for file in wanted.files)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            for leftover in (*home.glob(f"{_SCRATCH}*"), *home.glob(_PARTS)):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            if shutil.disk_usage(home).free < _ROOM * size:  # a package client would only say that it failed
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield home
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        megabytes = -(-_ROOM * size // 1_000_000)
        what = f"the disk is full ({megabytes} MB are needed)" if full else f"{error.strerror or error}"
        raise CacheError(
            f"{wanted.title} cannot be kept in {home}: {what}. Make room or give the folder write permission, set"
            " DURNN_CACHE to another folder, or set DURNN_DATA to a folder that already holds the files."
        ) from error


def _fetch(wanted: DataSet, home: Path, reasons: list[tuple[str, str]], console: Console) -> dict[str, bytes]:
    size = sum(file.size for file in wanted.files)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    for source in wanted.sources:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task(f"{wanted.title} from {source.label}", total=None)
            try:
                with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=home, ignore_cleanup_errors=True) as scratch:
                    delivered = source.fetch(Path(scratch))
                progress.update(bar, description=f"{wanted.title}: checking and writing", total=size)
                contents = {file.name: delivered.get(file.name, b"") for file in wanted.files}
                for file in wanted.files:
                    _check(file, contents[file.name])
            except UnavailableError as reason:
                reasons.append((source.label, str(reason)))
                continue
            for file in wanted.files:
                write_atomic(home / file.name, contents[file.name])
                progress.advance(bar, file.size)
        console.print(
            f"{wanted.title}: fetched from {source.label}, checked, kept in {home}", soft_wrap=True, markup=False
        )
        return contents
    raise DataError(_nothing_reachable(wanted, home, reasons))


def _nothing_reachable(wanted: DataSet, home: Path, reasons: list[tuple[str, str]]) -> str:
    from tasks.registry import standin_of  # imports torch, which processes that only read files do without

    tried = "\n".join(f"  {label}: {reason}" for label, reason in reasons)
    files = "\n".join(f"  {file.name}  {file.size:,} bytes, sha256 {file.sha256}" for file in wanted.files)
    forms = "each may also be gzipped (.gz)" if wanted.name == "mnist" else "ptb.char.*.txt will do as well"
    message = (
        f"{wanted.title} is not on this machine, and no source delivered it:\n{tried}\n"
        f"Copy these files from any machine that has them ({forms}) to\n  {home}\n"
        f"or to a folder of your choice and set DURNN_DATA to that folder:\n{files}"
    )
    if standin := standin_of(wanted.name):
        message += f"\nWithout them, the task {standin!r} runs the same protocol on generated data; its numbers do"
        message += " not compare."
    return message
