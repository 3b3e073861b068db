"""Train steps of the zoo and of torch.nn, their time and their memory: what benchmarks, report and figure share.

A train step is forward and backward of a sum of outputs, all of them or those of the last step, without a gradient for
the input.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import models

TORCH_NN: Mapping[str, Callable[[int, int], nn.Module]] = {
    "nn.LSTM": nn.LSTM,
    "nn.RNN": lambda inputs, N: nn.RNN(inputs, N, nonlinearity="relu"),
}


class Shape(NamedTuple):
    """A task's shape: T steps, B samples, N units, and the size of the input."""

    T: int
    B: int
    N: int
    inputs: int

    def __str__(self) -> str:
        return f"{self.T}, {self.B}, {self.N}"


SHAPES = {
    "mnist": Shape(784, 32, 128, 1),
    "adding-1000": Shape(1000, 50, 128, 2),
    "adding-100": Shape(100, 50, 128, 2),
    "ntu": Shape(20, 128, 512, 150),
    "ptb-c": Shape(50, 128, 2000, 50),
}


def network(name: str, shape: Shape, backend: str = "auto") -> nn.Module:
    """A model of the zoo, or of torch.nn if the name starts with ``nn.``."""
    torch.manual_seed(0)
    if name in TORCH_NN:
        return TORCH_NN[name](shape.inputs, shape.N)
    return models.build(name, shape.inputs, shape.N, length=shape.T, backend=backend, seed=0)


def train_step(name: str, shape: Shape, backend: str = "auto", last_step: bool = False) -> Callable[[], None]:
    """``last_step``: the loss looks at the last output only, as in adding, MNIST and NTU."""
    net = network(name, shape, backend)
    x = torch.randn(shape.T, shape.B, shape.inputs)

    def step() -> None:
        net.zero_grad()
        y = net(x)[0]
        (y[-1] if last_step else y).sum().backward()

    return step


def products_per_step(name: str) -> int:
    """Products of a sample's units with an (N, N) matrix in one step of training, those with the input aside."""
    return {"durnn": 10, "lstm": 12, "nn.LSTM": 12, "indrnn": 0}.get(name, 3)


def flops(name: str, shape: Shape) -> float:
    """Floating-point operations of a train step, elementwise work not counted."""
    gates = 4 if "lstm" in name.lower() else 1
    products = products_per_step(name) * shape.N * shape.N + 2 * gates * shape.N * shape.inputs
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


def sgemm_peak(size: int = 2048) -> float:
    """Floating-point operations per second of a large square product, the best of ten."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2.0 * size**3 / interleaved({"mm": lambda: a @ b}, seconds=0, least=10)["mm"]


def saved_bytes(name: str, shape: Shape) -> int:
    """Memory that the forward pass keeps for backward, parameters and input aside."""
    net = network(name, shape)
    x = torch.randn(shape.T, shape.B, shape.inputs)
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


def _status(field: str) -> int | None:
    """A line of this process's memory status in bytes; None where there is no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), None)


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
    train_step(name, Shape(2, 2, 8, 1), backend)()  # load and warm up everything that is not the step itself
    step = train_step(name, Shape(*sizes), backend)
    gc.collect()
    before = _status("VmRSS")
    wall, busy = [], []
    for _ in range(repeats):
        started, started_busy = time.perf_counter(), time.process_time()
        step()
        wall.append(time.perf_counter() - started)
        busy.append(time.process_time() - started_busy)
    peak = _status("VmHWM")
    print(json.dumps([min(wall), min(busy), None if peak is None or before is None else peak - before]))
