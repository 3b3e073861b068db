"""The real data, where it is at hand: DURNN_NTU names its folder or zip."""

import os

import numpy as np
import pytest

import tasks
from tasks.ntu.bodies import select_people
from tasks.ntu.names import ClipName, usable_names
from tasks.ntu.readers.clip_sets import find_clips
from tasks.ntu.task import SkeletonClips

pytestmark = pytest.mark.skipif(
    not os.environ.get("DURNN_NTU"), reason="DURNN_NTU does not name the NTU RGB+D skeletons"
)


@pytest.mark.parametrize("protocol", ["cs", "cv"])
def test_counts(protocol: str) -> None:
    task = tasks.build(f"ntu-{protocol}")
    assert isinstance(task, SkeletonClips)
    actions = set(task.actions)
    expected = [name for name in usable_names() if name.action in actions]
    if len(task.clips) != len(expected):
        pytest.skip(f"the set has {len(task.clips)} clips of {len(actions)} classes, {len(expected)} would be complete")
    training = sum(name.trains(protocol) for name in expected)
    assert task.count("train") + task.count("valid") == training
    assert task.count("test") == len(expected) - training
    assert task.name == f"ntu-{protocol}" + (f"[{len(actions)} of 60 classes]" if len(actions) < 60 else "")
    assert task.packed.without_bodies == []


def test_the_first_ten_actions() -> None:
    clip_set = find_clips(None)
    names = [name for name in clip_set.names if ClipName.parse(name).action <= 10]
    if len(names) != 9406:
        pytest.skip(f"{len(names)} clips of the first ten actions are here, the published slice has 9406")
    lengths, several, gaps = [], 0, 0
    for name in names:
        clip = clip_set.read(name)
        bodies = np.bincount(clip.frame, minlength=clip.length)
        lengths.append(clip.length)
        several += bodies.max() >= 2
        gaps += bodies.min() == 0
        people = select_people(clip)
        assert people.any(axis=(2, 3))[:, 0].sum() > 0
        assert np.abs(people).max() < 20.0  # metres
    assert (min(lengths), max(lengths), np.median(lengths)) == (34, 225, 76)
    assert (several, gaps) == (277, 31)
