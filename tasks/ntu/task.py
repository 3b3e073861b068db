"""Skeleton-based action recognition as a task: 20 frames of up to two people, one of 60 actions."""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tasks import rng
from tasks.base import IGNORE, Batch, Meter, SampledTask
from tasks.download import DataError
from tasks.meters import Accuracy
from tasks.ntu.clip import FEATURES
from tasks.ntu.names import ACTIONS, ClipName, usable_names
from tasks.ntu.packing import VERSION, Packed
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.sampling import EMPTY, centre_frames, sample_frames

if TYPE_CHECKING:
    import datasets


class AveragedAccuracy(Accuracy):
    """Per cent right when the outputs of several samplings of a clip are added up.

    A label is followed by IGNORE for the further samplings of its clip.
    """

    def _sum(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, int]:
        if outputs.shape[:-1] != y.shape or y.ndim != 1 or y[0] == IGNORE:
            raise ValueError(f"outputs {tuple(outputs.shape)} do not fit labels {tuple(y.shape)} of whole clips")
        clip = (y != IGNORE).cumsum(0) - 1  # (B,) which clip a row belongs to
        added = outputs.new_zeros(int(clip[-1]) + 1, outputs.shape[-1]).index_add(0, clip.to(outputs.device), outputs)
        return super()._sum(added, y[y != IGNORE])


class SkeletonClips(SampledTask):
    """NTU RGB+D 60 under protocol "cs" (by subject) or "cv" (by camera).

    Training draws frames at random each epoch. Validation takes the middle of each segment, and so does the test
    unless `test_samplings` is more than 1: then every test clip comes that often in a batch, each time with other
    frames, and `meter()` adds the outputs up.
    """

    kind = "classify-last"
    metric = "accuracy_percent"
    input_size = FEATURES
    licence = (
        "NTU RGB+D, ROSE Lab, Nanyang Technological University: academic research only, no redistribution;"
        " cite Shahroudy et al., CVPR 2016"
    )

    def __init__(
        self,
        protocol: str,
        packed: Packed,
        *,
        name: str,
        preprocessing: str = "s-trans",
        length: int = 20,
        validation: float = 0.05,
        validation_seed: int = 0,
        test_samplings: int = 1,
    ) -> None:
        _check_options(preprocessing, length, validation, validation_seed, test_samplings)
        self.protocol, self.packed = protocol, packed
        self.preprocessing, self.length, self.test_samplings = preprocessing, length, test_samplings
        self.clips = [ClipName.parse(text) for text in packed.names]
        self.actions = sorted({clip.action for clip in self.clips})  # label k stands for actions[k]
        self.output_size = len(self.actions)
        self.labels = np.searchsorted(self.actions, [clip.action for clip in self.clips]).astype(np.int64)
        self.members = _split(self.clips, protocol, validation, validation_seed)
        self.name = name
        self._validation = {"share": validation, "seed": validation_seed}
        self._frames = packed.frames(preprocessing)

    def count(self, split: str) -> int:
        self._check_split(split)
        return len(self.members[split])

    def fetch(self, split: str, indices: np.ndarray, generator: Callable[[], np.random.Generator]) -> Batch:
        clips = self.members[split][indices]  # (B,)
        lengths = self.packed.lengths[clips]
        labels = self.labels[clips]
        if split == "train":
            frames = sample_frames(lengths, self.length, generator())  # (T, B)
        elif split == "test" and self.test_samplings > 1:
            frames = self._test_frames[:, indices].reshape(self.length, -1)  # samplings of a clip side by side
            clips = np.repeat(clips, self.test_samplings)
            labels = np.repeat(labels, self.test_samplings)
            labels[np.arange(len(labels)) % self.test_samplings != 0] = IGNORE
        else:
            frames = centre_frames(lengths, self.length)
        rows = np.where(frames == EMPTY, self.packed.zero_row, self.packed.starts[clips] + frames)
        x = self._frames[rows.ravel()].reshape(*rows.shape, FEATURES)
        return torch.from_numpy(x), torch.from_numpy(labels)

    @cached_property
    def _test_frames(self) -> np.ndarray:
        """Frames of every sampling of every test clip, (T, clips, samplings); one draw for any batch size."""
        lengths = self.packed.lengths[self.members["test"]]
        generator = rng.generator("ntu-test-samplings")
        each = [sample_frames(lengths, self.length, generator) for _ in range(self.test_samplings)]
        return np.stack(each, axis=-1).astype(np.int32)

    def meter(self) -> Meter:
        return AveragedAccuracy() if self.test_samplings > 1 else super().meter()

    def definition(self) -> dict[str, Any]:
        listed = "\n".join(
            f"{split} {self.packed.names[k]} {self.packed.lengths[k]}"
            for split in self.splits
            for k in self.members[split]
        )
        return {
            "task": "ntu-skeletons",
            "version": VERSION,
            "protocol": self.protocol,
            "stand-in": self.is_standin,
            "frames": self.packed.sha256,
            "clips": hashlib.sha256(listed.encode()).hexdigest(),
            "actions": self.actions,
            "preprocessing": self.preprocessing,
            "length": self.length,
            "validation": self._validation,
            "test_samplings": self.test_samplings,
        }

    def info(self) -> dict[str, Any]:
        lengths = self.packed.lengths
        frames = f"{lengths.min()} to {lengths.max()}, median {np.median(lengths):g}"
        return super().info() | {"clip lengths": frames, "clips without a body, left out": self.packed.without_bodies}

    def to_dataset(self, split: str) -> "datasets.Dataset":
        """Columns `frames` (T lists of 150: two people, 25 joints, x y z), `label`, and what the clip's name says.

        All frames of a clip, preprocessed, not sampled. Holds a copy of the split in memory.
        """
        import datasets
        import pyarrow as pa

        self._check_split(split)
        members = self.members[split]
        lengths = self.packed.lengths[members]
        ends = np.cumsum(lengths)
        rows = np.arange(ends[-1]) + np.repeat(self.packed.starts[members] - (ends - lengths), lengths)
        values = pa.FixedSizeListArray.from_arrays(pa.array(self._frames[rows].reshape(-1)), FEATURES)
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        columns = {"frames": pa.ListArray.from_arrays(offsets, values), "label": pa.array(self.labels[members])}
        features = {
            "frames": datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=FEATURES)),
            "label": datasets.ClassLabel(names=[f"A{action:03d}" for action in self.actions]),
        }
        for attribute in ("setup", "camera", "subject", "replication", "action"):
            columns[attribute] = pa.array([getattr(self.clips[k], attribute) for k in members], pa.int64())
            features[attribute] = datasets.Value("int64")
        return datasets.Dataset(pa.table(columns)).cast(datasets.Features(features))

    def picture(self, path: str | Path) -> None:
        from tasks.ntu.picture import save_strips

        chosen = self.members["train"][np.linspace(0, len(self.members["train"]) - 1, 4).astype(int)]
        clips = {self.packed.names[k]: self.packed.clip(self.preprocessing, int(k)) for k in chosen}
        save_strips(path, f"{self.name}, {self.preprocessing}", clips)


def display_name(base: str, names: list[str], preprocessing: str) -> str:
    """The task's name with the preprocessing, if it is not the default, and with what is missing of the real set."""
    remarks = [] if preprocessing == "s-trans" else [preprocessing]
    present = set(names)
    actions = {ClipName.parse(name).action for name in names}
    expected = [str(name) for name in usable_names() if name.action in actions]
    if len(actions) < ACTIONS:
        remarks.append(f"{len(actions)} of {ACTIONS} classes")
    if len(present) < len(expected):
        remarks.append(f"{len(present)} of {len(expected)} clips")
    return base + (f"[{', '.join(remarks)}]" if remarks else "")


def _split(clips: Sequence[ClipName], protocol: str, validation: float, seed: int) -> dict[str, np.ndarray]:
    """Places of the clips of each split, sorted; validation is drawn from the training side."""
    trains = np.array([clip.trains(protocol) for clip in clips], dtype=bool)
    side = np.flatnonzero(trains)
    order = rng.permutation(len(side), "ntu-validation", seed)
    held_out = math.ceil(validation * len(side))  # 5 % of 40,091 are 2,005, as published
    members = {
        "train": np.sort(side[order[held_out:]]),
        "valid": np.sort(side[order[:held_out]]),
        "test": np.flatnonzero(~trains),
    }
    for split, chosen in members.items():
        if len(chosen) == 0:
            raise DataError(f"no clip among the {len(clips)} given belongs to the {split} split of ntu-{protocol}")
    return members


def _check_options(preprocessing: str, length: int, validation: float, seed: int, samplings: int) -> None:
    if preprocessing not in CONVENTIONS:
        raise ValueError(f"preprocessing={preprocessing!r} must be one of: {', '.join(CONVENTIONS)}")
    if length < 1:
        raise ValueError(f"length={length} must be at least 1")
    if not 0.0 < validation < 1.0:
        raise ValueError(f"validation={validation} must be a share between 0 and 1")
    if seed < 0:
        raise ValueError(f"validation_seed={seed} must not be negative")
    if samplings < 1:
        raise ValueError(f"test_samplings={samplings} must be at least 1")
