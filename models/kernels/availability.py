"""Whether the fused recurrences work here: asked once per process and kind of device, answered by trying."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from models.kernels.operators import implementation

Answer = TypeVar("Answer")
P = ParamSpec("P")


def in_a_fresh_thread(function: Callable[[], Answer]) -> Answer:
    """Call a function outside of whatever torch modes and transforms the caller is in.

    Default device, fake tensors, ``torch.func`` transforms, inference mode and compilation all belong to a thread.
    """
    answers: list[Answer] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(function())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="durnn self-check")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return answers[0]


@functools.cache
def _find_problem(device_type: str) -> str | None:
    try:
        return implementation(device_type).problem()
    except Exception as error:  # an implementation that cannot even be imported is one that is not there
        return f"the fused recurrences for {device_type} cannot be loaded: {error}"


_warned: set[str] = set()


def _constant_when_compiled(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """``torch.compiler.assume_constant_result`` without importing the compiler, which would double import time."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_constant_when_compiled
def in_transform() -> bool:
    """True inside ``torch.func.grad``, ``vmap``, …, which differentiate no operator like ours."""
    return torch._C._are_functorch_transforms_active()


@_constant_when_compiled
def problem(device_type: str) -> str | None:
    """Why there are no fused recurrences on this kind of device, in one sentence; None if there are."""
    return _find_problem(device_type)


@_constant_when_compiled
def available(device_type: str) -> bool:
    """``problem() is None``, with a warning the first time that it is not."""
    found = _find_problem(device_type)
    if found is not None and device_type not in _warned:
        _warned.add(device_type)
        warnings.warn(f"using the slow reference recurrences: {found}", RuntimeWarning, stacklevel=5)
    return found is None
