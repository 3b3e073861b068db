"""Where each page of the site lies, relative to its root."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reproduce.report.records import Record
from suite.files import sha256


def slug(text: str) -> str:
    """A name for a file that only one text has: letters, digits, "-", "_", and a digest where those lose anything."""
    plain = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")
    return plain if text in (plain, plain.replace("-", " ")) else f"{plain}-{sha256(text)[:8]}".lstrip("-")


@dataclass(frozen=True)
class Spot:
    """One row on one cell at one budget on one kind of data; ``data`` as in ``selection.Block``."""

    recipe: str
    row: str
    cell: str
    budget: str
    data: str

    @property
    def page(self) -> str:
        end = f"{self.budget}-{slug(self.data)}" if self.data else self.budget
        return f"cells/{slug(self.recipe)}/{slug(self.row)}/{slug(self.cell)}/{end}.html"


def experiment_page(name: str) -> str:
    return f"{slug(name)}.html"


def claim_page(name: str) -> str:
    return f"claims/{slug(name)}.html"


def model_page(name: str) -> str:
    return f"models/{slug(name)}.html"


def source_page(module: str) -> str:
    return f"source/{module.replace('.', '/')}.html"


def record_file(r: Record) -> str:
    return f"records/{slug(r.recipe)}-{slug(r.cell)}-{slug(r.row)}-{r.budget}-s{r.seed}-{r.run[:12]}.json"


def up(page: str) -> str:
    """The way from a page to the root."""
    return "../" * page.count("/")
