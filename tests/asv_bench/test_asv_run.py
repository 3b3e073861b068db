"""Every benchmark runs once, and commits are measured by checking them out, without installing anything."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asv_repository import ROOT, Repository

FIGURES = {
    "zoo.Steps.time_train_step",
    "zoo.Steps.time_inference",
    "zoo.Throughput.track_seconds_per_1000_samples",
    "zoo.Relative.track_time_relative_to_lstm",
    "zoo.Memory.track_peak_memory",
    "zoo.CudaMemory.track_peak_cuda_memory",
    "zoo.Numerics.track_loss_after_3_steps",
}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """asv keeps its list of machines in the home folder; compiled recurrences stay where they are."""
    cache = os.environ.get("DURNN_CACHE") or str(Path.home() / ".cache" / "durnn-suite")
    return {"HOME": str(tmp_path / "home"), "DURNN_CACHE": cache}


@pytest.mark.parametrize(
    "models", [["--models", "indrnn"], pytest.param([], marks=pytest.mark.slow)], ids=["one model", "all models"]
)
def test_every_benchmark_runs_once(home: dict[str, str], models: list[str]):
    Path(home["HOME"]).mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "asv_bench" / "run.py"), "check", *models],
        env={**os.environ, "OMP_NUM_THREADS": "1", **home},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for figure in FIGURES:
        assert f"{figure} " in done.stdout
    assert "failed" not in done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_range_is_measured_and_old_commits_are_skipped(tmp_path: Path, home: dict[str, str]):
    Path(home["HOME"]).mkdir()
    repository = Repository(tmp_path / "measured", "suite", "models", "asv_bench")
    zoo = repository.folder / "models"
    zoo.rename(tmp_path / "later")
    zoo.mkdir()
    (zoo / "__init__.py").write_text("")
    repository.commit("Before the zoo")
    shutil.rmtree(zoo)
    (tmp_path / "later").rename(zoo)
    with_zoo = repository.commit("With the zoo")
    repository.edit_kernel("x = x * 2")
    changed = repository.commit("Other results")
    options = ["--profile", "fast", "--models", "indrnn", "--shapes", "adding-100", "--machine", "test"]
    done = repository.run("range", "HEAD~2", "HEAD~1", "HEAD", "--bench", "Numerics", *options, **home)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for path in (repository.folder / "asv_bench" / "results" / "test").glob("*-checkout-*.json"):
        record = json.loads(path.read_text())
        values = record["results"]["zoo.Numerics.track_loss_after_3_steps"][record["result_columns"].index("result")]
        found[record["commit_hash"]] = [value for value in values or [] if value is not None and not math.isnan(value)]
        assert str(tmp_path) not in path.read_text()  # results are for everybody: no paths of this machine
    assert len(found) == 3
    assert len(found[with_zoo]) == len(found[changed]) == 1
    assert found[with_zoo] != found[changed]
    assert sum(len(values) for values in found.values()) == 2
