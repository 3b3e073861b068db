"""Signals to a command and its workers: everything is saved, one sentence is said, nothing stays behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from run_samples import make_place, make_run, outcome_of

from reproduce.execute.local import LocalProcesses, stopping_on_signals
from reproduce.execute.slots import Slot
from reproduce.plan.imports import Import
from reproduce.plan.runs import ROOT
from reproduce.train import checkpoint, lease
from reproduce.train.loop import train
from reproduce.train.outcome import Outcome, Progress

CONTINUE = "run the same command again to continue"
STUCK = """
import os, pathlib, time
from reproduce.train.lease import Lease
whole, count = Lease.write, 0

def write(self, path, data):
    global count
    count += 1
    if count != {last}:
        return whole(self, path, data)
    (self.path / f"{{path.name}}.part").write_bytes(data[: len(data) // 2])
    pathlib.Path({mark!r}).write_text(str(os.getpid()))
    time.sleep(300)

Lease.write = write
"""


def wait_for(condition, seconds=120):
    """A bound on a hang, not a measurement."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def signals_count():
    """Whoever runs the tests may have switched signals off for all below; one that nobody heeds fails the test."""

    def unheeded(number, _):
        raise AssertionError(f"{signal.Signals(number).name} was not heeded")

    before = {number: signal.signal(number, unheeded) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# --- workers of this process ----------------------------------------------------------------------------------------


def do(workers, runs, place, watch):
    """Everything that is heard of the runs, and why they stopped."""
    heard = []

    def listen(run, event):
        heard.append(event)
        watch(event)

    with stopping_on_signals() as stop:
        workers.do(runs, place, listen, stop)
    return heard, stop.reason


def test_a_hang_up_of_the_whole_group_saves(tmp_path, capfd):
    run, place, workers = make_run(training={"updates": 10**6}), make_place(tmp_path), LocalProcesses([Slot("cpu")])

    def hang_up(event):
        if isinstance(event, Progress) and checkpoint.latest_step(run.folder(place.runs)) == 0:
            (worker,) = workers.processes
            for process in (worker.pid, os.getpid()):
                os.kill(process, signal.SIGHUP)

    heard, reason = do(workers, [run], place, hang_up)
    assert (heard[-1].status, heard[-1].ended, reason) == ("unfinished", "interrupted", "interrupted")
    assert checkpoint.latest_step(run.folder(place.runs)) == heard[-1].record.steps_done > 0
    assert capfd.readouterr() == ("", "")
    assert not workers.processes[0].is_alive()


def test_ctrl_c_while_a_worker_starts(tmp_path, capfd):
    class Started(LocalProcesses):
        def _start(self, place, slot):
            connection, process = super()._start(place, slot)
            for number in (process.pid, os.getpid()):
                os.kill(number, signal.SIGINT)
            return connection, process

    run, place = make_run(), make_place(tmp_path)
    heard, reason = do(Started([Slot("cpu")]), [run, make_run(seed=1)], place, lambda _: None)
    assert heard == [None, Outcome("unfinished", "interrupted", "stopped before it began")]
    assert reason == "interrupted"
    assert capfd.readouterr() == ("", "")
    assert not run.folder(place.runs).exists()


def test_a_second_ctrl_c_while_a_run_is_saved_ends_at_once(tmp_path):
    """The worker has written half of its second checkpoint; the run continues from the first."""
    run = make_run(training={"updates": 24}, evaluation={"every": 12})
    whole = train(run, make_place(tmp_path / "whole"))
    place, workers, mark = (
        make_place(tmp_path / "stuck", checkpoint_updates=8),
        LocalProcesses([Slot("cpu")]),
        tmp_path / "mark",
    )
    (tmp_path / "stuck_module.py").write_text(STUCK.format(last=2, mark=str(mark)))
    stuck = run.model_copy(update={"imports": (Import(module="stuck_module", folder=str(tmp_path)),)})
    over = threading.Event()
    with stopping_on_signals() as stop:

        def press_twice():
            wait_for(lambda: over.is_set() or (mark.exists() and mark.read_text()))
            if not over.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                wait_for(lambda: stop.reason)
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press_twice)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                workers.do([stuck], place, lambda *_: None, stop)
        finally:
            over.set()
            thread.join()
    assert not os.path.exists(f"/proc/{mark.read_text()}"), "the worker outlived the command"
    folder = run.folder(place.runs)
    assert list(folder.glob("lease-*/step-*.part"))
    resumed = train(run, place)  # a damaged checkpoint would give a warning, which is an error here
    assert resumed.record.lineage[-1].from_step == 8
    assert outcome_of(resumed) == outcome_of(whole)
    assert not list(folder.glob("**/*.part"))


# --- whole commands -------------------------------------------------------------------------------------------------


def start(tmp_path, *options):
    """A command in a process group of its own."""
    command = [
        sys.executable, "reproduce/figure2.py", "--results", f"{tmp_path}/results", "--runs", f"{tmp_path}/runs",
        "--cells", "adding-100", "--backend", "reference", *options,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def end(process):
    """Exit code and all that was said by a command of which nothing is left."""
    output, _ = process.communicate(timeout=120)
    wait_for(lambda: not members_of(process.pid))
    assert "Traceback" not in output
    return process.returncode, output


def members_of(group):
    """Processes of a group that are still there."""
    return subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True).stdout.split()


def workers_of(parent):
    command = ["pgrep", "-P", str(parent), "-f", "spawn_main"]
    return list(map(int, subprocess.run(command, capture_output=True, text=True).stdout.split()))


def interrupt(process, moment):
    """Press Ctrl-C, which reaches the whole group, as soon as ``moment()``."""
    wait_for(lambda: process.poll() is not None or moment())
    os.killpg(process.pid, signal.SIGINT)


def test_interrupted_while_it_loads(tmp_path):
    process = start(tmp_path)
    interrupt(process, lambda: "libtorch" in Path(f"/proc/{process.pid}/maps").read_text())
    assert end(process) == (130, f"interrupted; {CONTINUE}\n")


def test_interrupted_while_it_plans(tmp_path):
    """The module of a row of one's own is imported by the plan, and this one takes its time."""
    (tmp_path / "slow.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'mark')!r}).touch()\ntime.sleep(60)\n"
    )
    process = start(tmp_path, "--add", row_of_ones_own(tmp_path, "slow"))
    interrupt(process, lambda: (tmp_path / "mark").exists())
    assert end(process) == (130, f"interrupted; {CONTINUE}\n")


def row_of_ones_own(tmp_path, module):
    path = tmp_path / "row.toml"
    path.write_text(
        f'import = "{module}"\n[rows.mine]\nlabel = "mine"\nlike = "rnn-tanh"\n[[settings]]\nsource = "ours: test"\n'
        "clip = { norm = 1.0 }\n"
    )
    return str(path)


PAPER = ("--budget", "paper", "--seeds", "1")


@pytest.mark.slow
def test_interrupted_while_workers_start(tmp_path):
    """Children exist but have not taken their runs yet: their folders are not there."""
    process = start(tmp_path, "--rows", "rnn-tanh,irnn", "--jobs", "2", *PAPER)
    interrupt(process, lambda: len(workers_of(process.pid)) == 2)
    code, output = end(process)
    assert code == 3, output
    assert CONTINUE in output
    assert "failed" not in output


@pytest.mark.slow
@pytest.mark.parametrize("to", [os.kill, os.killpg], ids=["command", "group"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_all_runs_and_ends_cleanly(tmp_path, number, to):
    process = start(tmp_path, "--rows", "indrnn-2,rnn-tanh", "--jobs", "2", *PAPER)
    folders = tmp_path / "runs"
    wait_for(lambda: len(list(folders.glob("*/lock"))) == 2)
    to(process.pid, number)
    code, output = end(process)
    assert code == 3, output
    assert CONTINUE in output
    assert len(list(folders.glob("*/step-*.safetensors"))) == 2
    for folder in folders.iterdir():
        assert lease.look(folder).state.ended, "a worker outlived the command"


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_command_at_once(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "stuck_module.py").write_text(STUCK.format(last=1, mark=str(mark)))
    added = row_of_ones_own(tmp_path, "stuck_module")
    process = start(tmp_path, "--rows", "mine", "--jobs", "1", "--add", added, *PAPER)
    wait_for(lambda: list((tmp_path / "runs").glob("*/lock")))
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    interrupt(process, mark.exists)
    assert end(process) == (130, f"interrupted; {CONTINUE}\n")
    (folder,) = (tmp_path / "runs").iterdir()
    assert list(checkpoint.newest_first(folder)) == []
    assert lease.is_dead(folder, lease.look(folder)), "a worker outlived the command"


@pytest.mark.slow
def test_a_killed_worker_is_told_and_a_killed_command_leaves_no_worker(tmp_path):
    process = start(tmp_path, "--rows", "indrnn-2,rnn-tanh", "--jobs", "2", *PAPER)
    folders = tmp_path / "runs"
    wait_for(lambda: len(list(folders.glob("*/lock"))) == 2)
    first, second = workers_of(process.pid)
    os.kill(first, signal.SIGKILL)
    assert "its process ended with code -9" in process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    wait_for(lambda: not os.path.exists(f"/proc/{second}"))
    states = {path: lease.look(path).state for path in folders.glob("*")}
    (orphan,) = [path for path, state in states.items() if state and state.process == second]
    assert states[orphan].ended == "orphaned"
    assert len(list(orphan.glob("step-*.safetensors"))) == 1, "the orphan did not save itself"
