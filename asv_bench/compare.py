"""Compares two commits on this machine and says which cases got slower or hungrier.

Both trees are measured by today's benchmarks, in turns: A B, B A, A B, …, with new processes every few turns. The rule
for time, per model × shape, over the ratios B/A of all pairs: a regression is a median beyond ``1 + threshold`` whose
99.9 % interval (order statistics of the median, no assumption on the noise) lies above 1, seen twice: a case that is
found slower is measured once more, from the imports on, and counts only if it is found slower again. For peak memory:
more than ``threshold`` and more than 4 MiB above A, also twice. A change of the loss after three steps is reported,
but is no regression.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ERROR_RATE = 0.001
BLOCK_SECONDS = 0.1
MEMORY_NOISE = 4 * 2**20
LOSS_NOISE = 1e-4


class CompareError(RuntimeError):
    """The commits cannot be compared; the message says why in one sentence."""


@dataclass(frozen=True)
class Plan:
    """``launches`` pairs of new processes, each with ``rounds`` pairs of blocks per case."""

    cases: tuple[tuple[str, str], ...]
    threshold: float = 0.10
    launches: int = 3
    rounds: int = 7


@dataclass
class Timing:
    """Seconds of a step, one entry per block, paired by position."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [b / a for a, b in zip(self.before, self.after, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        return median_interval(self.ratios)

    def slower(self, threshold: float) -> bool:
        return self.ratio > 1 + threshold and self.interval[0] > 1


def median_interval(values: Sequence[float], error_rate: float = ERROR_RATE) -> tuple[float, float]:
    """Bounds that the true median is below or above with probability at most ``error_rate`` each."""
    n = len(values)
    outside, k = 0.0, 0
    while k < n and (outside := outside + math.comb(n, k) / 2**n) <= error_rate:
        k += 1
    if k == 0:
        raise ValueError(f"{n} pairs are too few for an interval of the median; use at least 10 (launches x rounds).")
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


class Worker:
    """A process that measures one tree."""

    def __init__(self, tree: Path) -> None:
        env = dict(os.environ, PYTHONPATH=str(HERE), DURNN_BENCH_TREE=str(tree))
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "compare_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def ask(self, do: str, **request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer or json.loads(answer) is False:
            what = " ".join(str(part) for part in request.values())
            raise CompareError(f"The measuring process ended while it did {do} {what}; its message stands above.")
        return json.loads(answer)

    @contextmanager
    def launch(self) -> Iterator[Worker]:
        """A process of its own for what is asked inside."""
        self.ask("launch")
        yield self
        self.ask("finish")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def tree_of(commit: str, repository: Path) -> Iterator[Path]:
    """The files of a commit in a temporary folder; the repository itself is not touched."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as archive:
        done = subprocess.run(
            ["git", "-C", str(repository), "archive", "--format=tar", commit],
            stdout=archive,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CompareError(f"{commit!r} is not a commit of {repository}: {done.stderr.strip()}")
        archive.seek(0)
        with tarfile.open(fileobj=archive) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def time_cases(first: Worker, second: Worker, cases: Sequence[tuple[str, str]], plan: Plan) -> dict[Any, Timing]:
    found: dict[Any, Timing] = {case: Timing() for case in cases}
    turn = 0
    for _launch in range(plan.launches):
        with first.launch(), second.launch():
            for (model, shape), timing in found.items():
                request = {"model": model, "shape": shape}
                once = first.ask("time", steps=1, **request)
                second.ask("time", steps=1, **request)
                steps = max(1, min(20, math.ceil(BLOCK_SECONDS / once)))
                for _round in range(plan.rounds):
                    sides = [(first, timing.before), (second, timing.after)]
                    for worker, blocks in sides if turn % 2 == 0 else reversed(sides):
                        blocks.append(worker.ask("time", steps=steps, **request))
                    turn += 1
    return found


def observe_cases(first: Worker, second: Worker, cases: Sequence[tuple[str, str]]) -> dict[Any, list[dict[str, Any]]]:
    """Peak memory and loss, for both sides of each case, every one in a process of its own."""
    seen: dict[Any, list[dict[str, Any]]] = {case: [] for case in cases}
    for model, shape in cases:
        for worker in (first, second):
            with worker.launch():
                seen[model, shape].append(worker.ask("observe", model=model, shape=shape))
    return seen


def _hungrier(sides: Sequence[dict[str, Any]], threshold: float) -> bool:
    """The least of B against the most of A: what the heap happens to reuse moves a peak by some megabytes."""
    before, after = (side["bytes"] for side in sides)
    if not before or not after:
        return False
    return min(after) - max(before) > max(MEMORY_NOISE, threshold * max(before))


def _common_cases(first: Worker, second: Worker, plan: Plan) -> list[tuple[str, str]]:
    known = [set(worker.ask("names")) for worker in (first, second)]
    for model in sorted({model for model, _shape in plan.cases} - (known[0] & known[1])):
        where = "only in A" if model in known[0] else "only in B" if model in known[1] else "in neither commit"
        print(f"{model}: {where}, not compared")
    cases = [case for case in plan.cases if case[0] in known[0] & known[1]]
    if not cases:
        raise CompareError("The two commits have none of the chosen models in common.")
    return cases


def compare(before: Path, after: Path, plan: Plan) -> int:
    """Measure, print one line per case, and return the number of regressions."""
    median_interval([1.0] * plan.launches * plan.rounds)  # too few pairs: say so before measuring
    with Worker(before) as first, Worker(after) as second:
        cases = _common_cases(first, second, plan)
        seen = observe_cases(first, second, cases)
        timings = time_cases(first, second, cases, plan)
    hungry = [case for case, sides in seen.items() if _hungrier(sides, plan.threshold)]
    slow = [case for case, timing in timings.items() if timing.slower(plan.threshold)]
    confirmed: set[Any] = set()
    if hungry or slow:
        print(f"{len({*hungry, *slow})} of {len(cases)} cases look worse; measuring them once more …", flush=True)
        with Worker(before) as first, Worker(after) as second:
            for case, sides in observe_cases(first, second, hungry).items():
                for side, again in zip(seen[case], sides, strict=True):
                    side["bytes"] += again["bytes"]
            found_again = time_cases(first, second, slow, plan)
        confirmed = {case for case, timing in found_again.items() if timing.slower(plan.threshold)}
    return _report(timings, confirmed, seen, plan)


def _report(timings: dict[Any, Timing], slower: set[Any], seen: dict[Any, list[dict[str, Any]]], plan: Plan) -> int:
    titles = f"{'A ms':>9} {'B ms':>9} {'B/A':>7} {'99.9 % interval':>17} {'MiB A':>8} {'MiB B':>8}"
    print(f"{'model':14} {'shape':16} {titles}")
    regressions = 0
    for case, timing in timings.items():
        first, second = seen[case]
        notes = ["SLOWER"] if case in slower else []
        if _hungrier((first, second), plan.threshold):
            notes.append("MORE MEMORY")
        regressions += bool(notes)
        if None in (first["loss"], second["loss"]):
            if first["loss"] != second["loss"]:
                notes.append("fails in A only" if first["loss"] is None else "fails in B only")
        elif not math.isclose(first["loss"], second["loss"], rel_tol=LOSS_NOISE):
            notes.append(f"results changed: loss {first['loss']:.6g} -> {second['loss']:.6g}")
        low, high = timing.interval
        millis = [1000 * statistics.median(side) for side in (timing.before, timing.after)]
        sizes = [f"{min(side['bytes']) / 2**20:8.1f}" if side["bytes"] else f"{'n/a':>8}" for side in (first, second)]
        print(
            f"{case[0]:14} {case[1]:16} {millis[0]:9.2f} {millis[1]:9.2f} {timing.ratio:7.3f}"
            f"   {low:6.3f} – {high:6.3f} {sizes[0]} {sizes[1]}  {', '.join(notes)}".rstrip()
        )
    print(f"{regressions} of {len(timings)} cases regressed beyond {plan.threshold:.0%}.")
    return regressions
