"""Who does the runs on this machine. ``Workers`` is all that the rest of the suite knows.

A worker takes a run (plain data) and a place, and sends back signs of life and one outcome.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from reproduce.execute.queue import Event, Job, Queue, Returned, Watch
from reproduce.execute.slots import Slot
from reproduce.plan.runs import Run
from reproduce.train import checkpoint
from reproduce.train.loop import train
from reproduce.train.outcome import Outcome, Place, Progress, Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # the last is sent before a job's time is up
LOOK_SECONDS = 0.2


class Workers(Protocol):
    def do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        """Do all runs, or fewer if ``stop.reason`` is set meanwhile; ``watch`` hears of everything that happens. A run
        that another command works on is waited for, and taken over if that command is seen to be gone."""


class Inline:
    """One after the other in this process."""

    def do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        queue = Queue(runs, place, watch)
        while queue:
            watch_clock(place, stop)
            if stop.reason:
                return
            job = queue.next()
            if job is None:
                time.sleep(LOOK_SECONDS)
                continue
            run = job.run
            watch(run, None)
            outcome = attempt(job, place, lambda event, run=run: watch(run, event), stop)  # type: ignore[misc]
            if outcome.status == "busy":
                queue.give_back(run, outcome.message)
            else:
                watch(run, outcome)


class LocalProcesses:
    """A process per slot that does one run after another. One that dies takes nothing with it: its run goes on from its
    checkpoint in another, unless it has died too often."""

    def __init__(self, slots: Sequence[Slot]):
        self.slots = slots
        self.processes: list[Any] = []

    def do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        try:
            self._do(runs, place, watch, stop)
        except BaseException:  # such as a second Ctrl-C, which does not wait for what is being saved
            for process in self.processes:
                process.kill()
                process.join()
            raise

    def _do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        queue = Queue(runs, place, watch)
        free = list(self.slots)
        idle: dict[Slot, list[tuple[Connection, Any]]] = {}
        active: dict[Connection, tuple[Run, Slot, Any]] = {}
        told = False
        while (queue and not stop.reason) or active:
            watch_clock(place, stop)
            while free and not stop.reason and (job := queue.next()):
                slot = free.pop(0)
                watch(job.run, None)
                at_rest = idle.get(slot)
                connection, process = at_rest.pop() if at_rest else self._start(place, slot)
                connection.send(job)
                active[connection] = (job.run, slot, process)
            if stop.reason and not told:
                told = True
                for *_, process in active.values():
                    if stop.reason != "time-limit":  # workers know the deadline themselves
                        process.terminate()  # SIGTERM: the worker saves itself
            if not active:
                time.sleep(LOOK_SECONDS)  # wait() returns at once where there is nobody to wait for
            for ready in wait(list(active), timeout=LOOK_SECONDS):
                assert isinstance(ready, Connection)
                run, slot, process = active[ready]
                try:
                    event = ready.recv()
                except (EOFError, OSError):
                    process.join()
                    event = _ended(process.exitcode, stop)
                if isinstance(event, Progress):
                    watch(run, event)
                    continue
                del active[ready]
                free.append(slot)
                if process.is_alive():
                    idle.setdefault(slot, []).append((ready, process))
                if isinstance(event, Returned) or event.status == "busy":
                    queue.give_back(run, event.message)
                else:
                    watch(run, event)
        for connection, process in (pair for pairs in idle.values() for pair in pairs):
            connection.close()  # the worker sees the end of its pipe and leaves
            process.join()

    def _start(self, place: Place, slot: Slot) -> tuple[Connection, Any]:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, replace(place, device=slot.device)), daemon=True)
        with _signals_held_back(), _environment(slot.environment):
            process.start()
        self.processes.append(process)
        theirs.close()
        return ours, process


def _heeded() -> list[signal.Signals]:
    """The signals to act on: all but the hang-up that ``nohup`` has switched off."""
    return [number for number in SIGNALS if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)]


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """A process that is started meanwhile hears of signals only once it can act on them; none is lost."""
    resource_tracker.ensure_running()  # starting it would let signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """What a process that is started meanwhile inherits."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _ended(code: int | None, stop: Stop) -> Outcome | Returned:
    """What became of a run whose process is gone."""
    if stop.reason and code == 0:
        return Outcome("unfinished", stop.reason, "stopped before it began")
    if stop.reason:
        return Outcome("unfinished", "killed", f"its process ended with code {code}")
    return Returned(f"its process ended with code {code}; it goes on from its checkpoint")


def _child(connection: Connection, place: Place) -> None:
    stop = Stop()
    for number in _heeded():
        signal.signal(number, lambda *_: setattr(stop, "reason", "interrupted"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def send(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:
            stop.reason = "orphaned"

    while not stop.reason:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        send(attempt(job, place, send, stop))


def attempt(job: Job, place: Place, report: Callable[[Progress], None], stop: Stop) -> Outcome:
    """One run; an unexpected error becomes an outcome and leaves its traceback in the run's folder."""
    try:
        return train(job.run, place, report, stop, job.abandoned)
    except Exception as error:
        details = checkpoint.note_failure(job.run.folder(place.runs), traceback.format_exc())
        first = (str(error).splitlines() or [""])[0]
        return Outcome("failed", message=f"{type(error).__name__}: {first} ({details})")


@contextmanager
def stopping_on_signals() -> Iterator[Stop]:
    """A Stop that the signals above set; a second Ctrl-C interrupts at once. Outside the main thread, a plain Stop."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, _: Any) -> None:
        if stop.reason and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.reason = "interrupted"

    before = {number: signal.signal(number, handle) for number in _heeded()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch_clock(place: Place, stop: Stop) -> None:
    if place.deadline and time.monotonic() > place.deadline:
        stop.reason = stop.reason or "time-limit"
