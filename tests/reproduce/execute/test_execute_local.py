"""Runs on one machine: slots per device, workers that die, commands that share a folder."""

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from run_samples import make_place, make_run

from reproduce.execute import slots as slots_module
from reproduce.execute.local import Inline, LocalProcesses
from reproduce.execute.queue import Queue, Returned, order_of_its_own
from reproduce.execute.slots import Slot, slots
from reproduce.plan.imports import Import
from reproduce.plan.runs import ROOT
from reproduce.report import records
from reproduce.train import lease
from reproduce.train.outcome import Outcome, Progress, Stop

HEAD = """
import json, os, signal, time
from pathlib import Path

from reproduce.train import loop

folder = Path(__file__).parent
"""
NOTES_ITS_PLACE = """
original = loop.evaluate

def evaluate(*arguments):
    with (folder / "notes").open("a") as file:
        file.write(json.dumps([os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]]) + "\\n")
    time.sleep(0.5)
    return original(*arguments)

loop.evaluate = evaluate
"""
DIES = """
original = loop.Training.update

def update(self):
    original(self)
    if self.step == {step} and len(list(folder.glob("death-*"))) < {times}:
        (folder / f"death-{{os.getpid()}}").touch()
        os.kill(os.getpid(), signal.SIGKILL)

loop.Training.update = update
"""


def with_module(run, folder, code):
    """A run whose workers import this code."""
    name = f"module_{abs(hash((str(folder), code)))}"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(HEAD + code)
    return run.model_copy(update={"imports": (Import(module=name, folder=str(folder)),)})


SMALL = {"training": {"updates": 20}, "evaluation": {"every": 20, "statistics_batches": None}}


@pytest.fixture
def pretended_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def gpus(found):
    assert {slot.device for slot in found} == {"cuda"}
    return [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in found]


def test_slots_fill_all_gpus_before_any_gets_a_second_run(pretended_gpus, monkeypatch):
    assert gpus(slots(0, "cuda")) == ["0", "1", "2"]
    assert gpus(slots(0, "cuda", 2)) == ["0", "1", "2", "0", "1", "2"]
    assert gpus(slots(4, "cuda", 2)) == ["0", "1", "2", "0"]
    assert gpus(slots(0, "cuda:1", 2)) == ["1", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7a, 5,6")
    assert gpus(slots(0, "cuda")) == ["GPU-7a", "5", "6"]
    with pytest.raises(ValueError, match="3 GPUs are visible"):
        slots(0, "cuda:3")


def test_slots_of_a_cpu_are_its_cores(monkeypatch):
    monkeypatch.setattr(slots_module, "cores", lambda: 5)
    assert slots(0, "cpu") == [Slot("cpu")] * 5
    assert slots(2, "cpu") == [Slot("cpu")] * 2


class Heard:
    """What happened to each run."""

    def __init__(self):
        self.events = collections.defaultdict(list)

    def __call__(self, run, event):
        self.events[run.seed].append(event)

    def outcomes(self):
        return {seed: [e.status for e in events if isinstance(e, Outcome)] for seed, events in self.events.items()}

    def returned(self):
        return [e.message for events in self.events.values() for e in events if isinstance(e, Returned)]


def test_each_worker_sees_its_own_gpu_alone(tmp_path, pretended_gpus, monkeypatch):
    """The GPUs are pretended, so the runs themselves are done on the CPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
    places = [Slot("cpu", slot.environment) for slot in slots(2, "cuda")]
    jobs = [with_module(make_run(seed, **SMALL), tmp_path / "code", NOTES_ITS_PLACE) for seed in range(4)]
    heard = Heard()
    LocalProcesses(places).do(jobs, make_place(tmp_path), heard, Stop())
    assert heard.outcomes() == {seed: ["completed"] for seed in range(4)}
    noted = [json.loads(line) for line in (tmp_path / "code" / "notes").read_text().splitlines()]
    assert sorted({gpu for _, gpu in noted}) == ["4", "7"]
    assert len({process for process, _ in noted}) == 2, "a worker does one run after another"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7,9"


def test_a_worker_that_dies_is_followed_by_another(tmp_path):
    run = make_run(**SMALL)
    whole = Heard()
    Inline().do([run], make_place(tmp_path / "whole"), whole, Stop())
    place, heard = make_place(tmp_path / "dies", checkpoint_updates=10), Heard()
    dying = with_module(run, tmp_path / "code", DIES.format(step=15, times=1))
    LocalProcesses([Slot("cpu")]).do([dying], place, heard, Stop())
    assert heard.returned() == ["its process ended with code -9; it goes on from its checkpoint"]
    assert heard.outcomes() == {0: ["completed"]}
    (record,) = records.read_all(place.records).good
    assert [(visit.attempt, visit.from_step, visit.ended) for visit in record.lineage] == [
        (1, 0, "killed"),
        (2, 10, "schedule"),
    ]
    assert {visit.node for visit in record.lineage} == {os.uname().nodename}
    assert record.weights_sha256 == whole.events[0][-1].record.weights_sha256


@pytest.mark.slow
def test_a_run_whose_worker_always_dies_has_failed_and_the_others_go_on(tmp_path):
    place, heard = make_place(tmp_path), Heard()
    dying = with_module(make_run(**SMALL), tmp_path / "code", DIES.format(step=3, times=99))
    LocalProcesses([Slot("cpu")]).do([dying, make_run(1, **SMALL)], place, heard, Stop())
    assert heard.outcomes() == {0: ["failed"], 1: ["completed"]}
    assert len(heard.returned()) == 3
    assert heard.events[0][-1].message == "its process died 3 times without getting past update 0"


def test_runs_go_seed_by_seed_in_an_order_of_their_own():
    runs = [make_run(seed, training={"updates": updates}) for seed in (0, 1) for updates in range(20, 30)]
    orders = [order_of_its_own(runs, random.Random(number)) for number in (1, 2)]
    for order in orders:
        assert [run.seed for run in order] == [0] * 10 + [1] * 10
        assert {run.id for run in order} == {run.id for run in runs}
    assert orders[0] != orders[1]


def test_a_queue_leaves_alone_what_others_work_on_and_takes_over_what_they_abandon(tmp_path, monkeypatch):
    monkeypatch.setenv("DURNN_LEASE_SECONDS", "0.5")
    runs, place, heard = [make_run(seed, **SMALL) for seed in (0, 1)], make_place(tmp_path), Heard()
    held = lease.take(runs[0].folder(place.runs), lambda _: 0)
    held.tell(Progress(3, 20, 0.5, None, 1.0, 17.0))
    held.beat()
    queue = Queue(runs, place, heard)
    assert queue.next().run.seed == 1
    assert queue.next() is None
    assert heard.events[0][0].where == f"{os.uname().nodename}, process {os.getpid()}"
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        held.beat()
        assert queue.next() is None
        time.sleep(0.02)
    mark = lease.look(held.folder).mark
    while (job := queue.next()) is None:
        time.sleep(0.02)
    assert (job.run.seed, job.abandoned) == (0, mark)
    assert time.monotonic() > end + 0.3
    assert not queue


def test_what_failed_meanwhile_is_told_and_what_had_failed_before_is_tried_again(tmp_path):
    runs, place, heard = [make_run(seed, **SMALL) for seed in (0, 1)], make_place(tmp_path), Heard()

    def fail(run):
        with lease.take(run.folder(place.runs), lambda _: 0) as held:
            held.end("failed", "no luck")

    fail(runs[0])
    queue = Queue(runs, place, heard)
    fail(runs[1])
    assert queue.next().run.seed == 0
    assert queue.next() is None
    assert not queue
    (told,) = heard.events[1]
    assert (told.status, told.message) == ("failed", f"no luck (on {os.uname().nodename}, process {os.getpid()})")


def start(folder, *options, **environment):
    command = [
        sys.executable, "reproduce/figure2.py", "--results", f"{folder}/results", "--runs", f"{folder}/runs",
        "--cells", "adding-100", "--budget", "smoke", "--backend", "reference", "--jobs", "1", *options,
    ]  # fmt: skip
    chosen = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "", "DURNN_LEASE_SECONDS": "5"} | environment
    return subprocess.Popen(command, cwd=ROOT, env=chosen, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def children(process):
    return subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()


def results(folder):
    """What each run came to; ValueError if one of them has two records."""
    found = records.read_all(Path(folder) / "results" / "records")
    assert found.problems == []
    return {(r.row, r.seed): (r.status, r.weights_sha256, r.test) for r in found.good}


@pytest.mark.slow
def test_four_commands_on_one_folder_two_of_them_killed(tmp_path):
    """All runs are done once, with the bits of a command that was alone; one of the commands writes the tables."""
    wanted = ("--rows", "rnn-tanh,irnn,lstm,indrnn-2", "--seeds", "3")
    alone = start(tmp_path / "alone", *wanted)
    output, _ = alone.communicate(timeout=600)
    assert alone.returncode == 0, output
    together = [start(tmp_path / "together", *wanted) for _ in range(4)]
    dice = random.Random(5)
    for victim in dice.sample(together, 2):
        while not list((tmp_path / "together" / "runs").glob("*/lease-*")):
            assert victim.poll() is None
            time.sleep(0.05)
        time.sleep(dice.uniform(0.0, 2.0))
        for process in [str(victim.pid), *children(victim)]:  # the machine it was on is gone
            subprocess.run(["kill", "-KILL", process], check=False)
    said = [process.communicate(timeout=600)[0] for process in together]
    codes = sorted(process.returncode for process in together)
    assert codes == [-signal.SIGKILL] * 2 + [0, 0], said
    assert len(results(tmp_path / "together")) == 12
    assert results(tmp_path / "together") == results(tmp_path / "alone")
    survivors = [text for text, process in zip(said, together, strict=True) if process.returncode == 0]
    assert sorted("written to" in text for text in survivors) == [False, True], survivors
    assert sum("were written by" in text for text in survivors) == 1
