"""The interface of a task, and what most tasks share.

Shapes: `x` is time-major. "dense" input is float32 (T, B, input_size); "symbols" input is int64 (T, B), and
`input_size` is then the number of symbols. `y` depends on `kind`:

    regression-last   float32 (B, 1)   loss on the last output, mean squared error
    classify-last     int64   (B,)     loss on the last output, cross entropy
    classify-every    int64   (T, B)   loss on every output; positions that hold IGNORE are padding

Where the sequences of a batch differ in length, the batch carries a mask, bool (T, B): True at a real step, False at
padding, which always comes after the real steps of a sequence and holds zeros. "The last output" is then the one at
the last real step of each sequence.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from tasks import rng
from tasks.meters import IGNORE, METERS, Meter, constant_answer

if TYPE_CHECKING:
    import datasets

__all__ = ["IGNORE", "Batch", "Meter", "SampledTask", "Task", "unpack"]

Batch = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]  # x, y and, if the task is `masked`, the mask
Kind = Literal["regression-last", "classify-last", "classify-every"]


def unpack(batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
    """x, y and the mask of a batch; None instead of a mask if every step is real."""
    return batch if len(batch) == 3 else (*batch, None)


class Task(ABC):
    """A data set with its split, preprocessing, order of batches and metric."""

    name: str  # display name with the options that matter, such as "pmnist[exprnn]"
    input_size: int
    output_size: int
    length: int  # time steps of a training batch; if `masked`, the most that a batch may have
    masked: bool = False  # batches carry a mask
    kind: Kind
    input_kind: Literal["dense", "symbols"] = "dense"
    metric: str  # a key of tasks.meters.METERS
    is_standin: bool = False  # synthetic data in place of a data set that could not be had
    partial: str = ""  # what there is of a real set that is not whole, such as "10 of 60 classes"
    carries_state: bool = False  # each batch continues the one before it; the state starts afresh every epoch
    splits: tuple[str, ...] = ("train", "valid", "test")
    licence: str = ""

    @abstractmethod
    def count(self, split: str) -> int | None:
        """Samples (for text: characters) in a split; None if samples are generated without end."""

    @abstractmethod
    def batches_per_epoch(self, split: str, batch_size: int) -> int:
        """How many batches `batches(split, batch_size)` yields when it starts at 0."""

    @abstractmethod
    def definition(self) -> dict[str, Any]:
        """Everything that defines the task, as JSON: options, and hashes of data, split and order."""

    @abstractmethod
    def _batches(self, split: str, batch_size: int, seed: int, epoch: int, start: int) -> Iterator[Batch]:
        """As `batches`, with checked arguments."""

    @abstractmethod
    def to_dataset(self, split: str) -> "datasets.Dataset":
        """The split as a Hugging Face `Dataset`, in the order of the source."""

    @abstractmethod
    def picture(self, path: str | Path) -> None:
        """Save an image that shows what a few samples look like."""

    def batches(self, split: str, batch_size: int, *, seed: int = 0, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from batch number `start` on.

        "train" is shuffled by (seed, epoch) and drops a ragged last batch. The other splits depend on neither
        and cover every sample exactly once, so their last batch may be smaller. The same arguments give the
        same batches, bit for bit, in any process, and batches before `start` are not generated.
        """
        self._check_split(split)
        for argument, value, least in (("seed", seed, 0), ("epoch", epoch, 0), ("start", start, 0)):
            if value < least:
                raise ValueError(f"{argument}={value} must be at least {least}")
        total = self.batches_per_epoch(split, batch_size)
        if start > total:
            raise ValueError(f"start={start} is past the end: an epoch of {split!r} has {total} batches")
        return self._batches(split, batch_size, seed, epoch, start)

    @property
    def higher_is_better(self) -> bool:
        return METERS[self.metric].higher_is_better

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of `definition()`: equal for two tasks only if they are the same task."""
        text = json.dumps(self.definition(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def chance(self) -> float:
        """The metric of the best constant answer on the test split."""
        size = min(256, self.count("test") or 256)
        targets = torch.cat([unpack(batch)[1].flatten() for batch in self.batches("test", size)])
        return constant_answer(self.metric, targets if targets.is_floating_point() else targets[targets != IGNORE])

    def meter(self) -> Meter:
        """A fresh accumulator of this task's metric."""
        return METERS[self.metric]()

    def info(self) -> dict[str, Any]:
        """What `python -m tasks info` prints."""
        return {
            "name": self.name,
            "stand-in": self.is_standin,
            "partial": self.partial or False,
            "kind": self.kind,
            "input": f"{self.input_kind}, {self.input_size} wide, {'up to ' * self.masked}{self.length} steps",
            "output": self.output_size,
            "metric": f"{self.metric} ({'higher' if self.higher_is_better else 'lower'} is better)",
            "counts": {split: self.count(split) for split in self.splits},
            "licence": self.licence,
            "definition": self.definition(),
            "fingerprint": self.fingerprint,
        }

    def _check_split(self, split: str) -> None:
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; it has: {', '.join(self.splits)}")

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class SampledTask(Task):
    """A task whose split is a finite list of samples; a subclass says how to fetch some by index."""

    @abstractmethod
    def count(self, split: str) -> int: ...

    @abstractmethod
    def fetch(self, split: str, indices: np.ndarray, generator: Callable[[], np.random.Generator]) -> Batch:
        """The samples at `indices` (B,) of a split, as one batch.

        `generator()` gives this batch its own random generator, for tasks that sample or augment. In training
        it is keyed by (seed, epoch, batch); elsewhere by the number of the batch alone.
        """

    def batches_per_epoch(self, split: str, batch_size: int) -> int:
        self._check_split(split)
        count = self.count(split)
        if batch_size < 1 or (split == "train" and batch_size > count):
            raise ValueError(f"batch_size={batch_size} must be from 1 to the {count} samples of {self.name} {split}")
        return count // batch_size if split == "train" else -(-count // batch_size)

    def _batches(self, split: str, batch_size: int, seed: int, epoch: int, start: int) -> Iterator[Batch]:
        count = self.count(split)
        key: tuple[Any, ...] = ("shuffle", seed, epoch) if split == "train" else (split,)
        order = rng.permutation(count, *key) if split == "train" else np.arange(count)
        for batch in range(start, self.batches_per_epoch(split, batch_size)):
            indices = order[batch * batch_size : (batch + 1) * batch_size]
            yield self.fetch(split, indices, lambda number=batch: rng.generator("batch", *key, number))  # type: ignore[misc]
