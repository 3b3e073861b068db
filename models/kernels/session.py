"""One process that measures rows of the report, under one instruction set, with subnormals flushed or not.

A process of its own, because both must be chosen before torch computes anything: threads inherit the flushing of the
thread that starts them, and libraries look at the processor once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from models.constraints import clip_singular_
from models.kernels import measure
from models.kernels.memory import keep_freed_memory
from models.kernels.rows import CLIPS, ROWS, Clip, Row
from models.kernels.timing import Step, Times, repeated
from suite import steps
from suite.shapes import Shape

TOLERANCE = 1e-5
"""Largest deviation from the float64 reference, relative to the largest entry, at which speed is worth a word."""

AS_ON_AVX2 = {
    "DURNN_MARCH": "x86-64-v3",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
"""Holds our loops, torch, MKL and oneDNN to AVX2 on a CPU that has more."""

UPDATE = 2e-4  # how far Adam moves each entry of a matrix at the paper's rate


@dataclass(frozen=True)
class Request:
    """keep: let malloc keep freed memory for the next step, as a training does, for all contenders."""

    rows: tuple[str, ...]
    device: str = "cpu"
    threads: int = 2
    flush: bool = True
    keep: bool = False
    limit: float = 12.0


@dataclass(frozen=True)
class Session:
    """What one process found; no times while the numerics are red.

    sgemm: floating-point operations per second, the best seen. stream: bytes per second, likewise; None if not asked.
    """

    instructions: str
    flushed: bool
    numerics: dict[str, float]
    sgemm: float | None
    stream: float | None
    times: dict[str, Times]

    @property
    def is_red(self) -> bool:
        return not all(error < TOLERANCE for error in self.numerics.values())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Session:
        return cls(**(data | {"times": {key: Times(**times) for key, times in data["times"].items()}}))


def in_new_process(request: Request, env: dict[str, str] | None = None) -> Session:
    """Progress goes to this process's stderr."""
    program = "import sys; from models.kernels import session; session.main(sys.argv[1])"
    command = [sys.executable, "-c", program, json.dumps(asdict(request))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | (env or {}))
    return Session.from_dict(json.loads(done.stdout.splitlines()[-1]))


def main(request: str) -> None:
    print(json.dumps(asdict(measure_rows(Request(**json.loads(request))))))


def measure_rows(request: Request) -> Session:
    torch.set_num_threads(request.threads)
    if request.device == "cpu":
        flush_everywhere(request.flush)
    if request.keep:
        keep_freed_memory()
    chosen = {key: ROWS[key] for key in request.rows if key in ROWS}
    instructions = _instructions(request.device)
    worst = {key: deviation(row, request.device) for key, row in chosen.items()}
    session = Session(instructions, request.flush, worst, None, None, {})
    if session.is_red:
        return session
    yardsticks = Yardsticks(request.device)
    times = {}
    for key in request.rows:
        entry = ROWS.get(key) or CLIPS[key]
        times[key] = (
            time_row(entry, request, yardsticks) if isinstance(entry, Row) else time_clip(entry, request.device)
        )
        said = "; ".join(times[key].disturbances())
        ms = ", ".join(f"{name} {1e3 * times[key].of(name):.2f} ms" for name in times[key].seconds)
        print(f"{instructions} {key}: {ms}{f' ({said})' if said else ''}", file=sys.stderr, flush=True)
    best = yardsticks.best(times)
    return Session(instructions, request.flush, worst, best.get("sgemm"), best.get("stream"), times)


def with_one_bandwidth(sessions: list[Session]) -> list[Session]:
    """The same with the largest bandwidth of them all: it is the machine's, and a process has less of it if its memory
    happens to lie badly."""
    most = max((session.stream for session in sessions if session.stream), default=None)
    return [replace(session, stream=most) if session.stream else session for session in sessions]


def flush_everywhere(on: bool) -> None:
    """``torch.set_flush_denormal``, which reaches one thread only, before there is any other; RuntimeError if there is.

    The other threads of torch's pool inherit it.
    """
    torch.set_flush_denormal(on)
    small = torch.full((512, 512), 1e-20)
    flushed = (small @ small).view(torch.int32) == 0  # as integers, because flushing threads take subnormals for zeros
    if not bool((flushed == on).all()):
        raise RuntimeError(f"subnormal numbers could not be {'flushed' if on else 'kept'} on all threads.")


def _instructions(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else torch.backends.cpu.get_cpu_capability()


class Yardsticks:
    """What a row's work is held against, made when it is first asked for."""

    makers: dict[str, Callable[[str], tuple[Step, float]]] = {  # noqa: RUF012
        "sgemm": lambda device: measure.sgemm(device, 8192 if device == "cuda" else 2048),
        "stream": measure.stream,
    }

    def __init__(self, device: str) -> None:
        self.device = device
        self.made: dict[str, tuple[Step, float]] = {}

    def step(self, name: str) -> Step:
        if name not in self.made:
            self.made[name] = self.makers[name](self.device)
        return self.made[name][0]

    def best(self, times: dict[str, Times]) -> dict[str, float]:
        """Work per second of each, the best in any row: a share of it is never flattered by a slow moment."""
        return {
            name: work / min(min(found.seconds[name]) for found in times.values() if name in found.seconds)
            for name, (_step, work) in self.made.items()
        }


def time_row(row: Row, request: Request, yardsticks: Yardsticks) -> Times:
    last_step, device = not row.shape.every_step, request.device
    yardstick = "stream" if row.is_elementwise else "sgemm"
    contenders = {
        "ours": measure.train_step(row.model, row.shape, "auto", last_step, device, **row.options),
        row.against: measure.train_step(row.against, row.shape, "auto", last_step, device),
        yardstick: yardsticks.step(yardstick),
    }
    return repeated(contenders, limit=request.limit)


def time_clip(clip: Clip, device: str) -> Times:
    """``constrain_()`` on a ``W_rec`` at its bound that an update of Adam's size has moved."""
    net: Any = measure.network("durnn", clip.shape).to(device)
    W, moved = outside_its_bound(net)

    def move() -> None:
        with torch.no_grad():
            W.copy_(moved)
        steps.synchronise(device)

    def constrain() -> None:
        net.constrain_()
        steps.synchronise(device)

    step = measure.train_step("durnn", clip.shape, last_step=not clip.shape.every_step, device=device)
    return repeated({"constrain_": constrain, "step": step}, prepare=move)


def outside_its_bound(net: Any) -> tuple[Tensor, Tensor]:
    """``W_rec`` of a DuRNN, and what it is before a ``constrain_()`` that has to clip.

    One in 25 singular values is at the bound before the update, as on the adding problem (5 of 128, in 97 % of the
    updates).
    """
    cell = net.cells[0]
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        W = torch.randn(cell.W_rec.shape, generator=generator).to(cell.W_rec) / cell.W_rec.shape[0] ** 0.5
        at_bound = clip_singular_(W * (0.55 * cell.delta), cell.delta)  # the largest are 1.1 times the bound
        signs = torch.randn(W.shape, generator=generator).sign().to(W)
        return cell.W_rec, at_bound + UPDATE * signs


def deviation(row: Row, device: str) -> float:
    """Largest relative deviation of a row's model, outputs and gradients, from its reference in float64.

    Where a relu is so near to its kink that rounding in float32 decides its side, even plain torch is off by 1e-2 in a
    gradient. So on a CPU, whose loops know both types, float32 answers for the outputs and float64 for all.
    """
    shape = Shape(50 if row.shape.N <= 512 else 8, 16, row.shape.N, row.shape.input_size)

    def results(backend: str, dtype: torch.dtype, place: str) -> list[Tensor]:
        net = measure.network(row.model, shape, backend, **row.options).to(place, dtype)
        return _outputs_and_gradients(net, shape, dtype, place)

    right, found = results("reference", torch.float64, "cpu"), results("fused", torch.float32, device)
    pairs = list(zip(found, right, strict=True))
    if device == "cpu":
        pairs = pairs[:1] + list(zip(results("fused", torch.float64, device), right, strict=True))
    return max(((found - right).abs().max() / right.abs().max()).item() for found, right in pairs)


def _outputs_and_gradients(net: nn.Module, shape: Shape, dtype: torch.dtype, device: str) -> list[Tensor]:
    x, generator = steps.inputs(shape)
    torch.manual_seed(1)  # masks are drawn from torch's own generator
    y = net(x.to(device, dtype))[0]
    weights = torch.rand(y.shape, generator=generator).to(device, dtype)
    parameters = list(net.parameters())
    return [part.detach().to("cpu", torch.float64) for part in (y, *torch.autograd.grad(y, parameters, weights))]
