"""The numerics ladder of the fused CPU recurrences against the reference: outputs, states and every gradient."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels_ladder import GRADED, OPERATORS, SIZES, TOLERANCE, Operator, check, errors, everything
from torch import Tensor

from models.kernels import cpu
from models.kernels.select.reference import MM_FLOOR

GOLDEN = Path(__file__).with_name("kernels_golden.json")

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")


@pytest.fixture(params=OPERATORS.values(), ids=OPERATORS.keys())
def operator(request: pytest.FixtureRequest) -> Operator:
    return request.param


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("T", "B", "N"), SIZES)
def test_fused_equals_float64_reference(operator: Operator, T: int, B: int, N: int, dtype: torch.dtype) -> None:
    for graded in GRADED if N > 1 else ["everything"]:  # the few terms of one unit's last step may cancel
        expected = everything(operator.plain, operator.arguments(T, B, N), graded=graded)
        check(everything(operator.fused, operator.arguments(T, B, N, dtype), graded=graded), expected, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_many_steps(operator: Operator, dtype: torch.dtype) -> None:
    """Long enough for a small error per step to add up."""
    T, B, N = 300, 5, 24
    expected = everything(operator.plain, operator.arguments(T, B, N))
    if operator.recurrence.endswith("indrnn"):  # U above 1 would overflow: that is the recurrence, not the arithmetic
        arguments = {name: t.clamp(max=0.99) if name == "U" else t for name, t in operator.arguments(T, B, N).items()}
        expected = everything(operator.plain, arguments)
        arguments = {name: t.to(dtype) for name, t in arguments.items()}
    else:
        arguments = operator.arguments(T, B, N, dtype)
    check(everything(operator.fused, arguments), expected, TOLERANCE[dtype])


@pytest.mark.parametrize(
    "name", ["rnn_relu", "projected_rnn_relu", "projected_indrnn", "projected_lstm", "select", "gru"]
)
@pytest.mark.parametrize("T", [1, 24, 25, 26, 50, 51])
def test_backward_in_pieces(name: str, T: int) -> None:
    """Sequences that are whole pieces or not: a thread takes five samples 25 steps at a time, ten samples 12."""
    operator = OPERATORS[name]
    for B in (5, 10):
        arguments = operator.arguments(T, B, 8)
        check(everything(operator.fused, arguments), everything(operator.plain, arguments), 1e-10)


@pytest.mark.parametrize(("T", "B", "N"), [(2, 13, 517), (9, 16, 530), (4, 3, 700)])
def test_large_hidden_size(operator: Operator, T: int, B: int, N: int) -> None:
    """Products in several pieces; from the second on weight gradients are computed in tiles; the third has few rows."""
    expected = everything(operator.plain, operator.arguments(T, B, N))
    check(everything(operator.fused, operator.arguments(T, B, N, torch.float32)), expected, 1e-5)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "select"])
@pytest.mark.parametrize(("T", "B", "N"), [(1, 1, 1), (3, 2, 3)])
def test_gradcheck(name: str, T: int, B: int, N: int) -> None:
    operator = OPERATORS[name]
    leaves = {key: tensor.requires_grad_() for key, tensor in operator.arguments(T, B, N).items()}

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        return operator.fused(**dict(zip(leaves, values, strict=True)))

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))


def test_gradcheck_select_without_feedback() -> None:
    """With W_ss = W_ls = 0 nothing is cut on the way of these arguments, so their gradient is the true one."""
    arguments = OPERATORS["select"].arguments(3, 2, 4)
    fixed = {name: torch.zeros(4, 4, dtype=torch.float64) for name in ("W_ss", "W_ls")} | {"b_s": arguments["b_s"]}
    leaves = {name: tensor.requires_grad_() for name, tensor in arguments.items() if name not in fixed}

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        return OPERATORS["select"].fused(**fixed, **dict(zip(leaves, values, strict=True)))

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))


def test_gradcheck_select_with_fixed_extremes() -> None:
    """As long as minimum and maximum stay where they are, ``mm' = 1/(max − min)`` is the true derivative."""
    arguments = OPERATORS["select"].arguments(1, 1, 5)
    v = arguments["W_ss"] @ arguments["h_short"][0, 0] + arguments["W_ls"] @ arguments["h0"][0] + arguments["b_s"]
    inner = torch.ones(5, dtype=torch.float64)
    inner[v.argmin()] = inner[v.argmax()] = 0

    def function(W_ss: Tensor, b_s: Tensor, W_ls: Tensor) -> tuple[Tensor, ...]:
        moved = {"W_ss": inner[:, None] * W_ss, "b_s": inner * b_s, "W_ls": inner[:, None] * W_ls}
        return OPERATORS["select"].fused(**(arguments | {name: arguments[name] + by for name, by in moved.items()}))

    zeros = [torch.zeros_like(arguments[name]).requires_grad_() for name in ("W_ss", "b_s", "W_ls")]
    assert torch.autograd.gradcheck(function, zeros)


def test_non_contiguous_arguments_and_gradients(operator: Operator) -> None:
    arguments = operator.arguments(4, 6, 10)
    expected = everything(operator.plain, arguments)

    def strided(tensor: Tensor) -> Tensor:  # every second element of a larger tensor, transposed in memory
        wide = torch.full((*reversed(tensor.shape), 2), float("nan"), dtype=tensor.dtype)
        wide[..., 0] = tensor.permute(tuple(reversed(range(tensor.dim()))))
        return wide[..., 0].permute(tuple(reversed(range(tensor.dim()))))

    scattered = {name: strided(tensor) for name, tensor in arguments.items()}
    assert any(not tensor.is_contiguous() for tensor in scattered.values())
    check(everything(operator.fused, scattered), expected, 1e-10)

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in arguments.items()}
    twins = {name: tensor.clone().requires_grad_() for name, tensor in arguments.items()}
    for function, inputs in ((operator.fused, leaves), (operator.plain, twins)):
        function(**inputs)[0].sum().backward()  # an expanded gradient without memory of its own
    for name in leaves:
        torch.testing.assert_close(leaves[name].grad, twins[name].grad, rtol=1e-10, atol=1e-10)


def test_every_element_is_written(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory starts as NaN: what is left unwritten, or read before it is written, shows."""
    poisoned = 0

    def poison(shape: tuple[int, ...], like: Tensor) -> Tensor:
        nonlocal poisoned
        poisoned += 1
        return torch.full(shape, float("nan"), dtype=like.dtype)

    monkeypatch.setattr(cpu, "_empty", poison)
    for T, B, N in [(1, 1, 1), (3, 5, 7), (2, 13, 130)]:
        expected = everything(operator.plain, operator.arguments(T, B, N))
        check(everything(operator.fused, operator.arguments(T, B, N)), expected, 1e-10)
    assert poisoned > 0


def golden_arguments(operator: Operator) -> dict[str, Tensor]:
    """Arguments that owe nothing to a random generator: they have to stay the same for ever."""
    arguments = operator.arguments(4, 2, 3)
    phase = 0
    for name, tensor in arguments.items():
        count = tensor.numel()
        wave = torch.sin(0.7 + 1.3 * torch.arange(phase, phase + count, dtype=torch.float64))
        arguments[name] = (0.3 + 0.2 * wave if name in ("b_thre", "U") else wave).reshape(tensor.shape)
        phase += count
    return arguments


def golden_results(function: Callable[..., Any], operator: Operator) -> dict[str, list[float]]:
    leaves = {name: tensor.requires_grad_() for name, tensor in golden_arguments(operator).items()}
    y, _y_last, *others = function(**leaves)
    outputs = (y, *others)
    loss = sum((output * torch.cos(torch.arange(output.numel()).reshape(output.shape))).sum() for output in outputs)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    named = {f"output {k}": output for k, output in enumerate(outputs)} | dict(zip(leaves, gradients, strict=True))
    return {name: tensor.detach().flatten().tolist() for name, tensor in named.items()}


@pytest.mark.parametrize("form", ["plain", "fused"])
def test_golden_values(operator: Operator, form: str) -> None:
    """Numbers frozen from the float64 reference: neither form may drift, even together."""
    frozen = json.loads(GOLDEN.read_text())[operator.name]
    found = golden_results(getattr(operator, form), operator)
    assert found.keys() == frozen.keys()
    for name, values in frozen.items():
        assert found[name] == pytest.approx(values, rel=1e-11, abs=1e-12), name


def test_runs_repeat_bitwise(operator: Operator) -> None:
    arguments = operator.arguments(20, 9, 40, torch.float32)
    first = everything(operator.fused, arguments)
    for _ in range(3):
        again = everything(operator.fused, arguments)
        assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize(("T", "B", "N"), [(20, 33, 40), (3, 5, 130), (6, 2, 7), (4, 50, 128), (3, 25, 530)])
def test_threads_do_not_change_results(
    operator: Operator, T: int, B: int, N: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bitwise for everything the time loops compute. Gradients of matrices are BLAS products over T·B, whose order
    of summation is the BLAS's own business: equal to rounding."""
    monkeypatch.setattr(cpu, "SMALL", 0)
    arguments = operator.arguments(T, B, N, torch.float32)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            results.append(everything(operator.fused, arguments))
        finally:
            torch.set_num_threads(1)
    for other in results[1:]:
        for name, tensor in results[0].items():
            if name.startswith("gradient of W"):
                assert errors({name: other[name]}, {name: tensor})[name] < 2e-6, name
            else:
                assert torch.equal(tensor, other[name]), name


def test_relu_and_min_max_edges() -> None:
    """Exact zeros, a closed and an open threshold, equal channels: the same side of every kink as the reference."""
    base = OPERATORS["select"].arguments(4, 3, 6)
    for threshold in (0.0, 1.0):
        for flat in (False, True):
            arguments = base | {"b_thre": torch.tensor(threshold, dtype=torch.float64)}
            if flat:
                arguments |= {name: torch.zeros_like(base[name]) for name in ("W_ss", "b_s", "W_ls")}
            operator = OPERATORS["select"]
            check(everything(operator.fused, arguments), everything(operator.plain, arguments), 1e-10)
    arguments = OPERATORS["rnn_relu"].arguments(4, 3, 6)
    arguments["u"].clamp_(max=0)
    arguments["W_rec"].zero_()
    check(everything(OPERATORS["rnn_relu"].fused, arguments), everything(OPERATORS["rnn_relu"].plain, arguments), 1e-10)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_saturated_gates(dtype: torch.dtype) -> None:
    """Sigmoid and tanh far out, near zero and at infinity, as good as torch's own."""
    magnitudes = torch.cat([torch.logspace(-30, 4, 400, dtype=torch.float64), torch.tensor([0.0, float("inf")])])
    x = torch.cat([magnitudes, -magnitudes]).to(dtype)
    W, h0 = torch.zeros(1, 1, dtype=dtype), torch.zeros(len(x), 1, dtype=dtype)
    found = torch.ops.durnn.rnn_forward(x[None, :, None], W, h0, "tanh")[0].flatten()
    few_ulp = {torch.float32: 4e-7, torch.float64: 1e-15}[dtype]
    torch.testing.assert_close(found, torch.tanh(x), rtol=few_ulp, atol=0)
    u = torch.zeros(1, len(x), 4, dtype=dtype)
    u[0, :, 0], u[0, :, 2] = x, float("inf")  # c = σ(x) · 1
    c_last = torch.ops.durnn.lstm_forward(u, torch.zeros(4, 1, dtype=dtype), h0, h0, None, None)[2].flatten()
    smallest = {torch.float32: 1e-37, torch.float64: 1e-303}[dtype]  # σ(x) stops falling at x = −87, −700
    torch.testing.assert_close(c_last, torch.sigmoid(x), rtol=few_ulp, atol=smallest)


def test_nan_stays_visible(operator: Operator) -> None:
    arguments = operator.arguments(5, 3, 20)
    first = next(iter(arguments))
    arguments[first][2, 1, -1] = float("nan")
    y = operator.fused(**arguments)[0]
    assert not y[:2].isnan().any()
    assert y[2:, 1].isnan().any(-1).all()
    assert not y[:, [0, 2]].isnan().any()


def test_min_max_floor_is_the_references() -> None:
    """Ranges around MM_FLOOR: the denominator is the larger of the two."""
    arguments = OPERATORS["select"].arguments(3, 2, 5)
    arguments["W_ss"].zero_()
    arguments["W_ls"].zero_()
    for width in (0.1, 1.0, 10.0):
        arguments["b_s"] = MM_FLOOR * width * torch.linspace(0, 1, 5, dtype=torch.float64)
        operator = OPERATORS["select"]
        check(everything(operator.fused, arguments), everything(operator.plain, arguments), 1e-10)
