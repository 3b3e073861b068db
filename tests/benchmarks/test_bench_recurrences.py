"""Train steps: fused against reference against torch.nn, one group per shape.

Run with ``pytest tests/benchmarks --benchmark-only --benchmark-group-by=group``; ratios hold within a group.
"""

from __future__ import annotations

import pytest
import torch

from models.kernels import cpu
from models.kernels.measure import train_step
from suite.shapes import SHAPES

pytest.importorskip("pytest_benchmark")

CONTENDERS = {
    "durnn fused": ("durnn", "fused"),
    "durnn reference": ("durnn", "reference"),
    "lstm fused": ("lstm", "fused"),
    "lstm reference": ("lstm", "reference"),
    "nn.LSTM": ("nn.LSTM", "auto"),
    "indrnn fused": ("indrnn", "fused"),
    "indrnn reference": ("indrnn", "reference"),
    "rnn-relu fused": ("rnn-relu", "fused"),
    "rnn-relu reference": ("rnn-relu", "reference"),
    "nn.RNN": ("nn.RNN", "auto"),
}


@pytest.fixture(autouse=True)
def _two_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")
@pytest.mark.parametrize("contender", CONTENDERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_train_step(benchmark, shape: str, contender: str) -> None:  # type: ignore[no-untyped-def]
    name, backend = CONTENDERS[contender]
    sizes = SHAPES[shape]
    benchmark.group = f"{shape}: T, B, N = {sizes}"
    benchmark.extra_info["threads"] = torch.get_num_threads()
    benchmark.pedantic(train_step(name, sizes, backend), warmup_rounds=1, rounds=5)
