"""From where the cameras of the stand-in look, measured on what the sensor reports."""

import numpy as np
import pytest

from tasks.ntu.bodies import select_people
from tasks.ntu.clip import SHOULDER_LEFT, SHOULDER_RIGHT, SPINE_BASE, SPINE_SHOULDER
from tasks.ntu.names import SUBJECTS_OF_SETUP, ClipName
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.standin.sensor import film

POINTING = (1, 5, 9)  # actions that start from rest, with straight trunk: their first frame tells the facing
PERFORMANCES = [(setup, subjects[0], action) for setup, subjects in SUBJECTS_OF_SETUP.items() for action in POINTING]


def clips(camera: int, replication: int) -> list[np.ndarray]:
    """The main actor of one performance for each setup and action, each (T, 1, 25, 3)."""
    names = [ClipName(setup, camera, subject, replication, action) for setup, subject, action in PERFORMANCES]
    return [select_people(film(name, 0))[:, :1] for name in names]


def view(frames: np.ndarray) -> tuple[float, float]:
    """Degrees by which the actor is turned to the camera's left, and degrees by which the camera looks down."""
    first = frames[np.any(frames != 0, axis=(1, 2, 3))][0, 0].astype(np.float64)
    across = first[SHOULDER_LEFT] - first[SHOULDER_RIGHT]
    spine = first[SPINE_SHOULDER] - first[SPINE_BASE]
    front = np.cross(across, spine)
    spine /= np.linalg.norm(spine)
    return float(np.rad2deg(np.arctan2(front[0], -front[2]))), float(np.rad2deg(np.arcsin(-spine[2])))


@pytest.mark.parametrize(
    ("camera", "replication", "turned"), [(1, 1, -45), (1, 2, 45), (2, 1, -90), (2, 2, 0), (3, 1, 0), (3, 2, 90)]
)
def test_camera_1_sees_actors_half_turned_and_the_others_from_front_and_side(
    camera: int, replication: int, turned: int
) -> None:
    angles = np.array([view(frames)[0] for frames in clips(camera, replication)])
    assert abs(np.median(angles) - turned) < 6.0
    assert np.mean(np.abs(angles - turned) < 20.0) > 0.9


def test_camera_1_looks_down() -> None:
    tilt = {camera: np.median([view(frames)[1] for frames in clips(camera, 1)]) for camera in (1, 2, 3)}
    assert 12.0 < tilt[1] < 30.0
    assert abs(tilt[2]) < 10.0
    assert abs(tilt[3]) < 10.0


@pytest.mark.parametrize("other", [2, 3])
def test_the_cameras_see_one_performance_and_rotation_brings_their_views_together(other: int) -> None:
    apart: dict[str, list[float]] = {"s-trans": [], "s-rota": []}
    for ours, theirs in zip(clips(1, 2), clips(other, 2), strict=True):
        assert len(ours) == len(theirs)
        for convention, distances in apart.items():
            gap = np.linalg.norm(CONVENTIONS[convention](ours) - CONVENTIONS[convention](theirs), axis=-1)
            distances.append(float(np.median(gap)))
    assert np.median(apart["s-trans"]) > 0.13  # metres
    assert np.median(apart["s-rota"]) < 0.07  # noise on the shoulders tilts the axes
