"""Which frames of a clip the network sees.

Sampled, vectorised over clips, there are three cases, for clips of n frames and `steps` samples:
    n >= 2 steps       one frame from each of `steps` segments of n // steps frames; the last takes the remainder too
    steps < n < 2 steps  a window of `steps` consecutive frames
    n <= steps         the clip with zeros around it

In the last case, training lets the clip start anywhere below max(steps - n, 5) and cuts what sticks out at the end.

Or whole: every frame that shows somebody, in order; or one of each window of so many of them.
"""

import numpy as np

from tasks import rng

EMPTY = -1  # a step at which there is no frame
_LEAST_ROOM = 5


def sample_frames(lengths: np.ndarray, steps: int, generator: np.random.Generator) -> np.ndarray:
    """Random frame numbers, (steps, B) int64, for clips of the given lengths (B,); EMPTY where there is none."""
    return _frames(lengths, steps, rng.fractions(steps * len(lengths), generator).reshape(steps, len(lengths)))


def centre_frames(lengths: np.ndarray, steps: int) -> np.ndarray:
    """The middle of each segment, the middle window, the clip in the middle: (steps, B) int64, nothing random."""
    return _frames(lengths, steps, None)


def whole_clips(
    frames: np.ndarray, starts: np.ndarray, lengths: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Clips x (T, B, columns) and their mask (T, B), from the rows `frames` (all rows, columns) where they lie.

    Empty frames, which hold zeros only, go to the end, where they are padding like any other; of what remains the
    first `most` frames are kept. T is the length of the longest clip after that.
    """
    clips = (frames[start : start + n] for start, n in zip(starts.tolist(), lengths.tolist(), strict=True))
    return _padded([clip[clip.any(axis=1)][:most] for clip in clips])


def one_of_each_window(
    frames: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    most: int,
    window: int,
    generator: np.random.Generator | None,
) -> tuple[np.ndarray, np.ndarray]:
    """As `whole_clips`, but of each `window` frames that show somebody one at random, or the middle one.

    The last window of a clip may be shorter.
    """
    shown = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        clip = frames[start : start + length]
        rows = np.flatnonzero(clip.any(axis=1))
        first = np.arange(0, len(rows), window)[:most]
        width = np.minimum(window, len(rows) - first)
        if generator is None:
            within = (width - 1) // 2
        else:
            within = (rng.fractions(len(first), generator) * width).astype(np.int64)
        shown.append(clip[rows[first + within]])
    return _padded(shown)


def _padded(shown: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Clips (frames of each, columns) as one batch (T, B, columns), and its mask (T, B)."""
    T = max(1, *(len(clip) for clip in shown))
    x = np.zeros((T, len(shown), shown[0].shape[1]), dtype=shown[0].dtype)
    for column, clip in enumerate(shown):
        x[: len(clip), column] = clip
    mask = np.arange(T)[:, None] < [len(clip) for clip in shown]
    return x, mask


def _frames(lengths: np.ndarray, steps: int, chance: np.ndarray | None) -> np.ndarray:
    lengths = np.asarray(lengths, dtype=np.int64)
    step = np.arange(steps)[:, None]
    segment = lengths // steps  # (B,)
    width = np.where(step == steps - 1, lengths - (steps - 1) * segment, segment)  # (steps, B)
    room = np.where(lengths > steps, lengths - steps + 1, np.maximum(steps - lengths, _LEAST_ROOM))  # starts
    if chance is None:
        within = (width - 1) // 2
        start = np.where(lengths > steps, (lengths - steps) // 2, (steps - lengths) // 2)
    else:
        within = (chance * width).astype(np.int64)
        start = (chance[0] * room).astype(np.int64)
    shift = np.where(lengths > steps, start, -start)  # the clip's frame at step 0
    run = step + shift
    run = np.where((run >= 0) & (run < lengths), run, EMPTY)
    return np.where(segment >= 2, step * segment + within, run)
