"""The fused recurrences on a CPU: the time loops in C++ of each folder's ``cpu.h``, compiled on first use.

The time loops give bitwise the same numbers for any number of threads; weight gradients are summed slab by slab and so
are equal to rounding.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from models.kernels.availability import in_a_fresh_thread
from models.kernels.bernoulli import reference as random_bits
from models.kernels.checks import Sizes, letter_sizes, shape_of
from models.kernels.memory import LARGE, large_tensor
from models.kernels.operators import Operator
from models.kernels.recurrence import RECURRENCES, Recurrence
from suite import native

SMALL = 1 << 18
"""Multiply-adds (or elements, for elementwise loops) below which a second thread costs more than it brings."""

HERE = Path(__file__).parent
FLAGS = (*native.FLAGS, "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-pthread")
_MARCH = os.environ.get("DURNN_MARCH")
FLAG_SETS = ((*FLAGS, f"-march={_MARCH}"),) if _MARCH else ((*FLAGS, "-march=native"), FLAGS)
"""Tried in this order. ``$DURNN_MARCH`` names another machine to compile for than this one."""

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
"""Of the self-check, absolute and relative."""

DISAGREE = "the compiled loops disagree with the reference on this machine"
_SUFFIX = {torch.float32: "_f32", torch.float64: "_f64"}
_OUT_OF_MEMORY = 1  # of exports.h


class _Arguments(ctypes.Structure):
    """As in exports.h."""

    _fields_ = (
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("constants", ctypes.c_int64),
        ("tensors", ctypes.POINTER(ctypes.c_void_p)),
        ("values", ctypes.POINTER(ctypes.c_double)),
        ("sizes", ctypes.c_int64 * 5),
        ("choice", ctypes.c_int64),
    )


def compute(
    operator: Operator,
    tensors: Sequence[Tensor | None],
    words: Sequence[str],
    sizes: Sizes,
    library: ctypes.CDLL | None = None,
) -> tuple[Tensor, ...]:
    """The outputs of an operator, by the compiled loops."""
    like = next(tensor for tensor in tensors if tensor is not None)
    outputs = tuple(_empty(shape_of(letters, sizes), like) for letters in operator.outputs.values())
    T, B, N = sizes["T"], sizes["B"], sizes["N"]
    threads = _threads(T * B * N * (operator.products * N or 1))
    choice = sum(allowed.index(word) for allowed, word in zip(operator.words.values(), words, strict=True))
    pointers = [0 if tensor is None else tensor.data_ptr() for tensor in (*tensors, *outputs)]
    arguments = _Arguments(
        len(tensors),
        len(outputs),
        len(operator.constants),
        (ctypes.c_void_p * len(pointers))(*pointers),
        (ctypes.c_double * len(operator.constants))(*operator.constants),
        (ctypes.c_int64 * 5)(T, B, N, threads, sizes["I"]),
        choice,
    )
    function = getattr(library or _library.functions or _library.get(), operator.name + _SUFFIX[like.dtype])
    status = function(ctypes.byref(arguments))
    if status == _OUT_OF_MEMORY:
        raise MemoryError(f"{operator.name}: not enough memory for the scratch of {tuple(like.shape)}.")
    if status != 0:
        raise TypeError(f"{operator.name}: cpu.h takes other arguments than op.py declares.")
    return outputs


def bernoulli(seed: int, most: int, count: int, library: ctypes.CDLL | None = None) -> Tensor:
    """As ``bernoulli.reference``: bool (count,)."""
    bits = torch.empty(count, dtype=torch.bool, device="cpu")
    (library or _library.get()).bernoulli(
        ctypes.c_uint64(seed),
        ctypes.c_int32(most),
        ctypes.c_void_p(bits.data_ptr()),
        ctypes.c_int64(count),
        ctypes.c_int64(_threads(count)),
    )
    return bits


def largest(A: Tensor, bound: float, limit: float, library: ctypes.CDLL | None = None) -> tuple[Tensor, Tensor] | None:
    """The eigenvalues above a bound, (k,), of a symmetric matrix, and their vectors, (n, k); none if no eigenvalue is
    above the limit. None if they are more than a quarter of all, or could not be found, or A is not finite.
    """
    n, A = len(A), A.contiguous()
    most = max(n // 4, 1)
    values, vectors = A.new_empty(most), A.new_empty(most, n)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (A, values, vectors)]
    search = getattr(library or _library.get(), "largest" + _SUFFIX[A.dtype])
    sizes = ctypes.c_int64(n), ctypes.c_double(bound), ctypes.c_double(limit), ctypes.c_int64(most)
    count = search(pointers[0], *sizes, *pointers[1:])
    return None if count < 0 else (values[:count], vectors[:count].T)


def _threads(work: int) -> int:
    return 1 if work < SMALL else torch.get_num_threads()


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if math.prod(shape) * like.itemsize >= LARGE:
        return large_tensor(shape, like.dtype)
    return torch.empty(shape, dtype=like.dtype, device="cpu")


class _Library:
    """Loads and checks the compiled loops once per process, at the first question for them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tried = False
        self.problem: str | None = None
        self.functions: ctypes.CDLL | None = None

    def get(self) -> ctypes.CDLL:
        if not self.tried:
            with self.lock:
                if not self.tried:
                    self._try()
        if self.functions is None:
            raise native.BuildError(f"the fused recurrences are not available on this CPU: {self.problem}.")
        return self.functions

    def _try(self) -> None:
        sources = [HERE / "scan.cpp", *sorted(HERE.glob("**/*.h"))]
        try:
            self.functions = native.load("fused_recurrences", sources, FLAG_SETS, _check, include=HERE)
        except Exception as error:  # whatever is wrong with this machine, the reference path still works
            self.problem = str(error).rstrip(".")
        self.tried = True


_library = _Library()
if hasattr(os, "register_at_fork"):
    # A fork while another thread is loading would leave the child a lock that nobody opens.
    os.register_at_fork(after_in_child=lambda: setattr(_library, "lock", threading.Lock()))


def available() -> bool:
    return problem() is None


def problem() -> str | None:
    """Why the fused recurrences cannot be used here, or None if they can."""
    try:
        _library.get()
    except native.BuildError as error:
        return str(error)
    return None


def _check(library: ctypes.CDLL) -> None:
    """Raise unless every recurrence and its gradients agree with the reference, on a few tiny sequences."""
    _share_threads(library)
    library.bernoulli.restype = None
    library.largest_f32.restype = library.largest_f64.restype = ctypes.c_int64

    def check_all() -> None:
        if not torch.equal(bernoulli(-1, 0, 99, library), random_bits.bernoulli(torch.tensor(-1, device="cpu"), 0, 99)):
            raise native.BuildError(DISAGREE)
        for dtype in TOLERANCE:
            _check_largest(dtype, library)
        for recurrence, dtype in itertools.product(RECURRENCES.values(), TOLERANCE):
            for columns in (2, 7) if recurrence.projects else (0,):  # few, and many
                _check_recurrence(recurrence, dtype, columns, library)

    in_a_fresh_thread(check_all)


def _check_largest(dtype: torch.dtype, library: ctypes.CDLL) -> None:
    A = torch.randn(21, 21, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float64, device="cpu")
    A = (A + A.T).to(dtype)
    expected = torch.linalg.eigvalsh(A)[-4:]
    found = largest(A, expected[0].item() - 0.1, expected[0].item(), library)
    if found is None or len(found[0]) != 4:
        raise native.BuildError(DISAGREE)
    values, V = found
    close = functools.partial(torch.allclose, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    if not (close(values.flip(0), expected) and close(A @ V, V * values) and close(V.T @ V, torch.eye(4, dtype=dtype))):
        raise native.BuildError(DISAGREE)


def _share_threads(library: ctypes.CDLL) -> None:
    """Let the loops run on the OpenMP threads that torch has, where it has GNU ones; else they start their own."""
    library.use_team.restype = None
    try:
        runtime = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD)
        library.use_team(ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p))
    except (OSError, AttributeError):
        library.use_team(None)


def _check_recurrence(recurrence: Recurrence, dtype: torch.dtype, columns: int, library: ctypes.CDLL) -> None:
    forward, backward = recurrence.forward, recurrence.backward
    if forward is None or backward is None:
        return
    generator = torch.Generator("cpu").manual_seed(0)
    sizes = letter_sizes(T=3, B=3, N=21, columns=columns)

    def draw(letters: tuple[str, ...]) -> Tensor:
        shape = shape_of(letters, sizes)
        return (0.5 * torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")).to(dtype)

    (words,) = forward.words.values() or ((None,),)  # of its one option, if it has one
    for word, added in itertools.product(words, (None, *forward.optional)):
        given = {} if word is None else dict.fromkeys(forward.words, word)
        leaves = {name: draw(forward.inputs[name]).requires_grad_() for name in recurrence.differentiable}
        extra: dict[str, Tensor | None] = dict.fromkeys(forward.optional)
        if added is not None:
            drawn, bits = draw(forward.inputs[added]), forward.optional[added]
            extra[added] = (8 * drawn.abs()).to(bits) if bits else drawn.sigmoid()  # masks, or probabilities
        plain = recurrence.reference(**leaves, **extra, **given)
        grads = {f"grad_{name}": draw(forward.outputs[name]) for name in recurrence.outputs}
        wanted = plain[: len(grads)]
        expected = [*plain, *torch.autograd.grad(wanted, list(leaves.values()), list(grads.values()))]
        inputs = {name: tensor.detach() for name, tensor in leaves.items()} | extra
        results = compute(forward, list(inputs.values()), list(given.values()), sizes, library)
        known = inputs | dict(zip(forward.outputs, results, strict=True)) | grads
        gradients = compute(backward, [known[name] for name in backward.inputs], list(given.values()), sizes, library)
        for found, right in zip([*results[: len(plain)], *gradients], expected, strict=True):
            if not torch.allclose(found, right, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]):
                raise native.BuildError(DISAGREE)
