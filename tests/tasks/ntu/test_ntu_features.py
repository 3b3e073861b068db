"""Distances between joints and lines, against the cross product and under rigid motion."""

import numpy as np
import pytest

from tasks.ntu.bodies import select_people
from tasks.ntu.clip import PARENTS
from tasks.ntu.features import CORNERS, FEATURES, LINES, joint_line_distances
from tasks.ntu.names import ClipName
from tasks.ntu.standin.sensor import film


@pytest.fixture(scope="module")
def poses() -> np.ndarray:
    """The main actor of a clip, (T, 25, 3) float64."""
    frames = select_people(film(ClipName.parse("S001C003P001R002A021"), 0))[:, 0]
    return frames[frames.any(axis=(1, 2))].astype(np.float64)


def distances(poses: np.ndarray) -> np.ndarray:
    return joint_line_distances(poses.reshape(len(poses), 75).astype(np.float32))


def by_cross_product(poses: np.ndarray) -> np.ndarray:
    j0, j1, j2 = np.array(CORNERS).T
    along = poses[:, j2] - poses[:, j1]
    area = np.linalg.norm(np.cross(poses[:, j0] - poses[:, j1], along), axis=-1)
    return area / np.linalg.norm(along, axis=-1)


def test_there_are_39_lines_and_897_distances() -> None:
    assert len(LINES) == len(set(LINES)) == 39
    assert {frozenset(line) for line in LINES[:24]} == {frozenset(pair) for pair in enumerate(PARENTS)}
    # 1-based, as published
    assert {tuple(j + 1 for j in line) for line in LINES[24:29]} == {(4, 21), (9, 11), (5, 7), (13, 15), (17, 19)}
    assert {j + 1 for line in LINES[29:] for j in line} == {4, 7, 11, 15, 19}
    assert len(CORNERS) == len(set(CORNERS)) == 897 == FEATURES["joint-line-distances"].width
    assert all(j0 not in (j1, j2) for j0, j1, j2 in CORNERS)


def test_they_are_those_of_the_cross_product(poses: np.ndarray) -> None:
    np.testing.assert_allclose(distances(poses), by_cross_product(poses), atol=2e-3, rtol=1e-4)  # metres
    assert np.abs(distances(poses) - by_cross_product(poses)).mean() < 1e-5


def test_no_rigid_motion_changes_them(poses: np.ndarray) -> None:
    q, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))
    assert not np.allclose(poses, poses @ q.T)
    far = np.array([0.3, -1.0, 2.0])
    for moved in (poses @ q.T, poses + far, poses @ q.T - far):
        np.testing.assert_allclose(distances(moved), distances(poses), atol=5e-3)
        assert np.abs(distances(moved) - distances(poses)).mean() < 2e-5


def test_stretching_stretches_them(poses: np.ndarray) -> None:
    np.testing.assert_allclose(distances(2.0 * poses), 2.0 * distances(poses), atol=1e-6)


def test_degenerate_bodies_give_finite_numbers() -> None:
    assert not distances(np.zeros((3, 25, 3))).any()  # absent
    assert not distances(np.ones((3, 25, 3))).any()  # all joints in one place
    straight = np.zeros((1, 25, 3))
    straight[0, :, 1] = np.linspace(0.0, 1.7, 25)  # every joint on every line: radicands around zero
    found = distances(straight)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 6e-3
    coinciding = np.random.default_rng(0).normal(size=(1, 25, 3))
    coinciding[0, 1] = coinciding[0, 20]  # a bone without length
    assert np.isfinite(distances(coinciding)).all()
    assert not distances(coinciding)[0, [j1 == 1 and j2 == 20 for _, j1, j2 in CORNERS]].any()


def test_any_shape_and_any_number_of_frames(poses: np.ndarray) -> None:
    one = distances(poses)
    many = np.tile(poses, (9, 1, 1))[:321]  # more than two blocks, and not a whole number of them
    np.testing.assert_array_equal(distances(many)[: len(one)], one)
    assert joint_line_distances(np.zeros((4, 5, 75), np.float32)).shape == (4, 5, 897)
    assert joint_line_distances(np.zeros((0, 5, 75), np.float32)).shape == (0, 5, 897)
    assert one.dtype == np.float32
