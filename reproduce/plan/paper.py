"""The paper's own numbers and claims, read from paper.toml."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from reproduce.plan.recipe import explain, read_toml

FILE = Path(__file__).parent / "paper.toml"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PaperRow(_Part):
    label: str
    values: list[str]  # as printed, one per cell; "-" where the paper prints none
    discrepancy: str = ""


class PaperTable(_Part):
    section: str
    cells: list[str]
    rows: dict[str, PaperRow]
    note: str = ""

    @model_validator(mode="after")
    def _one_value_per_cell(self) -> PaperTable:
        for name, row in self.rows.items():
            if len(row.values) != len(self.cells):
                raise ValueError(f"row {name} has {len(row.values)} values for {len(self.cells)} cells")
            for value in row.values:
                if value != "-":
                    float(value)
        return self


class Claim(_Part):
    section: str
    text: str
    figures: list[str]
    rows: list[str]
    cells: list[str]


class Paper(_Part):
    title: str
    authors: str
    tables: dict[str, PaperTable]
    claims: dict[str, Claim]


@lru_cache(maxsize=1)
def load(path: Path = FILE) -> Paper:
    try:
        return Paper(**read_toml(path))
    except ValidationError as error:
        raise ValueError(f"{path.name}: {explain(error)}") from None
