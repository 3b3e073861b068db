"""Who else used the processors while something was measured."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

MOST_BY_OTHERS = 0.05
MOST_STOLEN = 0.02
"""Shares of the processors' time above which a measurement was disturbed."""

_STAT = Path("/proc/stat")
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)  # columns of a processor's line


@dataclass(frozen=True)
class Processors:
    """Seconds since the start of the machine, summed over the processors that this process may use.

    busy: somebody ran, whoever it was. stolen: the hypervisor gave the processor to another machine. own: this process.
    """

    count: int
    wall: float
    busy: float
    stolen: float
    own: float


def look() -> Processors | None:
    """The state now; None where the system does not tell."""
    try:
        lines = _STAT.read_text().splitlines()
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    found = [[int(tick) for tick in line.split()[1:9]] for line in lines if line.split()[0] in allowed]
    if not found or any(len(ticks) < 8 for ticks in found):
        return None
    second = os.sysconf("SC_CLK_TCK")
    busy = sum(t[_USER] + t[_NICE] + t[_SYSTEM] + t[_IRQ] + t[_SOFTIRQ] for t in found) / second
    stolen = sum(ticks[_STEAL] for ticks in found) / second
    return Processors(len(found), time.perf_counter(), busy, stolen, time.process_time())


@dataclass(frozen=True)
class Disturbance:
    """Shares of the processors' time that others used and that the hypervisor took; None where nobody can tell."""

    others: float | None = None
    stolen: float | None = None

    def __str__(self) -> str:
        """What was too much, in a few words; empty if nothing was."""
        said = []
        if self.others is not None and self.others > MOST_BY_OTHERS:
            said.append(f"others used {self.others:.0%} of the processors")
        if self.stolen is not None and self.stolen > MOST_STOLEN:
            said.append(f"the hypervisor took {self.stolen:.0%}")
        return " and ".join(said)


def between(before: Processors | None, after: Processors | None) -> Disturbance:
    if before is None or after is None or not after.wall > before.wall:
        return Disturbance()
    whole = after.count * (after.wall - before.wall)
    others = (after.busy - before.busy) - (after.own - before.own)
    return Disturbance(max(0.0, others) / whole, max(0.0, after.stolen - before.stolen) / whole)
