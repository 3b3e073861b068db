"""From the bodies that a sensor saw to the two people of a clip.

The rules are those of the view-adaptive networks' preparation: ghosts are removed by how long they last and by their
proportions, the body that moves most is the main actor, and bodies that are never there at the same time share a slot.
"""

import numpy as np

from tasks.ntu.clip import BODIES, JOINTS, Clip

SHORTEST_STAY = 11  # a body seen in no more frames than this is noise
WIDEST = 0.8  # a frame is implausible if the body's extent in x is more than this share of its extent in y
IMPLAUSIBLE_SHARE = 0.69754  # a body with at least this share of implausible frames is noise


def select_people(clip: Clip) -> np.ndarray:
    """The two people of a clip, (T, 2, 25, 3) float32; zeros where there is none."""
    frames = np.zeros((clip.length, BODIES, JOINTS, 3), dtype=np.float32)
    taken = np.zeros((BODIES, clip.length), dtype=bool)
    for rows in _by_motion(clip, _without_noise(clip, [clip.body == i for i in clip.bodies()])):
        where = clip.frame[rows]
        for slot in range(BODIES):
            if not taken[slot, where].any():
                frames[where, slot] = clip.joints[rows]
                taken[slot, where] = True
                break
    return frames


def _without_noise(clip: Clip, bodies: list[np.ndarray]) -> list[np.ndarray]:
    """The bodies, as masks over observations, that last and look like people; never none of them."""
    if len(bodies) < 2:
        return bodies
    longest = max(bodies, key=np.count_nonzero)
    lasting = [rows for rows in bodies if np.count_nonzero(rows) > SHORTEST_STAY] or [longest]
    if len(lasting) < 2:
        return lasting
    return [rows for rows in lasting if _implausible(clip.joints[rows]) < IMPLAUSIBLE_SHARE] or [longest]


def _implausible(joints: np.ndarray) -> float:
    extent = np.ptp(joints, axis=1)  # (frames, 3)
    return float(np.mean(extent[:, 0] > WIDEST * extent[:, 1]))


def _by_motion(clip: Clip, bodies: list[np.ndarray]) -> list[np.ndarray]:
    """The bodies from most to least motion: the variance of each coordinate over time, summed."""
    if len(bodies) < 2:
        return bodies
    motion = [clip.joints[rows].astype(np.float64).var(axis=0).sum() for rows in bodies]
    return [bodies[k] for k in np.argsort(motion, kind="stable")[::-1]]
