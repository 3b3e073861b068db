"""What the network is given of a frame: the coordinates, or distances between joints and lines.

Joint-line distances after Zhang, Liu and Xiao ("On geometric features for skeleton-based action recognition", WACV
2017): of the main actor only, the distance of each joint to each of 39 lines through two other joints. They do not
change when the body is moved or turned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tasks.ntu.clip import COORDINATES, JOINTS, PARENTS

_BONES = sorted({(min(pair), max(pair)) for pair in enumerate(PARENTS)})
_TWO_STEPS = [(3, 20), (8, 10), (4, 6), (12, 14), (16, 18)]  # from the ends of the chains two steps inwards
_BETWEEN_ENDS = list(combinations((3, 6, 10, 14, 18), 2))  # head, wrists, ankles
LINES = (*_BONES, *_TWO_STEPS, *_BETWEEN_ENDS)
CORNERS = [(j0, j1, j2) for j1, j2 in LINES for j0 in range(JOINTS) if j0 not in (j1, j2)]  # a joint and its line
_SHORTEST = np.float32(1e-5)  # stands for the length of a line between two joints in one place

# All 300 pairs of joints, and which of them are the sides of the 897 triangles.
_PAIRS = list(combinations(range(JOINTS), 2))
_NUMBER = {pair: number for number, pair in enumerate(_PAIRS)} | {pair[::-1]: k for k, pair in enumerate(_PAIRS)}
_ENDS = np.array(_PAIRS).T  # (2, 300)
_SIDE_A = np.array([_NUMBER[j0, j1] for j0, j1, _ in CORNERS]).reshape(len(LINES), JOINTS - 2)
_SIDE_B = np.array([_NUMBER[j0, j2] for j0, _, j2 in CORNERS]).reshape(len(LINES), JOINTS - 2)
_LINE = np.array([_NUMBER[line] for line in LINES])
_BLOCK = 128  # frames at a time: what is needed for them stays in the cache of a core


def coordinates(frames: np.ndarray) -> np.ndarray:
    """The coordinates as they are."""
    return frames


def joint_line_distances(frames: np.ndarray) -> np.ndarray:
    """Distance of joint to line for each of CORNERS, (..., 897), from the coordinates of one body, (..., 75); float32.

    Twice the area of the triangle over its base, the area by Heron's formula. An absent body, all zeros, gives zeros.
    Rounding matters most where the joint is on the line: there, a few millimetres stand for zero.
    """
    flat = np.ascontiguousarray(frames, dtype=np.float32).reshape(-1, JOINTS * 3)
    distances = np.empty((len(flat), len(CORNERS)), dtype=np.float32)
    memory = np.empty((3, len(CORNERS), _BLOCK), dtype=np.float32)  # taken once, because fresh memory costs time
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        joints = np.ascontiguousarray(block.T).reshape(JOINTS, 3, len(block))
        distances[start : start + _BLOCK] = _heights(joints, memory[..., : len(block)]).T
    return distances.reshape(*frames.shape[:-1], len(CORNERS))


def _heights(joints: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """(897, N) from joints (25, 3, N); works in `memory` (3, 897, N) and returns a part of it."""
    apart = joints[_ENDS[0]] - joints[_ENDS[1]]
    apart *= apart
    sides = np.sqrt(apart[:, 0] + apart[:, 1] + apart[:, 2])  # (300, N)
    a, b, half = memory.reshape(3, len(LINES), JOINTS - 2, -1)  # each (39, 23, N)
    np.take(sides, _SIDE_A, axis=0, out=a, mode="clip")
    np.take(sides, _SIDE_B, axis=0, out=b, mode="clip")
    base = sides[_LINE][:, None]  # (39, 1, N)
    np.add(a, b, out=half)
    half += base
    half *= np.float32(0.5)
    np.subtract(half, a, out=a)
    np.subtract(half, b, out=b)
    square = np.multiply(a, b, out=a)
    square *= half
    half -= base
    square *= half
    np.maximum(square, np.float32(0.0), out=square)  # rounding may make it negative where the joint is on the line
    area = np.sqrt(square, out=square)
    area *= np.float32(2.0) / np.where(base == 0.0, _SHORTEST, base)
    return area.reshape(len(CORNERS), -1)


@dataclass(frozen=True)
class Features:
    """How many columns of a frame are used, and what is made of them."""

    columns: int
    width: int
    compute: Callable[[np.ndarray], np.ndarray]
    rigid: bool  # whether they stay the same when all is moved or turned

    def of(self, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Features (T, B, width) of frames (T, B, columns); zeros where the mask (T, B) has padding."""
        if mask is None or self.compute is coordinates:
            return self.compute(x)
        features = np.zeros((*mask.shape, self.width), dtype=np.float32)
        features[mask] = self.compute(x[mask])
        return features


FEATURES = {
    "coordinates": Features(COORDINATES, COORDINATES, coordinates, rigid=False),
    "joint-line-distances": Features(JOINTS * 3, len(CORNERS), joint_line_distances, rigid=True),
}
