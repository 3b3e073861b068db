"""Turning training clips: proper rotations, drawn from the batch's own generator, and only in training."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import tasks
from tasks import rng
from tasks.ntu.rotation import draw_angles, rotate, rotations


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DURNN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def build(**options: object) -> tasks.Task:
    return tasks.build("ntu-cs-synthetic", performances=2, **options)


def test_matrices_are_rotations() -> None:
    R = rotations(draw_angles(500, np.pi, rng.generator("test")))
    np.testing.assert_allclose(R.transpose(0, 2, 1) @ R, np.broadcast_to(np.eye(3), R.shape), atol=1e-15)
    np.testing.assert_allclose(np.linalg.det(R), 1.0, atol=1e-14)


def test_they_turn_about_x_then_y_then_z() -> None:
    about_x, about_y, about_z = (rotations(np.array([angles]))[0] for angles in np.diag([0.1, 0.2, 0.3]))
    c, s = np.cos(0.1), np.sin(0.1)
    np.testing.assert_allclose(about_x, [[1, 0, 0], [0, c, -s], [0, s, c]])
    np.testing.assert_allclose(about_y @ (0, 0, 1), [np.sin(0.2), 0, np.cos(0.2)])
    np.testing.assert_allclose(about_z @ (1, 0, 0), [np.cos(0.3), np.sin(0.3), 0])
    np.testing.assert_allclose(rotations(np.array([[0.1, 0.2, 0.3]]))[0], about_z @ about_y @ about_x)


def test_angles_are_uniform_up_to_the_most() -> None:
    angles = draw_angles(20_000, 0.3, rng.generator("test"))
    assert angles.shape == (20_000, 3)
    assert -0.3 <= angles.min() < -0.299
    assert 0.299 < angles.max() < 0.3
    np.testing.assert_allclose(angles.mean(axis=0), 0.0, atol=0.006)
    np.testing.assert_allclose(angles.std(axis=0), 0.3 / np.sqrt(3.0), rtol=0.02)
    assert np.abs(np.corrcoef(angles.T) - np.eye(3)).max() < 0.03


def test_a_clip_is_turned_as_one_and_absent_bodies_stay_zero() -> None:
    x = np.random.default_rng(0).normal(size=(7, 4, 150)).astype(np.float32)
    x[3:5, 1, 75:] = 0.0
    x[6, 2] = 0.0
    R = rotations(draw_angles(4, 1.0, rng.generator("test")))
    turned = rotate(x, R)
    assert turned.dtype == np.float32
    np.testing.assert_array_equal(turned.reshape(7, 4, 50, 3).any(-1), x.reshape(7, 4, 50, 3).any(-1))
    for clip in range(4):
        np.testing.assert_allclose(
            turned[:, clip].reshape(-1, 3), x[:, clip].reshape(-1, 3).astype(np.float64) @ R[clip].T, atol=2e-6
        )


@pytest.mark.parametrize("frames", ["sampled", "whole"])
def test_training_is_turned_and_can_be_entered_anywhere(frames: str) -> None:
    plain, turned = build(frames=frames), build(frames=frames, rotation=0.3)
    epoch = [list(task.batches("train", 40, seed=1, epoch=2)) for task in (plain, turned)]
    for before, after in zip(*epoch, strict=True):
        assert torch.equal(before[1], after[1])
        assert not torch.equal(before[0], after[0])
        there = [batch[0].unflatten(-1, (50, 3)) for batch in (before, after)]
        lengths = [joints.norm(dim=-1) for joints in there]
        torch.testing.assert_close(*lengths, atol=1e-5, rtol=1e-5)  # the same frames of the same clips
    for start in range(len(epoch[1])):
        rest = list(turned.batches("train", 40, seed=1, epoch=2, start=start))
        for again, batch in zip(rest, epoch[1][start:], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(again, batch, strict=True))
    other = next(turned.batches("train", 40, seed=1, epoch=3))
    assert not torch.equal(other[0][:5], epoch[1][0][0][:5])


@pytest.mark.parametrize("frames", ["sampled", "whole"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_validation_and_test_are_left_alone(split: str, frames: str) -> None:
    plain, turned = build(frames=frames), build(frames=frames, rotation=0.3)
    for before, after in zip(plain.batches(split, 50), turned.batches(split, 50), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_it_is_part_of_the_fingerprint_and_absent_if_off() -> None:
    assert "rotation" not in build().definition()
    assert build(rotation=0.0).fingerprint == build().fingerprint
    assert len({build(rotation=most).fingerprint for most in (0.0, 0.1, 0.3)}) == 3


@pytest.mark.parametrize("most", [-0.1, 3.2, float("nan"), float("inf")])
def test_bad_angles(most: float) -> None:
    with pytest.raises(ValueError, match=f"^rotation={most} must be an angle from 0 to pi"):
        build(rotation=most)


def test_features_that_no_rotation_changes_are_not_rotated() -> None:
    with pytest.raises(ValueError, match=r"^rotation=0.3 must be 0 for joint-line-distances"):
        build(rotation=0.3, features="joint-line-distances")
