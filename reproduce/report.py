"""Tables and figures from records."""

from __future__ import annotations

from typing import Any


def publish(experiment: Any, place: Any, budget: str, console: Any) -> None:
    """Placeholder until the tables are drawn."""
