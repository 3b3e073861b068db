"""What stands on the pages about models: equations, options, sizes, results, speed."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import models
from models.base import declared_options
from models.nets import RecurrentNet
from models.registry import NEEDS, ZOO
from reproduce.plan import recipe as recipes
from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.plan.runs import ROOT
from reproduce.report.evidence import cell_label, label
from reproduce.report.site import prose
from reproduce.report.site.addresses import model_page, source_page
from reproduce.report.site.content import Content
from reproduce.report.site.pages import Page, value_text
from reproduce.report.sizes import parameter_count
from suite.shapes import SHAPES

SPEED = ROOT / "asv_bench" / "results"
TRAIN_STEP = "zoo.Steps.time_train_step"


@dataclass(frozen=True)
class Speed:
    """Seconds of a train step by model and shape, as measured for one commit."""

    commit: str
    machine: str
    seconds: dict[tuple[str, str], float]

    def of(self, model: str) -> list[tuple[str, str, float]]:
        """Shape, what it stands for, milliseconds."""
        found = [(shape, self.seconds[m, shape] * 1000) for m, shape in self.seconds if m == model]
        return [(shape, str(_sizes(shape)), ms) for shape, ms in found]


def _sizes(shape: str) -> str:
    known = SHAPES.get(shape)
    return "" if known is None else f"T = {known.T}, B = {known.B}, N = {known.N}"


def newest_speed(folder: Path = SPEED) -> Speed | None:
    """The measurements of the commit with the latest date; None where nothing was measured."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*/*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if TRAIN_STEP in data.get("results", {}):
            found.append(data)
    if not found:
        return None
    newest = max(found, key=lambda data: (data["date"], data["commit_hash"]))
    result = dict(zip(newest["result_columns"], newest["results"][TRAIN_STEP], strict=False))
    cases = itertools.product(*([value.strip("'") for value in values] for values in result["params"]))
    pairs = zip(cases, result["result"], strict=True)
    seconds = {(m, s): value for (m, s), value in pairs if value is not None and not math.isnan(value)}
    return Speed(newest["commit_hash"], newest["params"]["machine"], seconds)


def model_pages(content: Content) -> Iterator[Page]:
    speed, uses = newest_speed(), _uses()
    names = models.names()
    yield Page(
        "models/index.html", "Models", "models.html",
        {"models": [(name, models.paper(name), _first_line(name), len(uses.get(name, []))) for name in names]},
    )  # fmt: skip
    for name in names:
        entry = ZOO.entry(name)
        module = sys.modules[entry.cls.__module__]
        reasons = prose.option_reasons(RecurrentNet.__doc__, entry.cls.__doc__)
        yield Page(
            model_page(name),
            name,
            "model.html",
            {
                "name": name, "paper": entry.paper, "needs": [NEEDS[word] for word in sorted(entry.needs)],
                "equations": prose.html(module.__doc__), "about": prose.html(prose.without_options(entry.cls.__doc__)),
                "options": [(o, _default(v), prose.inline(reasons.get(o, ""))) for o, v in _own_first(entry.options())],
                "fixed": {option: (entry.cls.options() | entry.preset)[option] for option in sorted(entry.fixed)},
                "file": module.__name__.replace(".", "/") + ".py", "source": source_page(module.__name__),
                "uses": [_use(content, *place) for place in uses.get(name, [])],
                "speed": speed, "times": speed.of(name) if speed else [],
            },
            (("Models", "models/index.html"),),
        )  # fmt: skip


def _first_line(name: str) -> str:
    return inspect.cleandoc(ZOO.entry(name).cls.__doc__ or "").partition("\n")[0]


def _default(value: Any) -> str:
    return "must be given" if value is ... else repr(value)


def _own_first(options: dict[str, Any]) -> list[tuple[str, Any]]:
    """The options of the family before those that every model has."""
    shared = declared_options(RecurrentNet)
    return sorted(options.items(), key=lambda option: option[0] in shared)


@lru_cache(maxsize=1)
def _uses() -> dict[str, list[tuple[str, str, str]]]:
    """By model: recipe, row and cell of every row that uses it at the paper's budget."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name in dict.fromkeys(experiment.recipe for experiment in EXPERIMENTS.values()):
        recipe = recipes.load(name)
        for row in recipe.rows:
            for cell in recipe.cells:
                settings, _ = recipe.resolve(row, cell, "paper")
                found.setdefault(settings.model.name, []).append((name, row, cell))
    return found


def _use(content: Content, recipe: str, row: str, cell: str) -> dict[str, Any]:
    """A row on a cell, with the runs that say most about it."""
    shown: Experiment | None = next(
        (e for e in EXPERIMENTS.values() if e.recipe == recipe and row in e.shown_rows and cell in e.all_cells), None
    )
    entry = content.best(shown.name, row, cell) if shown else None
    return {
        "label": label(recipe, row), "cell": cell_label(recipe, cell), "entry": entry, "experiment": shown,
        "parameters": parameter_count(recipe, row, cell), "value": value_text(entry.line.published) if entry else "–",
    }  # fmt: skip


def source_pages() -> Iterator[Page]:
    """The file of each family, as it stands at this commit."""
    for module in sorted({ZOO.entry(name).cls.__module__ for name in models.names()}):
        text = inspect.getsource(sys.modules[module])
        file = module.replace(".", "/") + ".py"
        yield Page(source_page(module), file, "source.html", {"text": text}, (("Models", "models/index.html"),))


def speed_page(has_dashboard: bool) -> Page:
    speed = newest_speed()
    shapes = list(dict.fromkeys(shape for _, shape in speed.seconds)) if speed else []
    names = list(dict.fromkeys(model for model, _ in speed.seconds)) if speed else []
    given = {"speed": speed, "shapes": [(s, _sizes(s)) for s in shapes], "names": names, "has_dashboard": has_dashboard}
    return Page("speed.html", "Speed", "speed.html", given | {"known": set(models.names())})
