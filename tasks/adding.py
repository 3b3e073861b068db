"""The adding problem: two marked numbers among T are to be summed at the end (Hochreiter and Schmidhuber, 1997)."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks import rng
from tasks.base import Batch, Task, unpack
from tasks.pictures import save_adding
from tasks.registry import register

if TYPE_CHECKING:
    import datasets

EPOCH_BATCHES = 100  # samples never repeat, so an epoch is only a convenient stretch of the endless stream
MARKERS = ("anywhere", "halves")


@register("adding")
class Adding(Task):
    """Sum the two marked numbers of a sequence.

    Step t holds a number uniform in [0, 1) and a marker that is 1 at two positions, else 0.
    Always answering 1 has a mean squared error of 1/6.

    markers: "anywhere" draws two distinct positions (the paper says no more than that); "halves" draws one in each
        half (IndRNN, uRNN).
    held_out: sequences in "valid" and in "test", generated once from `data_seed`. Training sequences are generated
        from the seed of the run and never come again.
    noise: every unmarked number is shifted by one uniform in [−noise, noise); targets stay as they are.
    """

    kind = "regression-last"
    metric = "mse"
    input_size = 2
    output_size = 1
    licence = "generated, no licence needed"

    def __init__(
        self, length: int = 100, markers: str = "anywhere", held_out: int = 1000, data_seed: int = 0, noise: float = 0.0
    ) -> None:
        if length < 2:
            raise ValueError(f"length={length} must be at least 2: two steps carry a marker")
        if markers not in MARKERS:
            raise ValueError(f"markers={markers!r} must be one of: {', '.join(MARKERS)}")
        if held_out < 1:
            raise ValueError(f"held_out={held_out} must be at least 1")
        if data_seed < 0:
            raise ValueError(f"data_seed={data_seed} must be at least 0")
        if not 0 <= noise < math.inf:
            raise ValueError(f"noise={noise} must be at least 0, and finite")
        self.length, self.markers, self.held_out, self.data_seed = length, markers, held_out, data_seed
        self.noise = noise
        options = [markers] * (markers != "anywhere") + [f"noise {noise:g}"] * (noise > 0)
        self.name = f"adding[{', '.join([str(length), *options])}]"
        self._generated: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def count(self, split: str) -> int | None:
        self._check_split(split)
        return None if split == "train" else self.held_out

    def batches_per_epoch(self, split: str, batch_size: int) -> int:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        return EPOCH_BATCHES if split == "train" else -(-self.held_out // batch_size)

    def _batches(self, split: str, batch_size: int, seed: int, epoch: int, start: int) -> Iterator[Batch]:
        for batch in range(start, self.batches_per_epoch(split, batch_size)):
            if split == "train":
                values, positions = self._draw(batch_size, "train", seed, epoch * EPOCH_BATCHES + batch)
            else:
                chosen = slice(batch * batch_size, (batch + 1) * batch_size)
                values, positions = (part[..., chosen] for part in self._held_out(split))
            yield _assemble(values, positions)

    def _held_out(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        if split not in self._generated:
            self._generated[split] = self._draw(self.held_out, split, self.data_seed)
        return self._generated[split]

    def _draw(self, count: int, *key: rng.Key) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (T, count) float32 and the positions of the two markers (2, count) int64."""
        T = self.length
        words = rng.words((T + 2) * count, "adding", *key).reshape(T + 2, count)
        if self.markers == "halves":
            first = rng.below(words[0], T // 2)
            second = T // 2 + rng.below(words[1], T - T // 2)
        else:
            first = rng.below(words[0], T)
            second = rng.below(words[1], T - 1)
            second += second >= first  # skips `first`, so that every pair is as likely as any other
        positions = np.stack([first, second])
        values = rng.uniform(words[2:])
        if self.noise:
            shifts = 2 * rng.uniform(rng.words(T * count, "adding", "noise", *key)).reshape(T, count) - 1
            shifts[positions, np.arange(count)] = 0.0
            values += np.float32(self.noise) * shifts
        return values, positions

    def definition(self) -> dict[str, Any]:
        values, positions = self._draw(8, "train", 0, 0)  # stands for the endless stream: it pins the generator
        added = {"noise": self.noise} if self.noise else {}
        return added | {
            "task": "adding",
            "length": self.length,
            "markers": self.markers,
            "held_out": self.held_out,
            "data_seed": self.data_seed,
            "epoch_batches": EPOCH_BATCHES,
            "train_sha256": rng.digest(values, positions),
            "valid_sha256": rng.digest(*self._held_out("valid")),
            "test_sha256": rng.digest(*self._held_out("test")),
        }

    def to_dataset(self, split: str, count: int = 10_000) -> "datasets.Dataset":
        """Columns `values` (T), `positions` (2) and `target`; `count` sequences of the endless "train" (seed 0)."""
        import datasets

        self._check_split(split)
        values, positions = self._draw(count, "train", 0, 0) if split == "train" else self._held_out(split)
        y = _assemble(values, positions)[1]
        columns = {"values": values.T, "positions": positions.T, "target": y[:, 0].numpy()}
        return datasets.Dataset.from_dict(columns)

    def picture(self, path: str | Path) -> None:
        x, y, _ = unpack(next(self.batches("test", 3)))
        save_adding(path, self.name, x.numpy(), y.numpy())


def _assemble(values: np.ndarray, positions: np.ndarray) -> Batch:
    """x (T, B, 2), y (B, 1) from numbers (T, B) and positions (2, B)."""
    T, B = values.shape
    column = np.arange(B)
    x = np.zeros((T, B, 2), dtype=np.float32)
    x[:, :, 0] = values
    x[positions[0], column, 1] = 1.0
    x[positions[1], column, 1] = 1.0
    y = values[positions[0], column] + values[positions[1], column]
    return torch.from_numpy(x), torch.from_numpy(y[:, None])
