"""The first use of the fused recurrences inside a mode or transform of torch, and derivatives that they do not have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from kernels_ladder import OPERATORS, check, everything
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from models import kernels
from models.kernels import availability, cpu
from models.kernels.recurrence import RECURRENCES

pytestmark = [
    pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, inside export and compile
]


@pytest.fixture
def first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not asked for the fused recurrences yet."""
    monkeypatch.setattr(cpu, "_library", cpu._Library())
    availability._find_problem.cache_clear()
    yield
    availability._find_problem.cache_clear()


def scan(u: Tensor, backend: str = "auto") -> Tensor:
    if not torch.compiler.is_compiling():
        assert cpu.problem() is None
    W = torch.eye(4, dtype=u.dtype, device=u.device) / 2
    return kernels.rnn_scan(u, W, torch.zeros(u.shape[1], 4, dtype=u.dtype, device=u.device), "tanh", backend)[0]


def tangent(u: Tensor) -> Tensor:
    return torch.func.jvp(scan, (u,), (torch.ones_like(u),))[1]


def exported(u: Tensor) -> Tensor:
    class Net(torch.nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return scan(u)

    return torch.export.export(Net(), (u,)).module()(u)


TRANSFORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "jvp": (tangent, lambda u: torch.func.jvp(lambda u: scan(u, "reference"), (u,), (torch.ones_like(u),))[1]),
    "jacfwd": (torch.func.jacfwd(scan), torch.func.jacrev(lambda u: scan(u, "reference"))),
    "grad": (torch.func.grad(lambda u: scan(u).sum()), torch.func.grad(lambda u: scan(u, "reference").sum())),
    "vmap": (
        lambda u: torch.vmap(scan, in_dims=2, out_dims=2)(torch.stack([u, 2 * u], 2)),
        lambda u: torch.stack([scan(u, "reference"), scan(2 * u, "reference")], 2),
    ),
    "export": (exported, lambda u: scan(u, "reference")),
    "compile": (
        lambda u: torch.compile(scan, fullgraph=True, backend="aot_eager")(u),
        lambda u: scan(u, "reference"),
    ),
}


@pytest.mark.usefixtures("first_use")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_first_use_inside_a_transform(name: str) -> None:
    u = torch.randn(3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    transformed, expected = TRANSFORMS[name]
    torch.testing.assert_close(transformed(u), expected(u), rtol=1e-10, atol=1e-12)
    assert cpu.problem() is None
    torch.testing.assert_close(scan(u, "fused"), scan(u, "reference"), rtol=1e-10, atol=1e-12)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "meta as default device": lambda: torch.device("meta"),
    "fake tensors": FakeTensorMode,
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
}


@pytest.mark.usefixtures("first_use")
@pytest.mark.parametrize("name", MODES)
def test_first_use_inside_a_mode(name: str) -> None:
    with MODES[name]():
        u = torch.zeros(3, 2, 4, device="cpu")
        y = scan(u)
        assert y.shape == u.shape
        assert y.device.type == "cpu"
        assert cpu.problem() is None
    for operator in OPERATORS.values():
        arguments = operator.arguments(3, 2, 4)
        check(everything(operator.fused, arguments), everything(operator.plain, arguments), 1e-10)


@pytest.mark.parametrize("size", [(3, 2, 4), (80, 40, 100)], ids=["malloc", "kept memory"])
def test_results_stay_on_the_cpu_whatever_the_default_device(size: tuple[int, int, int]) -> None:
    for operator in OPERATORS.values():
        arguments = operator.arguments(*size, torch.float32)
        plain = operator.fused(**arguments)
        with torch.device("meta"):
            found = operator.fused(**arguments)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, plain)), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", OPERATORS)
def test_forward_mode_derivatives_are_the_references(name: str) -> None:
    operator = OPERATORS[name]
    arguments = operator.arguments(3, 2, 4)
    tangents = operator.arguments(3, 2, 4, seed=1)

    def derivatives(function: Callable[..., Any]) -> tuple[Tensor, ...]:
        with forward_ad.dual_level():
            dual = {key: forward_ad.make_dual(value, tangents[key]) for key, value in arguments.items()}
            outputs = function(**dual)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return tuple(forward_ad.unpack_dual(output).tangent for output in outputs)

    for found, expected in zip(derivatives(operator.scan), derivatives(operator.plain), strict=True):
        assert expected.abs().max() > 0
        assert torch.equal(found, expected)
    with pytest.raises(RuntimeError, match="lacks forward-mode derivatives"):
        derivatives(operator.fused)
    forward = RECURRENCES[operator.recurrence].forward
    assert forward is not None
    with pytest.raises(RuntimeError, match="no forward-mode derivative"):
        derivatives(lambda **x: forward.call(*operator.positional(x)))


def test_arguments_are_bound_as_python_binds_them() -> None:
    u, U, h0 = OPERATORS["indrnn"].arguments(3, 2, 4).values()
    y, _ = kernels.indrnn_scan(u, U, h0)
    assert torch.equal(kernels.indrnn_scan(h0=h0, U=U, u=u)[0], y)
    assert torch.equal(kernels.indrnn_scan(u, U, h0, "fused")[0], y)
    for given, named, message in (
        ((u, U), {}, "missing a required argument: 'h0'"),
        ((u, U, h0), {"u": u}, "multiple values for argument 'u'"),
        ((u, U, h0), {"activation": "relu"}, "unexpected keyword argument 'activation'"),
        ((u, U, h0, "auto", 1), {}, "too many positional arguments"),
    ):
        with pytest.raises(TypeError, match=message):
            kernels.indrnn_scan(*given, **named)
