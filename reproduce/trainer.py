"""Carries one run from wherever it stands to its record, and never loses it on the way.

A run writes only its own folder and, at its end, its own record. It may be killed at any moment: what is on disk is
always a whole checkpoint, and continuing from it gives the same bits as never having stopped.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from reproduce import checkpoint, provenance, record
from reproduce.network import count_parameters
from reproduce.record import Machine, Point, Record, TaskFacts, Visit
from reproduce.runs import ROOT, Run, lock
from reproduce.training import DivergenceError, Training

WEIGHTS = "weights.safetensors"
Ending = Literal["completed", "diverged", "unfinished"]
Status = Literal[Ending, "skipped", "busy", "failed"]


@dataclass
class Stop:
    """Set ``reason`` (from a signal handler, another thread) and the run saves itself and ends."""

    reason: str = ""


@dataclass(frozen=True)
class Place:
    """Where a run keeps its things and what it runs on; none of this can change its result's meaning."""

    runs: Path = ROOT / "runs"
    records: Path = ROOT / "results" / "records"
    device: str = "cpu"
    backend: str = "auto"
    deadline: float = 0.0  # time.time() at which to save and stop; 0: never
    checkpoint_seconds: float = 30.0
    checkpoint_updates: int = 0  # also every so many updates; 0: by the clock only
    need_weights: bool = False  # a finished run whose weights are gone is run again


@dataclass(frozen=True)
class Progress:
    """A sign of life, sent about twice a second."""

    step: int
    updates: int
    loss: float
    valid: float | None
    rate: float  # updates per second of this process
    left: float  # seconds, by that rate or by the cap


@dataclass(frozen=True)
class Outcome:
    status: Status
    message: str = ""
    record: Record | None = None


@dataclass
class _Clock:
    """Training seconds of this process, added to those of the processes before it."""

    before: float
    began: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return self.before + time.monotonic() - self.began


def finished_record(run: Run, place: Place) -> Record | None:
    """The record of a run that is done and can be skipped."""
    for path in place.records.glob(f"*-{run.id[:12]}.json"):
        try:
            found = record.read(path)
        except ValueError:
            continue
        if found.run != run.id or found.status == "unfinished":
            continue
        if place.need_weights and found.status == "completed" and load_weights(run, place) is None:
            continue
        return found
    return None


def load_weights(run: Run, place: Place) -> dict[str, Tensor] | None:
    """The best weights of a finished run, if they are still on this machine."""
    try:
        return load_tensors((run.folder(place.runs) / WEIGHTS).read_bytes())
    except (OSError, ValueError):
        return None


def train(
    run: Run, place: Place, report: Callable[[Progress], None] = lambda _: None, stop: Stop | None = None
) -> Outcome:
    """Do a run, continue it, or see that it is done or in other hands."""
    folder = run.folder(place.runs)
    with lock(folder) as owned:
        if not owned:
            return Outcome("busy", "another process is training this run")
        done = finished_record(run, place)
        if done is not None:
            return Outcome("skipped", "already done", done)
        try:
            return _train(run, place, folder, report, stop or Stop())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            step = checkpoint.latest_step(folder)
            where = f"its state at update {step} is safe" if step else "nothing had been saved yet"
            return Outcome("failed", f"the disk is full; {where}, free some space and run the same command again")


def _train(run: Run, place: Place, folder: Path, report: Callable[[Progress], None], stop: Stop) -> Outcome:
    provenance.reset_peak_memory(place.device)
    training = Training(run, place.device, place.backend)
    lineage: list[dict[str, Any]] = []
    saved = checkpoint.load(folder)
    if saved is not None and saved[1]["run"] == run.id:
        training.restore(*saved)
        lineage = saved[1]["lineage"]
    visit = _Visit(training, lineage)
    diverged_at = None
    try:
        ended_by = _loop(training, place, folder, report, stop, visit)
    except DivergenceError as outcome:
        ended_by, diverged_at = "divergence", outcome.step
        training.seconds = visit.clock.seconds()
    status: Ending
    status = "diverged" if diverged_at else "completed" if training.finished else "unfinished"
    test = training.test() if status == "completed" else None
    facts = _facts(training, place, visit.close(ended_by), status, ended_by, diverged_at, test).sealed()
    if status != "unfinished" or training.curve:
        record.write(facts, place.records)
    if status == "completed":
        checkpoint.write_atomic(folder / WEIGHTS, save_tensors(training.best_weights))
    if status != "unfinished":
        checkpoint.clear(folder)
    return Outcome(status, ended_by, facts)


class _Visit:
    def __init__(self, training: Training, before: list[dict[str, Any]]):
        self.training, self.before = training, before
        self.from_step, self.started = training.step, provenance.now()
        self.clock = _Clock(training.seconds)

    def close(self, ended_by: str) -> list[dict[str, Any]]:
        """The lineage with this process as its last entry."""
        seconds = round(self.clock.seconds() - self.clock.before, 2)
        entry = Visit(
            from_step=self.from_step, to_step=self.training.step, started=self.started, seconds=seconds,
            commit=provenance.commit()[0], threads=torch.get_num_threads(), ended_by=ended_by,
        )  # fmt: skip
        return [*self.before, entry.model_dump()]


def _loop(
    training: Training, place: Place, folder: Path, report: Callable[[Progress], None], stop: Stop, visit: _Visit
) -> str:
    """Update, evaluate and save until the run is finished or told to stop; returns why it ended."""
    s, clock = training.settings, visit.clock
    saved_at = said_at = time.monotonic()
    while not (reason := training.finished):
        training.update()
        training.seconds = clock.seconds()
        if training.step % s.evaluate_every == 0 or training.finished:
            training.evaluate()
            training.seconds = clock.seconds()
        now = time.monotonic()
        if now - said_at > 0.5:
            said_at = now
            training.look()
            report(_progress(training, visit))
        if place.deadline and time.time() > place.deadline:
            stop.reason = stop.reason or "the time limit"
        due = place.checkpoint_updates and training.step % place.checkpoint_updates == 0
        if stop.reason or due or now - saved_at > place.checkpoint_seconds:
            tensors = training.tensors()
            meta = training.meta() | {"lineage": visit.close(stop.reason or "killed")}
            checkpoint.save(folder, training.step, tensors, meta)
            saved_at = time.monotonic()
            if stop.reason and not training.finished:
                return stop.reason
    if not training.curve or training.curve[-1]["step"] != training.step:
        training.evaluate()
    return reason


def _progress(training: Training, visit: _Visit) -> Progress:
    s = training.settings
    spent = max(1e-9, training.seconds - visit.clock.before)
    rate = (training.step - visit.from_step) / spent
    left = (s.updates - training.step) / max(rate, 1e-9)
    if s.max_seconds:
        left = min(left, s.max_seconds - training.seconds)
    valid = training.curve[-1]["valid"] if training.curve else None
    return Progress(training.step, s.updates, training.last_loss, valid, rate, max(0.0, left))


def _facts(
    training: Training, place: Place, lineage: list[dict[str, Any]], status: Ending, ended_by: str,
    diverged_at: int | None, test: float | None,
) -> Record:  # fmt: skip
    run, task = training.run, training.task
    commit, dirty = provenance.commit()
    machine: Machine = provenance.machine()
    weights = checkpoint.weights_hash(training.best_weights) if training.best_weights else None
    return Record(
        run=run.id, recipe_file=run.recipe_file, row=run.row, cell=run.cell, recipe=run.settings, sources=run.sources,
        task=TaskFacts(
            name=task.name, requested=run.requested, fingerprint=task.fingerprint, is_standin=task.is_standin,
            metric=task.metric, higher_is_better=task.higher_is_better, length=task.length,
            samples={split: task.count(split) for split in task.splits},
        ),
        seed=run.seed, budget=run.budget, steps_done=training.step, steps_planned=run.settings.updates,
        status=status, ended_by=ended_by, diverged_at=diverged_at,
        valid=training.best, valid_step=training.best_step, test=test,
        curve=[Point(**point) for point in training.curve],
        wall_seconds=round(training.seconds, 2),
        steps_per_second=round(training.step / max(training.seconds, 1e-9), 3),
        peak_memory_mb=provenance.peak_memory_mb(place.device),
        parameters=count_parameters(training.network), weights_sha256=weights,
        commit=commit, dirty=dirty, versions=provenance.versions(), machine=machine,
        backend=training.backend or place.backend, device=place.device, command=provenance.command(),
        finished=provenance.now(),
        lineage=[Visit(**entry) for entry in lineage],
    )  # fmt: skip
