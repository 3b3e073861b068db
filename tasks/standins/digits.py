"""Drawn digits for a machine that cannot get MNIST: strokes with a random hand, pen and slant.

Only additions, multiplications, divisions and square roots are used, which IEEE arithmetic rounds in one way, so
the images and their hash are the same on every machine.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from tasks import rng

COUNTS = {"train": 12_000, "test": 2_000}
_BLOCK = 500  # images drawn at once: bounds memory

# strokes as polylines in a unit square, x to the right, y downwards
_STROKES: dict[int, list[list[tuple[float, float]]]] = {
    0: [[(0.5, 0.08), (0.25, 0.2), (0.18, 0.5), (0.27, 0.82), (0.5, 0.93)],
        [(0.5, 0.93), (0.74, 0.8), (0.82, 0.5), (0.73, 0.2), (0.5, 0.08)]],
    1: [[(0.35, 0.25), (0.53, 0.08), (0.52, 0.5), (0.5, 0.93)]],
    2: [[(0.22, 0.28), (0.4, 0.1), (0.66, 0.13), (0.74, 0.33), (0.55, 0.6), (0.2, 0.9), (0.5, 0.87), (0.82, 0.9)]],
    3: [[(0.22, 0.14), (0.55, 0.08), (0.75, 0.26), (0.45, 0.47), (0.76, 0.68), (0.6, 0.9), (0.22, 0.86)]],
    4: [[(0.4, 0.08), (0.2, 0.56), (0.84, 0.56)], [(0.66, 0.3), (0.62, 0.6), (0.6, 0.94)]],
    5: [[(0.78, 0.1), (0.32, 0.1), (0.28, 0.45), (0.6, 0.42), (0.78, 0.65), (0.58, 0.9), (0.22, 0.86)]],
    6: [[(0.68, 0.08), (0.38, 0.3), (0.24, 0.65), (0.45, 0.92), (0.74, 0.78), (0.66, 0.54), (0.28, 0.62)]],
    7: [[(0.2, 0.12), (0.5, 0.12), (0.8, 0.11), (0.58, 0.5), (0.42, 0.94)]],
    8: [[(0.5, 0.48), (0.28, 0.28), (0.5, 0.08), (0.72, 0.26), (0.5, 0.48)],
        [(0.5, 0.48), (0.26, 0.7), (0.5, 0.93), (0.75, 0.72), (0.5, 0.48)]],
    9: [[(0.72, 0.34), (0.5, 0.48), (0.28, 0.3), (0.46, 0.09), (0.72, 0.3), (0.68, 0.65), (0.55, 0.94)]],
}  # fmt: skip


@lru_cache(maxsize=1)
def draw_all() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """split -> images uint8 (count, 784) and labels uint8 (count,)."""
    return {split: _draw_split(split, count) for split, count in COUNTS.items()}


def _draw_split(split: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.below(rng.words(count, "glyphs", split, "labels"), 10)
    images = np.zeros((count, 784), dtype=np.uint8)
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        for block in range(0, len(rows), _BLOCK):
            chosen = rows[block : block + _BLOCK]
            images[chosen] = _draw(digit, len(chosen), split, block)
    return images, labels.astype(np.uint8)


def _draw(digit: int, count: int, *key: rng.Key) -> np.ndarray:
    """`count` images of one digit, uint8 (count, 784)."""
    segments = np.array(
        [(*start, *end) for stroke in _STROKES[digit] for start, end in pairwise(stroke)],
        dtype=np.float32,
    )  # (S, 4)
    corners, ends = np.unique(segments.reshape(-1, 2), axis=0, return_inverse=True)
    ends = ends.reshape(-1)
    width = 2 * len(corners) + 12
    words = rng.words(count * (width + 784), "glyphs", digit, *key)
    u = rng.uniform(words[: count * width]).reshape(count, width) * 2 - 1  # (count, width) in [-1, 1)
    noise = words[count * width :].reshape(count, 784)

    # the hand: each corner wanders a little, the whole leans, stretches, turns and shifts
    shape = corners[None] - np.float32(0.5) + np.float32(0.055) * u[:, 12:].reshape(count, -1, 2)
    turn = np.float32(0.17) * u[:, 0:1]
    cosine, sine = (1 - turn * turn) / (1 + turn * turn), 2 * turn / (1 + turn * turn)
    x = shape[..., 0] * (np.float32(0.78) + np.float32(0.18) * u[:, 1:2])
    y = shape[..., 1] * (np.float32(0.8) + np.float32(0.12) * u[:, 2:3])
    x = x + np.float32(0.2) * u[:, 3:4] * y
    x, y = cosine * x - sine * y, sine * x + cosine * y
    x = 14 + 24 * x + 2 * u[:, 4:5]
    y = 14 + 24 * y + 2 * u[:, 5:6]

    # squared distance of every pixel to the nearest stroke
    pixel = np.arange(28, dtype=np.float32) + np.float32(0.5)
    nearest = np.full((count, 28, 28), 1e9, dtype=np.float32)
    for start, end in ends.reshape(-1, 2):
        ax, ay = x[:, start, None, None], y[:, start, None, None]
        bx, by = x[:, end, None, None] - ax, y[:, end, None, None] - ay
        px, py = pixel[None, None, :] - ax, pixel[None, :, None] - ay
        along = np.clip((px * bx + py * by) / (bx * bx + by * by + np.float32(1e-3)), 0, 1)
        dx, dy = px - along * bx, py - along * by
        np.minimum(nearest, dx * dx + dy * dy, out=nearest)
    pen = (np.float32(1.35) + np.float32(0.5) * u[:, 6])[:, None, None]
    ink = np.clip(pen + np.float32(0.5) - np.sqrt(nearest), 0, 1) * (
        np.float32(0.85) + np.float32(0.15) * u[:, 7, None, None]
    )
    images = (ink * 255).astype(np.uint8).reshape(count, 784)
    # specks: one pixel in 64 of each image is replaced by a random grey
    return np.where(noise & 63 == 0, (noise >> 24).astype(np.uint8), images)
