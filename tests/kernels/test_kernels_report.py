"""Measurements, report and figure of the recurrences: that they measure what they say, not how fast this machine is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from models.kernels import cpu, measure, report, roofline, session, tables
from models.kernels.rows import CLIPS, ROWS
from models.kernels.session import Session, with_one_bandwidth
from models.kernels.tables import Speed
from models.kernels.timing import Times
from suite.shapes import SHAPES, Shape

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")

ROOT = Path(__file__).resolve().parents[2]
SMALL = Shape(20, 4, 16, 2)


def test_every_row_agrees_with_the_reference() -> None:
    worst = {key: session.deviation(row, "cpu") for key, row in ROWS.items()}
    assert all(0 < error < session.TOLERANCE for error in worst.values()), worst


def test_a_wrong_kernel_makes_its_rows_red(monkeypatch: pytest.MonkeyPatch) -> None:
    right = cpu.compute

    def wrong(operator: object, *arguments: object) -> tuple[torch.Tensor, ...]:
        results = right(operator, *arguments)  # type: ignore[arg-type]
        return tuple(1.001 * result for result in results) if operator.name.endswith("lstm_backward") else results  # type: ignore[attr-defined]

    monkeypatch.setattr(cpu, "compute", wrong)
    assert session.deviation(ROWS["lstm-mnist"], "cpu") > session.TOLERANCE
    assert session.deviation(ROWS["lstm-zoneout"], "cpu") > session.TOLERANCE


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_no_speed_while_numerics_are_red(error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "deviation", lambda row, device: error)
    monkeypatch.setattr(session, "flush_everywhere", lambda on: None)
    monkeypatch.setattr(session, "repeated", lambda *_, **__: pytest.fail("measured although numerics are red"))
    found = session.measure_rows(session.Request(tuple(ROWS), threads=torch.get_num_threads()))
    assert found.is_red
    assert not found.times
    monkeypatch.setattr(report, "in_new_process", lambda request, env=None: found)
    speed = report.measure()
    assert len(speed.sessions) == 1
    assert speed.raw is speed.kept is None
    lines = list(tables.report_lines(speed))
    assert any("Numerics are red" in line for line in lines)
    assert not any("×" in line or "GFLOP" in line for line in lines)


def test_a_red_measurement_is_not_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    red = replace(FAKE, numerics={"lstm-mnist": 1.0}, times={})
    monkeypatch.setattr(report, "in_new_process", lambda request, env=None: red)
    with pytest.raises(SystemExit):
        report.main(save=tmp_path / "speed.json")
    assert not list(tmp_path.iterdir())


def times(ours: float, theirs: float, key: str, **changes: object) -> Times:
    row = ROWS[key]
    found = {"ours": [ours] * 3, row.against: [theirs] * 3, "stream" if row.is_elementwise else "sgemm": [1.0] * 3}
    return replace(Times(found, settled=True, others=0.0, stolen=0.0), **changes)  # type: ignore[arg-type]


CLIP = Times({"constrain_": [0.02] * 3, "step": [0.1] * 3}, settled=True, others=0.0, stolen=0.0)
FAKE = Session(
    "AVX512", True, dict.fromkeys(ROWS, 1e-7), sgemm=1e12, stream=1e9,
    times={key: times(0.5, 1.0, key) for key in ROWS} | {"constrain-128": CLIP},
)  # fmt: skip
MACHINE = {
    "processor": "Test", "cores": 2, "threads": 2, "python": "3", "torch": "2", "commit": "abc", "changed": False,
    "date": "2026-01-01", "load": 0.0,
}  # fmt: skip


def test_the_report_leads_with_share_and_flushed_ratio_and_keeps_the_others() -> None:
    raw = replace(FAKE, flushed=False, times={"durnn-mnist": times(0.5, 10.0, "durnn-mnist")})
    kept = replace(FAKE, times={"durnn-mnist": times(0.5, 0.75, "durnn-mnist")})
    lines = list(tables.report_lines(Speed(MACHINE, [FAKE], raw, kept)))
    (line,) = (line for line in lines if line.startswith("| DuRNN | 784, 32, 128 "))
    share = measure.flops("durnn", SHAPES["mnist-784"]) / 0.5 / 1e12
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:6] == ["500.0", f"{share:.0%}", "≥ 75%", "nn.LSTM"]
    assert cells[6:] == ["1000.0", "2.00×", "≥ 4×", "20.0×", "1.5×", "0%", "quiet"]
    assert sum(line.startswith("| ") for line in lines) == 1 + len(ROWS)
    assert any("20.0% of a train step at 100, 50, 128 (aim ≤ 10%" in line for line in lines)


def test_bandwidth_counts_the_output_twice() -> None:
    figures = tables.Figures.of("indrnn-mnist", FAKE)
    assert figures.share == pytest.approx(8 * 784 * 32 * 128 / 0.5 / 1e9)


def test_the_bandwidth_is_that_of_the_machine() -> None:
    slow, none = replace(FAKE, stream=1e9), replace(FAKE, stream=None)
    found = with_one_bandwidth([slow, FAKE, none])
    assert [session.stream for session in found] == [FAKE.stream, FAKE.stream, None]


def test_rows_below_their_aim_and_those_that_lose_are_named() -> None:
    slow = replace(
        FAKE, times={"lstm-wide": times(2.0, 1.0, "lstm-wide"), "lstm-zoneout": times(1.5, 1.0, "lstm-zoneout")}
    )
    lines = list(tables.report_lines(Speed(MACHINE, [slow])))
    assert any("Below its aim: LSTM at 50, 128, 2000 (0.50× for 1.1×); LSTM + zoneout at" in line for line in lines)
    assert any(
        line.endswith("Slower than torch.nn on AVX-512: LSTM at 50, 128, 2000 (0.50× nn.LSTM).") for line in lines
    )
    fast = replace(
        FAKE, times={"lstm-wide": times(1.0, 2.0, "lstm-wide"), "lstm-zoneout": times(1.2, 1.0, "lstm-zoneout")}
    )
    lines = list(tables.report_lines(Speed(MACHINE, [fast])))
    assert any("Below its aim: none." in line for line in lines)
    assert any("Slower than torch.nn on AVX-512: none of these." in line for line in lines)


def test_a_disturbed_row_says_so_in_report_and_readme() -> None:
    noisy = replace(FAKE, times=FAKE.times | {"gru-mnist": times(0.5, 1.0, "gru-mnist", others=0.4, settled=False)})
    lines = list(tables.report_lines(Speed(MACHINE, [noisy])))
    (line,) = (line for line in lines if line.startswith("| GRU "))
    assert "others used 40% of the processors; repetitions differ by 0%" in line
    marked = [line for line in tables.readme_lines(Speed(MACHINE, [noisy])) if "\\*" in line]
    assert len(marked) == 2
    assert marked[0].startswith("| GRU ")
    assert not any("\\*" in line for line in tables.readme_lines(Speed(MACHINE, [FAKE])))


def test_a_measurement_survives_being_saved(tmp_path: Path) -> None:
    sessions = [FAKE, replace(FAKE, instructions="AVX2")]
    speed = Speed(MACHINE, sessions, replace(FAKE, flushed=False), replace(FAKE, sgemm=2e12), {"x": 1})
    speed.save(tmp_path / "speed" / "machine.json")
    loaded = Speed.load(tmp_path / "speed" / "machine.json")
    assert loaded == speed
    assert list(tables.readme_lines(loaded)) == list(tables.readme_lines(speed))


def test_a_measurement_of_other_rows_or_another_format_is_refused(tmp_path: Path) -> None:
    strange = replace(FAKE, times={"no-such-row": CLIP})
    Speed(MACHINE, [strange]).save(tmp_path / "rows.json")
    with pytest.raises(ValueError, match="no-such-row"):
        Speed.load(tmp_path / "rows.json")
    Speed(MACHINE, [FAKE], format=0).save(tmp_path / "format.json")
    with pytest.raises(ValueError, match="format 0"):
        Speed.load(tmp_path / "format.json")


def test_each_instruction_set_and_each_other_ratio_has_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[session.Request, dict[str, str] | None]] = []

    def start(request: session.Request, env: dict[str, str] | None = None) -> Session:
        asked.append((request, env))
        return FAKE

    monkeypatch.setattr(report, "in_new_process", start)
    report.measure(threads=1)
    chosen = [(request.flush, request.keep, bool(env)) for request, env in asked]
    assert chosen == [(True, False, False), (False, False, False), (True, True, False), (True, False, True)]
    assert set(asked[0][0].rows) == {*ROWS, *CLIPS}
    assert asked[3][1] is not None
    assert asked[3][1]["DURNN_MARCH"] == "x86-64-v3"


def test_what_has_to_be_clipped_is_outside_its_bound_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def watch(contenders: dict, prepare: Callable[[], object]) -> Times:
        net = next(c.cell_contents for c in contenders["constrain_"].__closure__ if hasattr(c.cell_contents, "cells"))
        for _ in range(2):
            prepare()
            seen.append(torch.linalg.matrix_norm(net.cells[0].W_rec.detach(), 2).item())
            contenders["constrain_"]()
            seen.append(torch.linalg.matrix_norm(net.cells[0].W_rec.detach(), 2).item())
        seen.append(net.cells[0].delta)
        return CLIP

    monkeypatch.setattr(session, "repeated", watch)
    session.time_clip(CLIPS["constrain-128"], "cpu")
    *norms, delta = seen
    assert norms[0] == norms[2] > 1.0001 * delta
    assert max(norms[1], norms[3]) <= delta * (1 + 1e-5)


def test_flushing_reaches_every_thread_or_is_refused() -> None:
    program = (
        "import torch; torch.set_num_threads(2); {}; from models.kernels import session; session.flush_everywhere(True)"
    )
    for before, fails in (("pass", False), ("torch.ones(512, 512) @ torch.ones(512, 512)", True)):
        done = subprocess.run([sys.executable, "-c", program.format(before)], cwd=ROOT, capture_output=True, text=True)
        assert ("could not be flushed on all threads" in done.stderr) == fails, done.stderr
        assert (done.returncode != 0) == fails


def test_march_chooses_the_machine_to_compile_for() -> None:
    program = "from models.kernels import cpu; print(cpu.FLAG_SETS[0][-1], len(cpu.FLAG_SETS))"
    for march, said in (("x86-64-v3", "-march=x86-64-v3 1"), ("", "-march=native 2")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"DURNN_MARCH": march},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == said, done.stderr


def test_yardsticks_take_the_best_of_all_rows() -> None:
    yardsticks = session.Yardsticks("cpu")
    yardsticks.made = {"sgemm": (lambda: None, 10.0)}
    found = {"a": Times({"ours": [1.0], "sgemm": [5.0, 4.0]}, True), "b": Times({"sgemm": [2.0, 3.0]}, True), "c": CLIP}
    assert yardsticks.best(found) == {"sgemm": 5.0}


def test_machines_have_file_names() -> None:
    facts = {"processor": "Intel(R) Xeon(R) Processor @ 2.1GHz", "cores": 2}
    assert report.file_name(facts) == "intel-xeon-processor-2core.json"


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
    for name in ("durnn", "nn.LSTM", "nn.RNN", "nn.GRU"):
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


def test_the_page_of_the_roofline_is_what_is_computed() -> None:
    assert (ROOT / "models" / "kernels" / "roofline.md").read_text() == "\n".join(roofline.page()) + "\n"


def test_a_roofline_of_few_samples_is_that_of_few_multiprocessors() -> None:
    gpu = roofline.GPU("test", flops=100.0, bandwidth=1e9, processors=10, launch=1.0)
    shape = Shape(3, 16, 8, 0)
    total, chained = measure.flops("durnn", shape), 2 * 3 * 16 * 4 * 8**2
    assert roofline.bounds("durnn", shape, gpu)["arithmetic"] == pytest.approx((total - chained) / 100 + chained / 10)
    wide = roofline.bounds("durnn", Shape(3, 16, 256, 0), gpu)
    assert wide["launches"] == 3 * 8


def test_the_yardstick_is_the_faster_of_two_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for fastest, word in ((0, "by_blas"), (1, "by_onednn")):
        monkeypatch.setattr(
            measure, "interleaved", lambda steps, seconds, f=fastest: {k: float(int(k) != f) for k in steps}
        )
        multiply, work = measure.sgemm(size=8)
        assert multiply.__name__ == word
        multiply()
        assert work == 2 * 8**3
