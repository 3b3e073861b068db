"""The Triton recurrences in Triton's interpreter on CPU tensors, against the reference.

The kernels run in one worker process, since ``TRITON_INTERPRET=1`` has to be set before the first import of triton
and must not reach other tests. In the worker every new tensor starts as NaN, and every load and store of a kernel
has to stay inside the tensors that it was given.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from models.kernels import reference

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
"""Largest difference to the reference in float64, relative to the larger of 1 and the tensor's largest entry."""

SIZES = [(1, 1, 1), (3, 5, 7), (2, 33, 16), (4, 3, 100), (3, 2, 130)]
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
    if op == "lstm":
        return draw(seed, dtype, u=(T, B, 4 * N), W_rec=(4 * N, N), h0=(B, N), c0=(B, N))
    tensors = draw(
        seed, dtype, h_short=(T, B, N), a=(T, B, N), W_ls=(N, N), W_s=(N, N), U=(N,), b_thre=(), b_long=(N,), h0=(B, N)
    )
    # A negative threshold lets the gradient through even where all channels are equal, as they are for N = 1.
    return tensors | {"b_thre": tensors["b_thre"].fill_(-0.2 if N < 8 else 0.3)}


def by_reference(op: str, tensors: dict[str, Tensor], *options: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Outputs, the gradients drawn for them, and the gradients of all inputs, computed in float64."""
    leaves = {name: tensor.double().clone().requires_grad_() for name, tensor in tensors.items()}
    outputs = getattr(reference, f"{op}_scan")(*leaves.values(), *options)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
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


def forward_and_backward(op: str, size: tuple[int, int, int], dtype: torch.dtype, options: tuple, path: dict) -> None:
    """Calls both directions of one op and compares outputs, final states and all gradients."""
    from models.kernels import triton_scan

    tensors = inputs(op, *size, dtype)
    outputs, grads, wanted = by_reference(op, tensors, *options)
    forward, backward = getattr(triton_scan, f"{op}_forward"), getattr(triton_scan, f"{op}_backward")
    results = forward(*tensors.values(), *options, **path)
    x = tensors
    if op == "rnn":
        got = backward(grads[0], x["W_rec"], x["h0"], results, *options, **path)
        results = [results]
    elif op == "indrnn":
        got = backward(grads[0], x["U"], x["h0"], results)
        results = [results]
    elif op == "select":
        y, S, scale = results
        got = backward(grads[0], x["h_short"], x["W_s"], x["U"], x["h0"], y, S, scale)
        results = [y]
    else:
        y, c_last, gates, cells = results
        got = backward(*grads, x["W_rec"], x["h0"], x["c0"], y, gates, cells, **path)
        results = [y, c_last]
    compare(["y", "c"][: len(results)], list(results), outputs, TOLERANCE[dtype])
    compare([f"grad_{name}" for name in tensors], list(got), wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "per-step"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("op", "options"),
    [("rnn", ("relu",)), ("rnn", ("tanh",)), ("select", ()), ("lstm", ())],
    ids=["rnn-relu", "rnn-tanh", "select", "lstm"],
)
def test_equals_reference(
    run: Run, op: str, options: tuple, size: tuple[int, int, int], dtype: torch.dtype, resident: bool
) -> None:
    run(forward_and_backward, op, size, dtype, options, {"resident": resident, "precision": "ieee"})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_indrnn_equals_reference(run: Run, size: tuple[int, int, int], dtype: torch.dtype) -> None:
    run(forward_and_backward, "indrnn", size, dtype, (), {})
