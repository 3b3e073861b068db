"""Random bits by seed and number: SplitMix64's own, the same from both forms, restartable."""

from __future__ import annotations

import pytest
import torch

from models.kernels import bernoulli, cpu
from models.kernels.bernoulli import reference

compiled = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")


def test_words_are_those_of_splitmix64() -> None:
    """Against Python's integers, and against published outputs for the seed 1234567."""
    mask, state, expected = 2**64 - 1, 1234567, []
    for _ in range(5):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        expected.append(z ^ (z >> 31))
    assert expected[:2] == [6457827717110365317, 3203168211198807973]
    found = reference.words(torch.tensor(1234567), 5).tolist()
    assert [word & mask for word in found] == expected


@compiled
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 63, 64, 65, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_compiled_loop_gives_the_same_bits(count: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "SMALL", 0)
    torch.set_num_threads(threads)
    try:
        for seed in (0, 1, -1, 2**63 - 1, -(2**63)):
            for most in (-(2**31), -1, 0, 2**31 - 1):
                expected = reference.bernoulli(torch.tensor(seed), most, count)
                assert torch.equal(cpu.bernoulli(seed, most, count), expected), (seed, most)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_saved_state_of_the_generator_restores_them(backend: str) -> None:
    torch.manual_seed(3)
    torch.rand(17)
    state = torch.get_rng_state()
    first, second = (bernoulli((5, 4, 30), 0.3, backend=backend) for _ in range(2))
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(bernoulli((5, 4, 30), 0.3, backend="reference"), first)
    assert torch.equal(bernoulli((5, 4, 30), 0.3, backend="auto"), second)


def test_bits_of_other_seeds_are_other_bits() -> None:
    """Neighbouring seeds, whose states are close."""
    rows = torch.stack([reference.bernoulli(torch.tensor(seed), 0, 4000) for seed in range(20)]).double()
    correlation = torch.corrcoef(rows) - torch.eye(20)
    assert correlation.abs().max() < 6 / 4000**0.5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, inside compile
def test_they_can_be_compiled_into_a_graph() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(bernoulli(tuple(x.shape), 0.5), 0.0)

    torch.manual_seed(0)
    expected = noisy(torch.ones(3, 40))
    torch.manual_seed(0)
    assert torch.equal(torch.compile(noisy, fullgraph=True, backend="aot_eager")(torch.ones(3, 40)), expected)
