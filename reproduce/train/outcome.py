"""What a training is given besides its run, and what it tells: plain data that crosses processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reproduce.plan.runs import ROOT
from reproduce.report.records import Ended, Record, Status

StopReason = Literal["interrupted", "time-limit", "orphaned"]
SAID: dict[str, str] = {
    "interrupted": "a signal",
    "time-limit": "the time limit",
    "orphaned": "the end of the process that started it",
}


@dataclass
class Stop:
    """Set ``reason`` (from a signal handler, another thread) and the run saves itself and ends."""

    reason: StopReason | None = None


@dataclass(frozen=True)
class Origin:
    """The code and the command that a run comes from, as the process saw them that the user started."""

    commit: str
    dirty: bool  # files that decide a result differ from the commit
    digest: str  # of these files
    command: str


@dataclass(frozen=True)
class Place:
    """Where a run keeps its things and what it runs on; none of this can change its result's meaning."""

    runs: Path = ROOT / "runs"
    records: Path = ROOT / "results" / "records"
    device: str = "cpu"
    backend: str = "auto"
    threads: int = 0  # 0: as many as the process has
    deadline: float = 0.0  # time.monotonic() at which to save and stop; 0: never
    checkpoint_seconds: float = 30.0
    checkpoint_updates: int = 0  # also every so many updates; 0: by the clock only
    need_weights: bool = False  # a finished run of seed 0, which figures draw, is run again if its weights are gone
    origin: Origin | None = None  # None: this process


@dataclass(frozen=True)
class Progress:
    """A sign of life, sent about twice a second."""

    step: int
    updates: int
    loss: float
    valid: float | None
    rate: float  # updates per second of this process
    left: float  # seconds, by that rate
    where: str = ""  # host and process, if another command works on the run


@dataclass(frozen=True)
class Outcome:
    """``message`` says in words what ``ended`` and the record do not."""

    status: Literal[Status, "skipped", "busy", "failed"]
    ended: Ended | None = None
    message: str = ""
    record: Record | None = None
