"""What is built and installed works without the checkout: moved headers and data files are the usual casualty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_installed_wheel_compiles_its_kernels_and_trains(tmp_path):
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path / "wheel"), str(ROOT)], check=True)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    site, away = tmp_path / "site", tmp_path / "away"
    away.mkdir()
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    environment = os.environ | {"PYTHONPATH": str(site), "DURNN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}

    def python(*arguments):
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=away, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = python("-c", "import suite, models, tasks, reproduce; print(*(m.__file__ for m in (suite, models, tasks)))")
    assert where.count(str(site)) == 3
    code = "from models.kernels.availability import problem; print(problem('cpu'))"
    assert python("-c", code).strip().endswith("None")
    assert list((tmp_path / "cache" / "native").glob("*.so"))
    said = python("-m", "reproduce.figure5", "--budget", "smoke", "--backend", "fused")
    assert "6 of 6 updates" in said
    assert list((away / "runs").glob("smoke/records/*.json"))
    assert "ntu-cs-synthetic" in python("-m", "tasks", "list")
