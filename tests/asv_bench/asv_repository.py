"""A small git repository with the suite's files, for tests that need commits whatever the history around them is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Repository:
    def __init__(self, folder: Path, *packages: str) -> None:
        self.folder = folder
        without = shutil.ignore_patterns("__pycache__", "env", "html", "results", "*.so")
        for package in packages:
            shutil.copytree(ROOT / package, folder / package, ignore=without)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def edit_kernel(self, line: str) -> None:
        """Put a line before IndRNN's scan of its input x, in place of one put there before."""
        around = f"""
_scan = projected_indrnn_scan


def projected_indrnn_scan(x, *parameters, backend="auto"):
    {line}
    return _scan(x, *parameters, backend=backend)
"""
        kernels = Path("models", "kernels", "__init__.py")
        (self.folder / kernels).write_text((ROOT / kernels).read_text() + around)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """``python asv_bench/run.py`` with this repository around it."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("DURNN_BENCH_")}
        return subprocess.run(
            [sys.executable, "asv_bench/run.py", *arguments],
            cwd=self.folder,
            env={**plain, "OMP_NUM_THREADS": "1", **env},
            capture_output=True,
            text=True,
        )
