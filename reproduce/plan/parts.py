"""What a run is made of: named parts, each with its own options.

A part that is absent is off, and is neither required nor hashed; the same holds for an option. So a part that is added
here later changes neither the identity nor the validity of anything that was recorded before. ``Named`` parts choose an
entry of a registry (a model, an optimiser, …); their further keys are that entry's options.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

SCHEMA = 2
"""Version of the meaning of parts and of the defaults behind them; part of every run's identity."""

MOST_UNITS, MOST_LAYERS = 10**6, 100


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(Part):
    """``name`` chooses an entry of a registry, every key that is not a field of the part is an option of it."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str
    shared: ClassVar[frozenset[str]] = frozenset()  # options that every entry of the registry has

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Model(Named):
    """A model of ``models.names()``."""

    shared = frozenset({"norm", "dropout"})
    hidden_size: int | list[int] = Field(description="units of each layer, or one number per layer")
    num_layers: int = Field(gt=0, le=MOST_LAYERS)

    @field_validator("hidden_size")
    @classmethod
    def _units(cls, size: int | list[int]) -> int | list[int]:
        if not all(0 < units <= MOST_UNITS for units in ([size] if isinstance(size, int) else size)):
            raise ValueError(f"a layer has 1 to {MOST_UNITS:,} units")
        return size


class Input(Named):
    """What stands before the model, of ``models.inputs``; absent: the task's dense values."""


class Readout(Named):
    """What stands after the model, of ``models.readouts``; absent: the task's own, the last step or every step."""


class Optimiser(Named):
    """An entry of ``reproduce.train.optimisers``."""

    lr: float = Field(gt=0)
    weight_decay: float = Field(default=0.0, ge=0, description="on the parameters that the parts name as decayed")
    rates: dict[str, float] = Field(default={}, description="factor of lr by pattern of parameter names")


class Schedule(Named):
    """How the learning rate moves, of ``reproduce.train.schedules``; absent: it does not."""

    warmup: int = Field(default=0, ge=0, description="updates over which the rate first rises from zero")


class Clip(Part):
    """``value`` clamps each element of the gradient, ``norm`` then bounds the norm of the whole."""

    value: float | None = Field(default=None, gt=0)
    norm: float | None = Field(default=None, gt=0)


class Average(Part):
    """A running mean of the weights is what is scored and reported; absent: the weights themselves."""

    decay: float = Field(gt=0, lt=1, description="how much of the mean an update keeps, once it is well under way")


class Training(Part):
    updates: int = Field(gt=0, description="planned; a schedule may end earlier")
    batch_size: int = Field(gt=0)


class Evaluation(Part):
    every: int = Field(gt=0, description="updates between two evaluations on the validation split")
    valid_samples: int | None = Field(default=None, gt=0, description="absent: the whole split")
    test_samples: int | None = Field(default=None, gt=0, description="absent: the whole split")
    statistics_batches: int | None = Field(
        default=None, gt=0, description="training batches that re-estimate BatchNorm before an evaluation"
    )


class Stage(Part):
    """A stretch of the training with parameters that stay as they are; each stage starts a fresh optimiser."""

    updates: int | None = Field(default=None, gt=0, description="absent: to the end")
    freeze: list[str] = Field(default=[], description="patterns of parameter names")
    lr: float | None = Field(default=None, gt=0, description="absent: the optimiser's")
    penalties: dict[str, float] | None = Field(default=None, description="absent: the run's")


class Settings(Part):
    """Everything that one run needs beside its task's name and its seed."""

    model: Model
    training: Training
    optimiser: Optimiser
    evaluation: Evaluation
    data: dict[str, Any] = Field(default={}, description="options of the task")
    input: Input | None = None
    readout: Readout | None = None
    schedule: Schedule | None = None
    clip: Clip | None = None
    average: Average | None = None
    penalties: dict[str, float] = Field(default={}, description="weight of each penalty in the loss")
    stages: list[Stage] = []
    code: dict[str, str] = Field(default={}, description="sha256 of each imported module that a row of one's own needs")

    @field_validator("stages")
    @classmethod
    def _only_the_last_is_open(cls, stages: list[Stage]) -> list[Stage]:
        if any(stage.updates is None for stage in stages[:-1]):
            raise ValueError("only the last stage may leave out its updates")
        return stages

    @model_validator(mode="after")
    def _finite(self) -> Settings:
        try:
            json.dumps(self.model_dump(exclude_unset=True), allow_nan=False)  # JSON mode would turn NaN into null
        except ValueError:
            raise ValueError("a value is not a finite number") from None
        return self

    def explicit(self) -> dict[str, Any]:
        """What was set, as JSON; this is what a run's identity is made of."""
        return self.model_dump(mode="json", exclude_unset=True)


def canonical(data: Any) -> str:
    """JSON with one spelling per value, for hashing."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
