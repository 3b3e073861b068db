"""The digest follows what code does, in any file that it rests on, and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tasks
from tasks import rng
from tasks.code_digest import code_digest
from tasks.ntu.preprocessing import CONVENTIONS, compose, raw, s_trans

TREE = Path(tasks.__file__).parent


def test_it_can_be_taken_of_closures_and_caches_and_is_the_same_twice() -> None:
    one, other = compose(s_trans), compose(raw)
    assert code_digest(one) == code_digest(compose(s_trans)) != code_digest(other)
    assert code_digest(compose(s_trans, raw)) != code_digest(compose(raw, s_trans))
    assert len({code_digest(convention) for convention in CONVENTIONS.values()}) == len(CONVENTIONS)
    assert len(code_digest(rng.words)) == 16


FACTORS = {"a": (1, 2.0), "b": [np.arange(3)], "c": np.float32(0.5)}


def scaled(x: float) -> float:
    return x * FACTORS["a"][1]


@pytest.mark.parametrize(
    "change", [{"a": (1, 3.0)}, {"a": [1, 2.0]}, {"b": [np.arange(4)]}, {"b": []}, {"c": np.float32(0.25)}, {"d": 1}]
)
def test_data_counts_by_value(change: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest(scaled)
    monkeypatch.setitem(globals(), "FACTORS", dict(FACTORS))
    assert code_digest(scaled) == before
    monkeypatch.setitem(globals(), "FACTORS", FACTORS | change)
    assert code_digest(scaled) != before


SCRIPT = """
import sys, types
for name in ("tasks", "tasks.ntu"):  # without their __init__.py, which import torch
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [name.replace(".", "/")]
from tasks.ntu import features, packing, rotation, sampling
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.standin.clip_set import GeneratedClips
from tasks.code_digest import code_digest
for convention in CONVENTIONS.values():
    print(code_digest(convention))
print(code_digest(sampling.sample_frames, sampling.centre_frames))
print(code_digest(sampling.whole_clips))
print(code_digest(features.joint_line_distances))
print(code_digest(rotation.draw_angles, rotation.rotations, rotation.rotate))
print(GeneratedClips(2, 0).signature)
print(packing._reading_digest())
"""
PARTS = (*CONVENTIONS, "sampled", "whole", "distances", "rotation", "generator", "reading")

EDITS = {
    "a comment": ("ntu/preprocessing.py", "_SMALLEST = 1e-6", "# hello\n_SMALLEST = 1e-6", ()),
    "a docstring": ("ntu/preprocessing.py", '"""One translation per clip', '"""A translation per clip', ()),
    "a type hint": (
        "ntu/preprocessing.py",
        "def _first_frame(frames: np.ndarray) -> int",
        "def _first_frame(frames) -> int",
        (),
    ),
    "layout": (
        "ntu/preprocessing.py",
        "np.linalg.norm(x, axis=-1, keepdims=True)",
        "np.linalg.norm(\n        x, axis=-1, keepdims=True\n    )",
        (),
    ),
    "a further convention": (
        "ntu/preprocessing.py",
        '    "raw": raw,\n',
        '    "raw": raw,\n    "again": compose(s_trans, s_trans),\n',
        (),
    ),
    "s_rota": ("ntu/preprocessing.py", "axes.T).astype", "axes).astype", ("s-rota",)),
    "what s_rota and p_ntu share": ("ntu/preprocessing.py", "np.cross(x, y)", "np.cross(y, x)", ("s-rota", "p-ntu")),
    "a constant": ("ntu/preprocessing.py", "_SMALLEST = 1e-6", "_SMALLEST = 1e-5", ("s-rota", "p-ntu")),
    "a joint's number": (
        "ntu/clip.py",
        "SPINE_MID, SPINE_SHOULDER = 0, 1, 20",
        "SPINE_MID, SPINE_SHOULDER = 0, 2, 20",
        ("s-trans", "s-rota", "p-ntu"),
    ),
    "how frames are sampled": ("ntu/sampling.py", "_LEAST_ROOM = 5", "_LEAST_ROOM = 6", ("sampled",)),
    "how whole clips are made": ("ntu/sampling.py", "[:most]", "[-most:]", ("whole",)),
    "random fractions": ("rng.py", "np.uint64(11)) * 2.0**-53", "np.uint64(12)) * 2.0**-52", ("sampled", "rotation")),
    "which lines there are": ("ntu/features.py", "_TWO_STEPS = [(3, 20),", "_TWO_STEPS = [(3, 1),", ("distances",)),
    "the order of turns": ("ntu/rotation.py", "(-sy, cy * sx, cy * cx)", "(-sy, cy * cx, cy * sx)", ("rotation",)),
    "an action": ("ntu/standin/motion.py", "{8: (-95, 0, 0)}", "{8: (-90, 0, 0)}", ("generator",)),
    "a camera": ("ntu/standin/sensor.py", "2: -45.0", "2: -40.0", ("generator",)),
    "the writer": (
        "ntu/readers/text.py",
        "np.maximum(joints[..., 2:], 0.5)",
        "np.maximum(joints[..., 2:], 0.6)",
        ("generator",),
    ),
    "the reader": ("ntu/readers/text.py", "abs(value) > FARTHEST", "abs(value) >= FARTHEST", ("generator", "reading")),
    "the compiled reader": ("ntu/readers/skeleton.cpp", "MAX_BODIES = 64", "MAX_BODIES = 63", ("reading",)),
    "who is noise": ("ntu/bodies.py", "SHORTEST_STAY = 11", "SHORTEST_STAY = 12", ("reading",)),
}


def digests(home: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": str(TREE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, cwd=home, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    home = tmp_path_factory.mktemp("tree")
    shutil.copytree(TREE, home / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    return home, dict(zip(PARTS, digests(home), strict=True))


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_digests_of_what_rests_on_it(edit: str, untouched: tuple[Path, dict[str, str]]) -> None:
    home, before = untouched
    file, old, new, changed = EDITS[edit]
    path = home / "tasks" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    try:
        found = digests(home)
    finally:
        path.write_text(text)
    if edit == "a further convention":
        del found[1]  # its own
    after = dict(zip(PARTS, found, strict=True))
    assert {part for part in PARTS if after[part] != before[part]} == set(changed)
