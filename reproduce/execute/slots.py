"""Where runs may be done on this machine: so many at a time on each device."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch

from suite.machine import cores


@dataclass(frozen=True)
class Slot:
    """Room for one run: the device it names and what its process finds in its environment."""

    device: str
    environment: dict[str, str] = field(default_factory=dict, hash=False)


def slots(jobs: int, device: str, per_device: int = 0) -> list[Slot]:
    """One slot per core on a CPU, ``per_device`` (1 if it is not given) on each GPU; ``jobs`` bounds their number.

    ``cuda`` stands for all visible GPUs, ``cuda:1`` for the second of them. A worker sees its own GPU alone.
    """
    if device == "cpu":
        return [Slot("cpu")] * (jobs or cores())
    gpus = visible_gpus()
    _, _, number = device.partition(":")
    if number and int(number) >= len(gpus):
        raise ValueError(f"--device {device} was asked for, but {len(gpus)} GPUs are visible; the first is cuda:0")
    chosen = [gpus[int(number)]] if number else gpus
    found = [Slot("cuda", {"CUDA_VISIBLE_DEVICES": gpu}) for _ in range(per_device or 1) for gpu in chosen]
    return found[: jobs or None]


def visible_gpus() -> list[str]:
    """Names by which the GPUs that this process may use are made visible to another."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    names = [name.strip() for name in given.split(",")] if given else [str(number) for number in range(count)]
    return names[:count]


def threads_of_each(slots: int) -> int:
    """``$OMP_NUM_THREADS`` if it is set, else an equal share of the cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # "2,1" sets two levels of nested threads
    return int(asked) if asked.isdigit() and int(asked) else max(1, cores() // max(1, slots))
