"""NTU as a task: splits, batches, names, export; on generated clips."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import tasks
from tasks.base import IGNORE
from tasks.download import DataError
from tasks.meters import AveragedAccuracy
from tasks.ntu import task as task_module
from tasks.ntu.names import CROSS_SUBJECT_TRAINING, ClipName, part_of_the_set, usable_names
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.readers import text
from tasks.ntu.sampling import centre_frames
from tasks.ntu.standin.clip_set import GeneratedClips
from tasks.ntu.task import SkeletonClips, _split

SMALL = {"performances": 3}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DURNN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def build(name: str = "ntu-cs-synthetic", **options: object) -> SkeletonClips:
    task = tasks.build(name, **SMALL | options)
    assert isinstance(task, SkeletonClips)
    return task


def test_interface() -> None:
    task = build()
    assert task.name == "ntu-cs-synthetic[3 performances, seed 0]"
    assert (task.input_size, task.output_size, task.length) == (150, 60, 20)
    assert (task.kind, task.input_kind, task.metric) == ("classify-last", "dense", "accuracy_percent")
    assert task.higher_is_better
    assert task.is_standin
    assert sum(task.count(split) for split in task.splits) == 540
    x, y = next(task.batches("train", 7))
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((20, 7, 150), torch.float32, (7,), torch.int64)
    assert task.info()["counts"] == {split: task.count(split) for split in task.splits}
    assert {"ntu-cs", "ntu-cv", "ntu-cs-synthetic", "ntu-cv-synthetic"} <= set(tasks.names())


@pytest.mark.parametrize("protocol", ["cs", "cv"])
def test_no_clip_is_on_both_sides(protocol: str) -> None:
    task = build(f"ntu-{protocol}-synthetic")
    members = np.concatenate([task.members[split] for split in task.splits])
    np.testing.assert_array_equal(np.sort(members), np.arange(len(task.clips)))
    for split in task.splits:
        for k in task.members[split]:
            clip = task.clips[k]
            training = clip.subject in CROSS_SUBJECT_TRAINING if protocol == "cs" else clip.camera in (2, 3)
            assert training == (split != "test")
            assert task.actions[task.labels[k]] == clip.action


@pytest.mark.parametrize(("protocol", "sizes"), [("cs", (38_086, 2005, 16_487)), ("cv", (35_763, 1883, 18_932))])
def test_five_per_cent_of_the_full_set_are_what_was_published(protocol: str, sizes: tuple[int, ...]) -> None:
    members = _split(usable_names(), protocol, 0.05, 0)
    assert tuple(len(members[split]) for split in ("train", "valid", "test")) == sizes
    other = _split(usable_names(), protocol, 0.05, 1)
    assert not np.array_equal(members["valid"], other["valid"])
    np.testing.assert_array_equal(members["test"], other["test"])


def test_evaluation_takes_the_centres_of_every_clip_once_and_in_order() -> None:
    task = build()
    for split in ("valid", "test"):
        batches = list(task.batches(split, 100, seed=3, epoch=4))
        x, y = torch.cat([b[0] for b in batches], dim=1), torch.cat([b[1] for b in batches])
        members = task.members[split]
        np.testing.assert_array_equal(y.numpy(), task.labels[members])
        for column in range(0, len(members), 17):
            clip = task.packed.clip("s-trans", int(members[column]))
            chosen = centre_frames(np.array([len(clip)]), 20)[:, 0]
            np.testing.assert_array_equal(x[:, column].numpy(), clip[chosen].reshape(20, 150))


def test_training_draws_new_frames_each_epoch_from_every_clip() -> None:
    task = build()
    size = task.count("train")
    (first, y), (again, _), (second, _) = (next(task.batches("train", size, seed=0, epoch=e)) for e in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    np.testing.assert_array_equal(
        np.bincount(y, minlength=60), np.bincount(task.labels[task.members["train"]], minlength=60)
    )


def test_an_epoch_can_be_entered_anywhere() -> None:
    task = build()
    whole = list(task.batches("train", 50, seed=1, epoch=2))
    assert len(whole) == task.batches_per_epoch("train", 50)
    for start in (0, 3, len(whole)):
        rest = list(task.batches("train", 50, seed=1, epoch=2, start=start))
        assert len(rest) == len(whole) - start
        assert all(
            torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(whole[start:], rest, strict=True)
        )


def test_short_clips_are_padded_with_zeros() -> None:
    task = build(length=100, preprocessing="raw")
    x, _ = next(task.batches("test", 5))
    for column, k in enumerate(task.members["test"][:5]):
        assert int(x[:, column].any(dim=-1).sum()) <= task.packed.lengths[k] < 100
        assert x[50, column].any()
        assert not x[0, column].any()


SCRIPT = """
import hashlib, tasks
task = tasks.build("ntu-cs-synthetic", performances=3)
digest = hashlib.sha256(task.fingerprint.encode())
for x, y in task.batches("train", 64, seed=5, epoch=6, start=2):
    digest.update(x.numpy().tobytes() + y.numpy().tobytes())
print(digest.hexdigest())
"""


def test_another_process_gives_the_same_batches() -> None:
    task = build()
    digest = hashlib.sha256(task.fingerprint.encode())
    for x, y in task.batches("train", 64, seed=5, epoch=6, start=2):
        digest.update(x.numpy().tobytes() + y.numpy().tobytes())
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest.hexdigest()
    assert done.stderr == ""


def test_fingerprints_tell_tasks_apart() -> None:
    variants = [
        build(),
        build("ntu-cv-synthetic"),
        build(preprocessing="raw"),
        build(length=10),
        build(validation=0.1),
        build(validation_seed=1),
        build(test_samplings=3),
        build(performances=2),
        build(performances=2, data_seed=1),
    ]
    assert len({task.fingerprint for task in variants}) == len(variants)
    assert build().fingerprint == variants[0].fingerprint
    assert build(preprocessing="raw").name == "ntu-cs-synthetic[raw, 3 performances, seed 0]"


def test_the_fingerprint_follows_the_code_of_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_frames(lengths: np.ndarray, steps: int) -> np.ndarray:
        return lengths - steps + np.arange(steps)[:, None]

    before = {name: build(preprocessing=name).fingerprint for name in ("s-trans", "s-rota")}
    monkeypatch.setitem(CONVENTIONS, "s-rota", CONVENTIONS["p-ntu"])
    after = {name: build(preprocessing=name).fingerprint for name in before}
    assert after["s-trans"] == before["s-trans"]
    assert after["s-rota"] != before["s-rota"]
    monkeypatch.setattr(task_module, "centre_frames", last_frames)
    assert build().fingerprint != before["s-trans"]


def test_options_are_declared_once_for_all_four() -> None:
    shared = {option: default for option, default in tasks.options("ntu-cs").items() if option != "source"}
    assert shared == {
        "preprocessing": "s-trans",
        "length": 20,
        "validation": 0.05,
        "validation_seed": 0,
        "test_samplings": 1,
        "frames": "sampled",
        "window": 8,
        "features": "coordinates",
        "rotation": 0.0,
    }
    assert tasks.options("ntu-cv") == {"source": None} | shared
    for name in ("ntu-cs-synthetic", "ntu-cv-synthetic"):
        assert tasks.options(name) == {"performances": 27, "data_seed": 0} | shared


def test_averaged_test_scores_each_clip_once() -> None:
    task = build(test_samplings=4)
    count = task.count("test")
    by_size = {}
    for size in (count, 100):
        batches = list(task.batches("test", size))
        by_size[size] = torch.cat([b[0] for b in batches], dim=1), torch.cat([b[1] for b in batches])
    (x, y), (other_x, other_y) = by_size.values()
    assert torch.equal(x, other_x)
    assert torch.equal(y, other_y)
    assert x.shape == (20, 4 * count, 150)
    np.testing.assert_array_equal(y.view(-1, 4)[:, 0].numpy(), task.labels[task.members["test"]])
    assert (y.view(-1, 4)[:, 1:] == IGNORE).all()
    assert not torch.equal(x[:, 0::4], x[:, 1::4])
    for column in (0, 1, 7, 4 * count - 1):
        clip = task.packed.clip("s-trans", int(task.members["test"][column // 4])).reshape(-1, 150)
        assert {row.tobytes() for row in x[:, column].numpy()} <= {row.tobytes() for row in clip}
    assert next(task.batches("valid", 5))[0].shape == (20, 5, 150)  # validation stays single


def test_averaged_accuracy_adds_outputs_up() -> None:
    meter = AveragedAccuracy()
    outputs = torch.tensor([[1.0, 0.0], [0.0, 5.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    meter.update(outputs, torch.tensor([1, IGNORE, IGNORE, 1, IGNORE, IGNORE]))  # sums: 2 5 and 1 0.5
    assert meter.count == 2
    assert meter.value() == 50.0
    single = AveragedAccuracy()
    single.update(outputs[:2], torch.tensor([0, 1]))
    assert single.value() == 100.0
    with pytest.raises(ValueError, match="whole clips"):
        meter.update(outputs[:2], torch.tensor([IGNORE, 1]))


def test_export() -> None:
    task = build()
    dataset = task.to_dataset("test")
    assert len(dataset) == task.count("test")
    row = dataset[11]
    k = int(task.members["test"][11])
    np.testing.assert_array_equal(np.array(row["frames"], np.float32), task.packed.clip("s-trans", k).reshape(-1, 150))
    assert row["label"] == task.labels[k]
    assert ClipName(*(row[a] for a in ("setup", "camera", "subject", "replication", "action"))) == task.clips[k]


def test_picture(tmp_path: Path) -> None:
    build().picture(tmp_path / "strips.png")
    assert (tmp_path / "strips.png").read_bytes().startswith(b"\x89PNG")


def test_partial_sets_are_called_what_they_are(tmp_path: Path) -> None:
    generated = GeneratedClips(3, 0)
    chosen = [name for name in generated.names if name.endswith(("A005", "A017"))]
    usable = {str(name) for name in usable_names()}
    for name in chosen:
        (tmp_path / f"{name}.skeleton").write_bytes(generated.write(name))
    task = tasks.build("ntu-cs", source=tmp_path)
    here = len([name for name in chosen if name in usable])
    there = len([name for name in usable if name.endswith(("A005", "A017"))])
    assert task.partial == f"2 of 60 classes, {here} of {there} clips"
    assert task.name == f"ntu-cs[{task.partial}]"
    assert task.info()["partial"] == task.partial
    assert task.output_size == 2
    assert isinstance(task, SkeletonClips)
    assert task.actions == [5, 17]
    assert set(task.labels.tolist()) == {0, 1}
    assert not task.is_standin


def test_what_is_missing_of_the_set() -> None:
    everything = [str(name) for name in usable_names()]
    assert part_of_the_set(everything) == ""
    assert part_of_the_set(everything[1:]) == "56577 of 56578 clips"
    ten = [name for name in everything if int(name[-3:]) <= 10]
    assert part_of_the_set(ten) == "10 of 60 classes"


def test_display_names() -> None:
    assert build().display_name("ntu-cs") == "ntu-cs"
    assert build(preprocessing="raw").display_name("ntu-cv", "") == "ntu-cv[raw]"
    assert (
        build(preprocessing="s-rota").display_name("ntu-cs", "10 of 60 classes") == "ntu-cs[s-rota, 10 of 60 classes]"
    )
    assert build(frames="whole", rotation=0.3).name == (
        "ntu-cs-synthetic[whole clips, rotation 0.3, 3 performances, seed 0]"
    )


def test_one_sided_sets_are_refused(tmp_path: Path) -> None:
    generated = GeneratedClips(2, 0)
    for name in [name for name in generated.names if "C001" in name and name.endswith("A001")]:
        (tmp_path / f"{name}.skeleton").write_bytes(generated.write(name))
    with pytest.raises(DataError, match="train split of ntu-cv"):
        tasks.build("ntu-cv", source=tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"preprocessing": "s-tran"},
        {"length": 0},
        {"validation": 0.0},
        {"validation": 1.0},
        {"validation_seed": -1},
        {"test_samplings": 0},
        {"performances": 1},
        {"performances": 317},
        {"data_seed": -1},
    ],
)
def test_bad_options_are_named(options: dict[str, object]) -> None:
    option, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=rf"^{option.removeprefix('data_')}={value!r} must"):
        build(**options)


def test_without_data_the_message_says_what_goes_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURNN_NTU", raising=False)
    with pytest.raises(DataError, match=r"DURNN_NTU(.|\n)*ntu-cs-synthetic"):
        tasks.build("ntu-cs")


def test_the_stand_in_has_the_shape_of_the_real_set() -> None:
    generated = GeneratedClips(27, 0)
    clips = [ClipName.parse(name) for name in generated.names]
    assert len(clips) == 4860
    assert all(clip.in_ntu60 for clip in clips)
    for attribute, count in (("action", 60), ("subject", 40), ("camera", 3), ("setup", 17), ("replication", 2)):
        assert len({getattr(clip, attribute) for clip in clips}) == count
    assert generated.names == GeneratedClips(27, 0).names != GeneratedClips(27, 1).names


def test_generated_files_show_what_real_ones_do() -> None:
    generated = GeneratedClips(27, 0)
    files = {name: generated.write(name) for name in generated.names[::12]}
    assert generated.write(generated.names[0]) == files[generated.names[0]]
    assert 0.3 < np.mean([b"\r\n" in data for data in files.values()]) < 0.7
    clips = {name: text.parse(data, name) for name, data in files.items()}
    counts = [np.bincount(clip.frame, minlength=clip.length) for clip in clips.values()]
    assert any(0 in count for count in counts)
    assert max(count.max() for count in counts) >= 3
    mutual = [name for name, clip in clips.items() if np.bincount(clip.frame).min() >= 2]
    assert mutual
    assert sum(ClipName.parse(name).action > 48 for name in mutual) > 0.7 * len(mutual)
    for clip in (clips[name] for name in mutual):
        first = {int(clip.body[np.searchsorted(clip.frame, t)]) for t in range(20)}
        assert len(first) >= 2  # the order within a frame changes
