"""Recipes: every hyperparameter of every run as data, each with the place it comes from.

A recipe file names its cells (tasks), its rows (models) and a list of ``[[settings]]`` blocks. A block holds values
that share one ``source`` and may be narrowed by ``rows``, ``cells`` and ``budgets`` (shell patterns); where blocks
overlap, the later one wins. ``resolve`` turns (row, cell, budget) into one complete set of values: a hyperparameter
that no block sets is an error, so nothing runs on a silent default.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

RECIPES = Path(__file__).parent / "recipes"
BUDGETS = ("smoke", "quick", "cpu", "paper")
Budget = Literal["smoke", "quick", "cpu", "paper"]
SOURCES = ("paper:", "release:", "cited:", "ours:")
SELECTORS = ("rows", "cells", "budgets")
MERGED = ("options", "task_options")


class Settings(BaseModel):
    """What one run needs beside its task and seed. Zero (or "none") switches a thing off."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str
    hidden_size: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    norm: Literal["none", "after", "frame", "sequence", "frame+after", "sequence+after"]
    dropout: float | tuple[float, float]
    options: dict[str, Any]  # passed to models.build as they are
    task_options: dict[str, Any]  # passed to tasks.build as they are
    encoding: Literal["dense", "one-hot", "embedding"]
    embedding_size: int = Field(ge=0)
    batch_size: int = Field(gt=0)
    optimiser: Literal["adam", "rmsprop"]
    lr: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    clip_value: float = Field(ge=0)  # element-wise clamp of the gradient
    clip_norm: float = Field(ge=0)
    schedule: Literal["constant", "step", "cosine", "plateau"]
    decay_factor: float = Field(gt=0, le=1)
    decay_every: int = Field(ge=0)  # updates, for "step"
    patience: int = Field(ge=0)  # evaluations without a new best, for "plateau"; halved at each decay
    min_lr: float = Field(ge=0)  # "plateau" ends below it, "cosine" ends at it
    updates: int = Field(gt=0)  # planned; "plateau" may end earlier
    evaluate_every: int = Field(gt=0)  # updates between two evaluations on the validation split
    valid_samples: int = Field(ge=0)  # 0: the whole split
    test_samples: int = Field(ge=0)
    statistics_batches: int = Field(ge=0)  # training batches that re-estimate BatchNorm before an evaluation
    max_seconds: float = Field(ge=0)  # per run; a run that ends by it says so in its record

    @field_validator("options", "task_options")
    @classmethod
    def _plain(cls, value: dict[str, Any]) -> dict[str, Any]:
        json.dumps(value)
        return value


class RowSpec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str
    paper: str = ""  # the row's id in paper.toml; empty: the row's own name


class CellSpec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str
    task: str
    standin: str = ""  # the task that takes its place where the data cannot be had
    paper: str = ""


class Recipe(BaseModel):
    """One validated recipe file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    title: str
    rows: dict[str, RowSpec]
    cells: dict[str, CellSpec]
    settings: list[dict[str, Any]]

    def resolve(self, row: str, cell: str, budget: str) -> tuple[Settings, dict[str, str]]:
        """The complete settings of one run and, for each value, its source."""
        known: dict[str, tuple[str, list[str]]] = {
            "rows": (row, list(self.rows)),
            "cells": (cell, list(self.cells)),
            "budgets": (budget, list(BUDGETS)),
        }
        for kind, (name, names) in known.items():
            if name not in names:
                raise ValueError(f"recipe {self.name}: unknown {kind[:-1]} {name!r}; {nearest(name, names)}")
        values: dict[str, Any] = {key: {} for key in MERGED}
        sources: dict[str, str] = {}
        for block in self.settings:
            if not all(_selects(block.get(kind), known[kind][0]) for kind in SELECTORS):
                continue
            for key, value in block.items():
                if key in MERGED:
                    values[key] = values[key] | value
                    sources |= {f"{key}.{name}": block["source"] for name in value}
                elif key not in (*SELECTORS, "source"):
                    values[key] = value
                    sources[key] = block["source"]
        missing = [name for name in Settings.model_fields if name not in values]
        if missing:
            raise ValueError(f"recipe {self.name}: {row}/{cell}/{budget} sets no {', '.join(missing)}")
        try:
            return Settings(**values), sources
        except ValidationError as error:
            raise ValueError(f"recipe {self.name}: {row}/{cell}/{budget}: {explain(error)}") from None


def load(name: str, folder: Path = RECIPES) -> Recipe:
    """Read and check ``<folder>/<name>.toml``: all rows, cells and budgets must resolve."""
    path = folder / f"{name}.toml"
    if not path.exists():
        names = sorted(p.stem for p in folder.glob("*.toml"))
        raise ValueError(f"no recipe {name!r} in {folder}; {nearest(name, names)}")
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}") from None
    try:
        recipe = Recipe(name=name, **data)
    except ValidationError as error:
        raise ValueError(f"{path.name}: {explain(error)}") from None
    for number, block in enumerate(recipe.settings, 1):
        _check_block(recipe, number, block)
    for row in recipe.rows:
        for cell in recipe.cells:
            for budget in BUDGETS:
                recipe.resolve(row, cell, budget)
    return recipe


def _check_block(recipe: Recipe, number: int, block: dict[str, Any]) -> None:
    where = f"{recipe.name}.toml, settings block {number}"
    source = block.get("source", "")
    if not (isinstance(source, str) and source.startswith(SOURCES) and len(source.split(":", 1)[1].strip()) > 1):
        raise ValueError(f"{where}: source is {source!r}; it must start with one of {', '.join(SOURCES)} and say where")
    allowed = [*Settings.model_fields, *SELECTORS, "source"]
    for key in block:
        if key not in allowed:
            raise ValueError(f"{where}: unknown key {key!r}; {nearest(key, allowed)}")
    names = {"rows": list(recipe.rows), "cells": list(recipe.cells), "budgets": list(BUDGETS)}
    for kind in SELECTORS:
        for pattern in block.get(kind, []):
            if not fnmatch.filter(names[kind], pattern):
                raise ValueError(f"{where}: {kind} pattern {pattern!r} fits none; {nearest(pattern, names[kind])}")


def _selects(patterns: list[str] | None, name: str) -> bool:
    return patterns is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def nearest(name: str, names: Any) -> str:
    """The end of an error message: the closest known name, or all of them."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(map(str, names))}"


def explain(error: ValidationError) -> str:
    """A pydantic error as one sentence."""
    # a misspelt key also makes the right one missing; the misspelling is what helps
    first = min(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        fields = [*Recipe.model_fields, *RowSpec.model_fields, *CellSpec.model_fields]
        return f"unknown key {place!r}; {nearest(key, fields)}"
    return f"{place}: {first['msg']} (got {first.get('input')!r})"


def canonical(data: Any) -> str:
    """JSON with one spelling per value, for hashing."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
