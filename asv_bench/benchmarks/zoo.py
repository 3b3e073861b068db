"""The benchmarks: every class measures one figure for every model × shape. Lower is better in all of them."""

from __future__ import annotations

import math

from . import memory
from .cases import SHAPES, Case, listed_models, median_seconds, profile, require


class Zoo:
    params = (listed_models(), list(SHAPES))
    param_names = ("model", "shape")
    timeout = 600
    # asv drops the old results of a benchmark whose version changes: raise it when the meaning of the figure changes.
    version = "1"

    def setup(self, model: str, shape: str) -> None:
        require(model, shape)


class Steps(Zoo):
    """Seconds of one pass, sampled by asv. The case is made once per process, not once per sample."""

    version = "2"  # with subnormal numbers flushed
    number = 1
    rounds = 1
    warmup_time = 0.0
    min_run_count = 1
    repeat = (profile().least, profile().most, profile().seconds)
    _case: Case | None = None

    def setup(self, model: str, shape: str) -> None:
        require(model, shape)
        if self._case is None:
            self._case = Case(model, SHAPES[shape])
            self._case.train_step()

    def time_train_step(self, model: str, shape: str) -> None:
        assert self._case is not None
        self._case.train_step()

    def time_inference(self, model: str, shape: str) -> None:
        assert self._case is not None
        self._case.inference()


class Throughput(Zoo):
    version = "2"  # with subnormal numbers flushed
    unit = "seconds"

    def track_seconds_per_1000_samples(self, model: str, shape: str) -> float:
        """Training, at the task's batch size."""
        (step,) = median_seconds(Case(model, SHAPES[shape]).train_step)
        return step * 1000 / SHAPES[shape].B


class Relative(Zoo):
    version = "2"  # with subnormal numbers flushed
    unit = "x nn.LSTM"

    def track_time_relative_to_lstm(self, model: str, shape: str) -> float:
        """A training step over one of ``torch.nn.LSTM`` in the same process: survives a change of machine."""
        case, lstm = Case(model, SHAPES[shape]), Case("nn.LSTM", SHAPES[shape])
        ours, theirs = median_seconds(case.train_step, lstm.train_step)
        return ours / theirs


class Memory(Zoo):
    unit = "bytes"

    def setup(self, model: str, shape: str) -> None:
        require(model, shape)
        memory.require_host()

    def track_peak_memory(self, model: str, shape: str) -> int:
        return memory.host_bytes(model, SHAPES[shape])


class CudaMemory(Zoo):
    unit = "bytes"

    def setup(self, model: str, shape: str) -> None:
        require(model, shape)
        memory.require_cuda()

    def track_peak_cuda_memory(self, model: str, shape: str) -> int:
        return memory.cuda_bytes(model, SHAPES[shape])


class Numerics(Zoo):
    unit = "loss"

    def track_loss_after_3_steps(self, model: str, shape: str) -> float:
        """Not a matter of better or worse: a commit that moves it has changed results."""
        return loss_after_3_steps(model, shape)


def loss_after_3_steps(model: str, shape: str) -> float:
    case = Case(model, SHAPES[shape])
    for _ in range(3):
        case.train_step()
    loss = float(case.inference())
    if not math.isfinite(loss):
        raise FloatingPointError(f"{model} on {shape}: the loss after 3 steps is {loss}.")
    return loss
