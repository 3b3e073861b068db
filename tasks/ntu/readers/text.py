"""The `.skeleton` text format.

A file holds its frame count; for each frame its body count; for each body a line of ten fields that begins with the
bodyID, the joint count (25), and 25 lines of twelve fields that begin with x y z. Only the bodyID and x y z are
used: the other fields are checked for their number and for the characters that a number is written with.
"""

import array
import io
import re

import numpy as np

from tasks.ntu.clip import FARTHEST, JOINTS, MAX_FRAMES, PARENTS, Clip, SkeletonError
from tasks.ntu.readers import native

MAX_BYTES = 1 << 26
MAX_BODIES = 64
BODY_FIELDS = 10
JOINT_FIELDS = 12

_INTEGER = re.compile(rb"[0-9]{1,20}")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_UNUSED = re.compile(rb"[0-9+\-.eE]+|[+-]?(?:nan|NaN|inf|Inf(?:inity)?)|-?[0-9]+\.#[A-Z]+[0-9]*")


def parse(data: bytes, name: str) -> Clip:
    """Read the bytes of a `.skeleton` file; `name` stands for the file in error messages."""
    if len(data) > MAX_BYTES:
        raise SkeletonError(f"{name}: {len(data)} bytes are more than the {MAX_BYTES} that a clip may have")
    read = native.reader()
    clip = read(data) if read is not None else None
    return parse_by_line(data, name) if clip is None else clip


def parse_by_line(data: bytes, name: str) -> Clip:
    """Read line by line: the definition of what is accepted, slow, with errors that name the line.

    Nothing is allocated on the word of a count, so memory stays in proportion to the file.
    """
    lines = _Lines(data, name)
    length = lines.count("the frame count", MAX_FRAMES)
    frame: list[int] = []
    body: list[int] = []
    joints = array.array("d")
    for t in range(length):
        seen: set[int] = set()
        for _ in range(lines.count("the body count", MAX_BODIES)):
            about = lines.fields(BODY_FIELDS, "a body")
            identity = lines.integer(about[0], "the bodyID", 2**64 - 1)
            if identity in seen:
                raise lines.error(f"bodyID {identity} stands twice in frame {t + 1}")
            seen.add(identity)
            lines.check_unused(about[1:])
            if lines.count("the joint count", JOINTS) != JOINTS:
                raise lines.error(f"a body must have {JOINTS} joints")
            for _ in range(JOINTS):
                values = lines.fields(JOINT_FIELDS, "a joint")
                joints.extend(lines.coordinate(text) for text in values[:3])
                lines.check_unused(values[3:])
            frame.append(t)
            body.append(identity)
    lines.check_end(length)
    return Clip(
        length,
        np.array(frame, dtype=np.int64),
        np.array(body, dtype=np.uint64),
        np.array(joints, dtype=np.float64).reshape(-1, JOINTS, 3).astype(np.float32),
    )


_JOINT_LINE = " ".join(["%.{digits}g"] * 3 + ["%.5g"] * 8) + " 2{newline}"
_COLOUR_PIXELS, _DEPTH_PIXELS = (1065.0, 960.0, 540.0), (366.0, 256.0, 212.0)  # focal length, centre


def dump(clip: Clip, newline: str = "\n", digits: int = 7) -> bytes:
    """The bytes of a `.skeleton` file; nine digits keep every float32 coordinate, the real files have seven.

    Pixels follow from a pinhole camera and orientations from the bones; hands and lean are neutral.
    """
    form = _JOINT_LINE.format(digits=digits, newline=newline) * JOINTS
    about = f" 0 0 0 0 0 0 0 0 2{newline}{JOINTS}{newline}"
    values = _joint_fields(clip.joints).reshape(len(clip.body), JOINTS * 11).tolist()
    bodies = [f"{identity}{about}{form % tuple(row)}" for identity, row in zip(clip.body.tolist(), values, strict=True)]
    parts = [f"{clip.length}{newline}"]
    ends = np.searchsorted(clip.frame, np.arange(clip.length), side="right").tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        parts.append(f"{end - start}{newline}")
        parts.extend(bodies[start:end])
    return "".join(parts).encode()


def _joint_fields(joints: np.ndarray) -> np.ndarray:
    """The eleven fields of a joint before its tracking state, (K, 25, 11)."""
    joints = joints.astype(np.float64)
    ratio = joints[..., :2] * (1.0, -1.0) / np.maximum(joints[..., 2:], 0.5)
    pixels = [focal * ratio + centre for focal, *centre in (_DEPTH_PIXELS, _COLOUR_PIXELS)]
    bone = joints - joints[:, PARENTS]
    bone /= np.maximum(np.linalg.norm(bone, axis=-1, keepdims=True), 1e-6)
    w = np.sqrt(np.maximum(0.5 + 0.5 * bone[..., 1], 1e-9))  # the turn that takes the y axis to the bone
    zero = np.zeros_like(w)
    turn = np.stack([w, bone[..., 2] / (2 * w), zero, -bone[..., 0] / (2 * w)], axis=-1)
    return np.concatenate([joints, *pixels, turn], axis=-1)


class _Lines:
    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self.number = 0
        self._stream = io.BytesIO(data)

    def error(self, reason: str) -> SkeletonError:
        return SkeletonError(f"{self.name}, line {self.number}: {reason}")

    def fields(self, expected: int, what: str) -> list[bytes]:
        self.number += 1
        line = self._stream.readline()
        if not line:
            raise self.error(f"the file ends where {what} should stand")
        found = line.split()
        if len(found) != expected:
            raise self.error(f"expected {what} ({expected} fields), found {len(found)} fields")
        return found

    def count(self, what: str, largest: int) -> int:
        return self.integer(self.fields(1, what)[0], what, largest)

    def integer(self, text: bytes, what: str, largest: int) -> int:
        if _INTEGER.fullmatch(text) is None or int(text) > largest:
            raise self.error(f"{what} must be an integer from 0 to {largest}, found {_shown(text)}")
        return int(text)

    def coordinate(self, text: bytes) -> float:
        if _NUMBER.fullmatch(text) is None:
            raise self.error(f"{_shown(text)} is no number")
        value = float(text)
        if abs(value) > FARTHEST:
            raise self.error(f"the coordinate {_shown(text)} is too large")
        return value

    def check_unused(self, texts: list[bytes]) -> None:
        for text in texts:
            if _UNUSED.fullmatch(text) is None:
                raise self.error(f"{_shown(text)} is no number")

    def check_end(self, length: int) -> None:
        while line := self._stream.readline():
            self.number += 1
            if line.strip():
                raise self.error(f"the file goes on after the {length} frames that its first line promises")


def _shown(text: bytes) -> str:
    return repr(text[:24])[1:] + ("…" if len(text) > 24 else "")
