"""Measures one tree for ``compare.py``: a JSON request per line of input, a JSON answer per line of output.

``compare.py`` starts it with the tree in front of the import path. Requests:
``{"do": "names"}``, ``{"do": "time", "model", "shape", "steps"}`` and ``{"do": "observe", "model", "shape"}``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from benchmarks.cases import SHAPES, Case, registered, seconds
from benchmarks.memory import peak_bytes, require_host
from benchmarks.zoo import loss_after_3_steps

_cases: dict[tuple[str, str], Case] = {}


def time_steps(model: str, shape: str, steps: int) -> float:
    """The fastest of ``steps`` training steps: whatever else the machine does only ever adds time."""
    if (model, shape) not in _cases:
        _cases.clear()
        _cases[model, shape] = Case(model, SHAPES[shape])
        _cases[model, shape].train_step()
    return min(seconds(_cases[model, shape].train_step) for _ in range(steps))


def observe(model: str, shape: str) -> dict[str, Any]:
    """Peak memory and loss of a case, in a child that has done nothing else."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            try:
                require_host()
                peak: int | None = peak_bytes(model, shape)
            except NotImplementedError:
                peak = None
            found = {"bytes": peak, "loss": loss_after_3_steps(model, shape)}
            os.write(writer, json.dumps(found).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _pid, status = os.waitpid(child, 0)
    if status != 0:
        return {"bytes": None, "loss": None}
    return json.loads(answer)


def answer(request: dict[str, Any]) -> Any:
    match request.pop("do"):
        case "names":
            return registered()
        case "time":
            return time_steps(**request)
        case "observe":
            return observe(**request)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a tree prints may land between the answers
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
