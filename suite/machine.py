"""Facts about the machine and the checkout that a measurement or a record was made on."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

GIT_SECONDS = 20.0


@cache
def cpu_name() -> str:
    """What the CPU calls itself, with family and model where the system tells: one name may stand for several."""
    facts = dict(line.replace("\t", "").split(":", 1) for line in _cpuinfo() if ":" in line)
    name = facts.get("model name", "").strip() or platform.processor() or platform.machine() or "unknown"
    numbers = [
        f"{word} {facts[key].strip()}" for word, key in (("family", "cpu family"), ("model", "model")) if key in facts
    ]
    return f"{name} ({', '.join(numbers)})" if numbers else name


@cache
def cpu_signature() -> str:
    """Model and instruction sets of this CPU: what ``-march=native`` looks at."""
    named = ("vendor_id", "cpu family", "model", "flags", "CPU ", "Features")
    return platform.machine() + "\n".join(line for line in _cpuinfo() if line.startswith(named))


def _cpuinfo() -> list[str]:
    """The lines about the first core; none where the system has no such file."""
    try:
        return Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return []


def host_name() -> str:
    return platform.node() or "unknown"


@cache
def kernel_id() -> str:
    """One boot of one machine, the same in all of its containers; its name where the system does not say."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return host_name()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes(field: str) -> int | None:
    """A line of this process's memory status, such as ``VmRSS``; None where there is no such file."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(errors="replace").splitlines():  # a name may be cut anywhere
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    return None


def reset_peak_memory() -> bool:
    """Forget the peak so far; False where the system cannot."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False


def peak_memory_bytes() -> int:
    """The most memory that this process has held since the start or the last reset."""
    peak = memory_bytes("VmHWM")
    if peak is not None:
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def commit(root: Path, *watched: str) -> tuple[str, bool]:
    """The commit of a checkout, and whether files under ``watched`` differ from it; ("unknown", True) if git is
    missing, slow, or there is no checkout."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head, bool(_git(root, "status", "--porcelain", "--untracked-files=no", "--", *watched))
    except (OSError, UnicodeError, subprocess.SubprocessError):
        return "unknown", True


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
    )
    return done.stdout.strip()
