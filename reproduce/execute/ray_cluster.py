"""A Ray cluster: one task per run. Ray finds it a node and starts it again when a worker or node dies; the run's lease
and checkpoint, in the folder that all nodes share, say who may go on and from where.

Nodes need this checkout under the same path, and the same versions of Python, torch and Ray: all of it is probed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from reproduce.execute.local import LOOK_SECONDS, SIGNALS, attempt, watch_clock
from reproduce.execute.queue import Job, Queue, Watch
from reproduce.plan.runs import ROOT, Run
from reproduce.report import records
from reproduce.report.estimates import memory_needed
from reproduce.train import lease, provenance
from reproduce.train.outcome import Outcome, Place, Progress, Stop
from suite.machine import host_name

PROBE_SECONDS = 600.0  # a node that is busy may take minutes to import torch
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # a cluster of this machine alone stays on its loopback
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what a node says about its GPUs is left alone
}


class RayCluster:
    """``address`` is host:port or auto, as Ray writes it; empty: a cluster of this machine, while the runs last."""

    def __init__(self, address: str, jobs: int, device: str, per_device: int):
        self.address, self.jobs = address, jobs
        self.gpus = 0.0 if device == "cpu" else 1.0 / (per_device or 1)

    def do(self, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        device, _, _ = place.device.partition(":")  # Ray shows a task its own GPU alone
        place = replace(place, runs=place.runs.absolute(), records=place.records.absolute(), device=device)
        with self._connected() as ray:
            self._probe(ray, place, stop)
            self._work(ray, runs, place, watch, stop)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
        try:
            import ray
        except ImportError:
            raise ValueError(
                "--on ray needs Ray, which is not installed here: pip install 'durnn-suite[cluster]'"
            ) from None
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self.address:
            _check_address(self.address)
            options["address"] = self.address
        else:
            options |= {"address": "local", "include_dashboard": False, "num_cpus": self.jobs or None}
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"ray:{self.address}" if self.address else "ray"
            raise ValueError(f"--on {where} does not work: {' '.join(str(error).split())}") from None
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)  # Ray has taken SIGTERM for itself
        try:
            yield ray
        finally:
            ray.shutdown()

    def _probe(self, ray: Any, place: Place, stop: Stop) -> None:
        """Ask each node whether it sees the shared folders, the same code and the same versions; ValueError if not."""
        needs = place.threads, self.gpus
        nodes = [node for node in ray.nodes() if node["Alive"] and _fits(node, *needs)]
        if not nodes:
            gpu = f" and {self.gpus:.2g} GPU" if self.gpus else ""
            raise ValueError(f"no node of the cluster has {place.threads} CPU{gpu} for a run")
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        token = secrets.token_hex(8)
        marks = [folder / f".probe-{token}" for folder in (place.runs, place.records)]
        for mark in marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(token)
        try:
            asked = {}
            for node in nodes:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(_probe_on_node()).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
                asked[task.remote(str(ROOT), [str(mark) for mark in marks], token)] = node
            end = time.monotonic() + PROBE_SECONDS
            while asked and not stop.reason:
                if time.monotonic() > end:
                    silent = ", ".join(node["NodeManagerHostname"] for node in asked.values())
                    raise ValueError(f"no answer in {PROBE_SECONDS:.0f} s from node {silent}")
                for answer in ray.wait(list(asked), timeout=LOOK_SECONDS)[0]:
                    node = asked.pop(answer)
                    try:
                        found = ray.get(answer)
                    except ray.exceptions.RayError as error:
                        if not any(each["Alive"] and each["NodeID"] == node["NodeID"] for each in ray.nodes()):
                            continue  # it has left the cluster meanwhile
                        raise ValueError(f"{node['NodeManagerHostname']} does nothing: {_first_line(error)}") from None
                    _judge(found, node["NodeManagerHostname"], place)
        finally:
            for mark in marks:
                mark.unlink(missing_ok=True)

    def _work(self, ray: Any, runs: Sequence[Run], place: Place, watch: Watch, stop: Stop) -> None:
        known = records.read_all(ROOT / "results" / "records").good
        task = ray.remote(max_calls=1)(_work_on_node())
        there = replace(place, deadline=0.0)  # each host has a clock of its own: this process watches the time
        queue, told, looks_again = Queue(runs, place, watch), False, 0.0
        doing: dict[Any, Run] = {}
        while (queue and not stop.reason) or doing:
            watch_clock(place, stop)
            while not stop.reason and len(doing) < self._at_a_time(ray, place) and (job := queue.next()):
                run = job.run
                watch(run, None)
                needs = task.options(
                    num_cpus=place.threads, num_gpus=self.gpus, memory=memory_needed(run.recipe, run.row, known),
                    max_retries=-1, name=f"{run.row}/{run.cell}/{run.seed}",
                )  # fmt: skip
                doing[needs.remote(str(ROOT), pickle.dumps((job, there)))] = run
            if stop.reason and not told:
                told = True
                for answer in doing:
                    ray.cancel(answer, force=False)  # the task hears it as Ctrl-C, and saves itself
            if not doing:
                time.sleep(LOOK_SECONDS)
                continue
            for answer in ray.wait(list(doing), timeout=LOOK_SECONDS)[0]:
                run = doing.pop(answer)
                outcome = _outcome(ray, answer, stop)
                if outcome.status == "busy":
                    queue.give_back(run, outcome.message)
                else:
                    watch(run, outcome)
            if time.monotonic() > looks_again:
                looks_again = time.monotonic() + queue.pause
                _tell_progress(doing.values(), place, watch)

    def _at_a_time(self, ray: Any, place: Place) -> int:
        """As many as the nodes have room for, and as many again, so that none waits for the next."""
        nodes = [node for node in ray.nodes() if node["Alive"]]
        return max(1, 2 * sum(_fits(node, place.threads, self.gpus) for node in nodes))


def _fits(node: dict[str, Any], cpus: int, gpus: float) -> int:
    """How many runs a node has room for."""
    has = node["Resources"]
    room = has.get("CPU", 0) // cpus
    return int(min(room, has.get("GPU", 0) // gpus) if gpus else room)


def _outcome(ray: Any, answer: Any, stop: Stop) -> Outcome:
    try:
        return pickle.loads(ray.get(answer))
    except ray.exceptions.TaskCancelledError:
        return Outcome("unfinished", stop.reason, "stopped before it began")
    except ray.exceptions.RayTaskError as error:  # our own code, before it could begin with the run
        return Outcome("failed", message=str(error).strip().splitlines()[-1])
    except ray.exceptions.RayError as error:
        return Outcome("busy", message=f"Ray gave it up ({_first_line(error)}); it is given to Ray again")


def _tell_progress(runs: Any, place: Place, watch: Watch) -> None:
    """What the leases of the runs say, because they are where the folder is."""
    for run in runs:
        state = lease.look(run.folder(place.runs)).state
        if state and not state.ended and state.progress:
            watch(run, Progress(**state.progress | {"where": state.who}))


def _judge(found: dict[str, Any], name: str, place: Place) -> None:
    here = versions()
    if not found["shared"]:
        raise ValueError(
            f"node {name} does not see {place.runs} and {place.records} as this machine does; "
            "give folders that all nodes share with --runs and --results"
        )
    if found["problem"]:
        raise ValueError(f"node {name} cannot use the checkout {ROOT}: {found['problem']}")
    if found["versions"] != here:
        differing = ", ".join(f"{k} {found['versions'].get(k)} instead of {v}" for k, v in here.items()
                              if found["versions"].get(k) != v)  # fmt: skip
        raise ValueError(f"node {name} has other versions than this machine: {differing}")
    assert place.origin is not None
    if found["digest"] != place.origin.digest:
        raise ValueError(f"node {name} has other code in {ROOT} than this machine; give all nodes the same checkout")


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__}


def _probe_on_node() -> Any:
    """A function that Ray sends with its code, because a node cannot import it before it knows the checkout."""

    def probe(root: str, marks: list[str], token: str) -> dict[str, Any]:
        import sys

        found: dict[str, Any] = {"shared": True, "problem": "", "versions": {}, "digest": ""}
        for mark in marks:
            try:
                with open(mark) as file:
                    found["shared"] &= file.read() == token
            except OSError:
                found["shared"] = False
        sys.path.insert(0, root)
        try:
            from reproduce.execute.ray_cluster import versions
            from reproduce.train.provenance import code_digest

            return found | {"versions": versions(), "digest": code_digest()}
        except Exception as error:
            return found | {"problem": f"{type(error).__name__}: {error}"}

    return probe


def _work_on_node() -> Any:
    def work_there(root: str, sent: bytes) -> bytes:
        import sys

        sys.path.insert(0, root)
        from reproduce.execute.ray_cluster import work

        return work(sent)

    return work_there


def work(sent: bytes) -> bytes:
    """One run on a node. Ray's cancellation arrives as SIGINT and its shutdown as SIGTERM: both save the run."""
    job, place = pickle.loads(sent)
    assert isinstance(job, Job)
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(stop, "reason", "interrupted"))
    if changed := provenance.changed_code(place.origin):  # a node that came after the others had been probed
        return pickle.dumps(Outcome("failed", message=f"{changed} (node {host_name()})"))
    return pickle.dumps(attempt(job, place, lambda _: None, stop))


def _check_address(address: str) -> None:
    """Find out at once whether anybody answers; Ray itself tries for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--on ray:{address} is not an address of a Ray cluster; write ray:HOST:PORT or ray:auto")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(
            f"nobody answers at {address} ({why}); is the Ray cluster up, and is this its address?"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
