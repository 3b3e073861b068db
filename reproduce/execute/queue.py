"""The runs of a command that nobody works on: all that several commands over one shared folder need to cooperate."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reproduce.plan.runs import Run
from reproduce.train import lease
from reproduce.train.outcome import Outcome, Place, Progress


@dataclass(frozen=True)
class Returned:
    """A run is waiting again, and why."""

    message: str


Event = Progress | Outcome | Returned | None  # None: the run has been given to a worker
Watch = Callable[[Run, Event], None]


class Job(NamedTuple):
    """A run for a worker, with the mark of the lease that was watched until it was clear that nobody renews it."""

    run: Run
    abandoned: str = ""


class Queue:
    """Hands out each run that is free; those in other hands stay until they are done there, or abandoned."""

    def __init__(self, runs: Sequence[Run], place: Place, watch: Watch):
        self.place, self.watch = place, watch
        self.waiting = order_of_its_own(runs, random.Random())
        self.looks_again: dict[str, float] = {}  # run -> time of the next look at its lease
        self.observer = lease.Observer()
        self.pause = min(2.0, lease.lease_seconds() / 10)
        seen = {run.id: lease.look(run.folder(place.runs)) for run in runs}
        self.forgiven = {name: look.number for name, look in seen.items() if _failed(look)}  # the user asks again

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def next(self) -> Job | None:
        """A run that nobody works on; None if all that wait are in other hands."""
        for run in list(self.waiting):
            now = time.monotonic()
            if self.looks_again.get(run.id, 0.0) > now:
                continue
            folder = run.folder(self.place.runs)
            seen = lease.look(folder)
            if seen.state and _failed(seen) and self.forgiven.get(run.id) != seen.number:
                self.waiting.remove(run)
                self.watch(run, Outcome("failed", message=f"{seen.state.message} (on {seen.state.who})"))
                continue
            abandoned = seen.is_live and self.observer.is_abandoned(folder, seen)
            if not seen.is_live or abandoned or lease.is_dead(folder, seen):
                self.waiting.remove(run)
                return Job(run, seen.mark if abandoned else "")
            self.looks_again[run.id] = now + self.pause
            if seen.state and seen.state.progress:
                self.watch(run, Progress(**seen.state.progress | {"where": seen.state.who}))
        return None

    def give_back(self, run: Run, why: str) -> None:
        """A run whose worker died, or found it in other hands."""
        self.waiting.insert(0, run)
        self.looks_again[run.id] = time.monotonic() + self.pause
        self.watch(run, Returned(why))


def order_of_its_own(runs: Sequence[Run], dice: random.Random) -> list[Run]:
    """Seed by seed, so that a whole table is there early; within a seed as it falls, so that commands seldom meet."""
    shuffled = dice.sample(runs, len(runs))
    return sorted(shuffled, key=lambda run: run.seed)


def _failed(seen: lease.Look) -> bool:
    return seen.state is not None and seen.state.ended == "failed"
