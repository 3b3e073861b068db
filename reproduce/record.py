"""Run records: one small JSON file per run, checked on the way in and on the way out.

``seal`` is the sha256 of everything else in the file. A record that was edited by hand, cut short or written by
another version of the format is reported by ``read_all`` and left where it is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reproduce.checkpoint import write_atomic
from reproduce.recipe import Budget, Settings, canonical, explain, sha256

FORMAT = 1
SCHEMA = Path(__file__).parent / "record.schema.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskFacts(_Part):
    name: str  # as the task calls itself, such as "ntu-cs[10 of 60 classes]"
    requested: str  # as the recipe calls it
    fingerprint: str
    is_standin: bool
    metric: str
    higher_is_better: bool
    length: int
    samples: dict[str, int | None]


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


class Visit(_Part):
    """One process that worked on the run."""

    from_step: int
    to_step: int
    started: str
    seconds: float
    commit: str
    threads: int
    ended_by: str


class Record(_Part):
    """What one run did. ``test`` is None until the run is complete: the test split is evaluated once, at the end."""

    format: Literal[1] = 1
    run: str = Field(pattern="^[0-9a-f]{64}$")
    recipe_file: str
    row: str
    cell: str
    task: TaskFacts
    recipe: Settings
    sources: dict[str, str]
    seed: int
    budget: Budget
    steps_done: int
    steps_planned: int
    status: Literal["completed", "diverged", "unfinished"]
    ended_by: str
    diverged_at: int | None
    valid: float | None
    valid_step: int | None
    test: float | None
    curve: list[Point]
    wall_seconds: float
    steps_per_second: float
    peak_memory_mb: float
    parameters: int
    weights_sha256: str | None
    commit: str
    dirty: bool
    versions: dict[str, str]
    machine: Machine
    backend: str
    device: str
    command: str
    finished: str
    lineage: list[Visit]
    seal: str = ""

    def sealed(self) -> Record:
        return self.model_copy(update={"seal": _seal(self.model_dump(mode="json"))})

    @property
    def file_name(self) -> str:
        return f"{self.recipe_file}-{self.cell}-{self.row}-{self.budget}-s{self.seed}-{self.run[:12]}.json"

    @property
    def is_partial_data(self) -> bool:
        """Real data, but not all of it; such a task says so in square brackets, "[10 of 60 classes]"."""
        return re.search(r"\[.*\d+ of \d+", self.task.name) is not None


def _seal(data: dict[str, Any]) -> str:
    return sha256(canonical({key: value for key, value in data.items() if key != "seal"}))


def write(record: Record, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / record.file_name
    text = json.dumps(record.sealed().model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, (text + "\n").encode())
    return path


def read(path: Path) -> Record:
    """One record; ValueError in one sentence if it cannot be trusted."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: cannot be read as JSON ({error})") from None
    if not isinstance(data, dict) or "format" not in data:
        raise ValueError(f"{path.name}: is not a run record")
    if data["format"] != FORMAT:
        raise ValueError(f"{path.name}: has format {data['format']!r}, this version reads {FORMAT}")
    try:
        record = Record.model_validate(data)
    except ValidationError as error:
        raise ValueError(f"{path.name}: {explain(error)}") from None
    if record.seal != _seal(data):
        raise ValueError(f"{path.name}: does not match its seal, so it was edited after it was written")
    return record


@dataclass(frozen=True)
class Records:
    good: list[Record]
    problems: list[str]


def read_all(folder: Path) -> Records:
    """All records that can be trusted, and one sentence for each file that cannot."""
    good: dict[str, Record] = {}
    problems: list[str] = []
    for path in sorted(folder.glob("*.json")) if folder.exists() else []:
        try:
            record = read(path)
        except ValueError as error:
            problems.append(str(error))
            continue
        if record.run in good:
            problems.append(f"{path.name}: is a second record of run {record.run[:12]}")
            continue
        good[record.run] = record
    return Records(list(good.values()), problems)


def schema() -> str:
    """The JSON schema of a record, as committed in record.schema.json."""
    return json.dumps(Record.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
