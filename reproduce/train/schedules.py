"""Learning-rate schedules. Each is a small object whose whole state is a dict of plain numbers.

``build(part, lr, updates, epoch)`` makes one; ``epoch`` is how many updates an epoch has. A schedule is asked for its
``rate`` before each update and told after each evaluation whether that was the best so far.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar, Literal

from reproduce.plan.parts import Schedule as Part
from suite.files import nearest

Ending = Literal["minimum-rate", "no-improvement"]


class Constant:
    """The rate stays what it is."""

    reloads: ClassVar[bool] = False
    finished: Ending | None = None  # why no further update is due

    def __init__(self, lr: float, updates: int, epoch: int) -> None:
        self.lr, self.updates, self.epoch = lr, updates, epoch

    def rate(self, step: int) -> float:
        """The learning rate of update number ``step`` (from 0)."""
        return self.lr

    def judge(self, is_best: bool) -> bool:
        """True when the rate was lowered because no evaluation was the best for long."""
        return False

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class Step(Constant):
    """Times ``factor`` after every ``every`` updates, or after every ``every_epochs`` epochs.

    after_epochs: epochs at the start in which nothing happens, and after which counting begins.
    """

    def __init__(
        self,
        lr: float,
        updates: int,
        epoch: int,
        *,
        factor: float,
        every: int = 0,
        every_epochs: int = 0,
        after_epochs: int = 0,
    ) -> None:
        super().__init__(lr, updates, epoch)
        if (every > 0) == (every_epochs > 0):
            raise ValueError(f"step takes either every={every} or every_epochs={every_epochs}, one of them above 0")
        if after_epochs < 0:
            raise ValueError(f"after_epochs={after_epochs} must not be negative")
        self.factor, self.every = _factor(factor), every or every_epochs * epoch
        self.start = after_epochs * epoch

    def rate(self, step: int) -> float:
        return self.lr * self.factor ** (max(0, step - self.start) // self.every)


class Cosine(Constant):
    """Half a cosine from the rate down to ``min_lr`` at the last update."""

    def __init__(self, lr: float, updates: int, epoch: int, *, min_lr: float = 0.0) -> None:
        super().__init__(lr, updates, epoch)
        self.min_lr = min_lr

    def rate(self, step: int) -> float:
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / self.updates)))


PLATEAU_STATE = ("scale", "idle", "patience", "cooling", "without_best")


class Plateau(Constant):
    """Times ``factor`` after ``patience`` evaluations without a new best; ends below ``min_lr``.

    reload: go back to the best weights at each decay. halve_patience: wait half as long after each.
    cooldown: evaluations after a decay that do not count. stop: ends after this many evaluations without a new best.
    """

    def __init__(
        self,
        lr: float,
        updates: int,
        epoch: int,
        *,
        factor: float,
        patience: int,
        min_lr: float,
        reload: bool = False,
        halve_patience: bool = False,
        cooldown: int = 0,
        stop: int = 0,
    ) -> None:
        super().__init__(lr, updates, epoch)
        for option, count in (("patience", patience), ("cooldown", cooldown), ("stop", stop)):
            if count < 0:
                raise ValueError(f"{option}={count} must not be negative")
        self.factor, self.min_lr, self.halve_patience = _factor(factor), min_lr, halve_patience
        self.reloads = reload  # type: ignore[misc]
        self.cooldown, self.stop = cooldown, stop
        self.scale, self.idle, self.patience = 1.0, 0, patience
        self.cooling, self.without_best = 0, 0

    def rate(self, step: int) -> float:
        return self.lr * self.scale

    def judge(self, is_best: bool) -> bool:
        self.without_best = 0 if is_best else self.without_best + 1
        cooling, self.cooling = self.cooling > 0, max(0, self.cooling - 1)
        self.idle = 0 if is_best or cooling else self.idle + 1
        if self.idle < max(1, self.patience):
            return False
        self.scale *= self.factor
        self.idle, self.cooling = 0, self.cooldown
        if self.halve_patience:
            self.patience //= 2
        return True

    @property
    def finished(self) -> Ending | None:  # type: ignore[override]
        if self.lr * self.scale < self.min_lr:
            return "minimum-rate"
        return "no-improvement" if 0 < self.stop <= self.without_best else None

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in PLATEAU_STATE}

    def restore(self, state: dict[str, Any]) -> None:
        for name in PLATEAU_STATE:
            setattr(self, name, state[name])


SCHEDULES: dict[str, type[Constant]] = {"constant": Constant, "step": Step, "cosine": Cosine, "plateau": Plateau}


def options(name: str) -> dict[str, Any]:
    """The options of a schedule with their defaults (``inspect.Parameter.empty`` for a required one)."""
    if name not in SCHEDULES:
        raise ValueError(f"schedule: there is no {name!r}; {nearest(name, SCHEDULES)}")
    parameters = inspect.signature(SCHEDULES[name].__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def build(part: Part | None, lr: float, updates: int, epoch: int) -> Constant:
    if part is None:
        return Constant(lr, updates, epoch)
    known = options(part.name)
    for option in part.options:
        if option not in known:
            raise ValueError(f"schedule: {part.name} has no option {option!r}; {nearest(option, known)}")
    missing = [name for name, default in known.items() if default is inspect.Parameter.empty]
    for option in missing:
        if option not in part.options:
            raise ValueError(f"schedule: {part.name} needs {option}")
    schedule = SCHEDULES[part.name](lr, updates, epoch, **part.options)
    if part.warmup:
        _warm_up(schedule, part.warmup)
    return schedule


def _warm_up(schedule: Constant, updates: int) -> None:
    """Let the rate rise linearly from zero over the first updates."""
    full = schedule.rate
    schedule.rate = lambda step: full(step) * min(1.0, (step + 1) / updates)  # type: ignore[method-assign]


def _factor(factor: float) -> float:
    if not 0 < factor <= 1:
        raise ValueError(f"factor={factor} must be above 0 and at most 1")
    return factor
