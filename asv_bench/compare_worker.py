"""Measures one tree for ``compare.py``: a JSON request per line of input, a JSON answer per line of output.

``compare.py`` starts it with DURNN_BENCH_TREE set to the tree. Requests: ``names``; ``launch``, after which a new
process answers, forked from this one, which has imported everything and computed nothing; and to that process ``time``
(model, shape, steps), ``observe`` (model, shape) and ``finish``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, TextIO

from benchmarks.cases import SHAPES, Case, device, registered, seconds
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
    """Peak memory and loss of a case; for a child that has done nothing else."""
    try:
        if device().type == "cpu":
            require_host()
        peak = [peak_bytes(model, shape)]
    except NotImplementedError:
        peak = []
    try:
        return {"bytes": peak, "loss": loss_after_3_steps(model, shape)}
    except FloatingPointError:
        return {"bytes": peak, "loss": None}


def serve(answers: TextIO, child: bool = False) -> None:
    """Answer until the input ends. A child takes over the conversation until it is told to finish."""
    for line in sys.stdin:
        request = json.loads(line)
        match request.pop("do"):
            case "names":
                found: Any = registered()
            case "time":
                found = time_steps(**request)
            case "observe":
                found = observe(**request)
            case "launch":
                found = _launch(answers)
            case "finish":
                return
        print(json.dumps(found), file=answers, flush=True)
    if child:
        raise EOFError("the comparison has ended")


def _launch(answers: TextIO) -> bool:
    """Let a new process talk; True once it has finished. False also answers what it left unanswered by failing."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            print("true", file=answers, flush=True)
            serve(answers, child=True)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def main() -> None:
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # nothing that a tree prints may land between the answers
        serve(answers)


if __name__ == "__main__":
    main()
