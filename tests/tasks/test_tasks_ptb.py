"""PTB by characters on the real bytes (fetched on first use), and how text becomes batches."""

import gzip
import hashlib

import numpy as np
import pytest
import torch

import tasks
from tasks import download
from tasks.base import IGNORE
from tasks.ptb import EOS, SYMBOLS, CharacterText, decode, encode

COUNTS = {"train": 5_017_482, "valid": 393_042, "test": 442_423}
CHARACTER_FILES = {  # lines stripped, space written _, and a space after every symbol, the newline among them
    "train": "e313d91425e06c4f0a8fb6e881dcce0c291f2a0e9f4dda54833069b122f91da9",
    "valid": "21661f63ec355085879458b6524644d4add5573541b4be14fb52ab2e2e995eb8",
    "test": "1ef5607ac3c463b16e38bfe7900dd3bfc91de5a96e0f21e7eab5188b465b8ebe",
}


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    try:
        return download.load("ptb-c")
    except download.DataError as error:
        pytest.skip(f"no source of PTB answered: {error}")


@pytest.fixture(scope="module")
def task(contents) -> CharacterText:
    return tasks.build("ptb-c")


def character_file(text: str) -> bytes:
    return "".join(symbol + " " for symbol in text.replace(" ", "_")).encode()


def toy(characters: int, **options: object) -> CharacterText:
    texts = {
        split: np.random.RandomState(place).randint(0, 50, size=characters).astype(np.uint8)
        for place, split in enumerate(("train", "valid", "test"))
    }
    return CharacterText("toy", texts, **({"length": 7, "segments": "carried", "random_offset": True} | options))


def test_counts_and_vocabulary(task) -> None:
    assert {split: task.count(split) for split in task.splits} == COUNTS
    assert len(SYMBOLS) == task.input_size == task.output_size == 50
    for split in task.splits:
        assert set(task.text(split)) <= set(SYMBOLS)
    assert set(task.text("train")) == set(SYMBOLS)


def test_the_ids_are_the_published_character_files(task) -> None:
    for split, expected in CHARACTER_FILES.items():
        assert hashlib.sha256(character_file(task.text(split))).hexdigest() == expected


def test_either_published_form_is_accepted_from_a_folder(task, contents, tmp_path) -> None:
    (tmp_path / "ptb-c").mkdir()
    for split in ("train", "valid"):
        (tmp_path / f"ptb.char.{split}.txt").write_bytes(character_file(task.text(split)))
    packed = gzip.compress(contents["ptb.test.txt"], compresslevel=1)
    (tmp_path / "ptb-c" / "ptb.test.txt.gz").write_bytes(packed)
    assert download.load("ptb-c", tmp_path) == contents
    assert tasks.build("ptb-c", data_folder=str(tmp_path)).fingerprint == task.fingerprint


@pytest.mark.parametrize("segments", ["carried", "independent"])
@pytest.mark.parametrize("batch_size", [1, 100, 128])
def test_each_character_of_the_test_text_is_scored_exactly_once(task, segments: str, batch_size: int) -> None:
    length = 2000 if batch_size == 1 else 150
    task = tasks.build("ptb-c", length=length, segments=segments)
    seen = {"x": [], "y": []}
    meter = task.meter()
    for x, y in task.batches("test", batch_size):
        meter.update(torch.zeros(*y.shape, 50), y)
        seen["x"].append(x)
        seen["y"].append(y)
    assert meter.count == COUNTS["test"]
    assert meter.value() == pytest.approx(np.log2(50), rel=1e-6)
    # put back together, the labels are the text and the inputs are the text one step late
    axis = 0 if segments == "carried" else 1
    x, y = (torch.cat(seen[part], dim=axis).T.reshape(-1) for part in ("x", "y"))
    kept = y != IGNORE
    assert decode(y[kept].numpy()) == task.text("test")
    assert decode(x[kept].numpy()) == "\n" + task.text("test")[:-1]


@pytest.mark.parametrize("characters", [1, 6, 7, 8, 50, 97, 98, 99])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 14])
@pytest.mark.parametrize("segments", ["carried", "independent"])
def test_evaluation_covers_awkward_sizes(characters: int, batch_size: int, segments: str) -> None:
    task = toy(characters, segments=segments)
    batches = list(task.batches("valid", batch_size))
    assert len(batches) == task.batches_per_epoch("valid", batch_size)
    pairs = [(int(a), int(b)) for x, y in batches for a, b in zip(x.flatten(), y.flatten(), strict=True) if b != IGNORE]
    text = task._texts["valid"].tolist()
    assert sorted(pairs) == sorted(zip([EOS, *text[:-1]], text, strict=True))
    assert all(x.max() < 50 and x.min() >= 0 for x, _ in batches)


def test_carried_batches_continue_each_other() -> None:
    task = toy(3000)
    assert task.carries_state
    before = None
    batches = list(task.batches("train", 4, seed=2, epoch=5))
    for x, y in batches:
        assert torch.equal(x[1:], y[:-1])
        if before is not None:
            assert torch.equal(x[0], before)
        before = y[-1]
    assert all(y.shape == (7, 4) and bool((y != IGNORE).all()) for _, y in batches)
    # the streams are neighbouring stretches of the text
    streams = torch.cat([y for _, y in batches]).T.reshape(-1).numpy()
    text = task._texts["train"]
    offsets = [o for o in range(35) if np.array_equal(text[o : o + len(streams)], streams)]
    assert len(offsets) == 1


def test_the_offset_moves_with_the_epoch_and_stays_below_five_lengths() -> None:
    task = toy(3000)
    text = task._texts["train"]
    found = set()
    for epoch in range(600):
        _, y = next(task.batches("train", 1, seed=0, epoch=epoch))
        found |= {o for o in range(60) if np.array_equal(text[o : o + 7], y[:, 0].numpy())}
    assert found == set(range(35))
    fixed = toy(3000, random_offset=False)
    x, y = next(fixed.batches("train", 1, seed=3, epoch=3))
    assert np.array_equal(y[:, 0].numpy(), text[:7])
    assert x[0, 0] == EOS


def test_independent_stretches_are_shuffled_and_come_once() -> None:
    task = toy(7 * 30, segments="independent", random_offset=False)
    assert not task.carries_state
    text = task._texts["train"].reshape(30, 7)
    batches = list(task.batches("train", 4, seed=1))
    assert len(batches) == 7
    rows = torch.cat([y for _, y in batches], dim=1).T.numpy()
    places = [int(np.flatnonzero((text == row).all(1))[0]) for row in rows]
    assert len(set(places)) == 28
    assert places != sorted(places)
    for x, y in batches:
        assert torch.equal(x[1:], y[:-1])


def test_export_holds_the_same_text(task) -> None:
    rows = task.to_dataset("valid")
    assert "".join(line + "\n" for line in rows["text"]) == task.text("valid")
    assert np.array_equal(np.concatenate(rows.with_format("numpy")[:]["ids"]), task._texts["valid"])


def test_bad_options_and_text_are_named(monkeypatch) -> None:
    monkeypatch.setattr(download, "load", lambda *_: pytest.fail("asked for data"))
    with pytest.raises(ValueError, match="length=0"):
        tasks.build("ptb-c", length=0)
    with pytest.raises(ValueError, match="segments='stateful' must be one of: carried, independent"):
        tasks.build("ptb-c", segments="stateful")
    with pytest.raises(ValueError, match="batch_size=100 is too large: toy"):
        toy(100).batches("train", 100)
    with pytest.raises(ValueError, match="not among the 50 symbols: 'Q'"):
        encode(b" a Q \n")
    assert decode(encode(b" no it was \n  n't  \n")) == "no it was\nn't\n"
