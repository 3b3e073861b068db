"""Skeleton-based action recognition as a task: clips of up to two people, one of 60 actions."""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks import rng
from tasks.base import IGNORE, Batch, Meter, SampledTask
from tasks.code_digest import code_digest
from tasks.download import ExplicitSourceError
from tasks.meters import AveragedAccuracy
from tasks.ntu.clip import COORDINATES
from tasks.ntu.features import FEATURES
from tasks.ntu.names import ClipName
from tasks.ntu.packing import Packed
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.rotation import draw_angles, rotate, rotations
from tasks.ntu.sampling import EMPTY, centre_frames, one_of_each_window, sample_frames, whole_clips

if TYPE_CHECKING:
    import datasets

FRAMES = ("sampled", "whole", "windows")


class SkeletonClips(SampledTask):
    """NTU RGB+D 60 under protocol "cs" (by subject) or "cv" (by camera).

    preprocessing: a key of `CONVENTIONS`.
    length: the steps of a batch; with whole clips and windows, the most that it may have.
    frames: "sampled" takes `length` frames of each clip: training draws them at random each epoch, validation and
        test take the middle of each segment. "whole" takes every frame that shows somebody, up to `length` (no clip
        has more than 300), nothing at random; batches carry a mask and are as long as their longest clip. "windows"
        is "whole" with one frame of each `window`: training draws it, validation and test take the middle.
    window: frames that one is taken of, 8 as Zhang, Liu and Xiao's release.
    features: a key of `FEATURES`: "coordinates" (150) or "joint-line-distances" of the main actor (897); with those,
        a frame without the main actor is empty.
    rotation: each training clip is turned about the origin by angles about x, y and z up to this many radians.
    validation, validation_seed: the share of the training side that is held out, and which.
    test_samplings: if more than 1, every test clip comes that often in a batch, each time with other frames, and
        `meter()` adds the outputs up.
    """

    kind = "classify-last"
    metric = "accuracy_percent"
    licence = (
        "NTU RGB+D, ROSE Lab, Nanyang Technological University: academic research only, no redistribution;"
        " cite Shahroudy et al., CVPR 2016"
    )

    def __init__(
        self,
        protocol: str,
        open_clips: Callable[[], Packed],
        *,
        preprocessing: str = "s-trans",
        length: int = 20,
        validation: float = 0.05,
        validation_seed: int = 0,
        test_samplings: int = 1,
        frames: str = "sampled",
        window: int = 8,
        features: str = "coordinates",
        rotation: float = 0.0,
    ) -> None:
        for option, value, known in (
            ("preprocessing", preprocessing, CONVENTIONS),
            ("frames", frames, FRAMES),
            ("features", features, FEATURES),
        ):
            if value not in known:
                raise ValueError(f"{option}={value!r} must be one of: {', '.join(known)}")
        _check_numbers(length, validation, validation_seed, test_samplings, window, rotation)
        if frames != "sampled" and test_samplings > 1:
            raise ValueError(f"test_samplings={test_samplings} must be 1 if frames are {frames}, not sampled")
        if FEATURES[features].rigid and rotation:
            raise ValueError(f"rotation={rotation} must be 0 for {features}: no rotation changes them")
        self.protocol, self.preprocessing = protocol, preprocessing
        self.length, self.test_samplings = length, test_samplings
        self.frames, self.window, self.features, self.rotation = frames, window, features, rotation
        self.masked = frames != "sampled"
        self.input_size = FEATURES[features].width
        self._validation = {"share": validation, "seed": validation_seed}

        self.packed = open_clips()
        self.clips = [ClipName.parse(text) for text in self.packed.names]
        self.actions = sorted({clip.action for clip in self.clips})  # label k stands for actions[k]
        self.output_size = len(self.actions)
        self.labels = np.searchsorted(self.actions, [clip.action for clip in self.clips]).astype(np.int64)
        self.members = _split(self.clips, protocol, validation, validation_seed)
        self.name = self.display_name(f"ntu-{protocol}")
        self._frames = self.packed.frames(preprocessing)

    def display_name(self, base: str, *remarks: str) -> str:
        """A name with the choices that are not the usual ones, and with further remarks that are not empty."""
        chosen = [
            "" if self.preprocessing == "s-trans" else self.preprocessing,
            {"sampled": "", "whole": "whole clips", "windows": f"one of {self.window} frames"}[self.frames],
            "" if self.features == "coordinates" else self.features,
            f"rotation {self.rotation:g}" if self.rotation else "",
        ]
        shown = [remark for remark in (*chosen, *remarks) if remark]
        return base + (f"[{', '.join(shown)}]" if shown else "")

    def count(self, split: str) -> int:
        self._check_split(split)
        return len(self.members[split])

    def fetch(self, split: str, indices: np.ndarray, generator: Callable[[], np.random.Generator]) -> Batch:
        clips = self.members[split][indices]  # (B,)
        labels = self.labels[clips]
        chance = generator() if split == "train" else None
        mask = None
        if self.frames == "whole":
            x, mask = whole_clips(self._used, self.packed.starts[clips], self.packed.lengths[clips], self.length)
        elif self.frames == "windows":
            starts, lengths = self.packed.starts[clips], self.packed.lengths[clips]
            x, mask = one_of_each_window(self._used, starts, lengths, self.length, self.window, chance)
        elif split == "test" and self.test_samplings > 1:
            chosen = self._test_frames[:, indices].reshape(self.length, -1)  # samplings of a clip side by side
            clips = np.repeat(clips, self.test_samplings)
            labels = np.repeat(labels, self.test_samplings)
            labels[np.arange(len(labels)) % self.test_samplings != 0] = IGNORE
            x = self._gather(clips, chosen)
        elif chance is not None:
            x = self._gather(clips, sample_frames(self.packed.lengths[clips], self.length, chance))
        else:
            x = self._gather(clips, centre_frames(self.packed.lengths[clips], self.length))
        if chance is not None and self.rotation:
            x = rotate(x, rotations(draw_angles(len(clips), self.rotation, chance)))
        x = FEATURES[self.features].of(x, mask)
        if mask is None:
            return torch.from_numpy(x), torch.from_numpy(labels)
        return torch.from_numpy(x), torch.from_numpy(labels), torch.from_numpy(mask)

    @property
    def _used(self) -> np.ndarray:
        """All frames, with the columns that the features need."""
        return self._frames[:, : FEATURES[self.features].columns]

    def _gather(self, clips: np.ndarray, frames: np.ndarray) -> np.ndarray:
        """The numbered frames (T, B) of clips (B,), (T, B, columns)."""
        rows = np.where(frames == EMPTY, self.packed.zero_row, self.packed.starts[clips] + frames)
        return self._used[rows.ravel()].reshape(*rows.shape, -1)

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
        seen: dict[str, tuple[Callable[..., Any], ...]] = {
            "sampled": (sample_frames, centre_frames),
            "whole": (whole_clips,),
            "windows": (one_of_each_window,),
        }
        definition = {
            "task": "ntu-skeletons",
            "protocol": self.protocol,
            "stand-in": self.is_standin,
            "raw_frames": self.packed.sha256,
            "clips": hashlib.sha256(listed.encode()).hexdigest(),
            "actions": self.actions,
            "preprocessing": {"name": self.preprocessing, "code": code_digest(CONVENTIONS[self.preprocessing])},
            "frames": {"name": self.frames, "code": code_digest(*seen[self.frames])},
            "length": self.length,
            "validation": self._validation,
            "test_samplings": self.test_samplings,
        }
        if self.frames == "windows":
            definition["window"] = self.window
        # what is off is left out, so that a further option leaves the fingerprints of those who do not use it alone
        if self.features != "coordinates":
            definition["features"] = {"name": self.features, "code": code_digest(FEATURES[self.features].compute)}
        if self.rotation:
            definition["rotation"] = {"most": self.rotation, "code": code_digest(draw_angles, rotations, rotate)}
        return definition

    def info(self) -> dict[str, Any]:
        lengths = self.packed.lengths
        frames = f"{lengths.min()} to {lengths.max()}, median {np.median(lengths):g}"
        return super().info() | {"clip lengths": frames, "clips without a body, left out": self.packed.without_bodies}

    def to_dataset(self, split: str) -> "datasets.Dataset":
        """Columns `frames` (T lists of 150: two people, 25 joints, x y z), `label`, and what the clip's name says.

        All frames of a clip, preprocessed, not sampled, whatever the features are. Holds a copy of the split in memory.
        """
        import datasets
        import pyarrow as pa

        self._check_split(split)
        members = self.members[split]
        lengths = self.packed.lengths[members]
        ends = np.cumsum(lengths)
        rows = np.arange(ends[-1]) + np.repeat(self.packed.starts[members] - (ends - lengths), lengths)
        values = pa.FixedSizeListArray.from_arrays(pa.array(self._frames[rows].reshape(-1)), COORDINATES)
        offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
        columns = {"frames": pa.ListArray.from_arrays(offsets, values), "label": pa.array(self.labels[members])}
        features = {
            "frames": datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=COORDINATES)),
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


def _split(clips: Sequence[ClipName], protocol: str, validation: float, seed: int) -> dict[str, np.ndarray]:
    """Numbers of the clips of each split, sorted; validation is drawn from the training side."""
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
            raise ExplicitSourceError(
                f"no clip among the {len(clips)} given belongs to the {split} split of ntu-{protocol}"
            )
    return members


def _check_numbers(length: int, validation: float, seed: int, samplings: int, window: int, rotation: float) -> None:
    for option, count in (("length", length), ("window", window)):
        if count < 1:
            raise ValueError(f"{option}={count} must be at least 1")
    if not 0.0 < validation < 1.0:
        raise ValueError(f"validation={validation} must be a share between 0 and 1")
    if seed < 0:
        raise ValueError(f"validation_seed={seed} must not be negative")
    if samplings < 1:
        raise ValueError(f"test_samplings={samplings} must be at least 1")
    if not 0.0 <= rotation <= math.pi:
        raise ValueError(f"rotation={rotation} must be an angle from 0 to pi")
