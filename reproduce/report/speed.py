"""``python -m reproduce.report.speed``: measure this machine, publish it in results/speed and in the README.

About six minutes on an otherwise idle machine: the kernels under each instruction set of its CPU, and whole updates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import tyro

from models.kernels import report
from models.kernels.tables import Speed, readme_lines, report_lines
from reproduce.plan.runs import ROOT
from reproduce.train import overhead

FOLDER = ROOT / "results" / "speed"


def published(folder: Path = FOLDER) -> list[Speed]:
    """The measurements that are committed, one for each machine."""
    return [Speed.load(path) for path in sorted(folder.glob("*.json"))]


def readme_part(found: list[Speed]) -> str:
    return "\n\n".join("\n".join(_lines(speed)) for speed in found) or "No measurement is published yet."


def _lines(speed: Speed) -> Iterator[str]:
    yield from readme_lines(speed)
    for sentence in overhead.sentences(speed.updates):
        yield f"- {sentence}"


def main(threads: int = 2, save: Path | None = None) -> None:
    """Measure this machine and publish what was found.

    Args:
        threads: number of threads for all contenders.
        save: the file to write instead of the machine's own in results/speed; the README is then left alone.
    """
    kernels = report.measure(threads=threads)
    for line in report_lines(kernels):
        print(line)
    if any(session.is_red for session in kernels.sessions):
        sys.exit(1)
    speed = replace(kernels, updates=overhead.measure(threads))
    for sentence in overhead.sentences(speed.updates):
        print(f"- {sentence}")
    speed.save(save or FOLDER / report.file_name(speed.machine))
    if save is None:
        from reproduce.report import readme  # which shows what this module publishes

        readme.main()


if __name__ == "__main__":
    tyro.cli(main)
