"""Modules of ``suite`` from the checkout of these benchmarks, by path.

``import suite`` would take the one of the commit that is measured, which may be older than the benchmarks or have none.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SUITE = Path(__file__).resolve().parents[2] / "suite"


def load(name: str) -> ModuleType:
    """``suite/<name>.py``, which must not import anything of the suite."""
    alias = f"_durnn_bench_{name}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, SUITE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return sys.modules[alias]
