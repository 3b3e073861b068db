"""NTU RGB+D 60 skeletons, cross-subject and cross-view, and a generated stand-in for them."""

from pathlib import Path
from typing import Any

from tasks.ntu.names import part_of_the_set
from tasks.ntu.packing import pack
from tasks.ntu.readers.clip_sets import find_clips
from tasks.ntu.standin.clip_set import GeneratedClips
from tasks.ntu.task import SkeletonClips
from tasks.registry import register

PERFORMANCES = 27  # of each action in the stand-in; each is seen by three cameras


@register("ntu-cs", summary="NTU RGB+D 60, cross-subject: 20 of the 40 subjects train.", protocol="cs")
@register("ntu-cv", summary="NTU RGB+D 60, cross-view: cameras 2 and 3 train, camera 1 tests.", protocol="cv")
class RealClips(SkeletonClips):
    """NTU RGB+D 60. `source` is a folder or a zip, by default what DURNN_NTU names."""

    def __init__(self, protocol: str, source: str | Path | None = None, **options: Any) -> None:
        super().__init__(protocol, lambda: pack(find_clips(source), "ntu60"), **options)
        self.partial = part_of_the_set(self.packed.names)
        self.name = self.display_name(f"ntu-{protocol}", self.partial)


@register(
    "ntu-cs-synthetic",
    summary="Stand-in for ntu-cs: generated motion, `performances` of each of 60 actions before three cameras.",
    stands_in_for="ntu-cs",
    protocol="cs",
)
@register("ntu-cv-synthetic", summary="Stand-in for ntu-cv.", stands_in_for="ntu-cv", protocol="cv")
class GeneratedMotion(SkeletonClips):
    """The same protocols on generated clips, which `data_seed` draws."""

    is_standin = True
    licence = "generated, no licence needed"

    def __init__(self, protocol: str, performances: int = PERFORMANCES, data_seed: int = 0, **options: Any) -> None:
        super().__init__(protocol, lambda: pack(GeneratedClips(performances, data_seed), "synthetic"), **options)
        usual = (performances, data_seed) == (PERFORMANCES, 0)
        remark = "" if usual else f"{performances} performances, seed {data_seed}"
        self.name = self.display_name(f"ntu-{protocol}-synthetic", remark)
