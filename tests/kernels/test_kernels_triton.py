"""The Triton recurrences in Triton's interpreter on CPU tensors, against the reference.

The kernels run in one worker process, since ``TRITON_INTERPRET=1`` has to be set before the first import of triton
and must not reach other tests. In the worker every new tensor starts as NaN, and every load and store of a kernel
has to stay inside the tensors that it was given.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels.recurrence import RECURRENCES

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
"""Largest difference to the reference in float64, relative to the larger of 1 and the tensor's largest entry."""

SIZES = [(1, 1, 1), (3, 5, 7), (2, 33, 16), (3, 4, 50), (4, 3, 100), (3, 2, 130)]
"""T, B, N: below, at, between and above powers of two, and the batch over more than one program."""

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Calls a function of this file in the worker and raises what it raises."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(start_worker).result()  # the worker starts here and keeps its own environment
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def start_worker() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # with NaN
    guard_memory()


def guard_memory() -> None:
    """Makes the interpreter refuse a load or store outside the tensors passed to the running kernel."""
    from triton.runtime import interpreter

    spans: list[tuple[int, int]] = []
    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    init_args, load, store = executor._init_args_hst, builder.create_masked_load, builder.create_masked_store

    def remember_spans(self: Any, args: Any, kwargs: Any) -> Any:
        on_host, named_on_host = init_args(self, args, kwargs)
        tensors = [arg for arg in (*on_host, *named_on_host.values()) if isinstance(arg, Tensor)]
        spans[:] = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]
        return on_host, named_on_host

    def check(pointers: Any, mask: Any) -> None:
        addresses = torch.from_numpy(pointers.data.astype("int64"))[torch.from_numpy(mask.data.astype("bool"))]
        inside = torch.zeros_like(addresses, dtype=torch.bool)
        for first, end in spans:
            inside |= (addresses >= first) & (addresses < end)
        assert inside.all(), "a kernel touched memory outside its tensors"

    def checked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        check(pointers, mask)
        return load(self, pointers, mask, *rest)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    executor._init_args_hst = remember_spans
    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store


def draw(seed: int, dtype: torch.dtype, **shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """Normal tensors by name; matrices are scaled so that states neither die nor explode."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        if name.startswith("W"):
            tensor /= tensor.shape[-1] ** 0.5
    return tensors


def inputs(op: str, T: int, B: int, N: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    if op == "rnn":
        return draw(seed, dtype, u=(T, B, N), W_rec=(N, N), h0=(B, N))
    if op == "indrnn":
        return draw(seed, dtype, u=(T, B, N), U=(N,), h0=(B, N))
    if op.startswith("projected_"):
        plain = {name: tuple(t.shape) for name, t in inputs(op.removeprefix("projected_"), T, B, N, dtype).items()}
        M = plain.pop("u")[2]
        return draw(seed, dtype, x=(T, B, 2), W_in=(M, 2), b=(M,), **plain)
    if op == "gru":
        return draw(seed, dtype, u=(T, B, 3 * N), W_rec=(3 * N, N), b_new=(N,), h0=(B, N))
    if op == "lstm":
        return draw(seed, dtype, u=(T, B, 4 * N), W_rec=(4 * N, N), h0=(B, N), c0=(B, N))
    matrices: dict[str, tuple] = {"W_ls": (N, N), "W_s": (N, N), "U": (N,), "b_thre": (), "b_long": (N,), "h0": (B, N)}
    tensors = draw(seed, dtype, h_short=(T, B, N), W_ss=(N, N), b_s=(N,), **matrices)
    # A negative threshold lets the gradient through even where all channels are equal, as they are for N = 1.
    return tensors | {"b_thre": tensors["b_thre"].fill_(-0.2 if N < 8 else 0.3)}


def by_reference(op: str, tensors: dict[str, Tensor], *options: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """y and an LSTM's last c, the gradients drawn for them, and the gradients of all inputs, computed in float64."""
    leaves = {name: tensor.double().clone().requires_grad_() for name, tensor in tensors.items()}
    y, _y_last, *others = RECURRENCES[op].reference(*leaves.values(), *options)
    outputs = [y, *others]
    generator = torch.Generator().manual_seed(99)
    dtype = next(iter(tensors.values())).dtype
    grads = [torch.randn(output.shape, generator=generator, dtype=dtype) for output in outputs]
    wanted = torch.autograd.grad(outputs, list(leaves.values()), [grad.double() for grad in grads])
    return [output.detach() for output in outputs], grads, list(wanted)


def compare(names: list[str], got: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    for name, mine, true in zip(names, got, wanted, strict=True):
        assert mine.shape == true.shape, name
        assert mine.is_contiguous(), name
        worst = (mine.double() - true).abs().max().item()  # NaN, and so a failure, if anything was left unwritten
        assert worst <= tolerance * max(true.abs().max().item(), 1.0), f"{name}: off by {worst}"


def directions(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The Triton functions of a recurrence, imported in the worker."""
    folder = RECURRENCES[op].folder
    module, form = import_module(f"models.kernels.{folder}.triton"), op.removesuffix(folder)
    return getattr(module, f"{form}forward"), getattr(module, f"{form}backward")


def noise(kind: str, T: int, B: int, N: int, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """What an LSTM takes besides, or nothing."""
    if kind == "drawn":
        return torch.randint(0, 8, (T, B, N), dtype=torch.uint8, generator=torch.Generator().manual_seed(5)), None
    return None, torch.tensor([0.3, 0.15, 0.4], dtype=dtype) if kind == "expected" else None


def forward_and_backward(op: str, size: tuple[int, int, int], dtype: torch.dtype, options: tuple, path: dict) -> None:
    """Calls both directions of one op and compares outputs, final states and all gradients."""
    tensors = inputs(op, *size, dtype)
    if op == "lstm":
        options = noise(*options, *size, dtype)
    outputs, grads, wanted = by_reference(op, tensors, *options)
    forward, backward = directions(op)
    results = forward(*tensors.values(), *options, **path)
    x = tensors
    if op == "rnn":
        got = backward(grads[0], x["W_rec"], x["h0"], results, *options, **path)
        results = [results]
    elif op == "indrnn":
        got = backward(grads[0], x["U"], x["h0"], results)
        results = [results]
    elif op.startswith("projected_"):
        made = results if isinstance(results, tuple) else (results,)
        got = backward(*grads, x["x"], x["W_in"], *list(x.values())[3:], made[0], *made[2:], *options, **path)
        results = made[: len(grads)]
    elif op == "gru":
        got = backward(grads[0], x["W_rec"], x["h0"], *results, **path)
        results = [results[0]]
    elif op == "select":
        y, S, scale = results
        got = backward(grads[0], x["h_short"], x["W_s"], x["U"], x["h0"], y, S, scale)
        results = [y]
    else:
        y, c_last, gates, cells = results
        got = backward(*grads, x["W_rec"], x["h0"], x["c0"], y, gates, cells, *options, **path)
        results = [y, c_last]
    compare(["y", "c"][: len(results)], list(results), outputs, TOLERANCE[dtype])
    compare([f"grad_{name}" for name in tensors], list(got), wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "per-step"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("op", "options"),
    [("rnn", ("relu",)), ("rnn", ("tanh",)), ("select", ()), ("lstm", ("none",))],
    ids=["rnn-relu", "rnn-tanh", "select", "lstm"],
)
def test_equals_reference(
    run: Run, op: str, options: tuple, size: tuple[int, int, int], dtype: torch.dtype, resident: bool
) -> None:
    run(forward_and_backward, op, size, dtype, options, {"resident": resident, "precision": "ieee"})


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "per-step"])
@pytest.mark.parametrize(
    ("size", "dtype"),
    [((1, 1, 1), torch.float64), ((3, 5, 7), torch.float32), ((2, 18, 20), torch.float64), ((2, 3, 70), torch.float32)],
    ids=str,
)
def test_gru_equals_reference(run: Run, size: tuple[int, int, int], dtype: torch.dtype, resident: bool) -> None:
    run(forward_and_backward, "gru", size, dtype, (), {"resident": resident, "precision": "ieee"})


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "per-step"])
@pytest.mark.parametrize("size", [(3, 5, 7), (2, 18, 20)], ids=str)
@pytest.mark.parametrize("kind", ["drawn", "expected"])
def test_noise_equals_reference(run: Run, kind: str, size: tuple[int, int, int], resident: bool) -> None:
    run(forward_and_backward, "lstm", size, torch.float64, (kind,), {"resident": resident, "precision": "ieee"})


@pytest.mark.parametrize("op", ["rnn", "select", "lstm"])
def test_undivided_products_equal_reference(run: Run, op: str) -> None:
    """IEEE products of 100 units are computed in eighths, TF32 ones (exact in the interpreter) at once."""
    options = {"rnn": ("relu",), "lstm": ("none",)}.get(op, ())
    run(forward_and_backward, op, (2, 3, 100), torch.float32, options, {"resident": True, "precision": "tf32"})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_indrnn_equals_reference(run: Run, size: tuple[int, int, int], dtype: torch.dtype) -> None:
    run(forward_and_backward, "indrnn", size, dtype, (), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 7), (2, 33, 16)], ids=str)
@pytest.mark.parametrize(
    ("op", "options"), [("projected_rnn", ("tanh",)), ("projected_indrnn", ()), ("projected_lstm", ())]
)
def test_projected_forms_equal_reference(
    run: Run, op: str, options: tuple, size: tuple[int, int, int], dtype: torch.dtype
) -> None:
    run(forward_and_backward, op, size, dtype, options, {})


def through_operators(op: str, options: tuple) -> None:
    """The registered operators, computed by Triton: gradients of all inputs by autograd, on strided inputs."""
    from models.kernels.operators import IMPLEMENTATIONS

    IMPLEMENTATIONS["cpu"] = "models.kernels.triton_scan"
    tensors = inputs(op, 3, 4, 5, torch.float64)
    outputs, grads, wanted = by_reference(op, tensors, *options)
    leaves = [
        torch.stack([tensor, tensor], dim=-1)[..., 0].requires_grad_() for tensor in tensors.values()
    ]  # every second element of its storage
    y, y_last, *others = getattr(torch.ops.durnn, f"{op}_forward")(*leaves, *options)
    results = [y, *others][: len(outputs)]
    got = torch.autograd.grad(results, leaves, grads, retain_graph=True)
    compare(["y", "c"][: len(results)], [result.detach() for result in results], outputs, 1e-10)
    compare([f"grad_{name}" for name in tensors], list(got), wanted, 1e-10)
    assert torch.equal(y_last, y[-1])
    by_step, by_itself, by_both = (
        torch.autograd.grad(total, leaves, retain_graph=True)
        for total in (y[-1].sum(), y_last.sum(), y_last.sum() - 3 * y[-1].sum())
    )
    compare(list(tensors), list(by_itself), list(by_step), 1e-12)
    compare(list(tensors), list(by_both), [-2 * grad for grad in by_step], 1e-12)


every_operator = pytest.mark.parametrize(
    ("op", "options"),
    [
        ("rnn", ("relu",)),
        ("rnn", ("tanh",)),
        ("projected_rnn", ("tanh",)),
        ("indrnn", ()),
        ("projected_indrnn", ()),
        ("select", ()),
        ("lstm", (None, None)),
        ("projected_lstm", (None, None)),
        ("gru", ()),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(str(word) for word in value if word),
)


@every_operator
def test_operators_differentiate_through_triton(run: Run, op: str, options: tuple) -> None:
    run(through_operators, op, options)


def difference_quotients(op: str, options: tuple) -> None:
    """``gradcheck`` of the operators; of select_scan only what is not cut by its definition."""
    from models.kernels.operators import IMPLEMENTATIONS

    IMPLEMENTATIONS["cpu"] = "models.kernels.triton_scan"
    tensors = inputs(op, 2, 1, 3 if op == "select" else 2, torch.float64, seed=3)
    if op == "select":  # what reaches y_t through S_t and mm's minimum and maximum is cut, so only T = 1 can agree
        tensors = {name: x[:1] if x.dim() == 3 else x for name, x in tensors.items()}
        tensors["W_ss"].zero_()
    free = ("h_short", "W_s", "U", "b_thre", "b_long") if op == "select" else tuple(tensors)
    leaves = [x.requires_grad_() if name in free else x for name, x in tensors.items()]
    count = 3 if op.endswith("lstm") else 2

    def call(*arguments: Tensor) -> Any:
        return getattr(torch.ops.durnn, f"{op}_forward")(*arguments, *options)[:count]

    assert torch.autograd.gradcheck(call, leaves)


@every_operator
def test_gradients_equal_difference_quotients(run: Run, op: str, options: tuple) -> None:
    run(difference_quotients, op, options)


def nan_like_reference(op: str, options: tuple, resident: bool) -> None:
    tensors = inputs(op, 3, 2, 5, torch.float32)
    tensors["h_short" if op == "select" else "u"][1, 0, 2] = torch.nan
    path = {} if op == "indrnn" else {"resident": resident}
    results = directions(op)[0](*tensors.values(), *options, **path)
    wanted = RECURRENCES[op].reference(*tensors.values(), *options)
    y, wanted = (x if isinstance(x, Tensor) else x[0] for x in (results, wanted))
    assert wanted[1:, 0].isnan().any()
    if op == "select":  # the reference's min and max spread NaN at once, the kernel's by the product with W_s
        assert y[2, 0].isnan().all()
        assert torch.equal(y[:, 1].isnan(), wanted[:, 1].isnan())
    else:
        assert torch.equal(y.isnan(), wanted.isnan())


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "per-step"])
@pytest.mark.parametrize(
    ("op", "options"),
    [("rnn", ("relu",)), ("rnn", ("tanh",)), ("indrnn", ()), ("select", ()), ("lstm", (None, None)), ("gru", ())],
    ids=["rnn-relu", "rnn-tanh", "indrnn", "select", "lstm", "gru"],
)
def test_divergence_shows_as_nan(run: Run, op: str, options: tuple, resident: bool) -> None:
    run(nan_like_reference, op, options, resident)


def tanh_to_its_last_digits() -> None:
    """Relative error, since small values are where a careless formula for tanh loses its digits."""
    sizes = torch.cat([torch.logspace(-12, 1.5, 60), torch.tensor([0.0, 0.0399, 0.0401, 200.0])]).double()
    for dtype, tolerance in ((torch.float32, 3e-6), (torch.float64, 1e-13)):
        u = torch.stack([sizes, -sizes]).to(dtype)[None]  # (1, 2, 64)
        W_rec, h0 = torch.zeros(64, 64, dtype=dtype), torch.zeros(2, 64, dtype=dtype)
        y = directions("rnn")[0](u, W_rec, h0, "tanh", resident=False)
        torch.testing.assert_close(y, torch.tanh(u.double()).to(dtype), rtol=tolerance, atol=0)


def test_tanh_is_accurate_near_zero_and_far_away(run: Run) -> None:
    run(tanh_to_its_last_digits)


def same_bits_again() -> None:
    for op in ("rnn", "indrnn", "select", "lstm", "gru"):
        x = inputs(op, 3, 18, 6, torch.float32)
        options = ("tanh",) if op == "rnn" else ()
        first, again = (directions(op)[0](*x.values(), *options) for _ in range(2))
        pairs = [(first, again)] if isinstance(first, Tensor) else zip(first, again, strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_runs_are_bitwise_the_same(run: Run) -> None:
    run(same_bits_again)


def padded_channels_are_no_extremes() -> None:
    """All channels above 0, then all below: the zeros that pad them to 16 would be minimum, then maximum."""
    for shift in (5.0, -5.0):
        x = inputs("select", 2, 3, 11, torch.float64)
        x["b_s"] += shift
        x["b_thre"].fill_(0.0)
        for resident in (True, False):
            _y, S, scale = directions("select")[0](*x.values(), resident=resident)
            assert S.amin(-1).eq(0).all()
            torch.testing.assert_close(S.amax(-1), torch.ones(2, 3, dtype=torch.float64))
            v = x["h_short"][0] @ x["W_ss"].T + x["h0"] @ x["W_ls"].T + x["b_s"]
            torch.testing.assert_close(scale[0], 1 / (v.amax(-1) - v.amin(-1)))


def test_padded_channels_are_neither_minimum_nor_maximum(run: Run) -> None:
    run(padded_channels_are_no_extremes)


def no_samples() -> None:
    for resident in (True, False):
        x = inputs("lstm", 2, 0, 3, torch.float32)
        y, c, gates, cells = directions("lstm")[0](*x.values(), resident=resident)
        assert y.shape == (2, 0, 3)
        grads = directions("lstm")[1](y, c, x["W_rec"], x["h0"], x["c0"], y, gates, cells, resident=resident)
        assert grads[1].eq(0).all()
        x = inputs("select", 2, 0, 3, torch.float32)
        y, S, scale = directions("select")[0](*x.values(), resident=resident)
        assert y.shape == (2, 0, 3)
        back = directions("select")[1](y, x["h_short"], x["W_s"], x["U"], x["h0"], y, S, scale)
        assert all(grad.eq(0).all() for grad in back)


def test_a_batch_of_nothing(run: Run) -> None:
    run(no_samples)


def chosen_paths() -> dict[str, Any]:
    from models.kernels import triton_common as common
    from models.kernels.rnn.triton import ON_CHIP as RNN
    from models.kernels.select.triton import ON_CHIP as SELECT

    chosen: dict[str, Any] = {"default": common.dot_precision(None, torch.float32)}
    torch.set_float32_matmul_precision("high")
    chosen["allowed"] = common.dot_precision(None, torch.float32)
    chosen["fp64"] = common.dot_precision(None, torch.float64)
    torch.set_float32_matmul_precision("highest")
    on_a100, on_rtx_4090 = 163 * 1024, 99 * 1024
    chosen["100 units"] = SELECT.fits(100, torch.float32, "ieee", on_a100)
    chosen["130 units"] = SELECT.fits(130, torch.float32, "ieee", on_a100)
    chosen["100 units, less memory"] = SELECT.fits(100, torch.float32, "ieee", on_rtx_4090)
    chosen["rnn, less memory"] = RNN.fits(100, torch.float32, "ieee", on_rtx_4090)
    chosen["16 units in fp64"] = SELECT.fits(16, torch.float64, "ieee", on_a100)
    with pytest.raises(ValueError, match=r"precision must be None or one of ieee, tf32, tf32x3, got 'bf16'"):
        common.dot_precision("bf16", torch.float32)
    with pytest.raises(ValueError, match="take CUDA tensors, got one on meta"):
        common.launching(torch.empty(1, device="meta"))
    return chosen


def test_precision_follows_torch_and_size_decides_the_path(run: Run) -> None:
    assert run(chosen_paths) == {
        "default": "ieee",
        "allowed": "tf32",
        "fp64": "ieee",
        "100 units": True,
        "130 units": False,
        "100 units, less memory": False,
        "rnn, less memory": True,
        "16 units in fp64": False,
    }


def is_available() -> bool:
    from models.kernels import triton_scan as implementation

    return implementation.available()


def test_available_tries_a_kernel(run: Run) -> None:
    assert run(is_available)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_gpu_and_interpreter_it_says_so() -> None:
    program = (
        "import torch; from models.kernels import triton_scan as s; from models.kernels.indrnn import triton\n"
        "assert not s.available() and 'no CUDA GPU' in s.problem()\n"
        "try: triton.forward(torch.zeros(1, 1, 1), torch.zeros(1), torch.zeros(1, 1))\n"
        "except ValueError as error: print(error)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "take CUDA tensors, got one on cpu" in done.stdout


def test_importing_the_models_does_not_need_triton() -> None:
    program = "import sys; sys.modules['triton'] = None; import models, models.kernels.operators"
    subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
