"""Augmentation: each training clip is turned about the origin, by other angles each time it is seen."""

import numpy as np

from tasks import rng


def draw_angles(count: int, most: float, generator: np.random.Generator) -> np.ndarray:
    """Angles about x, y and z for each of `count` clips, (count, 3) in radians, uniform from -most to most."""
    return most * (2.0 * rng.fractions(3 * count, generator).reshape(count, 3) - 1.0)


def rotations(angles: np.ndarray) -> np.ndarray:
    """R_z R_y R_x of angles (B, 3) about x, y and z: (B, 3, 3) float64."""
    (cx, cy, cz), (sx, sy, sz) = np.cos(angles).T, np.sin(angles).T
    rows = (
        (cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx),
        (sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx),
        (-sy, cy * sx, cy * cx),
    )
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def rotate(x: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Clips x (T, B, 3 n) of n points, each turned by its own matrix of turns (B, 3, 3); float32, zeros stay zeros."""
    T, B, width = x.shape
    turned = x.reshape(T, B, width // 3, 3) @ turns.astype(np.float32).transpose(0, 2, 1)
    return turned.reshape(T, B, width)
