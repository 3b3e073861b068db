"""Who does the runs. ``Workers`` is all that the rest of the suite knows; a cluster is one more class like these two.

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
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from reproduce.plan.runs import Run
from reproduce.train import checkpoint
from reproduce.train.loop import train
from reproduce.train.outcome import Outcome, Place, Progress, Stop
from suite.machine import cores

Event = Progress | Outcome | None  # None: the run has been given to a worker
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Watch = Callable[[Run, Event], None]


class Workers(Protocol):
    def do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        """Do all runs, or fewer if ``stop.reason`` is set meanwhile; ``watch`` hears of everything that happens."""


class Inline:
    """One after the other in this process."""

    def do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        for run in runs:
            _watch_clock(place, stop)
            if stop.reason:
                return
            watch(run, None)
            watch(run, _attempt(run, place, lambda event, run=run: watch(run, event), stop))  # type: ignore[misc]


class LocalProcesses:
    """``jobs`` processes that each do one run after another; one that dies takes only its own run with it."""

    def __init__(self, jobs: int):
        self.jobs = jobs
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
        waiting = list(runs)
        idle: list[tuple[Connection, Any]] = []
        active: dict[Connection, tuple[Run, Any]] = {}
        told = False
        while (waiting and not stop.reason) or active:
            _watch_clock(place, stop)
            while waiting and len(active) < self.jobs and not stop.reason:
                run = waiting.pop(0)
                watch(run, None)
                connection, process = idle.pop() if idle else self._start(place)
                connection.send(run)
                active[connection] = (run, process)
            if stop.reason and not told:
                told = True
                for _, process in active.values():
                    if stop.reason != "time-limit":  # workers know the deadline themselves
                        process.terminate()  # SIGTERM: the worker saves itself
            for ready in wait(list(active), timeout=0.2):
                assert isinstance(ready, Connection)
                run, process = active[ready]
                try:
                    event = ready.recv()
                except (EOFError, OSError):
                    process.join()
                    event = _ended(process.exitcode, stop)
                watch(run, event)
                if isinstance(event, Outcome):
                    del active[ready]
                    if process.is_alive():
                        idle.append((ready, process))
        for connection, process in idle:
            connection.close()  # the worker sees the end of its pipe and leaves
            process.join()

    def _start(self, place: Place) -> tuple[Connection, Any]:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_child, args=(theirs, place), daemon=True)
        with _signals_held_back():
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


def _ended(code: int | None, stop: Stop) -> Outcome:
    """The outcome of a run whose process is gone."""
    if stop.reason and code == 0:
        return Outcome("unfinished", stop.reason, "stopped before it began")
    return Outcome("failed", message=f"its process ended with code {code}; run again to continue")


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
            run = connection.recv()
        except (EOFError, OSError):
            return
        send(_attempt(run, place, send, stop))


def _attempt(run: Run, place: Place, report: Callable[[Progress], None], stop: Stop) -> Outcome:
    """One run; an unexpected error becomes an outcome and leaves its traceback in the run's folder."""
    try:
        return train(run, place, report, stop)
    except Exception as error:
        details = checkpoint.note_failure(run.folder(place.runs), traceback.format_exc())
        first = (str(error).splitlines() or [""])[0]
        return Outcome("failed", message=f"{type(error).__name__}: {first} ({details})")


@contextmanager
def stopping_on_signals() -> Iterator[Stop]:
    """A Stop that Ctrl-C, SIGTERM and SIGHUP set; a second Ctrl-C interrupts at once. Elsewhere a plain Stop."""
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


def share(jobs: int, device: str) -> tuple[int, int]:
    """Runs at a time and threads of each. ``jobs=0``: one per core, which a run uses best; one at a time on a GPU."""
    jobs = jobs or (1 if device.startswith("cuda") else cores())
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # "2,1" sets two levels of nested threads
    return jobs, int(asked) if asked.isdigit() and int(asked) else max(1, cores() // max(1, jobs))


def _watch_clock(place: Place, stop: Stop) -> None:
    if place.deadline and time.monotonic() > place.deadline:
        stop.reason = stop.reason or "time-limit"
