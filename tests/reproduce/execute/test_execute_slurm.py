"""A SLURM array: the script, a pretended sbatch, its tasks run by hand, and a real SLURM where one is installed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from reproduce import cli
from reproduce.cli import Arguments, as_options
from reproduce.execute import slurm
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.runs import ROOT
from reproduce.report import records
from reproduce.train import lease, provenance
from reproduce.train.outcome import Origin

ORIGIN = Origin("abc", False, "d", "python reproduce/figure2.py --on slurm")


def make(extra="", **changes):
    logs = Path("/shared/my runs")
    options = {"name": "figure2", "options": ["--rows", "rnn-tanh"], "tasks": 16, "cpus": 2, "logs": logs}
    return slurm.make_script(extra=extra, origin=ORIGIN, **(options | changes))


def directives(script):
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_the_script_asks_for_an_array_that_is_requeued_and_warned():
    found = directives(make("--partition=long -t 4:00:00"))
    assert found[-2:] == ["--partition=long", "-t 4:00:00"], "the user's come last, because the last one counts"
    assert "'--output=/shared/my runs/figure2-%A_%a.log'" in found
    assert {"--array=0-15", "--requeue", "--cpus-per-task=2", "--signal=B:USR1@120", "--open-mode=append"} <= set(found)
    assert subprocess.run(["bash", "-n"], input=make(), text=True).returncode == 0


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [("--array=0-3", "set by --workers"), ("'", "not a list of options"), ("long", "write --slurm")],
)
def test_options_that_sbatch_would_misunderstand_are_refused(extra, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(extra)


def test_the_tasks_get_the_command_that_was_given():
    given = Arguments(budget="cpu", rows="durnn,lstm", seeds=5, publish=True, time_limit="2h", jobs=3)
    words = as_options(given)
    assert words == [
        "--budget", "cpu", "--seeds", "5", "--rows", "durnn,lstm", "--time-limit", "2h", "--jobs", "3", "--publish",
    ]  # fmt: skip
    assert cli.tyro.cli(Arguments, args=words, config=(cli.tyro.conf.FlagCreatePairsOff,)) == given


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on", "slurm"], "--on slurm and --workers, 1 to 1000, go together"),
        (["--workers", "3"], "--on slurm and --workers, 1 to 1000, go together"),
        (["--dry-run"], "--slurm and --dry-run go with --on slurm"),
        (["--on", "slrum"], "--on 'slrum' is not known"),
        (["--on", "ray", "--jobs", "-1"], "--jobs -1 does without worker processes"),
        (["--per-device", "2"], "--per-device 2 goes with --device cuda"),
    ],
)
def test_bad_options_are_one_sentence(options, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main("figure2", options)
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")


@pytest.fixture
def loose_code(monkeypatch):
    loose = Origin("abc", True, provenance.code_digest(), "python reproduce/figure2.py")
    monkeypatch.setattr(provenance, "origin", lambda: loose)


@pytest.mark.parametrize("where", [{"on": "slurm", "workers": 2}, {"on": "ray"}])
def test_uncommitted_code_is_refused_on_a_cluster_unless_asked_for(loose_code, where):
    with pytest.raises(ValueError, match="commit them, or add --allow-uncommitted"):
        cli.make_place(EXPERIMENTS["figure2"], Arguments(**where), 0.0)
    assert cli.make_place(EXPERIMENTS["figure2"], Arguments(allow_uncommitted=True, **where), 0.0).origin.dirty
    assert cli.make_place(EXPERIMENTS["figure2"], Arguments(), 0.0).origin.dirty


def test_code_that_changed_while_the_job_waited_is_refused(monkeypatch):
    monkeypatch.setattr(provenance, "origin", lambda: ORIGIN)
    with pytest.raises(ValueError, match="is not the code that the command was started with"):
        cli.make_place(EXPERIMENTS["figure2"], Arguments(), 0.0)


CHOICE = (
    "--budget", "smoke", "--rows", "rnn-tanh,irnn,indrnn-2", "--cells", "adding-100", "--backend", "reference",
)  # fmt: skip


def command(folder, *options, budget=CHOICE, **environment):
    """A command to its end; ``bin`` in the folder comes first on the path."""
    path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "reproduce/figure2.py", "--runs", f"{folder}/runs", "--results", f"{folder}/results", *budget,
         "--allow-uncommitted", *options],
        cwd=ROOT, env=os.environ | {"PATH": path, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def pretended_sbatch(folder, body='cp "$1" "$(dirname "$0")/received"; echo Submitted batch job 7'):
    path = folder / "bin" / "sbatch"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def test_sbatch_receives_the_script_and_what_it_says_is_told(tmp_path):
    script, path = make(), tmp_path / "slurm" / "a script.sh"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "nothing"))
        with pytest.raises(ValueError, match="there is no sbatch here"):
            slurm.submit(script, path)
        pretended_sbatch(tmp_path)
        patch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}/usr/bin{os.pathsep}/bin")
        assert slurm.submit(script, path) == "Submitted batch job 7"
        assert (tmp_path / "bin" / "received").read_text() == script == path.read_text()
        pretended_sbatch(tmp_path, "echo sbatch: error: invalid partition specified: long >&2; exit 1")
        with pytest.raises(ValueError, match="invalid partition specified: long"):
            slurm.submit(script, path)


@pytest.mark.slow
def test_two_tasks_of_the_array_run_by_hand_finish_the_table(tmp_path):
    shown = command(tmp_path, "--on", "slurm", "--workers", "2", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH --array=0-1" in shown.stdout
    pretended_sbatch(tmp_path)
    submitted = command(tmp_path, "--on", "slurm", "--workers", "2")
    assert "Submitted batch job 7" in submitted.stdout, submitted.stderr
    assert not (tmp_path / "results" / "figure2.md").exists()
    environment = os.environ | {"PYTHONPATH": "", "SLURM_CPUS_PER_TASK": "1"}
    tasks = [
        subprocess.Popen(
            ["bash", str(tmp_path / "bin" / "received")], env=environment | {"SLURM_ARRAY_TASK_ID": str(number)},
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    said = [task.communicate(timeout=600)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], said
    found = records.read_all(tmp_path / "results" / "records")
    assert (len(found.good), found.problems) == (3, [])
    assert (tmp_path / "results" / "figure2.md").exists()
    assert sum("written to" in text for text in said) == 1, said
    for record in found.good:
        assert "--on slurm --workers 2" in record.command, "the command that the user gave"
        assert record.commit == provenance.origin().commit


@pytest.mark.slow
def test_a_task_whose_time_is_nearly_up_saves_its_run_and_waits_in_line_again(tmp_path):
    pretended_sbatch(tmp_path)
    long = ("--budget", "paper", "--seeds", "1", "--rows", "rnn-tanh", "--cells", "adding-100")
    submitted = command(tmp_path, "--on", "slurm", "--workers", "1", budget=long)
    assert submitted.returncode == 0, submitted.stderr
    requeue = tmp_path / "bin" / "scontrol"
    requeue.write_text(f'#!/bin/bash\necho "$@" > {tmp_path}/requeued\n')
    requeue.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "31"}
    task = subprocess.Popen(["bash", str(tmp_path / "bin" / "received")], env=environment | {"PYTHONPATH": ""})
    runs = tmp_path / "runs"
    wait_for(lambda: under_way(runs) or task.poll() is not None)
    task.send_signal(signal.SIGUSR1)
    assert task.wait(timeout=300) == 3
    assert (tmp_path / "requeued").read_text() == "requeue 31\n"
    assert len(list(runs.glob("*/step-*.safetensors"))) == 1
    (state,) = [state for path in runs.glob("*") if (state := lease.look(path).state) and state.progress]
    assert (state.ended, state.deaths) == ("interrupted", 0)


CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MailProg=/bin/true
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def real_slurm(tmp_path, monkeypatch):
    """One node of its own, with the system's SLURM and munge, in a folder that is gone afterwards."""
    programs = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
    missing = [name for name in programs if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing or os.getuid() != 0:
        pytest.skip(f"needs root and the packages slurmctld, slurmd, slurm-client, munge; missing: {missing}")
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # the path of a socket has to be short
    folder.chmod(0o755)
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, two)]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=os.uname().nodename, folder=folder, ports=ports))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
    names = {name: f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")}
    daemons = [["munged", "-F", "--force", f"--socket={folder}/munge.socket", f"--key-file={folder}/munge.key",
                *names.values()], ["slurmctld", "-D", "-i"], ["slurmd", "-D"]]  # fmt: skip
    running = []
    try:
        for daemon in daemons:
            running.append(subprocess.Popen(daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(2)
        wait_for(lambda: "idle" in slurm_says("sinfo", "-h", "-o", "%T"))
        yield folder
        slurm_says("scancel", "--user=root")
        wait_for(lambda: not slurm_says("squeue", "-h"))
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def slurm_says(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def wait_for(condition, seconds=300):
    """A bound on a hang, not a measurement."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.3)
    return found


def under_way(runs):
    """Whether any run is live and has said how far it is."""
    states = [lease.look(path).state for path in runs.glob("*")]
    return [state for state in states if state and state.progress and not state.ended]


@pytest.mark.slow
def test_a_real_slurm_finishes_the_table(tmp_path, real_slurm):
    folder = tmp_path / "two words"
    submitted = command(folder, "--on", "slurm", "--workers", "2", "--slurm", "--time=30")
    assert "Submitted batch job" in submitted.stdout, submitted.stderr
    wait_for(lambda: not slurm_says("squeue", "-h"), 600)
    logs = [path.read_text() for path in (folder / "runs" / "slurm").glob("*.log")]
    found = records.read_all(folder / "results" / "records")
    assert (len(found.good), found.problems) == (3, []), logs
    assert sum("written to" in log for log in logs) == 1, logs


@pytest.mark.slow
def test_a_real_slurm_warns_a_task_and_takes_it_back_into_the_line(tmp_path, real_slurm):
    long = ("--budget", "paper", "--seeds", "1", "--rows", "rnn-tanh", "--cells", "adding-100")
    submitted = command(tmp_path, "--on", "slurm", "--workers", "1", budget=long)
    assert "Submitted batch job" in submitted.stdout, submitted.stderr
    job = f"{submitted.stdout.split('Submitted batch job ')[1].split()[0]}_0"
    wait_for(lambda: under_way(tmp_path / "runs"))
    slurm_says("scancel", "--batch", "--signal=USR1", job)
    wait_for(lambda: slurm_says("squeue", "-h", "-j", job, "-o", "%T") == "PENDING")
    assert len(list((tmp_path / "runs").glob("*/step-*.safetensors"))) == 1
    (state,) = [state for path in (tmp_path / "runs").glob("*") if (state := lease.look(path).state) and state.progress]
    assert (state.ended, state.deaths) == ("interrupted", 0)
