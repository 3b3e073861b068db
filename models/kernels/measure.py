"""Train steps of the zoo and of torch.nn, their time and their memory: what benchmarks, report and figure share.

A train step is ``suite.steps.bare_step``: no gradient for the input, no optimiser.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import models
from suite import steps
from suite.machine import memory_bytes
from suite.shapes import TINY, Shape


def network(name: str, shape: Shape, backend: str = "auto", **options: Any) -> nn.Module:
    """A model of the zoo, or of torch.nn if the name starts with ``nn.``."""
    return steps.build(models, name, shape, backend=backend, seed=0, **options)


def train_step(
    name: str, shape: Shape, backend: str = "auto", last_step: bool = False, device: str = "cpu", **options: Any
) -> Callable[[], None]:
    """``last_step``: the loss looks at the last output only, as in adding, MNIST and NTU."""
    return steps.bare_step(network(name, shape, backend, **options), shape, last_step, device)


def products_per_step(name: str) -> int:
    """Products of a sample's units with an (N, N) matrix in one step of training, those with the input aside."""
    return {"durnn": 10, "lstm": 12, "nn.LSTM": 12, "gru": 9, "nn.GRU": 9, "indrnn": 0}.get(name, 3)


def flops(name: str, shape: Shape) -> float:
    """Floating-point operations of a train step, elementwise work not counted."""
    gates = {"lstm": 4, "gru": 3}.get(name.lower().removeprefix("nn."), 1)
    products = products_per_step(name) * shape.N * shape.N + 2 * gates * shape.N * shape.input_size
    return 2.0 * shape.T * shape.B * products


def interleaved(steps: Mapping[str, Callable[[], object]], seconds: float = 3.0, least: int = 3) -> dict[str, float]:
    """Best time of each function, run in turns, so that whatever else the machine does meets all of them."""
    for step in steps.values():
        step()
    best = dict.fromkeys(steps, float("inf"))
    started, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - started < seconds:
        for name, step in steps.items():
            before = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - before)
        rounds += 1
    return best


def sgemm(device: str = "cpu", size: int = 2048) -> tuple[Callable[[], None], float]:
    """A large square product in float32 by the faster of torch's libraries, and its floating-point operations.

    On a CPU these are its BLAS and oneDNN: the usual BLAS, MKL, reaches half of the peak of an AMD CPU with AVX-512.
    """
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    result = torch.empty_like(a)

    def by_blas() -> None:
        torch.mm(a, b, out=result)
        steps.synchronise(device)

    def by_onednn() -> None:
        torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")  # a bᵀ

    both = [by_blas, by_onednn] if device == "cpu" and torch.backends.mkldnn.is_available() else [by_blas]
    best = interleaved({str(number): multiply for number, multiply in enumerate(both)}, seconds=0.0)
    return both[int(min(best, key=best.__getitem__))], 2.0 * size**3


def stream(device: str = "cpu", count: int = 1 << 26) -> tuple[Callable[[], None], float]:
    """STREAM's triad c = a + 3 b on float32 arrays that no cache holds, and the bytes it reads and writes."""
    a, b = torch.ones(count, device=device), torch.ones(count, device=device)
    result = torch.ones_like(a)

    def triad() -> None:
        torch.add(a, b, alpha=3.0, out=result)
        steps.synchronise(device)

    return triad, 12.0 * count


def saved_bytes(name: str, shape: Shape) -> int:
    """Memory that the forward pass keeps for backward, parameters and input aside."""
    net = network(name, shape)
    x, _generator = steps.inputs(shape)
    known = {tensor.untyped_storage().data_ptr() for tensor in (x, *net.parameters())}
    saved: dict[int, int] = {}

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        y = net(x)[0]
    del y
    return sum(size for address, size in saved.items() if address not in known)


class Cost(NamedTuple):
    """Of one train step in a fresh process: best time, CPU time, and peak memory above that before the step."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int | None


def cost_in_new_process(
    name: str, shape: Shape, backend: str = "auto", repeats: int = 2, threads: int | None = None
) -> Cost:
    """A fresh process, because the peak of a process that has run before says nothing."""
    program = "from models.kernels import measure; import sys; measure.print_cost(*sys.argv[1:])"
    request = json.dumps([name, shape, backend, repeats, threads or torch.get_num_threads()])
    done = subprocess.run([sys.executable, "-c", program, request], capture_output=True, text=True, check=True)
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def print_cost(request: str) -> None:
    name, sizes, backend, repeats, threads = json.loads(request)
    torch.set_num_threads(threads)
    train_step(name, TINY, backend)()  # load and warm up everything that is not the step itself
    step = train_step(name, Shape(*sizes), backend)
    gc.collect()
    before = memory_bytes("VmRSS")
    wall, busy = [], []
    for _ in range(repeats):
        started, started_busy = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - started)
        busy.append(time.process_time() - started_busy)
    peak = memory_bytes("VmHWM")
    print(json.dumps([min(wall), min(busy), None if peak is None or before is None else peak - before]))
