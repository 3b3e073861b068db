"""Where a number was made: commit, versions, machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import resource
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import torch

from reproduce.record import Machine
from reproduce.runs import ROOT

PACKAGES = ("torch", "numpy", "scipy", "safetensors", "triton")


@lru_cache(maxsize=1)
def commit() -> tuple[str, bool]:
    """The commit, and whether files that decide a result differ from it; ("unknown", True) outside git."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "models", "tasks", "reproduce")
        return head, bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> Machine:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(
        cpu=_cpu_name(), cores=cores, threads=torch.get_num_threads(), gpu=gpu,
        system=f"{platform.system()} {platform.machine()}",
    )  # fmt: skip


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def reset_peak_memory(device: str) -> None:
    """Forget the peak so far, where the system can, so that a process may do several runs."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb(device: str) -> float:
    """Peak of this run: of the device's allocator on a GPU, of the whole process on a CPU."""
    if device.startswith("cuda"):
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def command() -> str:
    """The command line, with the script's path relative to the checkout."""
    script = Path(sys.argv[0]).resolve()
    name = str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name
    return shlex.join(["python", name, *sys.argv[1:]])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
