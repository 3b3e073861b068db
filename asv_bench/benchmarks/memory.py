"""Peak memory of one training step above what the imports take."""

from __future__ import annotations

import ctypes

import torch

from .cases import SHAPES, TINY, Case, Shape, device
from .own import load

machine = load("machine")

PR_SET_THP_DISABLE, M_MMAP_THRESHOLD = 41, -3  # linux/prctl.h, malloc.h


def require_host() -> None:
    """Raise NotImplementedError, asv's word for "skip", where the kernel does not let a process reset its peak."""
    if not machine.reset_peak_memory() or machine.memory_bytes("VmHWM") is None:
        raise NotImplementedError("peak memory cannot be measured here: the system does not let a process reset it")


def _steady_allocations() -> None:
    """Give tensors their own pages and free them at once: huge pages and heap reuse move the peak by megabytes."""
    libc = ctypes.CDLL(None)
    prctl, mallopt = getattr(libc, "prctl", None), getattr(libc, "mallopt", None)
    if prctl is not None:
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 64 * 1024)


def host_bytes(model: str, shape: Shape) -> int:
    """Peak resident memory of one training step: weights, optimiser, data, activations, workspace.

    To be called in a process that has done nothing yet. The tiny step first loads what is loaded lazily; it belongs to
    the imports. A first step of the case itself makes the optimiser's state, the second is the one that is watched.
    """
    _steady_allocations()
    Case(model, TINY).train_step()
    before = machine.memory_bytes("VmRSS")
    case = Case(model, shape)
    case.train_step()
    machine.reset_peak_memory()
    case.train_step()
    return machine.peak_memory_bytes() - before


def require_cuda() -> None:
    if not torch.cuda.is_available():
        raise NotImplementedError("there is no CUDA device")


def cuda_bytes(model: str, shape: Shape) -> int:
    """Peak of torch's CUDA allocator during one training step."""
    case = Case(model, shape, torch.device("cuda"))
    case.train_step()
    torch.cuda.reset_peak_memory_stats()
    case.train_step()
    return torch.cuda.max_memory_allocated()


def peak_bytes(model: str, shape: str) -> int:
    return cuda_bytes(model, SHAPES[shape]) if device().type == "cuda" else host_bytes(model, SHAPES[shape])
