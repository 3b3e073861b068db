"""A SLURM array whose tasks run the command that was given: no task knows of the others, leases keep them apart."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from reproduce.plan.runs import ROOT
from reproduce.train.outcome import Origin
from reproduce.train.provenance import SENT
from suite.files import write_atomic

WARNING_SECONDS = 120  # between the signal and the end of a job's time: the worker writes a checkpoint in it

SCRIPT = """#!/bin/bash
# {tasks} tasks that share the runs of one command; give the command again, or submit this again, to continue.
{directives}

cd {root}
export {sent}={origin}
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-1}}"

{command} &
pid=$!
trap 'is_late=1; kill -USR1 $pid' USR1  # the job's time is nearly up: save, then wait in line again
trap 'kill -TERM $pid' TERM  # a preemption: save; SLURM requeues the job by itself
wait $pid
code=$?
while kill -0 $pid 2>/dev/null; do  # a signal ended the wait, not the command
    wait $pid
    code=$?
done
if [ -n "$is_late" ] && [ $code = 3 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
"""


def make_script(
    name: str, options: Sequence[str], tasks: int, cpus: int, extra: str, logs: Path, origin: Origin
) -> str:  # fmt: skip
    """``options`` are those of the command, ``extra`` the user's for sbatch; the later of two directives counts."""
    try:
        given = shlex.split(extra)
    except ValueError as error:
        raise ValueError(f"--slurm {extra!r} is not a list of options for sbatch ({error})") from None
    for option in given:
        if option.startswith(("--array", "-a")):
            raise ValueError(f"--slurm {option}: the number of tasks is set by --workers")
    if given and not given[0].startswith("-"):
        raise ValueError(f'--slurm {extra!r} is not a list of options for sbatch; write --slurm "--partition=long"')
    directives = [
        f"--job-name=durnn-{name}", f"--array=0-{tasks - 1}", f"--cpus-per-task={cpus}", "--requeue",
        "--open-mode=append", f"--signal=B:USR1@{WARNING_SECONDS}", f"--output={logs / name}-%A_%a.log",
    ]  # fmt: skip
    script = ROOT / "reproduce" / f"{name}.py"
    start = [f"reproduce/{name}.py"] if script.exists() else ["-m", f"reproduce.{name}"]
    return SCRIPT.format(
        tasks=tasks, directives="\n".join(f"#SBATCH {each}" for each in [*_joined(directives), *_joined(given)]),
        root=shlex.quote(str(ROOT)), sent=SENT, origin=shlex.quote(json.dumps(asdict(origin))),
        command=shlex.join([sys.executable, *start, *options]),
    )  # fmt: skip


def _joined(words: Sequence[str]) -> list[str]:
    """One directive per option: ``-p long`` is two words of one."""
    lines: list[str] = []
    for word in words:
        if word.startswith("-") or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return lines


def submit(script: str, path: Path) -> str:
    """Write the script and hand it to sbatch; returns what sbatch says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, script.encode())
    try:
        done = subprocess.run(["sbatch", str(path)], capture_output=True, text=True)
    except FileNotFoundError:
        raise ValueError(
            f"there is no sbatch here; start the command on a login node of the cluster, or submit {path} there"
        ) from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ValueError(f"sbatch refused {path}: {why}")
    return done.stdout.strip()
