"""Modules that are not part of this repository but define a model, a task or a part that a row needs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from suite.files import sha256


class Import(BaseModel):
    """``module`` is looked for in ``folder`` first, then wherever Python looks."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    module: str
    folder: str


def import_all(imports: tuple[Import, ...]) -> None:
    """Import each module, so that this process knows what it registers; ValueError in one sentence if one fails."""
    for one in imports:
        if one.module not in sys.modules:
            _import(one)


def digest(one: Import) -> str:
    """sha256 of the module's source: a run made with other code is another run."""
    import_all((one,))
    file = sys.modules[one.module].__file__
    return sha256(Path(file).read_bytes()) if file else ""


def _import(one: Import) -> None:
    sys.path.insert(0, one.folder)
    try:
        importlib.import_module(one.module)
    except Exception as error:  # the module is somebody else's code and may fail in any way
        raise ValueError(f"module {one.module!r} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(one.folder)
