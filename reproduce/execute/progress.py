"""What the user sees while runs go on: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from reproduce.execute.console import say
from reproduce.execute.queue import Event, Returned
from reproduce.plan.runs import Run
from reproduce.train.outcome import SAID, Outcome, Progress

PLAIN_SECONDS = 60.0  # between two lines about the same run when there is no terminal


def clock(seconds: float) -> str:
    """1:02:03, 2:03 or 3 s."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def number(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.4g}"


class Display:
    """``display.watch`` is what workers report to."""

    def __init__(self, runs: list[Run], console: Console):
        self.console = console
        self.active: dict[str, tuple[Run, Progress | None]] = {}
        self.said: dict[str, float] = {}
        self.outcomes: list[tuple[Run, Outcome]] = []
        self.total = len(runs)
        self.bars = Bars(
            TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console,
        )  # fmt: skip
        self.overall = self.bars.add_task("all runs", total=len(runs))
        self.live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._render)

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def watch(self, run: Run, event: Event) -> None:
        if isinstance(event, Outcome):
            self.active.pop(run.id, None)
            self.outcomes.append((run, event))
            self.bars.advance(self.overall)
            say(self.console, self._line(run, event))
        elif isinstance(event, Returned):
            self.active.pop(run.id, None)
            say(self.console, f"  {run.label}: {event.message}")
        else:
            self.active[run.id] = (run, event)
            if event is not None and not self.console.is_terminal:
                self._say(run, event)

    def _line(self, run: Run, outcome: Outcome) -> str:
        head = f"[{len(self.outcomes)}/{self.total}] {run.label}"
        done = outcome.record
        if done is None:
            return f"{head}: {outcome.status}, {outcome.message}"
        took = f"{done.steps_done:,} of {done.steps_planned:,} updates in {clock(done.wall_seconds)}"
        if outcome.status in ("completed", "skipped") and done.test is not None:
            note = "" if outcome.status == "completed" else " (done before)"
            return f"{head}: {done.task.metric} {number(done.test)} test, {number(done.valid)} valid; {took}{note}"
        if done.status == "diverged":
            return f"{head}: diverged at update {done.diverged_at:,}; {took}"
        return f"{head}: {done.status}, stopped by {SAID.get(done.ended, done.ended)}; {took}"

    def _say(self, run: Run, event: Progress) -> None:
        now = time.monotonic()
        if now - self.said.setdefault(run.id, now) >= PLAIN_SECONDS:
            self.said[run.id] = now
            say(
                self.console,
                f"  {_label(run, event)}: update {event.step:,} of {event.updates:,}, loss {number(event.loss)}, valid "
                f"{number(event.valid)}, {event.rate:.1f} updates/s, {clock(event.left)} left",
            )

    def _render(self) -> Any:
        table = Table(box=None, padding=(0, 2))
        for name in ("run", "update", "", "loss", "valid", "updates/s", "left"):
            table.add_column(name, justify="left" if name == "run" else "right")
        for run, event in list(self.active.values()):
            if event is None:
                table.add_row(run.label, "starting")
                continue
            share = f"{100 * event.step / event.updates:.0f} %"
            table.add_row(
                _label(run, event), f"{event.step:,}/{event.updates:,}", share, number(event.loss), number(event.valid),
                f"{event.rate:.1f}", clock(event.left),
            )  # fmt: skip
        return Group(self.bars, table)


def _label(run: Run, event: Progress) -> str:
    return f"{run.label} (on {event.where})" if event.where else run.label
