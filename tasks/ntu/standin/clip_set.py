"""The clips of the stand-in, generated one by one when they are asked for."""

from typing import Any

import numpy as np

from tasks import rng
from tasks.code_digest import code_digest
from tasks.ntu.clip import Clip
from tasks.ntu.names import ACTIONS, CAMERAS, REPLICATIONS, SUBJECTS_OF_SETUP, ClipName
from tasks.ntu.readers import text
from tasks.ntu.readers.clip_sets import ClipSet
from tasks.ntu.standin.sensor import film


class GeneratedClips(ClipSet):
    """`performances` of each of the 60 actions, three clips each."""

    def __init__(self, performances: int, seed: int) -> None:
        triples = [
            (setup, subject, replication)
            for setup, subjects in SUBJECTS_OF_SETUP.items()
            for subject in subjects
            for replication in range(1, REPLICATIONS + 1)
        ]
        if not 2 <= performances <= len(triples):
            raise ValueError(f"performances={performances} must be from 2 to {len(triples)}")
        if seed < 0:
            raise ValueError(f"seed={seed} must not be negative")
        self.performances, self.seed = performances, seed
        self.names = sorted(
            str(ClipName(triples[k][0], camera, triples[k][1], triples[k][2], action))
            for action in range(1, ACTIONS + 1)
            for k in rng.permutation(len(triples), "ntu-synthetic", seed, action)[:performances]
            for camera in range(1, CAMERAS + 1)
        )

    def read(self, name: str) -> Clip:
        return text.parse(self.write(name), f"synthetic {name}")

    def write(self, name: str) -> bytes:
        """The clip as the bytes of a `.skeleton` file."""
        clip = film(ClipName.parse(name), self.seed)
        return text.dump(clip, newline="\r\n" if rng.words(1, "newline", name)[0] % 2 else "\n")

    @property
    def spec(self) -> dict[str, Any]:
        return {"performances": self.performances, "seed": self.seed}

    @property
    def signature(self) -> str:
        # numpy's version, because numpy does not promise the same normal numbers for ever
        generator = code_digest(GeneratedClips.__init__, GeneratedClips.write)
        return f"synthetic-{generator}-{np.__version__}-{self.performances}-{self.seed}"
