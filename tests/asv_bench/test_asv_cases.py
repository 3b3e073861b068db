"""What is measured, what is skipped, and that the figures mean what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import cases, memory, zoo

import models

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DURNN_BENCH_")]:
        monkeypatch.delenv(name)


def in_a_new_process(code: str, **env: str) -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "asv_bench")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_registered_model_and_every_shape_is_listed():
    assert list(zoo.Zoo.params[0]) == models.names()
    assert list(zoo.Zoo.params[1]) == list(cases.SHAPES)
    assert cases.PROFILES["full"].shapes == tuple(cases.SHAPES)
    assert set(cases.PROFILES["fast"].shapes) < set(cases.SHAPES)


def test_a_new_model_appears_by_being_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models.registry.ZOO, "entries", dict(models.registry.ZOO.entries))
    models.register("newcomer")(models.IndRNN)
    assert "newcomer" in cases.listed_models()
    monkeypatch.setenv("DURNN_BENCH_PROFILE", "fast")
    cases.require("newcomer", "adding-100")


def test_what_an_old_commit_lacks_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(NotImplementedError, match="not registered"):
        cases.require("not-yet-written", "adding-100")
    # A tree without a zoo, measured by an interpreter that has the suite installed: the installed one must not answer.
    monkeypatch.setenv("DURNN_BENCH_TREE", str(tmp_path))
    assert cases.registered() == []
    with pytest.raises(NotImplementedError, match="not registered"):
        cases.require("durnn", "adding-100")


def test_the_benchmarks_import_where_the_package_has_no_registry_yet(tmp_path: Path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text('"""Kernels only, as in the first commits."""\n')
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "asv_bench")])
    code = "from benchmarks import zoo; print(zoo.Zoo.params[0])"
    assert in_a_new_process(code, PYTHONPATH=paths, DURNN_BENCH_TREE=str(tmp_path)) == "['(no models)']\n"


def test_the_fast_profile_skips_the_large_shapes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURNN_BENCH_PROFILE", "fast")
    with pytest.raises(NotImplementedError, match="not part of this profile"):
        cases.require("durnn", "ptb-c-50-n2000")
    monkeypatch.setenv("DURNN_BENCH_PROFILE", "medium")
    with pytest.raises(ValueError, match="use fast or full"):
        cases.profile()


def test_an_unknown_shape_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURNN_BENCH_SHAPES", "adding-100,adding-99")
    with pytest.raises(ValueError, match="adding-99"):
        cases.measured_shapes()


@pytest.mark.parametrize("model", models.names())
def test_a_step_trains_the_model_and_keeps_its_constraints(model: str):
    case = cases.Case(model, cases.TINY)
    if model == "rnn-trec":  # eight units see too little to cross their threshold
        case.x = 10 * case.x
    before = [parameter.clone() for parameter in case.net.parameters()]
    case.train_step()
    after = list(case.net.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    case.net.constrain_()
    for stepped, constrained in zip(after, case.net.parameters(), strict=True):
        assert torch.allclose(stepped, constrained)


def test_the_check_value_is_reproducible_and_sees_a_changed_result(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(cases.SHAPES, "tiny", cases.Shape(5, 4, 8, 2, 1))
    value = zoo.loss_after_3_steps("indrnn", "tiny")
    assert zoo.loss_after_3_steps("indrnn", "tiny") == value
    forward = models.IndRNN.forward

    def perturbed(self, *args):
        y, state = forward(self, *args)
        return y * 1.001, state * 1.001

    monkeypatch.setattr(models.IndRNN, "forward", perturbed)
    assert abs(zoo.loss_after_3_steps("indrnn", "tiny") / value - 1) > 1e-5


def test_relative_time_divides_by_lstm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(cases.SHAPES, "tiny", cases.TINY)
    taken = {"durnn": 3.0, "nn.LSTM": 2.0}
    monkeypatch.setattr(zoo, "Case", lambda model, shape: type("Known", (), {"train_step": taken[model]}))
    monkeypatch.setattr(zoo, "median_seconds", lambda *steps: list(steps))
    assert zoo.Relative().track_time_relative_to_lstm("durnn", "tiny") == 1.5
    assert zoo.Throughput().track_seconds_per_1000_samples("durnn", "tiny") == 3.0 * 1000 / cases.TINY.B


def test_median_seconds_takes_the_profiles_number_of_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURNN_BENCH_PROFILE", "full")
    calls = {"short": 0, "long": 0}

    def timed(action):
        calls[action] += 1
        return {"short": 0.01, "long": 5.0}[action]

    monkeypatch.setattr(cases, "seconds", timed)
    assert cases.median_seconds("short", "long") == [0.01, 5.0]
    assert calls == {"short": 1 + 30, "long": 5}  # the long one's first turn counts


def test_peak_memory_sees_what_a_step_holds():
    try:
        memory.require_host()
    except NotImplementedError as error:
        pytest.skip(str(error))
    code = """
import torch
from benchmarks import memory
from benchmarks.cases import Case, Shape
if EXTRA:
    step = Case.train_step
    def hungry(self):
        held = torch.ones(EXTRA // 4) if self.shape.T > 2 else None
        return step(self)
    Case.train_step = hungry
print(memory.host_bytes("indrnn", Shape(20, 8, 32, 2, 1)))
"""
    plain = int(in_a_new_process(code.replace("EXTRA", "0")))
    hungry = int(in_a_new_process(code.replace("EXTRA", str(2**26))))
    assert 0 < plain < 2**24
    assert abs(hungry - plain - 2**26) < 2**20
