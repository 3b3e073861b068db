"""Sixty made-up actions for a 25-joint skeleton, in world coordinates.

An action is a pose and a time course. There are 15 poses, each a set of joint angles (and for the last three what a
second person does), and four courses with the same mean: going into the pose, coming out of it, once there and back,
twice there and back. An average frame therefore tells the pose at best, and only the order of frames tells the rest.

Body axes: x to the person's left, y up, z forward. Lengths are in metres, angles in degrees.
"""

from dataclasses import dataclass

import numpy as np

from tasks.ntu.clip import JOINTS, PARENTS

# Offset of each joint from its parent in the rest pose: standing, arms hanging. The chain starts at SpineBase.
_ROOT = 0
_PARENT = {j: PARENTS[j] for j in range(JOINTS)} | {0: 0, 1: 0, 20: 1}
_ORDER = (1, 20, 2, 3, 4, 5, 6, 7, 21, 22, 8, 9, 10, 11, 23, 24, 12, 13, 14, 15, 16, 17, 18, 19)
_REST = np.zeros((JOINTS, 3))
_REST[[1, 20, 2, 3]] = [(0, 0.29, 0.0), (0, 0.24, 0), (0, 0.08, 0.01), (0, 0.14, 0.02)]
_LEFT_ARM = [
    (0.17, -0.05, 0),
    (0.03, -0.26, 0),
    (0.01, -0.24, 0.01),
    (0, -0.08, 0.01),
    (0, -0.07, 0),
    (-0.02, -0.03, 0.04),
]
_LEFT_LEG = [(0.08, -0.04, 0), (0.01, -0.40, 0.01), (0, -0.40, -0.02), (0, -0.05, 0.12)]
_REST[[4, 5, 6, 7, 21, 22]] = _LEFT_ARM
_REST[[8, 9, 10, 11, 23, 24]] = np.array(_LEFT_ARM) * (-1, 1, 1)
_REST[[12, 13, 14, 15]] = _LEFT_LEG
_REST[[16, 17, 18, 19]] = np.array(_LEFT_LEG) * (-1, 1, 1)

Angles = dict[int, tuple[float, float, float]]

# Joint -> rotation about x, y, z of what hangs on it, when the pose is fully taken. Arms and legs that differ only in
# where they point, seen from the body, are what an unfamiliar view confuses.
POSES: tuple[Angles, ...] = (
    {8: (-95, 0, 0)},  # point forward with the right arm
    {8: (-95, -45, 0)},  # point half to the right with it
    {8: (0, 0, -95)},  # point to the right
    {4: (-95, 0, 0)},  # point forward with the left arm
    {4: (-95, 45, 0)},  # point half to the left with it
    {4: (0, 0, 95)},  # point to the left
    {4: (-50, -30, 0), 8: (-50, 30, 0), 5: (-60, 0, 0), 9: (-60, 0, 0)},  # hands together in front
    {1: (45, 0, 0), 20: (25, 0, 0)},  # bow
    {1: (0, 45, 0), 20: (0, 30, 0), 8: (-40, 0, 0)},  # turn the trunk to the left
    {12: (-75, 0, 0), 13: (90, 0, 0), 16: (-75, 0, 0), 17: (90, 0, 0), 1: (20, 0, 0)},  # squat
    {16: (-60, 0, 0)},  # right leg forward
    {16: (0, 0, -60)},  # right leg out to the side
    {4: (-80, 0, 0), 8: (-80, 0, 0), 1: (15, 0, 0)},  # push the other
    {8: (-50, 0, 0), 9: (-45, 0, 0)},  # shake hands
    {16: (-65, 0, 0), 17: (15, 0, 0), 1: (-10, 0, 0)},  # kick the other
)
REACTIONS: dict[int, Angles] = {
    12: {1: (-20, 0, 0), 4: (-30, 0, 0), 8: (-30, 0, 0)},
    13: {8: (-50, 0, 0), 9: (-45, 0, 0)},
    14: {1: (30, 0, 0), 5: (-50, 0, 0), 9: (-50, 0, 0)},
}
COURSES = 4


@dataclass(frozen=True)
class Person:
    """What stays the same for a subject in all clips."""

    stature: float  # factor on all lengths
    limbs: float  # further factor on arms and legs
    tempo: float  # factor on speed
    vigour: float  # factor on angles
    posture: np.ndarray  # (25, 3) degrees added to every pose

    @classmethod
    def draw(cls, generator: np.random.Generator) -> "Person":
        posture = generator.normal(0.0, 3.0, (JOINTS, 3))
        posture[[0, 1, 20]] *= 0.4
        return cls(
            stature=generator.uniform(0.88, 1.12),
            limbs=generator.uniform(0.93, 1.07),
            tempo=generator.uniform(0.75, 1.35),
            vigour=generator.uniform(0.75, 1.15),
            posture=posture,
        )


def course(kind: int, length: int, generator: np.random.Generator) -> np.ndarray:
    """How far the pose is taken in each frame, (length,) from 0 to 1, with a still time at both ends."""
    begin, end = generator.uniform(0.0, 0.15), generator.uniform(0.85, 1.0)
    phase = np.clip((np.linspace(0.0, 1.0, length) - begin) / (end - begin), 0.0, 1.0)
    phase = phase ** generator.uniform(0.85, 1.2)  # some hurry at the start, some at the end
    if kind == 0:
        return phase**2 * (3.0 - 2.0 * phase)
    if kind == 1:
        return 1.0 - phase**2 * (3.0 - 2.0 * phase)
    return 0.5 - 0.5 * np.cos(2.0 * np.pi * (kind - 1) * phase)


def perform(person: Person, pose: Angles, taken: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The joints of a person who takes a pose as `taken` (T,) says: (T, 25, 3), feet on the ground, facing +z."""
    length = len(taken)
    target = np.zeros((JOINTS, 3))
    for joint, turn in pose.items():
        target[joint] = turn
    vigour = person.vigour * generator.uniform(0.9, 1.1)
    lively = 1.0 + generator.normal(0.0, 0.06, (JOINTS, 3))
    angles = person.posture + taken[:, None, None] * vigour * lively * target  # (T, 25, 3)
    angles += _sway(length, generator)
    rotations = _rotations(np.deg2rad(angles))  # (T, 25, 3, 3)

    offsets = _REST * person.stature
    offsets[4:20] *= person.limbs
    joints = np.zeros((length, JOINTS, 3))
    turned: dict[int, np.ndarray] = {_ROOT: rotations[:, _ROOT]}
    for joint in _ORDER:
        parent = _PARENT[joint]
        joints[:, joint] = joints[:, parent] + turned[parent] @ offsets[joint]
        turned[joint] = turned[parent] @ rotations[:, joint]
    joints[..., 1] -= joints[..., 1].min(axis=1, keepdims=True)
    return joints


def _sway(length: int, generator: np.random.Generator) -> np.ndarray:
    """Slow idle movement of all joints, (T, 25, 3) degrees."""
    time = np.arange(length)[:, None, None] / 30.0
    speed = generator.uniform(0.2, 1.2, (JOINTS, 3))
    phase = generator.uniform(0.0, 2.0 * np.pi, (JOINTS, 3))
    return generator.uniform(0.0, 4.0, (JOINTS, 3)) * np.sin(2.0 * np.pi * speed * time + phase)


def _rotations(angles: np.ndarray) -> np.ndarray:
    """Rotation matrices R_y R_x R_z of angles (..., 3) in radians, (..., 3, 3)."""
    (cx, cy, cz), (sx, sy, sz) = np.moveaxis(np.cos(angles), -1, 0), np.moveaxis(np.sin(angles), -1, 0)
    rows = (
        (cy * cz + sy * sx * sz, -cy * sz + sy * sx * cz, sy * cx),
        (cx * sz, cx * cz, -sx),
        (-sy * cz + cy * sx * sz, sy * sz + cy * sx * cz, cy * cx),
    )
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
