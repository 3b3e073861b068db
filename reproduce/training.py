"""One run in memory: network, optimiser, schedule, position in the data, curve; and how all of it is saved.

Everything that a later update can depend on is in ``tensors()`` and ``meta()``, so that a restored run continues
bit for bit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from reproduce.evaluation import evaluate, reestimate_statistics
from reproduce.network import Network, State, all_finite, detach, observed_backend, state_from_tensors, state_to_tensors
from reproduce.runs import Run
from reproduce.schedule import Schedule

CHECK_EVERY = 16  # updates between two looks at the loss, so that a GPU is not stopped at each one
STATISTICS_SEED = 1_000_003  # the batches that re-estimate statistics are drawn apart from the training order


class DivergenceError(Exception):
    """The loss, the metric or a weight stopped being a finite number."""

    def __init__(self, step: int):
        super().__init__(f"diverged at update {step}")
        self.step = step


class Training:
    def __init__(self, run: Run, device: str = "cpu", backend: str = "auto"):
        self.run, self.settings, self.device = run, run.settings, device
        self.task = run.build_task()
        torch.manual_seed(run.seed)
        self.network = Network(run.settings, self.task, backend).to(device)
        self.optimiser = _optimiser(self.network, run)
        self.parameters = [p for p in self.network.parameters() if p.requires_grad]
        self.schedule = Schedule(run.settings)
        self.step = self.epoch = self.position = 0
        self.carry: State = None
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

    # --- one update -------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Forward, backward, clip, step, constrain."""
        s = self.settings
        x, y = self._next_batch()
        rate = self.schedule.rate(self.step)
        if rate != self._rate:
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            self._rate = rate
        self.network.train()
        outputs, state = self.network(x, self.carry)
        if self.backend is None:
            self.backend = observed_backend(outputs)
        loss = self.network.loss(outputs, y)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if s.clip_value:
            torch.nn.utils.clip_grad_value_(self.parameters, s.clip_value)
        if s.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, s.clip_norm)
        self.optimiser.step()
        self.step += 1
        self._constrain()
        self.carry = detach(state) if self.task.carries_state else None
        self._losses[self._waiting] = loss.detach()
        self._waiting += 1
        if self._waiting == CHECK_EVERY:
            self.look()

    def _constrain(self) -> None:
        try:
            self.network.constrain_()
        except Exception:
            # a projection may refuse a matrix of NaN; that is the run's outcome, anything else is a fault
            if all_finite(self.network):
                raise
            raise DivergenceError(self.step) from None

    def look(self) -> None:
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

    def _next_batch(self) -> tuple[Tensor, Tensor]:
        size = self.settings.batch_size
        if self._batches is None:
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
        return batch[0].to(self.device), batch[1].to(self.device)

    # --- evaluation -------------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Score the validation split, keep the weights if they are the best so far, let the schedule judge."""
        self.look()
        s = self.settings
        if not all_finite(self.network):
            raise DivergenceError(self.step)
        reestimate_statistics(self.network, self.task, s.batch_size, s.statistics_batches, STATISTICS_SEED, self.device)
        value = evaluate(self.network, self.task, "valid", s.batch_size, s.valid_samples, self.device)
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
            if self.schedule.reloads:
                self.best_tensors |= {k: v.clone() for k, v in _optimiser_tensors(self.optimiser).items()}
        if self.schedule.judge(is_best):
            self._load_network(self.best_tensors)
            _restore_optimiser(self.optimiser, self.best_tensors)

    def test(self) -> float:
        """The metric of the best weights on the test split; their BatchNorm statistics were saved with them."""
        self._load_network(self.best_tensors)
        s = self.settings
        return evaluate(self.network, self.task, "test", s.batch_size, s.test_samples, self.device)

    @property
    def best_weights(self) -> dict[str, Tensor]:
        return {k[8:]: v for k, v in self.best_tensors.items() if k.startswith("network/")}

    @property
    def finished(self) -> str:
        """Why no further update is due, or an empty string."""
        if self.step >= self.settings.updates:
            return "schedule"
        if self.schedule.finished:
            return "learning rate below its minimum"
        if self.settings.max_seconds and self.seconds >= self.settings.max_seconds:
            return f"time cap of {self.settings.max_seconds:g} s"
        return ""

    # --- saving and restoring ---------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        self.look()
        named = {f"network/{k}": v for k, v in self.network.state_dict().items()}
        named |= _optimiser_tensors(self.optimiser)
        named |= {f"best/{k}": v for k, v in self.best_tensors.items()}
        named |= {f"carry/{k}": v for k, v in state_to_tensors(self.carry).items()}
        named["rng/cpu"] = torch.get_rng_state()
        if self.device.startswith("cuda"):
            named["rng/cuda"] = torch.cuda.get_rng_state()
        return named

    def meta(self) -> dict[str, Any]:
        return {
            "run": self.run.id,
            "step": self.step, "epoch": self.epoch, "position": self.position,
            "schedule": self.schedule.state(), "curve": self.curve,
            "best": self.best, "best_step": self.best_step,
            "loss_sum": self.loss_sum, "loss_count": self.loss_count, "seconds": self.seconds,
        }  # fmt: skip

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self._load_network(tensors)
        _restore_optimiser(self.optimiser, tensors)
        self.best_tensors = {k[5:]: v.to(self.device) for k, v in tensors.items() if k.startswith("best/")}
        carried = {k[6:]: v.to(self.device) for k, v in tensors.items() if k.startswith("carry/")}
        self.carry = state_from_tensors(carried)
        for name in ("step", "epoch", "position", "curve", "best", "best_step", "loss_sum", "loss_count", "seconds"):
            setattr(self, name, meta[name])
        self.schedule.restore(meta["schedule"])
        torch.set_rng_state(tensors["rng/cpu"])
        if "rng/cuda" in tensors and self.device.startswith("cuda"):
            torch.cuda.set_rng_state(tensors["rng/cuda"])
        self._rate = math.nan

    def _load_network(self, tensors: dict[str, Tensor]) -> None:
        state = {k[8:]: v for k, v in tensors.items() if k.startswith("network/")}
        self.network.load_state_dict(state)


def _optimiser(network: Network, run: Run) -> torch.optim.Optimizer:
    s = run.settings
    groups = [group for group in network.parameter_groups(s.weight_decay) if group["params"]]
    if s.optimiser == "rmsprop":
        return torch.optim.RMSprop(groups, lr=s.lr, alpha=0.9)
    return torch.optim.Adam(groups, lr=s.lr, fused=True)


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimiser.state_dict()["state"]
    return {f"optimiser/{i}/{key}": value for i, entry in state.items() for key, value in entry.items()}


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            _, index, key = name.split("/")
            state.setdefault(int(index), {})[key] = value.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
