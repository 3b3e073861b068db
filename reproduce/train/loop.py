"""One training, to be read from top to bottom: ``train`` carries a run from wherever it stands to its record.

    batch -> forward -> loss -> backward -> clip -> step -> constrain -> evaluate -> save

A run writes only its own folder and, at its end, its own record, and these only while it holds its lease. It may be
killed at any moment: what is on disk is always a whole checkpoint, and continuing from it gives the same bits as never
having stopped. Everything that a later update can depend on is in ``Training.tensors`` and ``Training.meta``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.states import State, state_from_tensors, state_tensors
from reproduce.plan.parts import Stage
from reproduce.plan.runs import Run
from reproduce.report import records
from reproduce.report.records import Ended, Environment, Record
from reproduce.train import checkpoint, facts, optimisers, provenance, schedules
from reproduce.train import lease as leases
from reproduce.train.average import RunningMean
from reproduce.train.evaluation import evaluate, on_device, reestimate_statistics
from reproduce.train.lease import Lease, LeaseLostError
from reproduce.train.network import Network, Objective, all_finite, observed_backend
from reproduce.train.outcome import Outcome, Place, Progress, Stop

CHECK_EVERY = 16  # updates between two looks at the loss, so that a GPU is not stopped at each one
Report = Callable[[Progress], None]


class DivergenceError(Exception):
    """The loss, the metric or a weight stopped being a finite number."""

    def __init__(self, step: int):
        super().__init__(f"diverged at update {step}")
        self.step = step


def train(
    run: Run, place: Place, report: Report = lambda _: None, stop: Stop | None = None, abandoned: str = ""
) -> Outcome:
    """Do a run, continue it, or see that it is done or in other hands.

    ``abandoned`` is the mark of a lease that the caller has watched for as long as it lasts.
    """
    stop, folder = stop or Stop(), run.folder(place.runs)
    lease = leases.take(folder, checkpoint.latest_step, abandoned)
    if lease is None:
        return Outcome("busy", message="another process is training this run")
    lease.is_stopping = lambda: bool(stop.reason)
    try:
        with lease:
            outcome = _train_as_owner(run, place, lease, report, stop)
            lease.end("failed" if outcome.status == "failed" else outcome.ended or "done", outcome.message)
            return outcome
    except LeaseLostError as error:
        return Outcome("busy", message=str(error))


def _train_as_owner(run: Run, place: Place, lease: Lease, report: Report, stop: Stop) -> Outcome:
    done = finished_record(run, place)
    if done is not None:
        return Outcome("skipped", done.ended, "already done", done)
    if lease.state.deaths >= leases.MOST_DEATHS:
        times, step = lease.state.deaths, lease.state.from_step
        return Outcome("failed", message=f"its process died {times} times without getting past update {step:,}")
    try:
        with provenance.prepared_process(place.threads) as environment:
            return _train(run, place, lease, environment, report, stop)
    except checkpoint.FullDiskError as error:
        safe = checkpoint.what_is_safe(lease.folder)
        return Outcome("failed", message=f"{error}; {safe}, free some space and run the same command again")


def finished_record(run: Run, place: Place) -> Record | None:
    """The record of a run that is done and can be skipped."""
    for path in place.records.glob(f"{run.recipe}-{run.cell}-{run.row}-*-s{run.seed}-*.json"):
        try:
            found = records.read(path)
        except ValueError:
            continue
        if (found.identity, found.row) != (run.id, run.row) or found.status == "unfinished":
            continue
        drawn = place.need_weights and run.seed == 0
        if drawn and found.status == "completed" and weights_of(found, run, place) is None:
            continue
        return found
    return None


def weights_of(record: Record, run: Run, place: Place) -> dict[str, Tensor] | None:
    """The final weights of a finished run, if they are still on this machine."""
    return checkpoint.load_weights(run.folder(place.runs), record.weights_sha256)


def _train(run: Run, place: Place, lease: Lease, environment: Environment, report: Report, stop: Stop) -> Outcome:
    provenance.reset_peak_memory(place.device)
    training, lineage = _resume(run, place, lease.folder)
    visit = facts.Visiting(training.step, training.seconds, lineage, lease.state.attempt, place)
    ended: Ended
    try:
        ended = _loop(training, place, lease, report, stop, visit)
        diverged_at = None
    except DivergenceError as outcome:
        ended, diverged_at = "diverged", outcome.step
        training.seconds = visit.seconds()
    status: records.Status
    status = "diverged" if diverged_at else "completed" if training.finished else "unfinished"
    test = training.test() if status == "completed" else None
    record = facts.record_of(training, place, environment, visit.close(training.step, ended), status, ended, test)
    record = records.sealed(record.model_copy(update={"diverged_at": diverged_at}))
    if status == "completed":
        with checkpoint.writing("its final weights"):
            checkpoint.save_weights(lease.folder, training.best_weights, lease.write)
    if status != "unfinished" or training.curve:
        with checkpoint.writing("its record, unlike its final weights," if status == "completed" else "its record"):
            records.write(record, place.records, lease.write)
    if status != "unfinished":
        checkpoint.clear(lease.folder)
    return Outcome(status, ended, record=record)


def _resume(run: Run, place: Place, folder: Path) -> tuple[Training, list[dict[str, Any]]]:
    """The training where its newest usable checkpoint left it, or at its start."""
    for saved in checkpoint.newest_first(folder):
        training = Training(run, place.device, place.backend)
        try:
            if saved.meta["run"] == run.id:
                training.restore(saved.tensors, saved.meta)
                return training, list(saved.meta["lineage"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:  # a whole file with content of another kind
            checkpoint.set_aside(saved.path, (str(error).splitlines() or ["no message"])[0])
    return Training(run, place.device, place.backend), []


def _loop(training: Training, place: Place, lease: Lease, report: Report, stop: Stop, visit: facts.Visiting) -> Ended:
    """Update, evaluate and save until the run is finished or told to stop; returns why it ended."""
    saved_at = said_at = time.monotonic()
    while not (ended := training.finished):
        training.update()
        training.seconds = visit.seconds()
        if training.step % training.settings.evaluation.every == 0 or training.finished:
            training.evaluate()
            training.seconds = visit.seconds()
        lease.raise_if_lost()
        now = time.monotonic()
        if now - said_at > 0.5:
            said_at = now
            training.check_losses()
            progress = training.progress(visit)
            lease.tell(progress)
            report(progress)
        if place.deadline and now > place.deadline:
            stop.reason = stop.reason or "time-limit"
        due = place.checkpoint_updates and training.step % place.checkpoint_updates == 0
        if stop.reason or due or now - saved_at > place.checkpoint_seconds:
            lineage = visit.close(training.step, stop.reason or "killed")
            tensors = training.tensors()  # before the rest, because it takes the waiting losses into account
            with checkpoint.writing("a checkpoint"):
                meta = training.meta() | {"lineage": lineage}
                checkpoint.save(lease.folder, training.step, tensors, meta, lease.write)
            saved_at = time.monotonic()
            if stop.reason and not training.finished:
                return stop.reason
    if not training.curve or training.curve[-1]["step"] != training.step:
        training.evaluate()
    return ended


class Training:
    """One run in memory: network, optimiser, schedule, position in the data, curve."""

    def __init__(self, run: Run, device: str = "cpu", backend: str = "auto"):
        self.run, self.settings, self.device = run, run.settings, device
        self.task = run.build_task()
        torch.manual_seed(run.seed)
        self.network = Network(run.settings, self.task, backend).to(device)
        plan = run.settings.training
        epoch = self.task.batches_per_epoch("train", plan.batch_size)
        self.schedule = schedules.build(run.settings.schedule, run.settings.optimiser.lr, plan.updates, epoch)
        average = run.settings.average
        self.average = RunningMean(average, self.network) if average else None
        self.step = self.epoch = self.position = 0
        self.carry: State | None = None
        self.curve: list[dict[str, Any]] = []
        self.best: float | None = None
        self.best_step: int | None = None
        self.best_tensors: dict[str, Tensor] = {}
        self.seconds = 0.0
        self.backend: str | None = None  # known after the first update
        self.loss_sum, self.loss_count, self.last_loss = 0.0, 0, math.nan
        self._losses = torch.zeros(CHECK_EVERY, device=device)
        self._waiting = 0
        self._batches: Iterator[Any] | None = None
        self._rate = math.nan
        self._enter_stage(0)

    # --- one update -------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Batch, forward, loss, backward, clip, step, constrain."""
        if (stage := self._stage_at(self.step)) != self.stage:
            self._enter_stage(stage)
        self._set_rate()
        if not self.network.training:
            self.network.train()
        batch = self._next_batch()
        objective = Objective(self.network, batch, self.carry, self.penalties, self.settings.clip, self.trained)
        if getattr(self.optimiser, "takes_objective", False):
            loss = self.optimiser.step(objective)
        else:
            loss = objective()
            self.optimiser.step()
        self.step += 1
        self._constrain()
        if self.average:
            self.average.update(self.step)
        self.carry = objective.state if self.task.carries_state else None
        if self.backend is None and objective.outputs is not None:
            self.backend = observed_backend(objective.outputs)
        self._losses[self._waiting] = loss
        self._waiting += 1
        if self._waiting == CHECK_EVERY:
            self.check_losses()

    def _next_batch(self) -> tuple[Tensor, Tensor, Tensor | None]:
        size = self.settings.training.batch_size
        if self._batches is None:
            self.network.on_epoch(self.epoch)
            self._batches = iter(
                self.task.batches("train", size, seed=self.run.seed, epoch=self.epoch, start=self.position)
            )
        batch = next(self._batches, None)
        if batch is None:
            if self.position == 0:
                raise ValueError(f"task {self.task.name} has no training batch of {size} samples")
            self.epoch, self.position, self.carry = self.epoch + 1, 0, None
            self._batches = None
            return self._next_batch()
        self.position += 1
        return on_device(batch, self.device)

    def _set_rate(self) -> None:
        rate = self.schedule.rate(self.step) * self.rate_factor
        if rate != self._rate:
            optimisers.set_rate(self.optimiser, rate)
            self._rate = rate

    def _constrain(self) -> None:
        try:
            self.network.constrain_()
        except Exception:
            # a projection may refuse a matrix of NaN; that is the run's outcome, anything else is a fault
            if all_finite(self.network):
                raise
            raise DivergenceError(self.step) from None

    def check_losses(self) -> None:
        """Take the waiting losses into the running mean; raise at the first that is not finite."""
        losses = self._losses[: self._waiting].tolist()
        first = self.step - self._waiting + 1
        self._waiting = 0
        for number, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise DivergenceError(first + number)
            self.loss_sum += loss
            self.loss_count += 1
            self.last_loss = loss

    # --- stages -----------------------------------------------------------------------------------------------------

    def _stage_at(self, step: int) -> int:
        """Number of the stage that an update belongs to; 0 where the run has none."""
        end = 0
        for number, stage in enumerate(self.settings.stages):
            end += stage.updates or self.settings.training.updates
            if step < end:
                return number
        return max(0, len(self.settings.stages) - 1)

    def _enter_stage(self, number: int) -> None:
        """Freeze what the stage says, and start its optimiser."""
        s, self.stage = self.settings, number
        stage = s.stages[self.stage] if s.stages else Stage()
        names = [name for name, _ in self.network.named_parameters()]
        frozen = {name for pattern in stage.freeze for name in optimisers.matching(pattern, names, "stages.freeze")}
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad_(name not in frozen)
        self.trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self.penalties = s.penalties if stage.penalties is None else stage.penalties
        self.rate_factor = stage.lr / s.optimiser.lr if stage.lr else 1.0
        self.optimiser: Any = optimisers.build(s.optimiser, self.network)
        self.best_tensors = {k: v for k, v in self.best_tensors.items() if k.startswith("network/")}
        self._rate = math.nan

    # --- evaluation -------------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Score the validation split, keep the weights if they are the best so far, let the schedule judge."""
        self.check_losses()
        if not all_finite(self.network):
            raise DivergenceError(self.step)
        with self.average.in_place() if self.average else nullcontext():
            is_best = self._score()
        if is_best and self.schedule.reloads:
            state = optimisers.tensors_of(self.optimiser)
            self.best_tensors |= {f"optimiser/{k}": v.clone() for k, v in state.items()}
        if self.schedule.judge(is_best) and self.schedule.reloads:
            self._load(self.best_tensors)

    def _score(self) -> bool:
        """The next point of the curve, from the weights as they stand; whether it is the best so far."""
        s, size = self.settings.evaluation, self.settings.training.batch_size
        reestimate_statistics(self.network, self.task, size, s.statistics_batches or 0, self.device)
        value = evaluate(self.network, self.task, "valid", size, s.valid_samples or 0, self.device)
        train_loss = self.loss_sum / self.loss_count if self.loss_count else None
        self.loss_sum, self.loss_count = 0.0, 0
        if not math.isfinite(value):
            raise DivergenceError(self.step)
        self.curve.append({"step": self.step, "train_loss": train_loss, "valid": value, "lr": self._rate})
        sign = 1 if self.task.higher_is_better else -1
        is_best = self.best is None or sign * value > sign * self.best
        if is_best:
            self.best, self.best_step = value, self.step
            self.best_tensors = {f"network/{k}": v.clone() for k, v in self.network.state_dict().items()}
        return is_best

    def test(self) -> float:
        """The metric of the best weights on the test split; their BatchNorm statistics were saved with them."""
        self.network.load_state_dict(self.best_weights)
        s, size = self.settings.evaluation, self.settings.training.batch_size
        return evaluate(self.network, self.task, "test", size, s.test_samples or 0, self.device)

    @property
    def best_weights(self) -> dict[str, Tensor]:
        return _under("network/", self.best_tensors)

    @property
    def finished(self) -> Ended | None:
        """Why no further update is due, or None."""
        if self.step >= self.settings.training.updates:
            return "schedule"
        return self.schedule.finished

    def progress(self, visit: facts.Visiting) -> Progress:
        updates = self.settings.training.updates
        rate = (self.step - visit.from_step) / max(1e-9, self.seconds - visit.before)
        valid = self.curve[-1]["valid"] if self.curve else None
        return Progress(self.step, updates, self.last_loss, valid, rate, (updates - self.step) / max(rate, 1e-9))

    # --- saving and restoring ---------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        self.check_losses()
        named = {f"network/{k}": v for k, v in self.network.state_dict().items()}
        named |= {f"optimiser/{k}": v for k, v in optimisers.tensors_of(self.optimiser).items()}
        named |= {f"best/{k}": v for k, v in self.best_tensors.items()}
        if self.average:
            named |= {f"average/{k}": v for k, v in self.average.means.items()}
        named |= {f"carry/{k}": v for k, v in state_tensors(self.carry).items()}
        named["rng/cpu"] = torch.get_rng_state()
        if self.device.startswith("cuda"):
            named["rng/cuda"] = torch.cuda.get_rng_state()
        return named

    def meta(self) -> dict[str, Any]:
        return {"run": self.run.id, "schedule": self.schedule.state()} | {name: getattr(self, name) for name in SAVED}

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Continue where ``meta`` and ``tensors`` were saved; ValueError and its like if they do not fit the run."""
        saved = facts.Saved.model_validate_json(json.dumps(meta), strict=True)
        per_epoch = self.task.batches_per_epoch("train", self.settings.training.batch_size)
        if saved.epoch * per_epoch + saved.position != saved.step or saved.step > self.settings.training.updates:
            raise ValueError(f"batch {saved.position} of epoch {saved.epoch} is not where update {saved.step} is")
        for name in SAVED:
            setattr(self, name, meta[name])
        self._enter_stage(self._stage_at(max(0, self.step - 1)))  # whose optimiser was saved; the next update may go on
        self._load(tensors)
        self.best_tensors = {k: v.to(self.device) for k, v in _under("best/", tensors).items()}
        if self.average:
            self.average.restore(_under("average/", tensors))
        self.carry = state_from_tensors({k: v.to(self.device) for k, v in _under("carry/", tensors).items()})
        self.schedule.restore(meta["schedule"])
        torch.set_rng_state(tensors["rng/cpu"])
        if "rng/cuda" in tensors and self.device.startswith("cuda"):
            torch.cuda.set_rng_state(tensors["rng/cuda"])

    def _load(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict(_under("network/", tensors))
        optimiser = _under("optimiser/", tensors)
        if optimiser:
            optimisers.restore(self.optimiser, optimiser)
        self._rate = math.nan


SAVED = ("step", "epoch", "position", "curve", "best", "best_step", "loss_sum", "loss_count", "seconds")


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
