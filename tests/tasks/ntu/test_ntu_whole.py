"""Whole clips and windows of them: every frame that shows somebody, padding, and the mask that tells them apart."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks
from tasks import rng
from tasks.ntu.clip import Clip
from tasks.ntu.features import joint_line_distances
from tasks.ntu.names import CROSS_SUBJECT_TRAINING, usable_names
from tasks.ntu.readers import text
from tasks.ntu.sampling import one_of_each_window, whole_clips
from tasks.ntu.task import SkeletonClips


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DURNN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def build(**options: object) -> SkeletonClips:
    task = tasks.build("ntu-cs-synthetic", **{"performances": 2, "frames": "whole", "length": 300} | options)
    assert isinstance(task, SkeletonClips)
    return task


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(1, 14),
    st.integers(0, 5),
)
def test_empty_frames_go_to_the_end(shown: list[list[bool]], most: int, gap: int) -> None:
    """`shown`: for each clip, in which frames there is somebody."""
    lengths = np.array([len(clip) for clip in shown])
    starts = np.cumsum(lengths + gap) - lengths  # clips need not lie side by side
    frames = np.zeros((int(starts[-1] + lengths[-1]) + 1, 4), dtype=np.float32)
    for start, clip in zip(starts, shown, strict=True):
        for t, there in enumerate(clip):
            frames[start + t, t % 4] = (1 + start + t) * there
    x, mask = whole_clips(frames, starts, lengths, most)
    T = max(1, *(min(sum(clip), most) for clip in shown))
    assert x.shape == (T, len(shown), 4)
    assert mask.shape == (T, len(shown))
    assert mask.dtype == np.bool_
    for column, (start, clip) in enumerate(zip(starts, shown, strict=True)):
        expected = [start + t for t, there in enumerate(clip) if there][:most]
        np.testing.assert_array_equal(mask[:, column], np.arange(T) < len(expected))
        np.testing.assert_array_equal(x[: len(expected), column], frames[expected])
        assert not x[len(expected) :, column].any()


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(1, 6),
    st.booleans(),
)
def test_of_each_window_one_frame_is_kept(shown: list[list[bool]], window: int, most: int, drawn: bool) -> None:
    lengths = np.array([len(clip) for clip in shown])
    starts = np.cumsum(lengths) - lengths
    there = np.concatenate([np.array(clip) for clip in shown])
    frames = (there * (1.0 + np.arange(len(there))))[:, None].astype(np.float32)  # a frame holds its number, from 1
    generator = rng.generator("test") if drawn else None
    x, mask = one_of_each_window(frames, starts, lengths, most, window, generator)
    for column, (start, clip) in enumerate(zip(starts, shown, strict=True)):
        rows = [int(start) + t + 1 for t, is_there in enumerate(clip) if is_there]
        windows = [rows[k : k + window] for k in range(0, len(rows), window)][:most]
        kept = x[mask[:, column], column, 0].astype(int).tolist()
        assert len(kept) == len(windows)
        for number, choices in zip(kept, windows, strict=True):
            assert number in choices if drawn else number == choices[(len(choices) - 1) // 2]
        assert not x[~mask[:, column], column].any()


def test_every_frame_of_a_window_is_drawn_as_often() -> None:
    clips = 4_000
    frames = np.tile(np.arange(1, 22, dtype=np.float32)[:, None], (clips, 1))  # windows of 8, 8 and 5
    lengths = np.full(clips, 21)
    x, mask = one_of_each_window(frames, np.arange(clips) * 21, lengths, 9, 8, rng.generator("test"))
    assert mask.all()
    assert x.shape == (3, clips, 1)
    for step, (first, width) in enumerate([(1, 8), (9, 8), (17, 5)]):
        share = np.bincount(x[step, :, 0].astype(int), minlength=23)[first : first + width] / clips
        np.testing.assert_allclose(share, 1 / width, atol=0.02)
        assert share.sum() == 1.0


def files(folder: Path, clips: dict[str, Clip]) -> Path:
    for name, clip in clips.items():
        (folder / f"{name}.skeleton").write_bytes(text.dump(clip, digits=9))
    return folder


def clip_of(orders: list[tuple[int, ...]], seed: int) -> Clip:
    """Frame t shows the bodies of orders[t], in that order."""
    frame = [t for t, order in enumerate(orders) for _ in order]
    body = [100 + k for order in orders for k in order]
    shape = np.random.default_rng(seed).uniform(-0.5, 0.5, (3, 25, 3)) * (0.3, 1.5, 0.2) + (0, 0, 3.0)
    path = np.arange(len(orders)) * 0.01
    joints = [shape[k] * (1.0 + path[t] * (3 - k)) for t, order in enumerate(orders) for k in order]
    return Clip(len(orders), np.array(frame), np.array(body, np.uint64), np.array(joints, np.float32))


ODD = {
    "one frame": [(0,)],
    "empty frames": [(), (0,), (), (), (0,), (0,), ()],
    "two bodies that swap": [(0, 1), (1, 0)] * 10,
    "the main actor is away": [(0, 1)] * 15 + [(1,)] * 5 + [()] + [(0,)] * 15,
    "long": [(0,)] * 60,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A set of odd clips, each once in training and once in the test, among usual ones; and what each name shows."""
    usable = [name for name in usable_names() if name.action == 1 and name.camera == 1]
    training = [str(name) for name in usable if name.subject in CROSS_SUBJECT_TRAINING]
    testing = [str(name) for name in usable if name.subject not in CROSS_SUBJECT_TRAINING]
    shown = {name: kind for side in (training, testing) for name, kind in zip(side, [*ODD, *ODD], strict=False)}
    folder = tmp_path_factory.mktemp("files")
    files(folder, {name: clip_of(ODD[kind], seed) for seed, (name, kind) in enumerate(shown.items())})
    return folder, shown


@pytest.mark.parametrize("features", ["coordinates", "joint-line-distances"])
@pytest.mark.parametrize(("frames", "length"), [("whole", 300), ("whole", 40), ("windows", 300), ("windows", 4)])
def test_odd_clips(folder: tuple[Path, dict[str, str]], frames: str, length: int, features: str) -> None:
    source, shown = folder
    task = tasks.build("ntu-cs", source=source, frames=frames, length=length, features=features)
    assert isinstance(task, SkeletonClips)

    def seen(clip: np.ndarray) -> np.ndarray:
        clip = clip[clip.any(axis=1)]
        if frames == "windows":
            middles = [(k + min(k + 7, len(clip) - 1)) // 2 for k in range(0, len(clip), 8)]
            clip = clip[middles]
        return clip[:length]

    for split in task.splits:
        x, y, mask = tasks.unpack(next(task.batches(split, task.count(split))))
        assert mask is not None
        order = task.members[split] if split != "train" else None
        for column in range(x.shape[1]):
            real = int(mask[:, column].sum())
            assert mask[:real, column].all()
            assert not x[real:, column].any()
            assert x[:real, column].any(dim=-1).all()
            if order is not None:
                name = task.packed.names[order[column]]
                clip = task.packed.clip("s-trans", int(order[column])).reshape(-1, 150)
                if features == "coordinates":
                    expected = seen(clip)
                    people = sum(map(bool, ODD[shown[name]]))
                    assert real == min(length, people if frames == "whole" else -(-people // 8))
                else:
                    expected = joint_line_distances(seen(clip[:, :75]))
                np.testing.assert_array_equal(x[:real, column].numpy(), expected)
        assert x.shape[0] == int(mask.sum(dim=0).max()) <= length
        assert y.shape == (x.shape[1],)


def test_a_batch_is_as_long_as_its_longest_clip_and_no_longer() -> None:
    task = build()
    assert (task.masked, task.length, task.input_size) == (True, 300, 150)
    lengths = set()
    for batch in task.batches("train", 16, seed=1):
        x, y, mask = tasks.unpack(batch)
        assert mask is not None
        assert (x.dtype, y.dtype, mask.dtype) == (torch.float32, torch.int64, torch.bool)
        assert x.shape[:2] == mask.shape
        assert x.is_contiguous()
        assert mask[-1].any()
        lengths.add(len(x))
    assert len(lengths) > 1


def test_longer_clips_keep_their_first_frames() -> None:
    long, short = build(), build(length=30)
    (x, _, mask), (cut, _, cut_mask) = (tasks.unpack(next(task.batches("test", 9))) for task in (long, short))
    assert mask is not None
    assert cut_mask is not None
    assert len(cut) == 30
    assert torch.equal(x[:30], cut)
    assert torch.equal(mask[:30], cut_mask)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluation_depends_on_neither_seed_nor_epoch(split: str) -> None:
    task = build()
    one, other = list(task.batches(split, 50)), list(task.batches(split, 50, seed=3, epoch=4))
    for a, b in zip(one, other, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    assert sum(batch[0].shape[1] for batch in one) == task.count(split)


@pytest.mark.parametrize("frames", ["whole", "windows"])
def test_training_can_be_entered_anywhere(frames: str) -> None:
    task = build(frames=frames)
    whole = list(task.batches("train", 30, seed=2, epoch=1))
    rest = list(task.batches("train", 30, seed=2, epoch=1, start=3))
    for a, b in zip(whole[3:], rest, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_distances_of_sampled_frames_are_those_of_their_coordinates() -> None:
    options: dict[str, object] = {"frames": "sampled", "length": 8}
    task, plain = build(**options, features="joint-line-distances"), build(**options)
    assert task.input_size == 897
    for split in task.splits:
        (x, y), (coordinates, labels) = (next(t.batches(split, 12, seed=1)) for t in (task, plain))  # type: ignore[misc]
        assert x.shape == (8, 12, 897)
        assert torch.equal(y, labels)
        np.testing.assert_array_equal(x.numpy(), joint_line_distances(coordinates.numpy()[..., :75]))


def test_fingerprints_and_names() -> None:
    variants = [
        build(),
        build(length=200),
        build(frames="sampled"),
        build(frames="windows"),
        build(frames="windows", window=4),
        build(features="joint-line-distances"),
        build(frames="sampled", features="joint-line-distances"),
    ]
    assert len({task.fingerprint for task in variants}) == len(variants)
    assert variants[0].name == "ntu-cs-synthetic[whole clips, 2 performances, seed 0]"
    assert variants[4].name == "ntu-cs-synthetic[one of 4 frames, 2 performances, seed 0]"
    assert "joint-line-distances" in variants[-1].name
    assert build(window=4).fingerprint == variants[0].fingerprint  # nothing is taken of windows there


@pytest.mark.parametrize("option", ["frames", "features"])
def test_unknown_choices_are_named(option: str) -> None:
    with pytest.raises(ValueError, match=f"^{option}='wrong' must be one of: "):
        build(**{option: "wrong"})


@pytest.mark.parametrize("frames", ["whole", "windows"])
def test_they_are_not_sampled_in_the_test(frames: str) -> None:
    with pytest.raises(ValueError, match=rf"^test_samplings=3 must be 1 if frames are {frames}, not sampled"):
        build(frames=frames, test_samplings=3)


def test_bad_options_are_found_before_any_file_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURNN_NTU", raising=False)
    for options in ({"length": 0}, {"window": 0}, {"frames": "wrong"}, {"rotation": -1.0}, {"preprocessing": "wrong"}):
        with pytest.raises(ValueError, match="must be"):
            tasks.build("ntu-cv", **options)
