"""Measurements, report and figure of the recurrences: that they measure what they say, not how fast this machine is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from models.kernels import cpu, measure, report
from suite.shapes import SHAPES, Shape

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")

SMALL = Shape(20, 4, 16, 2)


def test_numerics_check_is_green() -> None:
    worst = report.numerics()
    assert set(worst) == {"rnn_scan", "indrnn_scan", "select_scan", "lstm_scan", "gru_scan"}
    assert 0 < max(worst.values()) < report.TOLERANCE


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_no_speed_up_while_numerics_are_red(error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "numerics", lambda: {"rnn_scan": error})
    monkeypatch.setattr(report, "sgemm_peak", lambda: pytest.fail("measured although numerics are red"))
    lines: list[str] = []
    with pytest.raises(SystemExit):
        lines.extend(report.report())
    assert "Numerics are red" in lines[-1]


def test_speed_table_keeps_the_rows_it_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SHAPES", dict.fromkeys(SHAPES, SMALL))
    monkeypatch.setattr(report, "interleaved", lambda steps: {"ours": 2.0, "theirs": 1.0})
    lines = list(report.speed_lines(peak=1e9))
    assert len(lines) == 2 + len(report.ROWS) + 4
    assert all("| 0.5× |" in line for line in lines[2 : 2 + len(report.ROWS)])
    assert lines[-1].count("(0.50×") == len(report.ROWS)
    monkeypatch.setattr(report, "interleaved", lambda steps: {"ours": 1.0, "theirs": 100.0})
    assert list(report.speed_lines(peak=1e9))[-1].endswith("torch.nn: none.")


def test_interleaved_measures_each_in_turn() -> None:
    calls: list[str] = []
    best = measure.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0, least=3)
    assert calls == ["a", "b"] * 4  # one round of warming up
    assert best.keys() == {"a", "b"}
    assert all(value > 0 for value in best.values())


def test_operation_count() -> None:
    shape = Shape(3, 5, 7, 2)
    T, B, N, inputs, *_ = shape
    assert measure.flops("durnn", shape) == 2 * T * B * (10 * N * N + 2 * N * inputs)
    for name, gates in (("lstm", 4), ("nn.LSTM", 4), ("gru", 3), ("nn.GRU", 3)):
        assert measure.flops(name, shape) == 2 * T * B * gates * (3 * N * N + 2 * N * inputs)


def test_saved_memory_of_durnn_is_less_than_half_of_nn_lstm() -> None:
    """DuRNN keeps h~, S, h and the scale of mm; torch's LSTM keeps its gates and more."""
    shape = Shape(50, 8, 32, 2)
    sequence = 4 * shape.T * shape.B * shape.N
    durnn = measure.saved_bytes("durnn", shape)
    assert 3 * sequence <= durnn < 3.2 * sequence
    assert durnn <= 0.5 * measure.saved_bytes("nn.LSTM", shape)
    assert measure.saved_bytes("lstm", shape) <= measure.saved_bytes("nn.LSTM", shape)


def test_train_step_trains_the_whole_network() -> None:
    for name in ("durnn", "nn.LSTM", "nn.RNN"):
        step = measure.train_step(name, SMALL)
        step()
        net = next(cell.cell_contents for cell in step.__closure__ if isinstance(cell.cell_contents, torch.nn.Module))
        assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_cost_in_a_new_process() -> None:
    shape = Shape(400, 16, 64, 2)
    cost = measure.cost_in_new_process("durnn", shape, "fused", repeats=1)
    assert cost.seconds > 0
    assert cost.peak_bytes is not None
    assert cost.peak_bytes > measure.saved_bytes("durnn", shape)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_five_thousand_steps_fit_into_two_gigabytes() -> None:
    cost = measure.cost_in_new_process("durnn", Shape(5000, 50, 128, 2), "fused", repeats=1)
    assert cost.peak_bytes is not None
    assert cost.peak_bytes < 2e9


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_grows_linearly_with_steps() -> None:
    short, long = (measure.cost_in_new_process("durnn", Shape(T, 50, 128, 2), repeats=1) for T in (500, 5000))
    assert short.peak_bytes is not None
    assert long.peak_bytes is not None
    assert long.peak_bytes <= 10.5 * short.peak_bytes


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")  # plotting libraries
def test_figure_is_drawn(tmp_path: Path) -> None:
    from models.kernels import growth

    rows = [
        {"axis": axis, "size": size, "contender": label, "seconds": 0.1 * size, "megabytes": None if size == 1 else 5.0}
        for axis in growth.AXES
        for size in (1, 10, 100)
        for label, _name, _backend in growth.CONTENDERS
    ]
    growth.draw(pd.DataFrame(rows), tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".svg", ".png"}
    assert len(pd.read_csv(tmp_path / "kernel_growth.csv")) == len(rows)
