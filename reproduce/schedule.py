"""Learning-rate schedules. Each is a small object whose whole state is a dict of plain numbers."""

from __future__ import annotations

import math
from typing import Any

from reproduce.recipe import Settings


class Schedule:
    """``rate(step)`` before an update, ``judge(is_best)`` after an evaluation."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.scale = 1.0
        self.idle = 0
        self.patience = settings.patience

    def rate(self, step: int) -> float:
        """The learning rate of update number ``step`` (from 0)."""
        s = self.settings
        if s.schedule == "step" and s.decay_every:
            return s.lr * s.decay_factor ** (step // s.decay_every)
        if s.schedule == "cosine":
            return s.min_lr + (s.lr - s.min_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / s.updates)))
        return s.lr * self.scale

    def judge(self, is_best: bool) -> bool:
        """True when a plateau is reached: the caller goes back to its best weights and continues at the lower rate."""
        if self.settings.schedule != "plateau":
            return False
        self.idle = 0 if is_best else self.idle + 1
        if self.idle < max(1, self.patience):
            return False
        self.scale *= self.settings.decay_factor
        self.idle = 0
        self.patience = self.patience // 2
        return True

    @property
    def finished(self) -> bool:
        return self.settings.schedule == "plateau" and self.settings.lr * self.scale < self.settings.min_lr

    @property
    def reloads(self) -> bool:
        return self.settings.schedule == "plateau"

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, "idle": self.idle, "patience": self.patience}

    def restore(self, state: dict[str, Any]) -> None:
        self.scale, self.idle, self.patience = state["scale"], state["idle"], state["patience"]
