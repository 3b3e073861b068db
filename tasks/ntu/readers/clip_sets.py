"""Sets of clips on a disk: a folder of files, or the official zip, which need not be unpacked."""

import hashlib
import os
import stat
import zipfile
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

from suite.files import expanded
from tasks.download import DataError, ExplicitSourceError
from tasks.ntu.clip import Clip, SkeletonError
from tasks.ntu.names import ClipName, missing_names
from tasks.ntu.readers import official_npy, text

TEXT, NPY = ".skeleton", ".skeleton.npy"
MAX_MEMBERS = 500_000
MAX_RATIO = 200  # skeleton text shrinks about fourfold; what shrinks more than this is no skeleton text
_ENCRYPTED = 0x1

_WHAT_GOES_WHERE = """\
The skeletons of NTU RGB+D are not on this machine and may not be redistributed: ask the ROSE Lab (NTU Singapore).
Then set DURNN_NTU, or pass source=..., to one of
  the official zip of skeletons (nturgbd_skeletons_s001_to_s017.zip), which need not be unpacked,
  a folder that holds that zip, or the S...A....skeleton files, or the official S...A....skeleton.npy files.
Without them, the tasks {standins} run the same protocol on generated motion; their
numbers do not compare."""


class ClipSet(ABC):
    """A set of clips. `spec` rebuilds it in another process; `signature` changes when its content may have."""

    names: list[str]  # sorted

    @abstractmethod
    def read(self, name: str) -> Clip: ...

    @property
    @abstractmethod
    def spec(self) -> dict[str, Any]: ...

    @property
    @abstractmethod
    def signature(self) -> str: ...


class ClipFolder(ClipSet):
    """A folder with `.skeleton` or `.skeleton.npy` files, also in subfolders. Text is preferred: it has identities."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        files: dict[str, Path] = {}
        for parent, folders, entries in os.walk(self.folder):
            folders.sort()
            for entry in sorted(entries, reverse=True):  # .skeleton.npy sorts before .skeleton
                name = clip_of(entry)
                if name is None:
                    continue
                path = Path(parent, entry)
                if name in files and files[name].suffix == path.suffix:
                    raise ExplicitSourceError(f"clip {name} stands in {self.folder} twice: {files[name]} and {path}")
                if name not in files or path.suffix == TEXT:
                    files[name] = path
        self.files = files
        self.names = sorted(files)

    def read(self, name: str) -> Clip:
        path = self.files[name]
        try:
            with open(path, "rb", opener=_open_at_once) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise SkeletonError(f"{path}: cannot be read: it is no regular file")
                data = stream.read(text.MAX_BYTES + 1)
        except OSError as error:
            raise SkeletonError(f"{path}: cannot be read: {error.strerror}") from error
        return _parse(data, str(path))

    @property
    def spec(self) -> dict[str, Any]:
        return {"folder": str(self.folder)}

    @cached_property
    def signature(self) -> str:
        about = []
        for name in self.names:
            path = self.files[name]
            try:
                status = path.stat()
            except OSError as error:
                raise ExplicitSourceError(f"{path} cannot be read: {error.strerror}") from error
            about.append((name, path.suffix, status.st_size, status.st_mtime_ns))
        return _digest(about)


class ClipArchive(ClipSet):
    """A zip with such files. Members are read into memory one at a time and never unpacked to a path."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._zip = zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise ExplicitSourceError(f"{self.path} is no readable zip file: {error}") from error
        members = self._zip.infolist()
        if len(members) > MAX_MEMBERS:
            raise ExplicitSourceError(f"{self.path}: {len(members)} members are more than a set of skeletons has")
        self.members: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            self._check(member)
            name = clip_of(member.filename.rsplit("/", 1)[-1])
            if name is None:
                continue
            if name in self.members:
                raise ExplicitSourceError(f"{self.path}: clip {name} stands in it twice")
            self.members[name] = member
        self.names = sorted(self.members)

    def _check(self, member: zipfile.ZipInfo) -> None:
        # `filename` has been cleaned by zipfile; `orig_filename` is what the archive says
        written = member.orig_filename
        parts = written.replace("\\", "/").split("/")
        if written.startswith(("/", "\\")) or ".." in parts or ":" in written or "\0" in written:
            raise ExplicitSourceError(
                f"{self.path}: refused, because member {written[:80]!r} points outside of the archive"
            )
        if member.is_dir():
            return
        if member.flag_bits & _ENCRYPTED:
            raise ExplicitSourceError(f"{self.path}: member {written[:80]!r} is encrypted")
        if clip_of(parts[-1]) and (
            member.file_size > text.MAX_BYTES or member.file_size > MAX_RATIO * max(member.compress_size, 1)
        ):
            raise ExplicitSourceError(
                f"{self.path}: refused, because member {written[:80]!r} claims to unpack from {member.compress_size}"
                f" to {member.file_size} bytes, which no skeleton file does"
            )

    def read(self, name: str) -> Clip:
        member = self.members[name]
        shown = f"{self.path}:{member.filename}"
        try:
            with self._zip.open(member) as stream:
                data = stream.read()  # never more than the `file_size` that was checked
        except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, ValueError) as error:
            raise SkeletonError(f"{shown}: cannot be unpacked: {error}") from error
        except Exception as error:  # zlib.error, lzma.LZMAError
            raise SkeletonError(f"{shown}: cannot be unpacked: {type(error).__name__}") from error
        return _parse(data, shown)

    @property
    def spec(self) -> dict[str, Any]:
        return {"zip": str(self.path)}

    @cached_property
    def signature(self) -> str:
        return _digest([(name, self.members[name].CRC, self.members[name].file_size) for name in self.names])


def find_clips(source: str | Path | None) -> ClipSet:
    """The clips at `source`, or at the folder or zip that DURNN_NTU names.

    DataError if neither is given; ExplicitSourceError if what is given cannot be used.
    """
    given = str(source) if source is not None else os.environ.get("DURNN_NTU", "")
    if not given:
        raise DataError(_what_goes_where())
    path = expanded(given)
    label = "source" if source is not None else "DURNN_NTU"
    if path.is_file():
        clips: ClipSet = ClipArchive(path)
    elif path.is_dir():
        clips = ClipFolder(path)
        zips = sorted(found for found in path.glob("*.zip") if found.is_file())
        if not clips.names and len(zips) > 1:
            usual = [z for z in zips if "s001_to_s017" in z.name]
            if len(usual) != 1:
                listed = ", ".join(z.name for z in zips)
                raise ExplicitSourceError(f"{label}={path} holds several zips ({listed}): name the one to use")
            zips = usual
        if not clips.names and zips:
            clips = ClipArchive(zips[0])
    else:
        what = "is neither a folder nor a file" if path.exists() else "does not exist"
        raise ExplicitSourceError(f"{label}={path} {what}.\n{_what_goes_where()}")
    if not clips.names:
        raise ExplicitSourceError(f"{label}={path} holds no clip of NTU RGB+D 60.\n{_what_goes_where()}")
    return clips


def _what_goes_where() -> str:
    from tasks.registry import standin_of  # imports torch, which processes that only read files do without

    standins = " and ".join(repr(standin_of(name)) for name in ("ntu-cs", "ntu-cv"))
    return _WHAT_GOES_WHERE.format(standins=standins)


def _open_at_once(path: str, flags: int) -> int:
    """As `os.open`, but a pipe that nobody writes to is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def clip_of(file_name: str) -> str | None:
    """The usable NTU RGB+D 60 clip that a file name stands for, or None."""
    for ending in (NPY, TEXT):
        if file_name.endswith(ending):
            name = file_name.removesuffix(ending)
            try:
                known = ClipName.parse(name).in_ntu60
            except ValueError:
                return None
            return name if known and name not in missing_names() else None
    return None


def _parse(data: bytes, shown: str) -> Clip:
    return official_npy.parse(data, shown) if shown.endswith(NPY) else text.parse(data, shown)


def _digest(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
