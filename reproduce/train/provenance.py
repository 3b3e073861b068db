"""Where a number was made: commit, versions, machine, and what the process was set to."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch

from models.kernels.memory import keep_freed_memory
from reproduce.plan.runs import ROOT
from reproduce.report.records import Environment, Machine
from reproduce.train.outcome import Origin
from suite import machine as facts
from suite.files import sha256

CODE = ("suite", "models", "tasks", "reproduce")
SOURCES = (".py", ".toml", ".txt", ".h", ".cpp")
SENT = "DURNN_ORIGIN"  # set for commands that another one starts elsewhere
PACKAGES = ("torch", "numpy", "scipy", "safetensors", "triton")


@contextlib.contextmanager
def prepared_process(threads: int) -> Iterator[Environment]:
    """Set what a run's arithmetic and speed depend on, so that a run does the same whoever executes it.

    Gradients that fade over many steps end as subnormal numbers, which some CPUs multiply slowly: they are flushed.
    Memory that is freed is kept for the next update; this alone cannot be undone at the end.
    """
    before, flushed = torch.get_num_threads(), torch.tensor(1e-310, dtype=torch.float64) * 1.0 == 0
    torch.set_num_threads(threads or before)
    flushes = torch.set_flush_denormal(True)
    kept = keep_freed_memory()
    try:
        yield Environment(threads=torch.get_num_threads(), flushes_subnormals=flushes, keeps_freed_memory=kept)
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(bool(flushed))


@cache
def origin() -> Origin:
    """The code that this process runs; if another command sent it here, what that command said about itself."""
    given = os.environ.get(SENT)
    if given:
        return Origin(**json.loads(given))
    return Origin(*facts.commit(ROOT, *CODE), code_digest(), command())


@cache
def code_digest() -> str:
    """sha256 of all files that decide a result."""
    above = Path(__file__).resolve().parents[2]
    paths = sorted(path for room in CODE for path in (above / room).rglob("*") if path.suffix in SOURCES)
    return sha256(*(part for path in paths for part in (str(path.relative_to(above)), path.read_bytes())))


def changed_code(sent: Origin) -> str:
    """One sentence if the code here is not the code that the command was given with."""
    if sent.digest == code_digest():
        return ""
    return (
        f"the code in {ROOT} on {facts.host_name()} is not the code that the command was started with (commit "
        f"{sent.commit[:12]}); give all nodes the same checkout, leave it alone meanwhile, and start again"
    )


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def machine() -> Machine:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return Machine(
        cpu=facts.cpu_name(), cores=facts.cores(), threads=torch.get_num_threads(), gpu=gpu,
        system=f"{platform.system()} {platform.machine()}",
    )  # fmt: skip


def reset_peak_memory(device: str) -> None:
    """Forget the peak so far, where the system can, so that a process may do several runs."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    facts.reset_peak_memory()


def peak_memory_mb(device: str) -> float:
    """Peak of this run: of the device's allocator on a GPU, of the whole process on a CPU."""
    peak = torch.cuda.max_memory_allocated() if device.startswith("cuda") else facts.peak_memory_bytes()
    return round(peak / 2**20, 1)


def command() -> str:
    """The command line, with the script's path relative to the checkout."""
    script = Path(sys.argv[0]).resolve()
    name = str(script.relative_to(ROOT)) if script.is_relative_to(ROOT) else script.name
    return shlex.join(["python", name, *sys.argv[1:]])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
