"""The measured shapes and the training step on them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import models
from suite import shapes, steps
from suite.shapes import SHAPES, TINY, Shape

ROOT = Path(__file__).resolve().parents[2]


def test_shapes_are_those_of_the_committed_history() -> None:
    results = json.loads((ROOT / "asv_bench" / "results" / "benchmarks.json").read_text())
    for name, figure in results.items():
        if name != "version":
            assert figure["params"][1] == [repr(shape) for shape in SHAPES]


@pytest.mark.parametrize("module", [shapes, steps])
def test_they_load_beside_a_tree_without_the_suite(module: object, tmp_path: Path) -> None:
    program = "import runpy, sys; sys.modules['suite'] = None; print(len(runpy.run_path(sys.argv[1])) > 3)"
    path = str(ROOT / "suite" / f"{module.__name__.split('.')[1]}.py")  # type: ignore[attr-defined]
    command = [sys.executable, "-c", program, path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("every_step", [False, True])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("model", ["indrnn", "durnn", "nn.LSTM"])
def test_steps_repeat_and_train(model: str, outputs: int, every_step: bool) -> None:
    shape = Shape(5, 4, 8, 2, outputs, every_step)
    runs = []
    for _ in range(2):
        training = steps.Training(steps.build(models, model, shape), shape)
        before = float(training.inference())
        losses = [float(training.train_step()) for _ in range(20)]
        assert losses[0] == pytest.approx(before)
        assert losses[-1] < losses[0]
        runs.append(losses)
    assert runs[0] == runs[1]


def test_a_model_is_built_by_what_it_needs() -> None:
    asked: list[dict[str, object]] = []
    needs = {"plain": set(), "bounded": {"length"}, "reader": {"length", "symbols"}, "walker": {"skeleton"}}

    def build(name: str, inputs: int, N: int, **options: object) -> nn.Module:
        asked.append(options)
        return nn.Identity()

    zoo = SimpleNamespace(build=build, needs=needs.get)
    steps.build(zoo, "plain", TINY, backend="fused")
    steps.build(zoo, "bounded", TINY)
    assert asked == [{"num_layers": 1, "backend": "fused"}, {"num_layers": 1, "length": TINY.T}]
    assert steps.lacking(zoo, "plain", TINY) == steps.lacking(zoo, "nn.LSTM", TINY) == set()
    assert steps.lacking(zoo, "reader", TINY) == {"symbols"}
    assert not steps.lacking(zoo, "reader", SHAPES["ptb-c-50-n256"])
    assert steps.lacking(zoo, "walker", SHAPES["ptb-c-50-n256"]) == {"skeleton"}
    assert not steps.lacking(zoo, "walker", SHAPES["ntu-20"])
    older = SimpleNamespace(build=build)  # a commit whose models do not say
    steps.build(older, "walker", TINY)
    assert asked[-1] == {"num_layers": 1, "length": TINY.T}
    assert not steps.lacking(older, "walker", TINY)


def test_a_model_has_as_many_units_as_the_shape() -> None:
    for name, size in {"lstm": 512, "part-lstm": 510}.items():  # 102 units in each of five parts
        assert steps.build(models, name, SHAPES["ntu-20"]).size == size


def test_the_last_output_of_any_model() -> None:
    x = steps.inputs(TINY)[0]
    for name in ("nn.LSTM", "nn.GRU", "durnn", "lru"):
        net = steps.build(models, name, TINY)
        y, state = net(x)
        torch.testing.assert_close(steps.last_output(net, y, state), y[-1])
    older = SimpleNamespace()  # of a commit whose models do not say
    assert torch.equal(steps.last_output(older, x, None), x[-1])


@pytest.mark.parametrize("last_step", [False, True])
def test_a_bare_step_is_forward_and_backward(last_step: bool) -> None:
    net = steps.build(models, "nn.RNN", TINY)
    before = [parameter.clone() for parameter in net.parameters()]
    steps.bare_step(net, TINY, last_step)()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
