"""Which form ``backend="auto"`` takes, as a function of the shape."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernels_ladder import OPERATORS

from models.kernels import cpu, crossover
from models.kernels.recurrence import RECURRENCES, fused_is_faster

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")


def taken(name: str, T: int, B: int, N: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The form that ``auto`` computes with."""
    operator, forms = OPERATORS[name], []
    plain, fused = RECURRENCES[operator.recurrence].reference, cpu.compute
    monkeypatch.setattr(
        RECURRENCES[operator.recurrence], "reference", lambda **given: (forms.append("reference"), plain(**given))[1]
    )
    monkeypatch.setattr(cpu, "compute", lambda *given: (forms.append("fused"), fused(*given))[1])
    operator.scan(**operator.arguments(T, B, N, torch.float32))
    monkeypatch.undo()
    (form,) = forms
    return form


def test_fused_over_the_whole_grid_of_the_tasks() -> None:
    for T, B, N in itertools.product((20, 50, 100, 1000), (8, 32, 128), (64, 128, 256, 512, 1024, 2000, 2048)):
        assert fused_is_faster(T, B, N), (T, B, N)


@pytest.mark.parametrize(
    ("T", "B", "N", "form"),
    [
        (1, 1, 255, "fused"),
        (1, 1, 256, "reference"),
        (1, 128, 256, "reference"),
        (7, 8, 256, "reference"),
        (8, 8, 256, "fused"),
        (8, 64, 256, "fused"),
        (63, 1, 256, "reference"),
        (64, 1, 256, "fused"),
    ],
)
@pytest.mark.parametrize("name", ["rnn_relu", "select", "lstm", "gru"])
def test_a_few_steps_of_a_wide_network_are_left_to_the_reference(
    name: str, T: int, B: int, N: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert taken(name, T, B, N, monkeypatch) == form


def test_an_elementwise_recurrence_is_always_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    for T, B, N in ((1, 1, 1), (1, 1, 2048), (20, 8, 512)):
        assert taken("indrnn", T, B, N, monkeypatch) == "fused"


@pytest.mark.parametrize("train", [True, False])
def test_the_table_has_a_line_for_each_shape(train: bool) -> None:
    lines = list(crossover.table(("rnn", "lstm"), (2, 3), (1,), (4, 256), train))
    assert [line.split(" | ")[1] for line in lines[2:]] == ["2, 1, 4", "2, 1, 256", "3, 1, 4", "3, 1, 256"] * 2
    assert [line.split(" | ")[4] for line in lines[2:]] == ["fused", "reference"] * 4
