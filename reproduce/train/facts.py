"""What a training writes down about itself: its visits and its record."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from reproduce.report.records import Ended, Environment, Point, Record, Status, TaskFacts, Visit
from reproduce.train import checkpoint, provenance
from reproduce.train.network import count_parameters
from reproduce.train.outcome import Place
from suite.machine import host_name

if TYPE_CHECKING:
    from reproduce.train.loop import Training


class Saved(BaseModel):
    """What stands in a checkpoint beside its tensors."""

    model_config = ConfigDict(frozen=True)
    run: str
    step: int = Field(ge=0)
    epoch: int = Field(ge=0)
    position: int = Field(ge=0)
    curve: list[Point]
    best: float | None
    best_step: int | None
    loss_sum: float
    loss_count: int = Field(ge=0)
    seconds: float = Field(ge=0)
    schedule: dict[str, Any]
    lineage: list[Visit]


class Visiting:
    """This process's stretch of a run; its seconds are added to those of the processes before it."""

    def __init__(self, from_step: int, before: float, lineage: list[dict[str, Any]], attempt: int, place: Place):
        self.from_step, self.before, self.lineage, self.attempt = from_step, before, lineage, attempt
        self.origin = place.origin or provenance.origin()
        self.started, self.began = provenance.now(), time.monotonic()

    def seconds(self) -> float:
        return self.before + time.monotonic() - self.began

    def close(self, to_step: int, ended: Ended) -> list[dict[str, Any]]:
        """The lineage with this process as its last entry."""
        machine = provenance.machine()
        visit = Visit(
            from_step=self.from_step, to_step=to_step, started=self.started,
            seconds=round(self.seconds() - self.before, 2), commit=self.origin.commit,
            machine=machine.gpu or machine.cpu, threads=torch.get_num_threads(), ended=ended, attempt=self.attempt,
            node=host_name(),
        )  # fmt: skip
        return [*self.lineage, visit.model_dump()]


def record_of(
    training: Training, place: Place, environment: Environment, lineage: list[dict[str, Any]], status: Status,
    ended: Ended, test: float | None,
) -> Record:  # fmt: skip
    run, task = training.run, training.task
    origin = place.origin or provenance.origin()
    weights = checkpoint.weights_hash(training.best_weights) if training.best_weights else None
    return Record(
        format=2, run=run.id, recipe=run.recipe, row=run.row, cell=run.cell, settings=run.settings, sources=run.sources,
        task=TaskFacts(
            name=task.name, requested=run.requested, fingerprint=task.fingerprint, is_standin=task.is_standin,
            partial=task.partial, metric=task.metric, higher_is_better=task.higher_is_better, length=task.length,
            samples={split: task.count(split) for split in task.splits}, chance=round(task.chance, 6),
        ),
        seed=run.seed, budget=run.budget, steps_done=training.step, steps_planned=run.settings.training.updates,
        status=status, ended=ended, diverged_at=None,
        valid=training.best, valid_step=training.best_step, test=test,
        curve=[Point(**point) for point in training.curve],
        wall_seconds=round(training.seconds, 2),
        steps_per_second=round(training.step / max(training.seconds, 1e-9), 3),
        peak_memory_mb=provenance.peak_memory_mb(place.device),
        parameters=count_parameters(training.network), weights_sha256=weights,
        commit=origin.commit, dirty=origin.dirty, versions=provenance.versions(), machine=provenance.machine(),
        environment=environment, backend=training.backend or place.backend, device=place.device,
        command=origin.command, finished=provenance.now(), lineage=[Visit(**entry) for entry in lineage],
    )  # fmt: skip
