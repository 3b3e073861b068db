"""Which frames of a clip the network sees, vectorised over clips.

Three cases, for clips of n frames and `steps` samples:
    n >= 2 steps       one frame from each of `steps` segments of n // steps frames; the last takes the remainder too
    steps < n < 2 steps  a window of `steps` consecutive frames
    n <= steps         the clip with zeros around it

In the last case, training lets the clip start anywhere below max(steps - n, 5) and cuts what sticks out at the end.
"""

import numpy as np

EMPTY = -1  # a step at which there is no frame
_LEAST_ROOM = 5


def sample_frames(lengths: np.ndarray, steps: int, generator: np.random.Generator) -> np.ndarray:
    """Random frame numbers, (steps, B) int64, for clips of the given lengths (B,); EMPTY where there is none."""
    # raw words, because numpy promises never to change those; the upper 53 bits make a float in [0, 1)
    words = generator.bit_generator.random_raw(steps * len(lengths)).reshape(steps, len(lengths))
    return _frames(lengths, steps, (words >> np.uint64(11)) * 2.0**-53)


def centre_frames(lengths: np.ndarray, steps: int) -> np.ndarray:
    """The middle of each segment, the middle window, the clip in the middle: (steps, B) int64, nothing random."""
    return _frames(lengths, steps, None)


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
