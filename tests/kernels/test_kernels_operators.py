"""The fused recurrences as torch operators: registration, compilation, what is saved, and bad arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels_ladder import OPERATORS, check, everything
from torch import Tensor, nn

from models import kernels
from models.kernels import cpu
from models.kernels.recurrence import RECURRENCES

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")


def forward_sample(name: str, requires_grad: bool) -> tuple[Any, tuple]:
    """A forward operator and its arguments."""
    operator = OPERATORS[name]
    arguments = operator.arguments(3, 2, 5, torch.float32)
    tensors = {key: tensor.requires_grad_(requires_grad) for key, tensor in arguments.items()}
    return getattr(torch.ops.durnn, f"{operator.recurrence}_forward").default, tuple(operator.positional(tensors))


def backward_sample(name: str, absent: str = "") -> tuple[Any, tuple]:
    """A backward operator and its arguments, one of the gradients being None if so wanted."""
    forward, arguments = forward_sample(name, requires_grad=False)
    recurrence = RECURRENCES[OPERATORS[name].recurrence]
    assert recurrence.forward is not None
    assert recurrence.backward is not None
    results = forward(*arguments)
    made = dict(zip(recurrence.forward.outputs, results, strict=True))
    known = dict(zip((*recurrence.tensors, *recurrence.words), arguments, strict=True)) | made
    known |= {f"grad_{output}": torch.randn_like(made[output]) for output in recurrence.outputs}
    known |= {absent: None} if absent else {}
    taken = (*recurrence.backward.inputs, *recurrence.words)
    return getattr(torch.ops.durnn, recurrence.backward.name).default, tuple(known[key] for key in taken)


@pytest.mark.parametrize("name", RECURRENCES)
def test_declaration_and_reference_take_the_same_arguments(name: str) -> None:
    *declared, backend = inspect.signature(getattr(kernels, f"{name}_scan")).parameters.values()
    plain = inspect.signature(RECURRENCES[name].reference).parameters.values()
    assert [(p.name, p.default) for p in declared] == [(p.name, p.default) for p in plain]
    assert (backend.name, backend.default) == ("backend", "auto")


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, inside opcheck
def test_opcheck(name: str) -> None:
    torch.library.opcheck(*forward_sample(name, requires_grad=True))
    for absent in ("", "grad_y", "grad_y_last"):
        torch.library.opcheck(*backward_sample(name, absent))


class Network(nn.Module):
    """Every fused recurrence once, in a row."""

    def __init__(self, backend: str, N: int = 6) -> None:
        super().__init__()
        self.backend = backend
        generator = torch.Generator().manual_seed(0)
        for name, shape in {"W": (N, N), "V": (N, N), "W_gates": (4 * N, N), "U": (N,), "b": (N,)}.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=generator) * 0.4))
        self.threshold = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Tensor) -> Tensor:
        h0 = x.new_zeros(x.shape[1:])
        h = kernels.rnn_scan(x, self.W, h0, "tanh", backend=self.backend)[0]
        h = kernels.rnn_scan(h, self.W, h0, "relu", backend=self.backend)[0]
        h = h + kernels.indrnn_scan(h, self.U, h0, backend=self.backend)[0]
        x, W_in = h[..., :2], self.W[:, :2]
        h = h + kernels.projected_rnn_scan(x, W_in, self.b, self.W, h0, "tanh", backend=self.backend)[0]
        h = h + kernels.projected_indrnn_scan(x, W_in, self.b, self.U, h0, backend=self.backend)[0]
        selection = (self.V, self.b, self.V, self.W, self.U, self.threshold, self.b)
        h = h + kernels.select_scan(h, *selection, h0, backend=self.backend)[0]
        thirds = self.W_gates[: 3 * h.shape[-1]]
        h = h + kernels.gru_scan(h @ thirds.T, thirds, self.b, h0, backend=self.backend)[0]
        y, _, c = kernels.lstm_scan(h @ self.W_gates.T, self.W_gates, h0, h0, backend=self.backend)
        gates = (self.W_gates[:, :2], self.W_gates[:, 2], self.W_gates)
        z, _, d = kernels.projected_lstm_scan(y[..., :2], *gates, h0, h0, backend=self.backend)
        return y + c + z + d


def train_step(network: nn.Module, compiled: Any, x: Tensor) -> list[Tensor]:
    network.zero_grad()
    y = compiled(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, inside inductor
@pytest.mark.parametrize("backend", ["fused", "auto"])
@pytest.mark.parametrize(
    "compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)  # inductor compiles C++ of its own
def test_compiled_network_gives_the_same_numbers(backend: str, compiler: str) -> None:
    x = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(1))
    network = Network(backend)
    plain = train_step(network, network, x)
    compiled = torch.compile(network, fullgraph=True, backend=compiler)
    for found, expected in zip(train_step(network, compiled, x), plain, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    expected = train_step(Network("reference"), Network("reference"), x)[0]
    torch.testing.assert_close(plain[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradient_of_part_of_the_outputs(name: str) -> None:
    """Only the last step, cut from the sequence or by itself, or only the last cell has a gradient."""
    operator = OPERATORS[name]
    for pick in (lambda out: out[0][-1], lambda out: out[1], lambda out: out[-1]):
        results = []
        for function in (operator.fused, operator.plain):
            leaves = {key: tensor.requires_grad_() for key, tensor in operator.arguments(5, 3, 4).items()}
            pick(function(**leaves)).sum().backward()
            results.append([leaf.grad for leaf in leaves.values()])
        for found, expected in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name.startswith("projected")])
@pytest.mark.parametrize("size", [(5, 3, 4), (4, 3, 30)], ids=["few columns", "many columns"])
def test_an_input_without_gradient_costs_the_others_nothing(name: str, size: tuple[int, int, int]) -> None:
    operator, gradients = OPERATORS[name], []
    for wanted in (True, False):
        arguments = operator.arguments(*size, torch.float32)
        leaves = {key: tensor.requires_grad_(key != "x" or wanted) for key, tensor in arguments.items()}
        sum(output.sum() for output in operator.fused(**leaves)).backward()
        gradients.append({key: leaf.grad for key, leaf in leaves.items()})
    with_x, without_x = gradients
    assert with_x["x"].abs().max() > 0
    assert without_x["x"] is None
    assert all(torch.equal(with_x[key], without_x[key]) for key in with_x if key != "x")


def test_nothing_is_saved_without_gradients() -> None:
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        OPERATORS["select"].fused(**OPERATORS["select"].arguments(3, 2, 4))
    assert not saved


@pytest.mark.parametrize(
    ("name", "sequences"),
    [
        ("rnn_relu", 1),
        ("indrnn", 1),
        ("projected_rnn_relu", 1),
        ("projected_indrnn", 1),
        ("select", 3),
        ("gru", 5),
        ("lstm", 6),
        ("projected_lstm", 6),
        ("lstm_noise", 7),
    ],
)
def test_saved_for_backward(name: str, sequences: int) -> None:
    """Whole sequences (T, B, N) that a forward keeps: for select h~ (its input), S and y; for LSTM 4 gates, c and y,
    and the bytes of its noise; for GRU 3 gates, a and y."""
    T, B, N = 49, 4, 8
    arguments = {key: tensor.requires_grad_() for key, tensor in OPERATORS[name].arguments(T, B, N).items()}
    saved: dict[int, int] = {}

    def remember(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        OPERATORS[name].fused(**arguments)
    assert sum(saved.values()) // (T * B * N) == sequences


def test_empty_batch() -> None:
    for operator in OPERATORS.values():
        found = everything(operator.fused, operator.arguments(3, 0, 4))
        expected = everything(operator.plain, operator.arguments(3, 0, 4))
        for name in expected:
            assert torch.equal(found[name], expected[name]), (operator.name, name)


def test_second_derivatives_are_refused() -> None:
    arguments = {key: tensor.requires_grad_() for key, tensor in OPERATORS["indrnn"].arguments(2, 2, 3).items()}
    y, _ = OPERATORS["indrnn"].fused(**arguments)
    (first,) = torch.autograd.grad(y.sum(), arguments["U"], create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(first.sum(), arguments["U"])


def call(name: str, arguments: dict[str, Any], **options: Any) -> Any:
    return OPERATORS[name].scan(**arguments, **options)


@pytest.mark.parametrize("backend", ["auto", "fused", "reference"])
def test_bad_arguments_name_the_argument(backend: str) -> None:
    arguments = OPERATORS["select"].arguments(3, 2, 4, torch.float32)
    for name, bad in (("W_s", torch.zeros(4, 5)), ("h0", torch.zeros(4)), ("b_thre", torch.zeros(1))):
        with pytest.raises(ValueError, match=rf"select_scan: {name} must have the shape"):
            call("select", arguments | {name: bad}, backend=backend)
    with pytest.raises(ValueError, match="at least one step"):
        call("select", arguments | {"h_short": torch.zeros(0, 2, 4)}, backend=backend)
    with pytest.raises(TypeError, match=r"U must be a torch\.Tensor, got float"):
        call("select", arguments | {"U": 0.5}, backend=backend)
    with pytest.raises(ValueError, match="activation must be one of relu, tanh, got 'sigmoid'"):
        call("rnn_relu", OPERATORS["rnn_relu"].arguments(3, 2, 4), activation="sigmoid", backend=backend)
    projected = OPERATORS["projected_indrnn"].arguments(3, 2, 4)
    with pytest.raises(ValueError, match=r"projected_indrnn_scan: W_in must have the shape \(N, I\)"):
        call("projected_indrnn", projected | {"W_in": torch.zeros(4, 7)}, backend=backend)
    with pytest.raises(ValueError, match="an input of at least one column"):
        call("projected_indrnn", projected | {"x": torch.zeros(3, 2, 0), "W_in": torch.zeros(4, 0)}, backend=backend)
    lstm = OPERATORS["lstm"].arguments(3, 2, 4)
    with pytest.raises(ValueError, match=r"lstm_scan: noise must have the shape \(T, B, N\)"):
        call("lstm", lstm, noise=torch.zeros(3, 2, 5, dtype=torch.uint8), backend=backend)
    with pytest.raises(TypeError, match=r"rates must be a torch\.Tensor, got tuple"):
        call("lstm", lstm, rates=(0.1, 0.1, 0.1), backend=backend)


def test_bad_backend() -> None:
    with pytest.raises(ValueError, match="backend must be one of auto, reference, fused, got 'cuda'"):
        call("indrnn", OPERATORS["indrnn"].arguments(3, 2, 4), backend="cuda")


def test_what_only_the_reference_can_do() -> None:
    """Half precision, mixed dtypes, exact min-max: auto takes the reference, fused says what it lacks."""
    half = OPERATORS["indrnn"].arguments(3, 2, 4, torch.bfloat16)
    assert call("indrnn", half)[0].dtype == torch.bfloat16
    with pytest.raises(ValueError, match=r"float32 or float64, got torch\.bfloat16"):
        call("indrnn", half, backend="fused")
    mixed = OPERATORS["indrnn"].arguments(3, 2, 4) | {"U": torch.ones(4)}
    assert call("indrnn", mixed)[0].dtype == torch.float64
    with pytest.raises(ValueError, match=r"one dtype, u has torch\.float64 and U torch\.float32"):
        call("indrnn", mixed, backend="fused")
    noise = {"noise": torch.zeros(3, 2, 4, dtype=torch.int64)}
    assert call("lstm", OPERATORS["lstm"].arguments(3, 2, 4), **noise)[0].dtype == torch.float64
    with pytest.raises(ValueError, match=r"noise must have the dtype torch\.uint8, got torch\.int64"):
        call("lstm", OPERATORS["lstm"].arguments(3, 2, 4), **noise, backend="fused")
    arguments = OPERATORS["select"].arguments(3, 2, 4)
    exact, _ = call("select", arguments, exact_minmax=True)
    assert torch.equal(exact, RECURRENCES["select"].reference(**arguments, exact_minmax=True)[0])
    with pytest.raises(RuntimeError, match="lacks a form with exact_minmax=True"):
        call("select", arguments, exact_minmax=True, backend="fused")
    on_meta = {name: tensor.to("meta") for name, tensor in OPERATORS["indrnn"].arguments(3, 2, 4).items()}
    assert call("indrnn", on_meta)[0].device.type == "meta"


DAMAGES = st.sampled_from(["shape+1", "shape-1", "unsqueeze", "squeeze", "dtype", "integer", "none", "huge stride"])


def damage(tensor: Tensor, kind: str, axis: int) -> Any:
    if kind == "none":
        return None
    if kind == "dtype":
        return tensor.float() if tensor.dtype == torch.float64 else tensor.double()
    if kind == "integer":
        return tensor.long()
    if kind == "unsqueeze":
        return tensor.unsqueeze(0)
    if tensor.dim() == 0:
        return tensor.expand(2)
    axis %= tensor.dim()
    if kind == "squeeze":
        return tensor.select(axis, 0)
    if kind == "shape-1":
        return tensor.narrow(axis, 0, tensor.shape[axis] - 1)
    if kind == "shape+1":
        return torch.cat([tensor, tensor.narrow(axis, 0, 1)], axis)
    return tensor.select(axis, 0).unsqueeze(axis).expand(tensor.shape)  # valid: all steps share memory


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(OPERATORS)),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 14), st.integers(1, 40)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    broken=st.integers(0, 7),
    kind=DAMAGES,
    axis=st.integers(0, 2),
)
def test_fuzz_scan_boundary(
    name: str, sizes: tuple[int, int, int], dtype: torch.dtype, broken: int, kind: str, axis: int
) -> None:
    """A damaged argument either still describes a valid call, and then gives the reference's numbers, or raises."""
    operator = OPERATORS[name]
    arguments: dict[str, Any] = dict(operator.arguments(*sizes, dtype))
    victim = list(arguments)[broken % len(arguments)]
    arguments[victim] = damage(arguments[victim], kind, axis)
    try:
        found = operator.fused(**arguments)
    except (ValueError, TypeError):
        return
    for one, other in zip(found, operator.plain(**arguments), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(OPERATORS)),
    backward=st.booleans(),
    broken=st.integers(0, 7),
    kind=DAMAGES,
    axis=st.integers(0, 2),
)
def test_fuzz_raw_operators(name: str, backward: bool, broken: int, kind: str, axis: int) -> None:
    """The operators themselves, called past the dispatcher: an exception or finite numbers, never a crash."""
    operator, arguments = backward_sample(name) if backward else forward_sample(name, requires_grad=False)
    arguments = list(arguments)
    recurrence = RECURRENCES[OPERATORS[name].recurrence]
    declared: Any = recurrence.backward if backward else recurrence.forward
    tensors = [k for k, argument in enumerate(arguments) if isinstance(argument, Tensor)]
    victim = tensors[broken % len(tensors)]
    arguments[victim] = damage(arguments[victim], kind, axis)
    try:
        outputs = operator(*arguments)
    except (ValueError, TypeError, RuntimeError):
        return
    other_length = kind.startswith("shape") and axis == 0 and victim == 0 and not backward
    left_out = kind == "none" and list(declared.inputs)[victim] in declared.optional
    assert kind == "huge stride" or other_length or left_out
    assert all(output.isfinite().all() for output in outputs)


def test_random_sizes_against_reference() -> None:
    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        st.sampled_from(sorted(OPERATORS)),
        st.integers(1, 5),
        st.integers(1, 40),
        st.integers(1, 70),
        st.integers(0, 99),
    )
    def run(name: str, T: int, B: int, N: int, seed: int) -> None:
        operator = OPERATORS[name]
        arguments = operator.arguments(T, B, N, seed=seed)
        check(everything(operator.fused, arguments), everything(operator.plain, arguments), 1e-9)

    run()
