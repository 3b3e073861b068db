"""Run records: one small JSON file per run, checked on the way in and on the way out.

``seal`` is the sha256 of everything else in the file, and ``run`` that of what was set, the task and the seed. Both can
be recomputed by anybody, so they find accidents and careless edits; they do not prove who made a record or that the run
took place. A record that was edited by hand, cut short or written by another version of the format is reported by
``read_all`` and left where it is.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from reproduce.plan.parts import Settings, canonical
from reproduce.plan.recipe import Budget, Recipe, explain, shown
from reproduce.plan.runs import identity
from suite.files import sha256, write_atomic

FORMAT = 2
SCHEMA = Path(__file__).parent / "record.schema.json"
MOST = 10**12  # of anything that is counted
DEEPEST = 20  # levels of tables and lists

Status = Literal["completed", "diverged", "unfinished"]
Ended = Literal[
    "schedule",  # all planned updates
    "minimum-rate",  # the learning rate fell below its minimum
    "no-improvement",  # validation had no new best for as long as the schedule waits
    "diverged",
    "time-limit",  # the user's
    "interrupted",  # by a signal
    "orphaned",  # the process that started it was gone
    "killed",
    "time-cap",  # a cap on wall-clock time that recipes of format 1 could hold
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskFacts(_Part):
    name: str  # as the task calls itself, such as "ntu-cs[10 of 60 classes]"
    requested: str  # as the recipe calls it
    fingerprint: str
    is_standin: bool
    partial: str  # which part of the real data, such as "10 of 60 classes"; empty: all of it
    metric: str
    higher_is_better: bool
    length: int = Field(gt=0, le=MOST)
    samples: dict[str, int | None]
    chance: float | None = None  # the metric of the best constant answer on the test split


class Point(_Part):
    """One evaluation: mean training loss since the one before, and the validation metric."""

    step: int
    train_loss: float | None
    valid: float | None
    lr: float


class Machine(_Part):
    cpu: str
    cores: int
    threads: int
    gpu: str | None
    system: str


class Environment(_Part):
    """What the training set in its process."""

    threads: int
    flushes_subnormals: bool
    keeps_freed_memory: bool


class Visit(_Part):
    """One process that worked on the run."""

    from_step: int
    to_step: int
    started: str
    seconds: float
    commit: str
    machine: str | None  # the CPU or GPU; None: not recorded
    threads: int
    ended: Ended
    attempt: int | None = None  # which one of the run, those that left nothing behind counted; None: not recorded
    node: str | None = None  # the host


class Migrated(_Part):
    """What a record of an older format was made of."""

    format: int
    settings: dict[str, Any]
    ended_by: str
    seal: str


class Record(_Part):
    """What one run did. ``test`` is None until the run is complete: the test split is evaluated once, at the end."""

    format: Literal[2] = 2
    run: str = Field(pattern="^[0-9a-f]{64}$")
    recipe: str
    row: str
    cell: str
    task: TaskFacts
    settings: Settings
    sources: dict[str, str]
    seed: int = Field(ge=0, le=MOST)
    budget: Budget
    steps_done: int = Field(ge=0, le=MOST)
    steps_planned: int = Field(gt=0, le=MOST)
    status: Status
    ended: Ended
    diverged_at: int | None
    valid: float | None
    valid_step: int | None
    test: float | None
    curve: list[Point]
    wall_seconds: float = Field(ge=0, le=MOST)
    steps_per_second: float = Field(ge=0)
    peak_memory_mb: float
    parameters: int = Field(ge=0, le=MOST)
    weights_sha256: str | None
    commit: str
    dirty: bool
    versions: dict[str, str]
    machine: Machine
    environment: Environment | None  # None: not recorded
    backend: str
    device: str
    command: str
    finished: str
    lineage: list[Visit]
    migrated: Migrated | None = None
    seal: str = ""

    @field_validator("versions")
    @classmethod
    def _names_what_reports_show(cls, versions: dict[str, str]) -> dict[str, str]:
        if not versions.keys() >= {"python", "torch"}:
            raise ValueError("the versions of python and torch are not named")
        return versions

    @property
    def file_name(self) -> str:
        return f"{self.recipe}-{self.cell}-{self.row}-{self.budget}-s{self.seed}-{self.run[:12]}.json"

    @property
    def identity(self) -> str:
        """The id that this run has today; a migrated record keeps the one it had in ``run``."""
        return identity(self.settings, self.task.fingerprint, self.seed)


def is_current(record: Record, recipe: Recipe) -> bool:
    """Whether the recipe would set today what it set when the run was made; only then does a record decide anything."""
    if record.recipe != recipe.name or record.row not in recipe.rows or record.cell not in recipe.cells:
        return False
    return recipe.resolve(record.row, record.cell, record.budget)[0].explicit() == record.settings.explicit()


def one_per_seed(records: Iterable[Record]) -> tuple[Record, ...]:
    """The latest record of each seed, by seed, one that ended before one that did not: a seed run twice counts once."""
    by_seed = {r.seed: r for r in sorted(records, key=lambda r: (r.status != "unfinished", r.finished, r.run))}
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def seal(data: dict[str, Any]) -> str:
    return sha256(canonical({key: value for key, value in data.items() if key != "seal"}))


def sealed(record: Record) -> Record:
    return record.model_copy(update={"seal": seal(_dump(record))})


def _dump(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude_unset=True)


def to_json(record: Record) -> str:
    """The sealed record as it stands in its file."""
    data = _dump(record)
    data = {key: value for key, value in data.items() if key != "seal"} | {"seal": seal(data)}
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write(record: Record, folder: Path, write_file: Callable[[Path, bytes], None] = write_atomic) -> Path:
    """Write a record; what stands under its name and cannot be read is kept beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / record.file_name
    if path.exists():
        try:
            read(path)
        except ValueError as problem:
            aside = path.with_name(f"{path.name}.{int(path.stat().st_mtime)}.aside")
            warnings.warn(f"{problem}; it is kept as {aside.name}", stacklevel=2)
            path.rename(aside)
    write_file(path, to_json(record).encode())
    return path


def read(path: Path) -> Record:
    """One record; ValueError in one sentence if it cannot be trusted."""
    try:
        return _checked(_parsed(path))
    except RecursionError:
        reason = "is nested too deeply for a run record"
    except UnicodeError:
        reason = "holds half a character"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{path.name}: {reason}")


def _parsed(path: Path) -> Any:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise OSError("it is no regular file")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read as JSON ({error})") from None


def _checked(data: Any) -> Record:
    if not isinstance(data, dict) or "format" not in data:
        raise ValueError("is not a run record")
    _check_depth(data)
    if data["format"] != FORMAT:
        hint = "; `python -m reproduce.report.migrate FOLDER` brings it up to date" if data["format"] == 1 else ""
        raise ValueError(f"has format {shown(data['format'])}, this version reads {FORMAT}{hint}")
    try:
        record = Record.model_validate(data)
    except ValidationError as error:
        raise ValueError(explain(error)) from None
    if record.seal != seal(data):
        raise ValueError("does not match its seal, so it was edited after it was written")
    if record.migrated is None and record.run != record.identity:
        raise ValueError("its id is not that of its content, so it was put together from several runs")
    return record


def _check_depth(data: Any) -> None:
    """Libraries that come after this walk by recursion."""
    level = [data]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
        level = [inner for inner in level if isinstance(inner, (dict, list))]
    if level:
        raise RecursionError


@dataclass(frozen=True)
class Records:
    good: list[Record]
    problems: list[str]


def read_all(folder: Path) -> Records:
    """All records that can be trusted, and one sentence for each file that cannot."""
    good: dict[tuple[str, str], Record] = {}
    problems: list[str] = []
    for path in sorted(folder.glob("*.json")) if folder.exists() else []:
        try:
            record = read(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        key = (record.run, record.row)
        if key in good:
            problems.append(f"{path.name}: is a second record of run {record.run[:12]}")
            continue
        good[key] = record
    return Records(list(good.values()), problems)


def schema() -> str:
    """The JSON schema of a record, as committed in record.schema.json."""
    return json.dumps(Record.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
