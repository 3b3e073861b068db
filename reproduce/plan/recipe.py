"""Recipes: every hyperparameter of every run as data, each with the place it comes from.

A recipe file names its cells (tasks), its rows and a list of ``[[settings]]`` blocks. A block holds parts (parts.py)
whose values share one ``source``, and may be narrowed by ``rows``, ``cells`` and ``budgets`` (shell patterns). Where
blocks overlap, the later one wins, option by option; choosing another ``name`` for a part drops the options of the old
one; ``"off"`` takes away an option or a whole part. ``resolve`` turns (row, cell, budget) into one set of parts.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from reproduce.plan.checks import check_settings
from reproduce.plan.parts import Named, Settings, canonical
from suite.files import nearest

RECIPES = Path(__file__).parent / "recipes"
Budget = Literal["smoke", "quick", "cpu", "open", "paper"]
BUDGETS: tuple[str, ...] = get_args(Budget)
SOURCES = ("paper:", "release:", "cited:", "ours:")
SELECTORS = ("rows", "cells", "budgets")
OFF = "off"
LONGEST_SHOWN = 120  # characters of a value in an error message
_NAME = re.compile(r"\w[\w.+-]{0,80}")  # of a row or cell, which stand in names of files and are matched by patterns


class Row(BaseModel):
    """``like`` lends a row the blocks of another one, before its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str = ""  # rows of the paper's tables have theirs in paper.toml
    like: str = ""


class Cell(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    label: str
    task: str


class Recipe(BaseModel):
    """One validated recipe file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    rows: dict[str, Row]
    cells: dict[str, Cell]
    settings: list[dict[str, Any]]

    def resolve(self, row: str, cell: str, budget: str) -> tuple[Settings, dict[str, str]]:
        """The parts of one run and, for each value, its source."""
        for kind, name, names in (("row", row, self.rows), ("cell", cell, self.cells), ("budget", budget, BUDGETS)):
            if name not in names:
                raise ValueError(f"recipe {self.name}: unknown {kind} {name!r}; {nearest(name, names)}")
        parts: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for block in self._blocks(row, cell, budget):
            for key in block.keys() - {*SELECTORS, "source"}:
                _lay(parts, sources, key, block[key], block["source"])
        try:
            return Settings(**parts), dict(sorted(sources.items()))
        except ValidationError as error:
            raise ValueError(f"recipe {self.name}: {row}/{cell}/{budget}: {explain(error)}") from None

    def _blocks(self, row: str, cell: str, budget: str) -> list[dict[str, Any]]:
        answers = {"rows": {row, self.rows[row].like} - {""}, "cells": {cell}, "budgets": {budget}}
        return [b for b in self.settings if all(_selects(b.get(kind), names) for kind, names in answers.items())]

    def offers(self, row: str, cell: str, budget: str) -> bool:
        """The open division is for rows that have a training recipe of our own; all other budgets are for all."""
        return budget != "open" or any("open" in block.get("budgets", ()) for block in self._blocks(row, cell, budget))


def _selects(patterns: list[str] | None, names: set[str]) -> bool:
    return patterns is None or any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _lay(parts: dict[str, Any], sources: dict[str, str], key: str, value: Any, source: str) -> None:
    """Lay one part of a block over what the blocks before it made."""
    if value == OFF or not isinstance(value, dict):
        _forget(sources, key)
        parts.pop(key, None)
        if value != OFF:
            parts[key] = value
            sources[key] = source
        return
    part = dict(parts.get(key, {}))
    if "name" in part and value.get("name", part["name"]) != part["name"]:
        kept = _fields_of(key)
        for option in [option for option in part if option not in kept]:
            del part[option]
            _forget(sources, f"{key}.{option}")
    for option, setting in value.items():
        _forget(sources, f"{key}.{option}")
        part.pop(option, None)
        if setting != OFF:
            part[option] = setting
            sources[f"{key}.{option}"] = source
    parts[key] = part


def _fields_of(key: str) -> set[str]:
    """The options of a part that outlive a change of its name, because they do not belong to one entry alone."""
    for candidate in Named.__subclasses__():
        if candidate.__name__.lower() == key:
            return {*candidate.model_fields, *candidate.shared}
    return set()


def _forget(sources: dict[str, str], key: str) -> None:
    for name in [name for name in sources if name == key or name.startswith(f"{key}.")]:
        del sources[name]


@lru_cache(maxsize=32)
def load(name: str, folder: Path = RECIPES) -> Recipe:
    """Read and check ``<folder>/<name>.toml``: all rows, cells and budgets must resolve to runs that can be built."""
    path = folder / f"{name}.toml"
    if not path.exists():
        names = sorted(p.stem for p in folder.glob("*.toml"))
        raise ValueError(f"no recipe {name!r} in {folder}; {nearest(name, names)}")
    data = read_toml(path)
    if "name" in data:
        raise ValueError(f"{path.name}: unknown key 'name'; a recipe is called like its file")
    return check(data | {"name": name}, path.name)


def check(data: dict[str, Any], file: str) -> Recipe:
    """A recipe from the content of its file; ValueError in one sentence that names the file and the place in it."""
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise ValueError(f"{file}: {explain(error)}") from None
    for name in (*recipe.rows, *recipe.cells):
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{file}: {shown(name)} is no name for a row or cell; take letters, digits and any of _.+-"
            )
    for number, block in enumerate(recipe.settings, 1):
        _check_block(recipe, f"{file}, settings block {number}", block)
    for row in recipe.rows:
        for cell in recipe.cells:
            for budget in BUDGETS:
                settings, _ = recipe.resolve(row, cell, budget)
                try:
                    check_settings(recipe.cells[cell].task, canonical(settings.explicit()))
                except (ValueError, TypeError) as error:
                    raise ValueError(f"recipe {recipe.name}: {row}/{cell}/{budget}: {error}") from None
    return recipe


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not valid TOML: {error}") from None


def _check_block(recipe: Recipe, where: str, block: dict[str, Any]) -> None:
    source = block.get("source", "")
    if not (isinstance(source, str) and source.startswith(SOURCES) and len(source.split(":", 1)[1].strip()) > 1):
        raise ValueError(f"{where}: source is {source!r}; it must start with one of {', '.join(SOURCES)} and say where")
    allowed = [*Settings.model_fields, *SELECTORS, "source"]
    for key, value in block.items():
        if key not in allowed:
            raise ValueError(f"{where}: unknown key {key!r}; {nearest(key, allowed)}")
        if key not in (*SELECTORS, "source", "stages") and value != OFF and not isinstance(value, dict):
            raise ValueError(f'{where}: {key} is {value!r}; it must be a table of options, or "off"')
    names = {"rows": list(recipe.rows), "cells": list(recipe.cells), "budgets": list(BUDGETS)}
    for kind in SELECTORS:
        patterns = block.get(kind, [])
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ValueError(f"{where}: {kind} is {patterns!r}; it must be a list of names or patterns")
        for pattern in patterns:
            if not fnmatch.filter(names[kind], pattern):
                raise ValueError(f"{where}: {kind} pattern {pattern!r} fits none; {nearest(pattern, names[kind])}")


def explain(error: ValidationError) -> str:
    """A pydantic error as one sentence."""
    # a misspelt key also makes the right one missing; the misspelling is what helps
    first = min(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = [*Recipe.model_fields, *Row.model_fields, *Cell.model_fields]
        return f"unknown key {place!r}; {nearest(first['loc'][-1], known)}"
    if first["type"] == "missing":
        return f"nothing sets {place}"
    return f"{place}: {first['msg']} (got {shown(first.get('input'))})"


def shown(value: object) -> str:
    """A value of the user's in an error message: not more of it than helps."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
