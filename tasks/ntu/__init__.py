"""NTU RGB+D 60 skeletons, cross-subject and cross-view, and a generated stand-in for them."""

from pathlib import Path
from typing import Any

from tasks.ntu.packing import pack
from tasks.ntu.readers.clip_sets import find_clips
from tasks.ntu.standin.clip_set import GeneratedClips
from tasks.ntu.task import SkeletonClips, display_name
from tasks.registry import register

PERFORMANCES = 27  # of each action in the stand-in; each is seen by three cameras


@register("ntu-cs")
def ntu_cs(
    source: str | Path | None = None,
    preprocessing: str = "s-trans",
    length: int = 20,
    validation: float = 0.05,
    validation_seed: int = 0,
    test_samplings: int = 1,
) -> SkeletonClips:
    """Cross-subject: 20 of the 40 subjects train. `source` is a folder or zip, by default what DURNN_NTU names."""
    return _real("cs", source, preprocessing, length, validation, validation_seed, test_samplings)


@register("ntu-cv")
def ntu_cv(
    source: str | Path | None = None,
    preprocessing: str = "s-trans",
    length: int = 20,
    validation: float = 0.05,
    validation_seed: int = 0,
    test_samplings: int = 1,
) -> SkeletonClips:
    """Cross-view: cameras 2 and 3 train, camera 1 tests. `source` as for ntu-cs."""
    return _real("cv", source, preprocessing, length, validation, validation_seed, test_samplings)


@register("ntu-cs-synthetic", stands_in_for="ntu-cs")
def ntu_cs_synthetic(
    performances: int = PERFORMANCES,
    data_seed: int = 0,
    preprocessing: str = "s-trans",
    length: int = 20,
    validation: float = 0.05,
    validation_seed: int = 0,
    test_samplings: int = 1,
) -> SkeletonClips:
    """Stand-in for ntu-cs: generated motion, `performances` of each of 60 actions before three cameras."""
    return _synthetic("cs", performances, data_seed, preprocessing, length, validation, validation_seed, test_samplings)


@register("ntu-cv-synthetic", stands_in_for="ntu-cv")
def ntu_cv_synthetic(
    performances: int = PERFORMANCES,
    data_seed: int = 0,
    preprocessing: str = "s-trans",
    length: int = 20,
    validation: float = 0.05,
    validation_seed: int = 0,
    test_samplings: int = 1,
) -> SkeletonClips:
    """Stand-in for ntu-cv."""
    return _synthetic("cv", performances, data_seed, preprocessing, length, validation, validation_seed, test_samplings)


def _real(protocol: str, source: str | Path | None, preprocessing: str, *options: Any) -> SkeletonClips:
    packed = pack(find_clips(source), "ntu60")
    name = display_name(f"ntu-{protocol}", packed.names, preprocessing)
    return _task(protocol, packed, name, preprocessing, *options)


def _synthetic(protocol: str, performances: int, seed: int, preprocessing: str, *options: Any) -> SkeletonClips:
    packed = pack(GeneratedClips(performances, seed), "synthetic")
    remarks = [] if preprocessing == "s-trans" else [preprocessing]
    if (performances, seed) != (PERFORMANCES, 0):
        remarks.append(f"{performances} performances, seed {seed}")
    name = f"ntu-{protocol}-synthetic" + (f"[{', '.join(remarks)}]" if remarks else "")
    task = _task(protocol, packed, name, preprocessing, *options)
    task.is_standin = True
    task.licence = "generated, no licence needed"
    return task


def _task(protocol: str, packed: Any, name: str, preprocessing: str, *options: Any) -> SkeletonClips:
    length, validation, validation_seed, test_samplings = options
    return SkeletonClips(
        protocol,
        packed,
        name=name,
        preprocessing=preprocessing,
        length=length,
        validation=validation,
        validation_seed=validation_seed,
        test_samplings=test_samplings,
    )
