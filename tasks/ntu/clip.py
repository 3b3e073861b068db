"""A clip as the files hold it: for each frame the bodies that the sensor saw, each with an identity and 25 joints."""

from dataclasses import dataclass

import numpy as np

JOINTS = 25
BODIES = 2  # people that a task feeds to the network
COORDINATES = BODIES * JOINTS * 3  # numbers in a frame
MAX_FRAMES = 10**5  # an hour; a frame without a body is two bytes in a file and 600 in memory
FARTHEST = 1e4  # metres; no sensor sees so far, and below it no arithmetic on coordinates overflows

# 0-based parent of each joint; the pair (1, 20) points at each other, so SpineMid ends every chain.
PARENTS = (1, 20, 20, 2, 20, 4, 5, 6, 20, 8, 9, 10, 0, 12, 13, 14, 0, 16, 17, 18, 1, 7, 7, 11, 11)

SPINE_BASE, SPINE_MID, SPINE_SHOULDER = 0, 1, 20
SHOULDER_LEFT, SHOULDER_RIGHT = 4, 8


class SkeletonError(ValueError):
    """A skeleton file that cannot be read; the message names the file and, in text, the line."""


@dataclass(frozen=True)
class Clip:
    """K observations of bodies, ordered by frame: observation k is body `body[k]` in frame `frame[k]`."""

    length: int  # number of frames, those without a body included
    frame: np.ndarray  # (K,) int64
    body: np.ndarray  # (K,) uint64, the tracker's identity
    joints: np.ndarray  # (K, 25, 3) float32, metres in the camera's coordinates

    def bodies(self) -> list[int]:
        """Identities in order of first appearance."""
        ids, first = np.unique(self.body, return_index=True)
        return [int(i) for i in ids[np.argsort(first)]]
