"""What a run is: plain data that any worker can turn into a record, and the identity that ties the two."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import tasks
from reproduce.plan.imports import Import, import_all
from reproduce.plan.parts import SCHEMA, Settings, canonical
from reproduce.plan.recipe import Budget, Recipe
from suite.files import sha256
from tasks import CacheError, DataError, ExplicitSourceError

_ABOVE = Path(__file__).resolve().parents[2]
ROOT = _ABOVE if (_ABOVE / "pyproject.toml").exists() else Path.cwd()
"""The checkout; for an installed copy, the folder that a command was started in."""


class Run(BaseModel):
    """One run to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    recipe: str
    row: str
    cell: str
    budget: Budget
    seed: int
    task: str  # the name given to tasks.build: the recipe's, or its stand-in's
    requested: str
    fingerprint: str
    settings: Settings
    sources: dict[str, str]
    imports: tuple[Import, ...] = ()  # modules that a row of one's own needs

    @property
    def id(self) -> str:
        return identity(self.settings, self.fingerprint, self.seed)

    @property
    def label(self) -> str:
        return f"{self.row} · {self.cell} · seed {self.seed}"

    def folder(self, runs: Path) -> Path:
        return runs / self.id[:16]

    def build_task(self) -> Any:
        import_all(self.imports)
        task = build_task(self.task, canonical(self.settings.data))
        if task.fingerprint != self.fingerprint:
            raise ValueError(f"{self.label}: task {task.name} has changed since the run was planned; plan it again")
        return task


def identity(settings: Settings, fingerprint: str, seed: int) -> str:
    """sha256 of what is set explicitly, of the task and of the seed. A budget's name is not part of it."""
    content = {"schema": SCHEMA, "settings": settings.explicit(), "task": fingerprint, "seed": seed}
    return sha256(canonical(content))


@lru_cache(maxsize=8)
def build_task(name: str, options: str) -> Any:
    """A stand-in has fewer choices than what it stands for and takes those that it knows."""
    chosen = json.loads(options)
    if tasks.stands_in_for(name):
        known = tasks.options(name)
        chosen = {option: value for option, value in chosen.items() if option in known}
    return tasks.build(name, **chosen)


def plan(
    recipe: Recipe,
    rows: list[str],
    cells: list[str],
    seeds: list[int],
    budget: Budget,
    imports: tuple[Import, ...] = (),
) -> tuple[list[Run], list[str]]:
    """Every run of a table, seed by seed, and a note for each cell that falls back or cannot run."""
    notes: list[str] = []
    chosen: dict[tuple[str, str], tuple[str, str]] = {}
    runs = []
    for seed in seeds:
        for cell in cells:
            for row in (row for row in rows if recipe.offers(row, cell, budget)):
                settings, sources = recipe.resolve(row, cell, budget)
                key = (cell, canonical(settings.data))
                if key not in chosen:
                    chosen[key] = _choose_task(recipe.cells[cell].task, cell, key[1], notes)
                name, fingerprint = chosen[key]
                if name:
                    run = Run(
                        recipe=recipe.name, row=row, cell=cell, budget=budget, seed=seed, task=name,
                        requested=recipe.cells[cell].task, fingerprint=fingerprint, settings=settings, sources=sources,
                        imports=imports,
                    )  # fmt: skip
                    runs.append(run)
    return runs, list(dict.fromkeys(notes))


def _choose_task(wanted: str, cell: str, options: str, notes: list[str]) -> tuple[str, str]:
    """The real task where its data can be had, else its stand-in, else nothing. A source that was named must do, and a
    cache that is full or closed is no reason to take a stand-in."""
    for name in filter(None, (wanted, tasks.standin_of(wanted))):
        try:
            task = build_task(name, options)
        except (CacheError, ExplicitSourceError) as error:
            raise ValueError(str(error).splitlines()[0]) from None
        except DataError as error:
            notes.append(f"{cell}: task {name} cannot be had here ({str(error).splitlines()[0]})")
            continue
        if name != wanted:
            notes.append(f"{cell}: runs on the synthetic stand-in {name}; its numbers do not compare with the paper's")
        return name, task.fingerprint
    return "", ""
