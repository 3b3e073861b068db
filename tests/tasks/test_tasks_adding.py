"""The adding problem against its definition."""

import numpy as np
import pytest
import torch

import tasks


@pytest.mark.parametrize("markers", ["anywhere", "halves"])
@pytest.mark.parametrize("length", [2, 3, 17, 100])
def test_the_target_is_the_sum_of_the_two_marked_numbers(length: int, markers: str) -> None:
    task = tasks.build("adding", length=length, markers=markers)
    for split in task.splits:
        x, y = next(task.batches(split, 200, seed=4))
        numbers, marks = x[..., 0], x[..., 1]
        assert set(marks.unique().tolist()) <= {0.0, 1.0}
        assert bool((marks.sum(0) == 2).all())
        assert torch.equal((numbers.double() * marks).sum(0).float(), y[:, 0])
        assert 0 <= float(numbers.min()) <= float(numbers.max()) < 1
        if markers == "halves":
            assert bool((marks[: length // 2].sum(0) == 1).all())


@pytest.mark.parametrize(("length", "expected"), [(5, [1 / 2] * 2 + [1 / 3] * 3), (4, [1 / 2] * 4)])
def test_markers_in_halves_reach_every_step(length: int, expected: list[float]) -> None:
    x, _ = next(tasks.build("adding", length=length, markers="halves", held_out=30_000).batches("test", 30_000))
    # five standard deviations of a proportion 1 / 2 over 30,000 draws
    assert x[..., 1].mean(1).tolist() == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(30_000))


def test_markers_anywhere_make_every_pair_equally_likely() -> None:
    T = 6
    task = tasks.build("adding", length=T, held_out=30_000)
    x, _ = next(task.batches("test", 30_000))
    pairs = x[..., 1].T.double()
    joint = (pairs.T @ pairs / 30_000).numpy()  # (T, T); a pair has probability 1 / 15
    off = ~np.eye(T, dtype=bool)
    # five standard deviations of a proportion 1 / 15 over 30,000 draws
    assert np.abs(joint[off] - 1 / 15).max() < 5 * np.sqrt(1 / 15 * 14 / 15 / 30_000)


def test_numbers_are_uniform_and_the_trivial_error_is_a_sixth() -> None:
    task = tasks.build("adding", length=50, held_out=20_000)
    x, y = next(task.batches("test", 20_000))
    numbers = x[..., 0].double()
    assert float(numbers.mean()) == pytest.approx(1 / 2, abs=0.002)
    assert float(numbers.var()) == pytest.approx(1 / 12, abs=0.001)
    meter = task.meter()
    meter.update(torch.ones_like(y), y)
    assert meter.value() == pytest.approx(1 / 6, abs=0.006)


def test_held_out_sets_are_fixed_covered_once_and_apart_from_training() -> None:
    task = tasks.build("adding", length=20, held_out=103)
    whole = {split: next(task.batches(split, 103)) for split in ("valid", "test")}
    for split, (x, y) in whole.items():
        parts = list(task.batches(split, 10))
        assert [part[1].shape[0] for part in parts] == [10] * 10 + [3]
        assert torch.equal(torch.cat([part[0] for part in parts], dim=1), x)
        assert torch.equal(torch.cat([part[1] for part in parts]), y)
    assert not torch.equal(whole["valid"][0], whole["test"][0])
    train = next(task.batches("train", 103))
    assert not torch.equal(train[0], whole["valid"][0])
    other = next(tasks.build("adding", length=20, held_out=103, data_seed=1).batches("test", 103))
    assert not torch.equal(other[0], whole["test"][0])


def test_training_never_repeats_over_epochs() -> None:
    task = tasks.build("adding", length=10)
    firsts = [x[0, 0, 0].item() for epoch in range(3) for x, _ in task.batches("train", 4, epoch=epoch)]
    assert len(firsts) == 300
    assert len(set(firsts)) > 290


def test_noise_moves_the_unmarked_numbers_and_nothing_else() -> None:
    clean, noisy = (tasks.build("adding", length=50, held_out=2000, noise=noise) for noise in (0.0, 1.0))
    for split in clean.splits:
        (x, y), (moved, same) = (next(task.batches(split, 2000, seed=3)) for task in (clean, noisy))
        assert torch.equal(y, same)
        assert torch.equal(x[..., 1], moved[..., 1])
        shift = moved[..., 0] - x[..., 0]
        assert bool((shift[x[..., 1] == 1] == 0).all())
        spread = shift[x[..., 1] == 0].double()
        assert float(spread.abs().max()) <= 1
        assert float(spread.mean()) == pytest.approx(0, abs=0.01)
        assert float(spread.var()) == pytest.approx(1 / 3, abs=0.01)  # of uniform numbers in [-1, 1)
    assert clean.fingerprint == tasks.build("adding", length=50, held_out=2000).fingerprint != noisy.fingerprint
    assert noisy.name == "adding[50, noise 1]"


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="length=1 must be at least 2"):
        tasks.build("adding", length=1)
    with pytest.raises(ValueError, match="markers='both' must be one of: anywhere, halves"):
        tasks.build("adding", markers="both")
    with pytest.raises(ValueError, match="held_out=0"):
        tasks.build("adding", held_out=0)
    with pytest.raises(ValueError, match="noise=-1 must be at least 0"):
        tasks.build("adding", noise=-1)


def test_export_holds_the_same_sequences() -> None:
    task = tasks.build("adding", length=12, held_out=9)
    rows = task.to_dataset("test").with_format("numpy")
    x, y = next(task.batches("test", 9))
    assert np.array_equal(np.asarray(rows["values"], dtype=np.float32), x[..., 0].numpy().T)
    assert np.allclose(rows["target"], y[:, 0].numpy())
    marked = np.zeros((9, 12))
    np.put_along_axis(marked, np.asarray(rows["positions"]), 1, axis=1)
    assert np.array_equal(marked, x[..., 1].numpy().T)
    assert len(task.to_dataset("train", count=5)) == 5
