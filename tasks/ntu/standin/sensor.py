"""Generated people in front of simulated cameras.

As in the real set, a performance is seen by three cameras at -45, 0 and 45 degrees; in the first replication the actor
faces the third camera, in the second one the second. So camera 1 always looks at 45 degrees, cameras 2 and 3 from the
front and from the side. Unlike there, where the three stand at one height, camera 1 hangs higher and nearer and looks
down: a view at 45 degrees lies between the front and the side, which training has seen of the very same performance,
and without the tilt a network fills it in so well that cross-view is the easier protocol even in raw coordinates.
The sensor adds noise, more on hands and feet and on the side turned away, loses bodies for some frames, gives them new
identities, and sees ghosts.
"""

import numpy as np

from tasks import rng
from tasks.ntu.clip import JOINTS, Clip
from tasks.ntu.names import CAMERAS, ClipName
from tasks.ntu.standin.motion import COURSES, POSES, REACTIONS, Person, course, perform

_AZIMUTH = {1: 0.0, 2: -45.0, 3: 45.0}
_CAMERA_1_NEARER, _CAMERA_1_HIGHER = 0.6, 0.8  # metres
_FRAMES_PER_SECOND = 30.0
_RESTLESS = np.ones(JOINTS)
_RESTLESS[[6, 7, 10, 11, 14, 15, 18, 19]] = 2.0
_RESTLESS[[21, 22, 23, 24]] = 3.0


def film(name: ClipName, seed: int) -> Clip:
    """What the sensor reports of the performance that a name stands for."""
    people = _act(name, seed)
    sensor = rng.generator("sensor", seed, str(name))
    rotation, position = _camera(name, seed)
    bodies = [(people_joints - position) @ rotation.T for people_joints in people]
    observed = [_observe(joints, sensor) for joints in bodies]  # (mask of frames, joints, identities)
    observed += _ghosts(bodies[0], sensor)
    length = len(bodies[0])
    frame = np.concatenate([np.flatnonzero(seen) for seen, _, _ in observed])
    joints = np.concatenate([points[seen] for seen, points, _ in observed])
    body = np.concatenate([ids[seen] for seen, _, ids in observed])
    shuffled = sensor.permutation(len(frame))  # the order within a frame means nothing
    order = shuffled[np.argsort(frame[shuffled], kind="stable")]
    return Clip(length, frame[order], body[order], joints[order].astype(np.float32))


def _act(name: ClipName, seed: int) -> list[np.ndarray]:
    """The one or two people of a performance in world coordinates, each (T, 25, 3); the same for all cameras."""
    chance = rng.generator("performance", seed, name.setup, name.subject, name.replication, name.action)
    pose, kind = divmod(name.action - 1, COURSES)
    person = Person.draw(rng.generator("subject", seed, name.subject))
    seconds = chance.uniform(1.3, 1.9) / person.tempo
    taken = course(kind, int(seconds * _FRAMES_PER_SECOND), chance)
    facing = _AZIMUTH[3 if name.replication == 1 else 2] + chance.normal(0.0, 5.0)
    spot = np.array([*chance.normal(0.0, 0.15, 2), 0.0])[[0, 2, 1]]
    people = [perform(person, POSES[pose], taken, chance) @ _about_y(facing).T + spot]
    if pose in REACTIONS:
        other = Person.draw(chance)
        late = np.concatenate([np.full(3, taken[0]), taken[:-3]])
        joints = perform(other, REACTIONS[pose], late, chance) @ _about_y(facing + 180.0).T
        people.append(joints + spot + _about_y(facing)[:, 2] * chance.uniform(0.8, 1.1))
    return people


def _camera(name: ClipName, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (rows: the camera's axes in the world) and position of a camera; fixed for a setup."""
    setup = rng.generator("setup", seed, name.setup)
    distance, height = setup.uniform(3.1, 3.8), setup.uniform(0.9, 1.3)
    if name.camera == 1:
        distance, height = distance - _CAMERA_1_NEARER, height + _CAMERA_1_HIGHER
    jitter = setup.normal(0.0, 2.0, CAMERAS)[name.camera - 1]
    position = _about_y(_AZIMUTH[name.camera] + jitter) @ (0.0, height, distance)
    forward = np.array([0.0, 0.9, 0.0]) - position
    forward /= np.linalg.norm(forward)
    across = np.cross([0.0, 1.0, 0.0], forward)
    across /= np.linalg.norm(across)
    return np.stack([across, np.cross(forward, across), forward]), position


def _observe(joints: np.ndarray, sensor: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    length = len(joints)
    behind = joints[..., 2:] - joints[:, 20:21, 2:]  # metres farther from the camera than the chest
    spread = 0.008 * _RESTLESS[:, None] * (1.0 + 3.0 * np.clip(behind, 0.0, 0.5))
    noisy = joints + sensor.normal(0.0, 1.0, joints.shape) * spread
    seen = np.ones(length, dtype=bool)
    identities = np.full(length, _identity(sensor), dtype=np.uint64)
    if sensor.random() < 0.06:  # lost for a moment
        start, lost = sensor.integers(0, length), sensor.integers(1, 6)
        seen[start : start + lost] = False
        if sensor.random() < 0.5:
            identities[start:] = _identity(sensor)
    return seen, noisy, identities


def _ghosts(joints: np.ndarray, sensor: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Now and then furniture that is taken for a body: a flash, or something wide that stays."""
    if sensor.random() >= 0.05:
        return []
    length = len(joints)
    stays = sensor.random() < 0.5
    start = 0 if stays else sensor.integers(0, length)
    seen = np.zeros(length, dtype=bool)
    seen[start : length if stays else start + sensor.integers(1, 11)] = True
    centre = joints[:, :1].mean(axis=0) + sensor.normal(0.0, 0.8, 3)
    shape = centre + sensor.normal(0.0, 1.0, (1, JOINTS, 3)) * ((0.5, 0.15, 0.1) if stays else (0.2, 0.4, 0.1))
    points = shape + sensor.normal(0.0, 0.02, joints.shape)
    return [(seen, points, np.full(length, _identity(sensor), dtype=np.uint64))]


def _identity(sensor: np.random.Generator) -> int:
    return 72057594037900000 + int(sensor.integers(0, 1_000_000))


def _about_y(degrees: float) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
