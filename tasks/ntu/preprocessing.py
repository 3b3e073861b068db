"""Conventions for the coordinates of a clip, as pure functions on frames (T, 2, 25, 3).

Absent bodies are zeros and stay zeros. Body 0 is the main actor. Joint numbers in the papers are 1-based: their joint 2
is SpineMid, 5 and 9 are the shoulders, 1 and 21 are the ends of the spine.
"""

from collections.abc import Callable

import numpy as np

from tasks.ntu.clip import SHOULDER_LEFT, SHOULDER_RIGHT, SPINE_BASE, SPINE_MID, SPINE_SHOULDER

Preprocessing = Callable[[np.ndarray], np.ndarray]

_SMALLEST = 1e-6  # metres; shorter axes have no direction


def present(frames: np.ndarray) -> np.ndarray:
    """Which body is there in which frame, (T, 2) bool."""
    return np.any(frames != 0, axis=(-2, -1))


def compose(*steps: Preprocessing) -> Preprocessing:
    """One convention that applies the steps from left to right."""

    def apply(frames: np.ndarray) -> np.ndarray:
        for step in steps:
            frames = step(frames)
        return frames

    return apply


def raw(frames: np.ndarray) -> np.ndarray:
    """The camera's coordinates as stored."""
    return frames


def s_trans(frames: np.ndarray) -> np.ndarray:
    """One translation per clip: SpineMid of the main actor, where it is first seen, becomes the origin."""
    first = _first_frame(frames)
    return frames if first is None else _move(frames, frames[first, 0, SPINE_MID])


def s_rota(frames: np.ndarray) -> np.ndarray:
    """One rotation per clip, about the origin: the main actor, where first seen, faces the front.

    x runs along the shoulder line from right to left, y along the spine (made orthogonal to x), z = x cross y. If
    these axes cannot be told, nothing is rotated. Meant to follow `s_trans`.
    """
    first = _first_frame(frames)
    if first is None:
        return frames
    axes = _axes(frames[first, 0][None])[0]  # rows x y z
    return (frames.astype(np.float64) @ axes.T).astype(np.float32)


def p_ntu(frames: np.ndarray) -> np.ndarray:
    """A new coordinate system in each frame: origin, axes and spine length of the main actor.

    Where the main actor is absent, the system of the nearest earlier frame (or the first one) is used.
    """
    there = present(frames)
    seen = np.flatnonzero(there[:, 0])
    if seen.size == 0:
        return frames
    actor = seen[np.maximum(np.searchsorted(seen, np.arange(len(frames)), side="right") - 1, 0)]
    pose = frames[actor, 0].astype(np.float64)  # (T, 25, 3)
    spine = np.linalg.norm(pose[:, SPINE_SHOULDER] - pose[:, SPINE_BASE], axis=-1)
    scale = np.where(spine > _SMALLEST, spine, 1.0)[:, None, None, None]
    centred = frames - pose[:, None, None, SPINE_MID]
    turned = centred @ _axes(pose)[:, None].transpose(0, 1, 3, 2) / scale
    return np.where(there[..., None, None], turned, 0.0).astype(np.float32)


CONVENTIONS: dict[str, Preprocessing] = {
    "raw": raw,
    "s-trans": s_trans,
    "s-rota": compose(s_trans, s_rota),
    "p-ntu": p_ntu,
}


def _first_frame(frames: np.ndarray) -> int | None:
    seen = np.flatnonzero(present(frames)[:, 0])
    return int(seen[0]) if seen.size else None


def _move(frames: np.ndarray, origin: np.ndarray) -> np.ndarray:
    return np.where(present(frames)[..., None, None], frames - origin, np.float32(0.0))


def _axes(pose: np.ndarray) -> np.ndarray:
    """Rows x y z of the body's own axes for poses (T, 25, 3), (T, 3, 3) float64; identity where undefined."""
    pose = pose.astype(np.float64)
    x = pose[:, SHOULDER_LEFT] - pose[:, SHOULDER_RIGHT]
    y = pose[:, SPINE_SHOULDER] - pose[:, SPINE_BASE]
    length_x = np.linalg.norm(x, axis=-1, keepdims=True)
    x = x / np.maximum(length_x, _SMALLEST)
    y = y - (y * x).sum(axis=-1, keepdims=True) * x
    length_y = np.linalg.norm(y, axis=-1, keepdims=True)
    y = y / np.maximum(length_y, _SMALLEST)
    axes = np.stack([x, y, np.cross(x, y)], axis=-2)
    defined = (length_x > _SMALLEST) & (length_y > _SMALLEST)
    return np.where(defined[..., None], axes, np.eye(3))
