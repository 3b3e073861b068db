"""The paper's sentences as data: each claim with the rules that decide it.

A claim holds if every one of its rules does. A rule names the rows and cells of a recipe whose runs decide, or a
quantity that follows from formulas alone. ``reproduce.report.claims`` judges them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DataKind = Literal["real", "partial", "stand-in"]
Quantity = Literal["delta", "amplification", "geometric sum", "adding chance"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _OnRuns(_Part):
    """``data``: what the runs may have been trained on; a verdict from a part of a set or a stand-in says so."""

    recipe: str
    cells: list[str] = Field(min_length=1)
    data: list[DataKind] = Field(default=["real"], min_length=1)


class _Comparison(_OnRuns):
    """``over``: names and shell patterns; one that starts with "!" takes away. ``row`` itself never counts."""

    row: str
    over: list[str] = Field(min_length=1)


class Order(_Comparison):
    """The test metric of ``row`` is better than that of each row in ``over``, on each cell.

    With ``minus``, the metric is the difference to that cell, seed by seed.
    """

    kind: Literal["order"]
    minus: str = ""


class Speed(_Comparison):
    """``row`` needs fewer updates until its validation metric passes ``until``; a run that never does needs all."""

    kind: Literal["speed"]
    until: float


class Smooth(_Comparison):
    """The curve of ``row`` falls more smoothly: all changes of log10 of the validation metric over its net fall.

    Where a fall ends is a choice, so that ``until`` has several: a level, or 0 for the first value within a factor of
    two of the best. A verdict needs the same order by all of them, and rests on the one that shows it least.
    """

    kind: Literal["smooth"]
    until: list[float] = Field(min_length=1)


class Threshold(_OnRuns):
    """Every run of ``rows`` ends with a test metric that is better than ``limit``."""

    kind: Literal["threshold"]
    rows: list[str] = Field(min_length=1)
    limit: float


class Failure(_OnRuns):
    """No run of ``rows`` ends with a test metric that is better than ``limit``; one that diverged does not."""

    kind: Literal["failure"]
    rows: list[str] = Field(min_length=1)
    limit: float


class Measured(_OnRuns):
    """A value measured on trained weights (``reproduce.report.measurements``) lies above or below another.

    ``above``, ``below``: a number, or ``row:value`` for the same cell.
    """

    kind: Literal["measured"]
    row: str
    value: str
    above: float | str | None = None
    below: float | str | None = None

    @model_validator(mode="after")
    def _one_side(self) -> Measured:
        if (self.above is None) == (self.below is None):
            raise ValueError("one of above and below must be given, and not both")
        return self

    @property
    def limit(self) -> float | str:
        limit = self.above if self.below is None else self.below
        assert limit is not None
        return limit


class Bound(_Part):
    """A quantity of §IV-B that follows from formulas, at each length: ``constant``, ``below`` another, or ``equal``."""

    kind: Literal["bound"]
    quantity: Quantity
    lengths: list[int] = Field(min_length=1)
    constant: bool = False
    below: Quantity | float | None = None
    equal: float | None = None
    within: float = 0.01  # relative, for constant and equal

    @model_validator(mode="after")
    def _one_relation(self) -> Bound:
        if self.constant + (self.below is not None) + (self.equal is not None) != 1:
            raise ValueError("exactly one of constant, below and equal must be given")
        return self


class Parameters(_Part):
    """The network of ``row`` has at most ``at_most`` times the parameters of ``than``, at the paper's budget."""

    kind: Literal["parameters"]
    recipe: str
    cells: list[str] = Field(min_length=1)
    row: str
    than: str
    at_most: float = Field(gt=0)


class Open(_Part):
    """No run of this suite decides; ``needs`` says what would."""

    kind: Literal["open"]
    needs: str


Comparison = Order | Speed | Smooth
Level = Threshold | Failure
Rule = Annotated[
    Order | Speed | Smooth | Threshold | Failure | Measured | Bound | Parameters | Open, Field(discriminator="kind")
]


class Claim(_Part):
    """``text`` quotes the paper; ``note`` says how its words were read."""

    section: str
    text: str
    figures: list[str] = []  # where the paper shows it
    note: str = ""
    rules: list[Rule] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _lend(cls, data: Any) -> Any:
        """A claim's ``recipe``, ``cells`` and ``data`` are those of each rule that needs and does not name its own."""
        if not isinstance(data, dict):
            return data
        shared = {key: data[key] for key in ("recipe", "cells", "data") if key in data}
        rules = [{**_wanted(rule, shared), **rule} for rule in data.get("rules", [])]
        return {key: value for key, value in data.items() if key not in shared} | {"rules": rules}


def _wanted(rule: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    fields = {"bound": (), "open": (), "parameters": ("recipe", "cells")}.get(rule.get("kind", ""), tuple(shared))
    return {key: value for key, value in shared.items() if key in fields}
