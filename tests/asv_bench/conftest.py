"""Makes the scripts of ``asv_bench/`` importable, as they are for each other, and undoes what they do to a process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "asv_bench"))


@pytest.fixture(autouse=True)
def subnormals() -> Iterator[None]:
    """A benchmark flushes subnormal numbers for as long as its process lives; other tests look at them."""
    yield
    torch.set_flush_denormal(False)
