"""What a clip's name says: who did what in front of which camera, and on which side of which split the clip falls.

A name reads `S<setup>C<camera>P<subject>R<replication>A<action>`. Every subject who took part in a setup performed
all 60 actions twice in front of all three cameras, so the 158 (setup, subject) pairs below span all 56,880 names.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CAMERAS = 3
REPLICATIONS = 2
ACTIONS = 60

CROSS_SUBJECT_TRAINING = frozenset({1, 2, 4, 5, 8, 9, 13, 14, 15, 16, 17, 18, 19, 25, 27, 28, 31, 34, 35, 38})
CROSS_VIEW_TRAINING = frozenset({2, 3})

SUBJECTS_OF_SETUP: dict[int, tuple[int, ...]] = {
    1: (1, 2, 3, 4, 5, 6, 7, 8),
    2: (3, 7, 8, 9, 10, 11, 12, 13, 14),
    3: (1, 2, 7, 8, 15, 16, 17, 18, 19),
    4: (3, 7, 8, 20),
    5: (4, 10, 13, 15, 16, 17, 18, 21),
    6: (1, 7, 8, 15, 16, 17, 19, 22, 23, 24),
    7: (1, 7, 8, 15, 16, 17, 18, 19, 25, 26, 27, 28),
    8: (1, 7, 8, 15, 19, 25, 29, 30, 31, 32, 33, 34, 35, 36),
    9: (7, 8, 15, 16, 17, 19, 25),
    10: (7, 8, 13, 15, 16, 17, 18, 19, 21, 25),
    11: (1, 2, 7, 8, 15, 16, 17, 18, 19, 25, 27, 28, 38),
    12: (7, 8, 15, 16, 17, 18, 19, 25, 27, 28, 37),
    13: (7, 8, 15, 16, 17, 18, 19, 25, 27, 28, 37),
    14: (7, 8, 15, 17, 19, 25, 27, 37, 39),
    15: (7, 8, 15, 16, 17, 19, 25, 37),
    16: (7, 8, 19, 21, 25, 39, 40),
    17: (3, 7, 8, 9, 15, 16, 17, 20),
}

_NAME = re.compile(r"S(\d{3})C(\d{3})P(\d{3})R(\d{3})A(\d{3})", re.ASCII)


@dataclass(frozen=True, order=True)
class ClipName:
    """One clip of NTU RGB+D 60; sorts in the order of its written name."""

    setup: int
    camera: int
    subject: int
    replication: int
    action: int

    @classmethod
    def parse(cls, text: str) -> "ClipName":
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no NTU RGB+D clip name: expected the form S001C001P001R001A001")
        return cls(*(int(group) for group in match.groups()))

    def __str__(self) -> str:
        return f"S{self.setup:03d}C{self.camera:03d}P{self.subject:03d}R{self.replication:03d}A{self.action:03d}"

    @property
    def in_ntu60(self) -> bool:
        """Whether the name is one of the 56,880 (NTU RGB+D 120 continues the numbering)."""
        return (
            self.subject in SUBJECTS_OF_SETUP.get(self.setup, ())
            and 1 <= self.camera <= CAMERAS
            and 1 <= self.replication <= REPLICATIONS
            and 1 <= self.action <= ACTIONS
        )

    def trains(self, protocol: str) -> bool:
        """Whether the clip is on the training side of protocol "cs" (by subject) or "cv" (by camera)."""
        if protocol == "cs":
            return self.subject in CROSS_SUBJECT_TRAINING
        if protocol == "cv":
            return self.camera in CROSS_VIEW_TRAINING
        raise ValueError(f"protocol must be 'cs' or 'cv', got {protocol!r}")


def all_names() -> list[ClipName]:
    """The 56,880 names of NTU RGB+D 60, sorted."""
    return [
        ClipName(setup, camera, subject, replication, action)
        for setup, subjects in SUBJECTS_OF_SETUP.items()
        for camera in range(1, CAMERAS + 1)
        for subject in subjects
        for replication in range(1, REPLICATIONS + 1)
        for action in range(1, ACTIONS + 1)
    ]


@functools.cache
def missing_names() -> frozenset[str]:
    """The 302 clips whose skeletons are missing or incomplete."""
    text = Path(__file__).with_name("missing.txt").read_text(encoding="ascii")
    return frozenset(line for line in text.split() if line.startswith("S0"))


@functools.cache
def usable_names() -> tuple[ClipName, ...]:
    """The 56,578 names that the published protocols train and test on, sorted."""
    return tuple(name for name in all_names() if str(name) not in missing_names())


def part_of_the_set(names: Iterable[str]) -> str:
    """What these clips are of NTU RGB+D 60 if they are not all of it, such as "10 of 60 classes"; else ""."""
    present = set(names)
    actions = {ClipName.parse(name).action for name in present}
    expected = sum(name.action in actions for name in usable_names())
    remarks = [f"{len(actions)} of {ACTIONS} classes"] if len(actions) < ACTIONS else []
    remarks += [f"{len(present)} of {expected} clips"] if len(present) < expected else []
    return ", ".join(remarks)
