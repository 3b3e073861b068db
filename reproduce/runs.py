"""What a run is: plain data that any worker can turn into a record, and the identity that ties the two."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import tasks
from reproduce.recipe import Budget, Recipe, Settings, canonical, sha256
from tasks.download import DataError

ROOT = Path(__file__).resolve().parents[1]


class Run(BaseModel):
    """One run to do. ``id`` is the sha256 of its settings, budget, task fingerprint and seed."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    recipe_file: str
    row: str
    cell: str
    budget: Budget
    seed: int
    task: str  # the name given to tasks.build: the recipe's, or its stand-in's
    requested: str
    fingerprint: str
    settings: Settings
    sources: dict[str, str]

    @property
    def id(self) -> str:
        identity = {
            "settings": self.settings.model_dump(mode="json"),
            "budget": self.budget,
            "task": self.fingerprint,
            "seed": self.seed,
        }
        return sha256(canonical(identity))

    @property
    def label(self) -> str:
        return f"{self.row} · {self.cell} · seed {self.seed}"

    def folder(self, runs: Path) -> Path:
        return runs / self.id[:16]

    def build_task(self) -> Any:
        task = _build_task(self.task, canonical(self.settings.task_options))
        if task.fingerprint != self.fingerprint:
            raise ValueError(f"{self.label}: task {task.name} has changed since the run was planned; plan it again")
        return task


@lru_cache(maxsize=8)
def _build_task(name: str, options: str) -> Any:
    """A stand-in has fewer choices than what it stands for and takes those that it knows."""
    chosen = json.loads(options)
    if name.endswith("-synthetic"):
        known = tasks.options(name)
        chosen = {option: value for option, value in chosen.items() if option in known}
    return tasks.build(name, **chosen)


def plan(
    recipe: Recipe, rows: list[str], cells: list[str], seeds: list[int], budget: Budget
) -> tuple[list[Run], list[str]]:
    """Every run of a table, seed by seed, and a note for each cell that falls back or cannot run."""
    notes: list[str] = []
    chosen: dict[tuple[str, str], tuple[str, str]] = {}
    runs = []
    for seed in seeds:
        for cell in cells:
            for row in rows:
                settings, sources = recipe.resolve(row, cell, budget)
                key = (cell, canonical(settings.task_options))
                if key not in chosen:
                    chosen[key] = _choose_task(recipe, cell, settings, notes)
                name, fingerprint = chosen[key]
                if name:
                    run = Run(
                        recipe_file=recipe.name, row=row, cell=cell, budget=budget, seed=seed, task=name,
                        requested=recipe.cells[cell].task, fingerprint=fingerprint, settings=settings, sources=sources,
                    )  # fmt: skip
                    runs.append(run)
    return runs, list(dict.fromkeys(notes))


def _choose_task(recipe: Recipe, cell: str, settings: Settings, notes: list[str]) -> tuple[str, str]:
    """The real task where its data can be had, else its stand-in, else nothing."""
    options = canonical(settings.task_options)
    spec = recipe.cells[cell]
    for name in filter(None, (spec.task, spec.standin)):
        try:
            task = _build_task(name, options)
        except DataError as error:
            notes.append(f"{cell}: task {name} cannot be had here ({str(error).splitlines()[0]})")
            continue
        if name == spec.standin:
            notes.append(f"{cell}: runs on the synthetic stand-in {name}; its numbers do not compare with the paper's")
        return name, task.fingerprint
    return "", ""


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[bool]:
    """True if this process now owns the run; the kernel frees the lock when the process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)
