"""The paper's own numbers (paper.toml) and sentences (claims.toml)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from reproduce.plan.recipe import explain, read_toml
from reproduce.plan.sentences import Claim
from reproduce.report.verdicts import PrintedDifference, default_margin, printed_difference
from suite.files import nearest

FILE = Path(__file__).parent / "paper.toml"
CLAIMS = Path(__file__).parent / "claims.toml"


class Margin(NamedTuple):
    """How far a mean may lie from a printed value and still reproduce it, and why."""

    value: float
    reason: str


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reruns(_Part):
    """Published values of the same row from other runs than the printed one, and where they stand."""

    values: list[float] = Field(min_length=1)
    source: str = Field(min_length=3)


class Sampling(_Part):
    """What is known of a printed value of a cell before any run: test samples, or the usual spread of re-runs."""

    samples: int | None = Field(default=None, gt=0)
    spread: float = Field(default=0.0, ge=0)
    source: str = Field(min_length=3)


class Chance(_Part):
    """The metric of the best constant answer on the whole test split."""

    value: float
    source: str

    @field_validator("value", mode="before")
    @classmethod
    def _fraction(cls, value: object) -> object:
        return float(Fraction(value)) if isinstance(value, str) else value


class PaperRow(_Part):
    label: str
    values: list[str]  # as printed, one per cell; "-" where the paper prints none
    discrepancy: str = ""


class PaperTable(_Part):
    section: str
    cells: list[str]
    sampling: dict[str, Sampling]
    rows: dict[str, PaperRow]
    protocols: dict[str, dict[str, str]] = {}  # row -> cell -> how the cited number's task differs from ours
    reruns: dict[str, dict[str, Reruns]] = {}  # row -> cell -> published re-runs
    note: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> PaperTable:
        if set(self.sampling) != set(self.cells):
            raise ValueError(f"sampling is given for {sorted(self.sampling)}, the cells are {sorted(self.cells)}")
        for name, row in self.rows.items():
            if len(row.values) != len(self.cells):
                raise ValueError(f"row {name} has {len(row.values)} values for {len(self.cells)} cells")
            for value in row.values:
                if value != "-":
                    float(value)
        places = [(row, cell) for facts in (self.protocols, self.reruns) for row in facts for cell in facts[row]]
        for row_name, cell in places:
            for kind, name, known in (("row", row_name, list(self.rows)), ("cell", cell, self.cells)):
                if name not in known:
                    raise ValueError(f"there is no {kind} {name!r}; {nearest(name, known)}")
        return self

    def printed(self, row: str, cell: str) -> str:
        """The printed value, "-" where the paper prints none."""
        return self.rows[row].values[self.cells.index(cell)] if row in self.rows else "-"

    def protocol(self, row: str, cell: str) -> str:
        """How the task of the cited number differs from ours; empty if it does not."""
        return self.protocols.get(row, {}).get(cell, "")

    def margin(self, row: str, cell: str) -> Margin | None:
        """The margin of a printed value; None where the paper prints none.

        The larger of twice the sampling error of the value on its test set and the largest known distance to a
        published re-run.
        """
        printed, sampling = self.printed(row, cell), self.sampling[cell]
        if printed == "-":
            return None
        value, spread, source = float(printed), sampling.spread, sampling.source
        if reruns := self.reruns.get(row, {}).get(cell):
            distance = round(max(abs(other - value) for other in reruns.values), 9)
            if distance >= spread:
                spread, source = distance, reruns.source
        margin = default_margin(value, sampling.samples, spread)
        if margin > spread:
            assert sampling.samples is not None
            source = f"twice the sampling error of {printed} % on {sampling.samples:,} samples"
        return Margin(margin, source)

    def apart(self, row: str, other: str, cell: str) -> PrintedDifference | None:
        """How far two printed percentages are apart; None where one is missing or they are no percentages."""
        values, samples = [self.printed(name, cell) for name in (row, other)], self.sampling[cell].samples
        if "-" in values or samples is None:
            return None
        return printed_difference(float(values[0]), float(values[1]), samples)


class Paper(_Part):
    title: str
    authors: str
    chance: dict[str, Chance]
    tables: dict[str, PaperTable]
    claims: dict[str, Claim]


@lru_cache(maxsize=4)
def load(path: Path = FILE, claims: Path = CLAIMS) -> Paper:
    numbers, sentences = read_toml(path), read_toml(claims)
    try:
        return Paper(**numbers, claims=sentences)
    except ValidationError as error:
        raise ValueError(f"{path.name}, {claims.name}: {explain(error)}") from None
