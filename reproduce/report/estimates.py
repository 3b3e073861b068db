"""How long a run takes, estimated from records: the one place for such estimates."""

from __future__ import annotations

import math
import statistics
from typing import Any

from reproduce.plan.parts import Settings
from reproduce.report.records import Record

LATEST = 3  # records that an estimate is the median of: older ones were made by slower code


def time_left(recipe: str, row: str, settings: Settings, step: int, known: list[Record]) -> float | None:
    """Seconds of one core from an update to the end; None if no record of the row says anything.

    The median over the latest records of the row whose updates are nearest in work (samples, steps and units squared),
    each scaled by that work.
    """
    estimates: list[tuple[float, str, float]] = []
    for r in known:
        if (r.recipe, r.row) == (recipe, row) and r.steps_per_second > 0:
            if not (work := _work(r.settings, r.task.length)):
                continue
            more = _work(settings, r.task.length) / work
            estimates.append((round(abs(math.log(more)), 6), r.finished, more / r.steps_per_second))
    if not estimates:
        return None
    nearest = min(distance for distance, _, _ in estimates)
    by_age = sorted((finished, seconds) for distance, finished, seconds in estimates if distance == nearest)
    each = statistics.median(seconds for _, seconds in by_age[-LATEST:])
    return (settings.training.updates - step) * each


def rounded(hours: float) -> str:
    """An estimate with as many digits as it deserves."""
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"


def memory_needed(recipe: str, row: str, known: list[Record]) -> int:
    """Bytes to set aside for a run: the most that a run of the row was seen to hold; 1 GiB if none was seen."""
    peaks = [r.peak_memory_mb for r in known if (r.recipe, r.row) == (recipe, row)]
    return int(max(peaks, default=1024.0) * 2**20)


def _work(settings: Settings, length: int) -> float:
    """What the time of an update grows with: samples times steps times the entries of a recurrent matrix; 0 if a record
    holds settings that no task takes."""
    size: Any = settings.model.hidden_size
    widths = [size] if isinstance(size, int) else size
    steps = settings.data.get("length", length)
    if not widths or not isinstance(steps, int) or steps < 1:
        return 0.0
    return settings.training.batch_size * steps * sum(width * width for width in widths) / len(widths)
