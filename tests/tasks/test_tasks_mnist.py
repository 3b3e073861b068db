"""Sequential and permuted MNIST on the real bytes (fetched on first use), and the pixel orders."""

import hashlib

import numpy as np
import pytest
import torch

import tasks
from tasks import download, mnist, orders
from tasks.sources import MNIST_FILES


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    try:
        return download.load("mnist")
    except download.DataError as error:
        pytest.skip(f"no source of MNIST answered: {error}")


@pytest.fixture(scope="module")
def task(contents) -> tasks.Task:
    return tasks.build("mnist")


def test_files_have_the_published_content(contents) -> None:
    assert {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()} == {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    }
    assert {file.name: file.size for file in MNIST_FILES} == {n: len(c) for n, c in contents.items()}


def test_label_histogram(task) -> None:
    labels = task.info()["labels"]
    train = np.array(labels["train"]) + np.array(labels["valid"])
    assert train.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert labels["test"] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_splits_are_disjoint_and_complete(contents) -> None:
    for validation, sizes in (("random-5%", (57_000, 3_000)), ("last-10000", (50_000, 10_000))):
        task = tasks.build("mnist", validation=validation)
        assert (task.count("train"), task.count("valid"), task.count("test")) == (*sizes, 10_000)
        both = np.concatenate([task.source_index["train"], task.source_index["valid"]])
        assert np.array_equal(np.sort(both), np.arange(60_000))
    assert np.array_equal(task.source_index["valid"], np.arange(50_000, 60_000))


def test_each_test_image_is_scored_exactly_once(task, contents) -> None:
    stored = np.frombuffer(contents["t10k-images-idx3-ubyte"], np.uint8, offset=16).reshape(-1, 784)
    labels = np.frombuffer(contents["t10k-labels-idx1-ubyte"], np.uint8, offset=8)
    meter, seen = task.meter(), []
    for x, y in task.batches("test", 96):  # 104 batches of 96 and one of 16
        seen.append(((x[..., 0].T + 1) * 128).to(torch.uint8).numpy())
        meter.update(torch.nn.functional.one_hot(y, 10).float(), y)
    assert np.array_equal(np.concatenate(seen), stored)
    assert np.array_equal(np.concatenate([y.numpy() for _, y in task.batches("test", 96)]), labels)
    assert meter.count == 10_000
    assert meter.value() == 0.0
    assert len(seen[-1]) == 16


def test_a_training_epoch_visits_every_image_at_most_once(task) -> None:
    labelled = np.zeros(10, dtype=np.int64)
    batches = 0
    for _, y in task.batches("train", 128, seed=1):
        labelled += np.bincount(y.numpy(), minlength=10)
        batches += 1
    assert batches == task.batches_per_epoch("train", 128) == 57_000 // 128
    missing = np.array(task.info()["labels"]["train"]) - labelled
    assert missing.min() >= 0
    assert missing.sum() == 57_000 % 128


def test_images_and_labels_stay_together_in_shuffled_batches(task, contents) -> None:
    stored = np.frombuffer(contents["train-images-idx3-ubyte"], np.uint8, offset=16).reshape(-1, 784)
    labels = np.frombuffer(contents["train-labels-idx1-ubyte"], np.uint8, offset=8)
    label_of = {hash(image.tobytes()): int(label) for image, label in zip(stored, labels, strict=True)}
    x, y = next(task.batches("train", 500, seed=9, epoch=3))
    pixels = ((x[..., 0].T + 1) * 128).to(torch.uint8).numpy()
    assert [label_of[hash(image.tobytes())] for image in pixels] == y.tolist()


def test_scalings(contents) -> None:
    low = next(tasks.build("mnist", scaling="zero-one").batches("test", 50))[0]
    wide = next(tasks.build("mnist").batches("test", 50))[0]
    assert (float(low.min()), float(low.max())) == (0.0, 1.0)
    pixels = torch.round(low * 255)
    assert torch.equal(wide, 2 * (pixels / 256 - 0.5))
    assert float(wide.min()) == -1.0


@pytest.mark.parametrize("name", [*orders.KNOWN, "seed-0", "seed-7"])
def test_permuted_pixels_are_read_in_the_named_order(name: str, task) -> None:
    permuted = tasks.build("pmnist", permutation=name)
    x, y = next(permuted.batches("test", 20))
    plain, label = next(task.batches("test", 20))
    assert torch.equal(x, plain[torch.from_numpy(orders.order(name))])
    assert torch.equal(y, label)
    assert permuted.definition()["order_sha256"] == orders.order_hash(orders.order(name))
    assert name in permuted.name or name == "rowwise"


def test_fingerprints_differ_by_order(contents) -> None:
    names = [*orders.KNOWN, "seed-0"]
    assert len({tasks.build("pmnist", permutation=name).fingerprint for name in names}) == len(names)


def test_export(task) -> None:
    rows = task.to_dataset("valid")
    assert len(rows) == 3000
    assert rows.features["label"].num_classes == 10
    x, y = next(task.batches("valid", 3))
    assert np.array_equal(np.asarray(rows[:3]["pixels"]), ((x[..., 0].T + 1) * 128).numpy())
    assert rows[:3]["label"] == y.tolist()
    assert rows[:3]["index"] == task.source_index["valid"][:3].tolist()


def test_orders_are_those_of_the_literature() -> None:
    assert np.array_equal(orders.order("exprnn"), np.random.RandomState(92916).permutation(784))
    torch.manual_seed(5544)
    assert np.array_equal(orders.order("torch-5544"), torch.randperm(784).numpy())
    torch.manual_seed(12008)
    assert np.array_equal(orders.order("torch-12008"), torch.randperm(784).numpy())
    np.random.seed(1)
    assert np.array_equal(orders.order("resample-1"), np.random.randint(0, 784, size=784))
    assert orders.order("bitreversal")[:8].tolist() == [0, 512, 256, 768, 128, 640, 384, 64]
    assert np.array_equal(orders.order("seed-3"), np.random.RandomState(3).permutation(784))
    for name in orders.KNOWN:
        distinct = len(set(orders.order(name).tolist()))
        assert distinct == (501 if name == "resample-1" else 784)


def test_order_hashes_are_pinned(monkeypatch) -> None:
    assert orders.KNOWN["exprnn"] == "96240fe27409981c3ed3e92c20d995f7103a94c2282307bc776923030113be74"
    monkeypatch.setitem(orders.KNOWN, "exprnn", "0" * 64)
    with pytest.raises(RuntimeError, match="another pixel order 'exprnn'"):
        orders.order("exprnn")


@pytest.mark.parametrize(
    "name", ["expRNN", "seed-", "seed--1", "seed-4294967296", "seed-x", "torch-1", "", "resample-2"]
)
def test_unknown_orders_are_refused_before_any_download(name: str, monkeypatch) -> None:
    monkeypatch.setattr(download, "load", lambda *_: pytest.fail("asked for data"))
    with pytest.raises(ValueError, match=r"not a known pixel order; there are: rowwise, exprnn"):
        tasks.build("pmnist", permutation=name)


@pytest.mark.parametrize("option", ["scaling", "validation"])
@pytest.mark.parametrize("name", ["mnist", "pmnist"])
def test_no_bad_option_costs_a_download(name: str, option: str, monkeypatch) -> None:
    monkeypatch.setattr(download, "load", lambda *_: pytest.fail("asked for data"))
    mnist._read.cache_clear()
    with pytest.raises(ValueError, match=f"^{option}='wrong' must be one of: "):
        tasks.build(name, **{option: "wrong"})


def test_other_bad_options(contents) -> None:
    with pytest.raises(ValueError, match="scaling='0-1' must be one of"):
        tasks.build("mnist", scaling="0-1")
    with pytest.raises(ValueError, match="validation='none' must be one of"):
        tasks.build("mnist", validation="none")
    with pytest.raises(ValueError, match="batch_size=57001"):
        tasks.build("mnist").batches("train", 57_001)
