"""Who may write into the folder of a run: one attempt at a time, on whatever host.

The lease is a folder, ``lease-0007`` for the seventh attempt, that holds ``state.json`` (owner, host, process,
heartbeat, progress). Taking it over is one rename to ``lease-0008``, which one of several takers wins. Whatever an
owner writes (checkpoint, weights, record) is first written inside its lease and then renamed to its place: once the
lease has another name that rename fails, so an owner that stood still for an hour cannot write over its successor.

No two clocks are compared. A lease is abandoned if its heartbeat did not change while an observer watched it, by the
observer's own clock, for as long as the lease says. ``flock`` is only a short cut: where the owner held the lock of the
folder on this very kernel and the lock is free, the owner is dead and nobody has to wait. It decides nothing else,
because it cannot be trusted over NFS.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from reproduce.train.outcome import Progress
from suite.files import flush_to_disk, write_atomic
from suite.machine import host_name, kernel_id

DEFAULT_SECONDS = 90.0
MOST_DEATHS = 3  # without a later checkpoint
STATE = "state.json"
_NAME = re.compile(r"lease-(\d+)$")


class LeaseLostError(Exception):
    """Another process has taken the run over."""


@dataclass(frozen=True)
class State:
    """What stands in a lease."""

    owner: str  # drawn at random by each attempt
    host: str
    kernel: str  # one boot of one machine; the same in all of its containers
    process: int
    attempt: int
    seconds: float  # without a new heartbeat for this long, the lease is abandoned
    locked: bool  # whether the owner holds the folder's flock
    beat: int = 0
    from_step: int = 0  # the newest checkpoint when the attempt began
    deaths: int = 0  # attempts before this one that died without getting further
    progress: dict[str, Any] | None = None
    stopping: bool = False  # told to stop; an end after that is no death
    ended: str = ""  # how the attempt gave the run back; empty while it lasts
    message: str = ""

    @property
    def who(self) -> str:
        return f"{self.host}, process {self.process}"


@dataclass(frozen=True)
class Look:
    """The newest lease of a folder as somebody saw it; number 0 if nobody has ever held one."""

    number: int
    state: State | None

    @property
    def mark(self) -> str:
        """Changes with every heartbeat and every attempt."""
        return f"{self.number}:{self.state.owner}:{self.state.beat}" if self.state else f"{self.number}:"

    @property
    def is_live(self) -> bool:
        return self.number > 0 and (self.state is None or not self.state.ended)


def lease_seconds() -> float:
    """``$DURNN_LEASE_SECONDS``, else 90."""
    given = os.environ.get("DURNN_LEASE_SECONDS", "")
    try:
        seconds = float(given or DEFAULT_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86400:
        raise ValueError(f"DURNN_LEASE_SECONDS={given!r} is not a number of seconds from 0.1 to 86400")
    return seconds


def look(folder: Path) -> Look:
    """Who holds the run. The lease may move while it is being read; then its next name is read."""
    for _ in range(100):
        number = _newest(folder)
        if not number:
            return Look(0, None)
        with contextlib.suppress(FileNotFoundError):
            text = (_path(folder, number) / STATE).read_text()
            try:
                return Look(number, State(**json.loads(text)))
            except (ValueError, TypeError):  # by another version, or damaged: watched like any other
                return Look(number, None)
        if _path(folder, number).is_dir():
            return Look(number, None)
    return Look(_newest(folder), None)


def is_dead(folder: Path, seen: Look) -> bool:
    """Whether this kernel knows that the owner of a live lease is gone."""
    if seen.state is None or not seen.state.locked or seen.state.kernel != kernel_id():
        return False
    handle = _lock(folder)
    if handle is not None:
        os.close(handle)
    return handle is not None


class Observer:
    """Watches leases by its own clock, and knows which of them have not changed for as long as they say."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock = clock
        self.since: dict[Path, tuple[str, float]] = {}

    def is_abandoned(self, folder: Path, seen: Look) -> bool:
        now = self.clock()
        mark, since = self.since.get(folder, ("", now))
        if mark != seen.mark:
            since = now
        self.since[folder] = (seen.mark, since)
        return now - since > (seen.state.seconds if seen.state else lease_seconds())


def take(folder: Path, from_step: Callable[[Path], int], abandoned: str = "") -> Lease | None:
    """The lease of a run that nobody holds, whose owner is dead, or whose mark is ``abandoned``; else None."""
    folder.mkdir(parents=True, exist_ok=True)
    seen = look(folder)
    if seen.is_live and seen.mark != abandoned and not is_dead(folder, seen):
        return None
    handle = _lock(folder)
    step, before = from_step(folder), seen.state
    deaths = before.deaths if before and before.ended != "failed" and step <= before.from_step else 0
    died = before is not None and not before.ended and not before.stopping
    state = State(
        owner=secrets.token_hex(8), host=host_name(), kernel=kernel_id(), process=os.getpid(), attempt=seen.number + 1,
        seconds=lease_seconds(), locked=handle is not None, from_step=step, deaths=deaths + died,
    )  # fmt: skip
    lease, won = Lease(folder, state, handle, before), False
    try:
        if lease._create() if not seen.number else _move(_path(folder, seen.number), lease.path):
            for part in lease.path.glob("*.part"):  # a write that its owner may still want to finish
                part.unlink(missing_ok=True)
            lease.beat()
            won = True
    except LeaseLostError:
        pass
    finally:
        if not won:
            lease._unlock()
    return lease if won else None


def wait_for(folder: Path) -> Lease:
    """The lease of a folder whose owners hold it only for a moment."""
    observer, abandoned = Observer(), ""
    while (lease := take(folder, lambda _: 0, abandoned)) is None:
        time.sleep(0.1)
        seen = look(folder)
        abandoned = seen.mark if observer.is_abandoned(folder, seen) else ""
    return lease


class Lease:
    """A run that is ours; as a context it keeps a heartbeat and gives the run back at its end."""

    def __init__(self, folder: Path, state: State, handle: int | None, before: State | None):
        self.folder, self.state, self.handle, self.before = folder, state, handle, before
        self.path = _path(folder, state.attempt)
        self.lost = False
        self.is_stopping: Callable[[], bool] = lambda: False
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None and not self.state.ended:
            first = (str(error).splitlines() or [""])[0]
            failed = issubclass(kind, Exception)
            self.end("failed" if failed else "interrupted", f"{kind.__name__}: {first}" if failed else "")
        self._over.set()
        self._thread.join()
        if not self.lost:
            with contextlib.suppress(LeaseLostError, OSError):
                self.beat()
        self._unlock()

    def end(self, how: str, message: str = "") -> None:
        """What the lease will say once it is given back."""
        self._over.set()
        with self._guard:
            self.state = replace(self.state, ended=how, message=message)

    def tell(self, progress: Progress) -> None:
        """What the next heartbeat says about the run."""
        with self._guard:
            self.state = replace(self.state, progress=asdict(progress))

    def raise_if_lost(self) -> None:
        """LeaseLostError if a heartbeat has found the lease in other hands."""
        if self.lost:
            self._lose()

    def beat(self) -> None:
        """A new heartbeat; LeaseLostError if the lease has gone to somebody else."""
        with self._guard:
            self._check()
            self.handle = _lock(self.folder) if self.handle is None else self.handle
            self.state = replace(
                self.state, beat=self.state.beat + 1, stopping=self.is_stopping(), locked=self.handle is not None
            )
            part = self.path / f"{STATE}.part"
            try:
                part.write_text(json.dumps(asdict(self.state)))
                os.replace(part, self.path / STATE)
            except FileNotFoundError:
                self._lose()
        self._check()

    def write(self, path: Path, data: bytes) -> None:
        """``write_atomic`` for the owner alone; LeaseLostError, and nothing written, for whoever was the owner."""
        self.beat()  # over NFS, a client sees what others did to a folder once it has changed the folder itself
        part = self.path / f"{path.name}.part"
        try:
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except FileNotFoundError:
            self._check()
            raise
        except OSError as error:
            part.unlink(missing_ok=True)
            if error.errno != errno.EXDEV:
                raise
            self._check()
            write_atomic(path, data)  # on another disk than the run's folder: the check just made has to do
        flush_to_disk(path.parent)

    def _check(self) -> None:
        if self.lost or _newest(self.folder) != self.state.attempt:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        successor = look(self.folder).state
        whom = successor.who if successor else "another process"
        raise LeaseLostError(f"its lease went to {whom}, while this process stood still; it wrote nothing after that")

    def _keep_beating(self) -> None:
        pause, last, told = min(5.0, self.state.seconds / 10), time.monotonic(), False
        while not self._over.wait(min(0.5, pause)):
            if time.monotonic() - last < pause and (told or not self.is_stopping()):
                continue
            last, told = time.monotonic(), self.is_stopping()
            try:
                self.beat()
            except LeaseLostError:
                return  # the training sees ``lost``
            except OSError:
                continue  # a full or distant disk; if it lasts, somebody else takes the run over

    def _create(self) -> bool:
        """The first lease of a folder: it appears with its content, and only if there is none."""
        new = self.folder / f".lease-{self.state.owner}"
        new.mkdir()
        try:
            (new / STATE).write_text(json.dumps(asdict(self.state)))
            won = _move(new, self.path)
            if won and _newest(self.folder) != self.state.attempt:  # this process stood still since it looked
                shutil.rmtree(self.path, ignore_errors=True)
                return False
            return won
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _unlock(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def _path(folder: Path, number: int) -> Path:
    return folder / f"lease-{number:04d}"


def _newest(folder: Path) -> int:
    try:
        return max((int(match[1]) for match in map(_NAME.match, os.listdir(folder)) if match), default=0)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _move(old: Path, new: Path) -> bool:
    """Rename a lease; False if somebody was quicker."""
    try:
        os.rename(old, new)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _lock(folder: Path) -> int | None:
    """The folder's flock, if it is free; the kernel frees it when its process ends, however it ends."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by somebody, or a file system without locks
        os.close(handle)
        return None
    return handle
