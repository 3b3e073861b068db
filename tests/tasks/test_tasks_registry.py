"""The registry, and what every task must keep: a task is tested here the moment it is registered."""

import hashlib
import inspect
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import tasks
from tasks import __main__ as command_line
from tasks import registry
from tasks.download import DataError

# NTU has its own tests: it needs files that cannot be fetched
NAMES = [name for name in tasks.names() if not name.startswith("ntu")]
SMALL = {"adding": {"length": 17, "held_out": 103}}


def build(name: str, **options: object) -> tasks.Task:
    try:
        return tasks.build(name, **(SMALL.get(name, {}) | options))
    except DataError as error:
        pytest.skip(f"no source of {name} answered: {error}")


class Stub(tasks.Task):
    """The least that is a task."""

    count = batches_per_epoch = definition = _batches = to_dataset = picture = lambda self, *args: {}


def digest(batches) -> str:
    result = hashlib.sha256()
    for x, y in batches:
        result.update(f"{tuple(x.shape)}{x.dtype}{tuple(y.shape)}{y.dtype}".encode())
        result.update(x.contiguous().numpy().tobytes() + y.numpy().tobytes())
    return result.hexdigest()


def some(task: tasks.Task, split: str, batch_size: int, start: int = 0, count: int = 4, **key: int):
    return [batch for batch, _ in zip(task.batches(split, batch_size, start=start, **key), range(count), strict=False)]


def test_names_are_known_and_an_unknown_name_gets_the_nearest() -> None:
    assert {"adding", "mnist", "pmnist", "ptb-c", "mnist-synthetic", "ptb-c-synthetic"} <= set(tasks.names())
    with pytest.raises(ValueError, match=r"no task 'pminst'; did you mean 'pmnist'"):
        tasks.build("pminst")


def test_an_unknown_option_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match=r"no option 'lenght'.*length, markers, held_out, data_seed"):
        tasks.build("adding", lenght=100)
    assert inspect.Parameter.empty not in tasks.options("adding").values()


def test_a_name_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        tasks.register("adding")(lambda: None)


def test_names_with_presets_share_a_factory_and_show_only_what_is_left_to_choose() -> None:
    assert list(tasks.options("mnist")) == ["scaling", "validation", "data_folder"]
    assert list(tasks.options("pmnist")) == ["permutation", "scaling", "validation", "data_folder"]
    with pytest.raises(ValueError, match=r"'mnist' has no option 'permutation'; its options are: scaling"):
        tasks.build("mnist", permutation="exprnn")


def test_a_class_that_hands_options_on_has_its_parents_options(monkeypatch) -> None:
    class Parent(Stub):
        def __init__(self, given: int, *, colour: str = "red", size: int = 3) -> None:
            self.made = (given, colour, size)

    class Child(Parent):
        """A child.

        More of it.
        """

        def __init__(self, kind: str, shape: str = "round", **options: object) -> None:
            super().__init__(7, **options)
            self.kind_and_shape = kind, shape

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    tasks.register("child-a", kind="a")(Child)
    tasks.register("child-b", kind="b", summary="Another.", stands_in_for="child-a")(Child)
    assert tasks.options("child-a") == {"shape": "round", "colour": "red", "size": 3} == tasks.options("child-b")
    assert (registry.summary("child-a"), registry.summary("child-b")) == ("A child.", "Another.")
    task = tasks.build("child-b", size=5)
    assert (task.made, task.kind_and_shape) == ((7, "red", 5), ("b", "round"))
    with pytest.raises(ValueError, match="no option 'given'; its options are: shape, colour, size"):
        tasks.build("child-a", given=1)
    assert (tasks.standin_of("child-a"), tasks.standin_of("child-b")) == ("child-b", None)
    assert (tasks.stands_in_for("child-a"), tasks.stands_in_for("child-b")) == (None, "child-a")


def test_every_task_with_data_of_its_own_has_a_stand_in() -> None:
    pairs = {name: tasks.standin_of(name) for name in tasks.names()}
    assert {name: standin for name, standin in pairs.items() if standin} == {
        "mnist": "mnist-synthetic",
        "pmnist": "pmnist-synthetic",
        "ptb-c": "ptb-c-synthetic",
        "ntu-cs": "ntu-cs-synthetic",
        "ntu-cv": "ntu-cv-synthetic",
    }
    assert tasks.standin_of("no such task") is None


def test_a_batch_is_unpacked_with_or_without_a_mask() -> None:
    x, y = torch.zeros(3, 2, 1), torch.zeros(2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    assert tasks.unpack((x, y)) == (x, y, None)
    assert tasks.unpack((x, y, mask)) == (x, y, mask)


@pytest.mark.parametrize("name", NAMES)
def test_attributes_and_batches_have_the_promised_shapes(name: str) -> None:
    task = build(name)
    assert task.name.startswith(name)
    assert task.is_standin == (tasks.stands_in_for(name) is not None)
    assert task.partial == ""
    assert not task.masked
    assert len(task.fingerprint) == 64
    int(task.fingerprint, 16)
    for split in task.splits:
        x, y = next(task.batches(split, 5))
        T, B = x.shape[:2]
        assert (task.length, 5) == (T, B)
        if task.input_kind == "dense":
            assert x.dtype == torch.float32
            assert x.shape == (T, B, task.input_size)
        else:
            assert x.dtype == torch.int64
            assert x.shape == (T, B)
            assert 0 <= int(x.min()) <= int(x.max()) < task.input_size
        assert x.is_contiguous()
        expected = {"regression-last": (B, 1), "classify-last": (B,), "classify-every": (T, B)}[task.kind]
        assert tuple(y.shape) == expected
        assert y.dtype == (torch.float32 if task.kind == "regression-last" else torch.int64)


@pytest.mark.parametrize("name", NAMES)
def test_batches_depend_on_seed_and_epoch_only_in_training(name: str) -> None:
    task = build(name)
    same = digest(some(task, "train", 6, seed=1, epoch=2))
    assert same == digest(some(task, "train", 6, seed=1, epoch=2))
    assert same != digest(some(task, "train", 6, seed=2, epoch=2))
    assert same != digest(some(task, "train", 6, seed=1, epoch=3))
    for split in ("valid", "test"):
        assert digest(some(task, split, 6, seed=1)) == digest(some(task, split, 6, seed=2, epoch=5))


@pytest.mark.parametrize("name", [n for n in NAMES if n in SMALL or n.endswith("-synthetic")])
def test_an_epoch_can_be_restarted_at_any_batch(name: str) -> None:
    task = build(name)
    for split in task.splits:
        batch_size = -(-(task.count(split) or 1000) // (60 if task.kind != "classify-every" else 3000))
        whole = [digest([batch]) for batch in task.batches(split, batch_size, seed=3, epoch=1)]
        assert len(whole) == task.batches_per_epoch(split, batch_size)
        assert len(set(whole)) == len(whole)  # no batch comes twice
        for start in range(len(whole) + 1):
            rest = some(task, split, batch_size, start=start, count=2, seed=3, epoch=1)
            assert [digest([batch]) for batch in rest] == whole[start : start + 2]
        assert list(task.batches(split, batch_size, start=len(whole))) == []
        with pytest.raises(ValueError, match="past the end"):
            task.batches(split, batch_size, start=len(whole) + 1)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments_get_one_sentence(name: str) -> None:
    task = build(name)
    with pytest.raises(ValueError, match="no split 'tset'; it has: train, valid, test"):
        task.batches("tset", 5)
    with pytest.raises(ValueError, match="batch_size=0"):
        task.batches("train", 0)
    with pytest.raises(ValueError, match="batch_size=-3"):
        task.batches("test", -3)
    with pytest.raises(ValueError, match="seed=-1"):
        task.batches("train", 5, seed=-1)
    with pytest.raises(ValueError, match="epoch=-1"):
        task.batches("train", 5, epoch=-1)


@pytest.mark.parametrize("name", NAMES)
def test_export_and_picture(name: str, tmp_path) -> None:
    task = build(name)
    rows = task.to_dataset("valid")
    assert len(rows) > 0
    with pytest.raises(ValueError, match="no split"):
        task.to_dataset("tset")
    task.picture(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    json.dumps(task.info())


def test_the_name_of_a_picture_may_look_like_markup(tmp_path, capsys) -> None:
    path = tmp_path / "adding [" / "b].png"
    path.parent.mkdir()
    command_line.info("adding", picture=path)
    assert f"picture: {path}\n" in capsys.readouterr().out
    assert path.exists()


def test_the_same_batches_come_in_another_process() -> None:
    chosen = [name for name in NAMES if name in SMALL or name.endswith("-synthetic") or _cached(name)]
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import json, tasks, test_tasks_registry as here\n"
        "print(json.dumps({n: here.summary(tasks.build(n, **here.SMALL.get(n, {}))) for n in sys.argv[2:]}))"
    )
    # neither hash randomisation nor the number of threads may matter
    environment = os.environ | {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script, os.path.dirname(__file__), *chosen],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {name: summary(build(name)) for name in chosen}


def summary(task: tasks.Task) -> list[str]:
    middle = task.batches_per_epoch("train", 7) // 2
    return [
        task.fingerprint,
        digest(some(task, "train", 7, start=middle, seed=5, epoch=4)),
        digest(some(task, "test", 7, start=1)),
    ]


def _cached(name: str) -> bool:
    try:
        tasks.build(name)
    except DataError:
        return False
    return True


def test_fingerprints_follow_every_option() -> None:
    variants = [
        tasks.build("adding", length=20),
        tasks.build("adding", length=21),
        tasks.build("adding", length=20, markers="halves"),
        tasks.build("adding", length=20, held_out=999),
        tasks.build("adding", length=20, data_seed=1),
        tasks.build("mnist-synthetic"),
        tasks.build("mnist-synthetic", scaling="zero-one"),
        tasks.build("pmnist-synthetic"),
        tasks.build("pmnist-synthetic", permutation="bitreversal"),
        tasks.build("ptb-c-synthetic"),
        tasks.build("ptb-c-synthetic", length=100),
        tasks.build("ptb-c-synthetic", segments="independent"),
        tasks.build("ptb-c-synthetic", random_offset=False),
    ]
    assert len({task.fingerprint for task in variants}) == len(variants)
    assert tasks.build("adding", length=20).fingerprint == variants[0].fingerprint


def test_a_task_survives_pickling_to_a_worker() -> None:
    for name in ("adding", "mnist-synthetic", "ptb-c-synthetic"):
        task = build(name)
        copy = pickle.loads(pickle.dumps(task))
        assert copy.fingerprint == task.fingerprint
        assert digest(some(copy, "train", 4)) == digest(some(task, "train", 4))


def test_the_generator_of_a_batch_is_its_own() -> None:
    class Noise(tasks.SampledTask):
        name, kind, metric = "noise", "classify-last", "accuracy_percent"
        input_size = output_size = length = 1

        def count(self, split: str) -> int:
            return 10

        def fetch(self, split, indices, generator):
            return torch.from_numpy(generator().random(len(indices))), torch.from_numpy(indices)

        definition = to_dataset = picture = lambda self, *args: {}

    task = Noise()
    train = [x for x, _ in task.batches("train", 3, seed=1, epoch=1)]
    assert len(train) == 3
    assert len({digest([(x, x)]) for x in train}) == 3
    again = next(task.batches("train", 3, seed=1, epoch=1, start=2))[0]
    assert torch.equal(again, train[2])
    assert not torch.equal(next(task.batches("train", 3, seed=2, epoch=1))[0], train[0])
    assert not torch.equal(next(task.batches("train", 3, seed=1, epoch=2))[0], train[0])
    sizes = [len(y) for _, y in task.batches("test", 3)]
    assert sizes == [3, 3, 3, 1]
    seen = np.concatenate([y.numpy() for _, y in task.batches("test", 3)])
    assert seen.tolist() == list(range(10))
    assert task.higher_is_better


def test_frozen_fingerprints_of_generated_tasks() -> None:
    """They must come out the same on every machine and with every version of numpy."""
    assert {name: tasks.build(name).fingerprint[:16] for name in FROZEN} == FROZEN


FROZEN = {
    "adding": "60eabf94afab6fff",
    "mnist-synthetic": "193c5dc0059bb3e1",
    "pmnist-synthetic": "ae61165844e8fd0c",
    "ptb-c-synthetic": "6a5db6137d622d21",
}
