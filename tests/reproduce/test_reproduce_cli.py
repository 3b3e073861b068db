"""The scripts as a user meets them."""

import errno
import io
import itertools
import os
import shutil
import subprocess
import sys
import time

import pytest
import torch
from rich.console import Console

import tasks
from reproduce import cli
from reproduce.cli import Arguments, choose, cost, execute, parse_duration
from reproduce.execute.local import Inline
from reproduce.execute.slots import threads_of_each
from reproduce.plan import runs
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.runs import ROOT
from reproduce.report import records
from tasks import DataError

SCRIPTS = sorted(EXPERIMENTS)


@pytest.fixture
def no_data(monkeypatch):
    """Only what can be generated can be had."""
    original = tasks.build

    def build(name, **options):
        if name != "adding" and not name.endswith("-synthetic"):
            raise DataError(f"no {name} here.")
        return original(name, **options)

    runs.build_task.cache_clear()
    monkeypatch.setattr(tasks, "build", build)
    yield
    runs.build_task.cache_clear()


def perform(name, tmp_path, terminal=False, **options):
    console = Console(record=True, width=200, file=io.StringIO(), force_terminal=terminal)
    arguments = Arguments(results=tmp_path / "results", runs=tmp_path / "runs", **options)
    code = execute(EXPERIMENTS[name], arguments, console, Inline())
    return code, console.export_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_list_shows_what_would_run(name, tmp_path, no_data):
    code, text = perform(name, tmp_path, list=True)
    assert code == 0
    assert "to do" in text
    assert "budget quick: " in text
    assert not (tmp_path / "runs").exists()
    if name == "table3":
        assert "synthetic stand-in ntu-cs-synthetic" in text


SMOKE = {
    "table1": {"cells": "mnist", "backend": "auto"},  # 784 steps
    "table2": {},
    "table3": {"cells": "ntu-cs"},
    "figure2": {"cells": "adding-100"},
    "figure3": {"cells": "adding-100"},
    "ablations": {"cells": "adding-100"},
    "figure4": {},
    "figure5": {},
    "figure6": {"rows": "indrnn-2"},
    "layer_law": {},
    "rates": {},
    "noise": {},
}


QUICKEST = ("table1", "table2", "table3", "figure2", "figure5")


@pytest.mark.parametrize(
    "name", [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS]
)
def test_smoke_budget_runs_to_a_table(name, tmp_path, no_data):
    code, text = perform(name, tmp_path, budget="smoke", **{"backend": "reference"} | SMOKE[name])
    assert code == 0, text
    results = tmp_path / "results"
    made = {path.name for path in results.glob("*.*")}
    assert {f"{name}.md", f"{name}.csv", f"{name}.tex"} <= made
    if not name.startswith("table"):
        assert (results / "figures" / f"{name}.svg").exists()
        assert (results / "figures" / f"{name}.png").exists()
    found = records.read_all(results / "records")
    assert found.problems == []
    assert {r.budget for r in found.good} == {"smoke"}
    assert "reproduced" not in (results / f"{name}.md").read_text()
    if name.startswith("table"):
        assert "Generated stand-in data" in (results / f"{name}.md").read_text()
        assert "yours" in text
    if name not in ("table1", "figure5"):
        return
    again, text = perform(name, tmp_path, budget="smoke", **{"backend": "reference"} | SMOKE[name])
    assert again == 0
    assert text.count("done before") == len(found.good)


def test_only_publishing_writes_into_results():
    where = {
        "smoke": Arguments(budget="smoke"), "quick": Arguments(), "paper": Arguments(budget="paper"),
        "published": Arguments(publish=True),
    }  # fmt: skip
    found = {name: cli.make_place(EXPERIMENTS["table1"], given, 0.0).records for name, given in where.items()}
    assert found == {
        "smoke": ROOT / "runs" / "smoke" / "records", "quick": ROOT / "runs" / "records",
        "paper": ROOT / "runs" / "records", "published": ROOT / "results" / "records",
    }  # fmt: skip
    with pytest.raises(ValueError, match="--publish"):
        cli.make_place(EXPERIMENTS["table1"], Arguments(publish=True, budget="smoke"), 0.0)


def test_only_an_unpublished_run_is_made_again_for_its_weights():
    places = [cli.make_place(EXPERIMENTS["figure4"], Arguments(publish=published), 0.0) for published in (False, True)]
    assert [place.need_weights for place in places] == [True, False]


def test_a_command_trains_although_results_are_published(tmp_path, no_data):
    """A published record never counts as the user's run."""
    before = {path: path.read_bytes() for path in (ROOT / "results").rglob("*") if path.is_file()}
    code, text = perform("figure2", tmp_path, budget="smoke", rows="durnn", cells="adding-100")
    assert code == 0
    assert "6 of 6 updates" in text
    assert "done before" not in text
    assert {path: path.read_bytes() for path in (ROOT / "results").rglob("*") if path.is_file()} == before


def test_unknown_names_are_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main("table1", ["--rows", "durn-1"])
    assert stopped.value.code == 2
    assert "unknown row 'durn-1'; did you mean 'durnn-1'?" in capsys.readouterr().err


def test_durations():
    assert [parse_duration(t) for t in ("90", "90s", "45m", "2h", "1h30m")] == [90, 90, 2700, 7200, 5400]
    for bad in ("soon", "", "h", "2 hours"):
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(bad)


def test_what_a_budget_costs():
    said = cost([3600.0, 7200.0], "cpu", 2)
    assert said == "budget cpu: 2 runs to do, about 3 core-hours, or 1.5 hours with 2 runs at a time"
    assert cost([3600.0, None], "cpu", 0) == (
        "budget cpu: 2 runs to do, about 1 core-hours; for 1 of them no time was ever measured"
    )
    assert "about 1,234 core-hours" in cost([3600.0 * 1234], "paper", 0)
    assert cost([], "cpu", 2) == "budget cpu: 0 runs to do"


def test_choice_of_names():
    assert choose("row", "", ("a", "b")) == ["a", "b"]
    assert choose("row", "b, a", ("a", "b")) == ["b", "a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "-1"], "--seeds -1 is not a number of seeds"),
        (["--seeds", "1000000000"], "is not a number of seeds"),
        (["--jobs", "-7"], "--jobs -7 is not"),
        (["--jobs", "10000"], "--jobs 10000 is not"),
        (["--time-limit", "0"], "leaves no time"),
        (["--device", "tpu"], "--device 'tpu' is not known"),
        (["--rows", "[/x]"], "unknown row '[/x]'"),
        (["--add", "no[/b]where.toml"], "no[/b]where.toml cannot be read"),
        pytest.param(
            ["--device", "cuda"],
            "torch sees no CUDA GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU"),
        ),
    ],
)
def test_bad_options_are_one_sentence(options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main("table1", options)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert message in said.replace("\n", " ")
    assert "Traceback" not in said


def test_nothing_to_run_is_an_error(tmp_path, monkeypatch):
    def refuse(name, **options):
        raise DataError(f"no {name} here.")

    runs.build_task.cache_clear()
    monkeypatch.setattr(tasks, "build", refuse)
    with pytest.raises(ValueError, match="nothing can be run"):
        perform("table1", tmp_path, budget="smoke")
    runs.build_task.cache_clear()


def test_legal_nested_thread_counts_are_understood(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "77,1")
    assert threads_of_each(1) == 77


def test_ascii_output_is_no_reason_to_die(tmp_path):
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONPATH": ""}
    command = [sys.executable, "reproduce/figure2.py", "--report-only", "--runs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"DuRNN" in done.stdout


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(cli, "perform", lambda *_: pytest.fail("training has begun"))


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("what", ["results", "runs", "results/records", "results/figures"])
def test_a_place_that_cannot_be_written_to_is_found_before_training(tmp_path, what):
    (tmp_path / what).parent.mkdir(exist_ok=True)
    (tmp_path / what).write_text("a file, not a folder")
    with pytest.raises(ValueError, match=rf"{what}.* cannot be written to"):
        perform("figure2", tmp_path, budget="smoke", rows="durnn", cells="adding-100")


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_closed_place_is_found_before_training(tmp_path, monkeypatch, problem):
    class Full(io.BytesIO):
        def flush(self):
            raise OSError(problem, os.strerror(problem))

    monkeypatch.setattr(cli.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(ValueError, match=rf"cannot be written to \({os.strerror(problem)}\)"):
        perform("figure2", tmp_path, budget="smoke", rows="durnn", cells="adding-100")


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", ["figure2.md", "figures/figure2.png"])
def test_a_folder_in_the_place_of_a_table_or_figure_is_found_before_training(tmp_path, name):
    (tmp_path / "results" / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"{name} is a folder"):
        perform("figure2", tmp_path, budget="smoke", rows="durnn", cells="adding-100")


def test_a_clock_that_is_set_forward_ends_nothing(tmp_path, monkeypatch):
    jumps = itertools.count(time.time(), 7200.0)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    chosen = {"budget": "smoke", "rows": "rnn-tanh", "cells": "adding-100", "backend": "reference"}
    code, text = perform("figure2", tmp_path, time_limit="1h", **chosen)
    assert (code, "6 of 6 updates" in text) == (0, True), text


def test_the_label_of_a_row_of_ones_own_may_look_like_markup(tmp_path):
    (tmp_path / "row.toml").write_text(
        '[rows.mine]\nlabel = "[/b] mine"\nlike = "rnn-tanh"\n[[settings]]\nsource = "ours: test"\nmodel = {}\n'
    )
    chosen = {"budget": "smoke", "rows": "mine", "cells": "adding-100", "add": tmp_path / "row.toml"}
    code, text = perform("figure2", tmp_path, terminal=True, backend="reference", **chosen)
    assert code == 0
    assert "[/b] mine" in text


def command(tmp_path, script, *options, wrapper=(), **environment):
    """A script to its end, with a bound on a hang."""
    chosen = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"} | environment
    where = ["--results", f"{tmp_path}/results", "--runs", f"{tmp_path}/runs"]
    return subprocess.run(
        [*wrapper, sys.executable, f"reproduce/{script}.py", *where, *options],
        cwd=ROOT, env={k: v for k, v in chosen.items() if v is not None}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def said_once(done):
    """The one sentence of a command that stopped."""
    assert "Traceback" not in done.stderr + done.stdout
    (sentence,) = [line for line in done.stderr.splitlines() if line and not line.startswith("compiling")]
    return sentence


def test_a_cache_that_is_a_file_stops_the_command(tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    done = command(tmp_path, "table1", "--budget", "smoke", DURNN_CACHE=f"{tmp_path}/cache", DURNN_DATA=None)
    assert done.returncode == 2, done.stdout
    assert "MNIST cannot be kept in" in said_once(done)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_closed_cache_is_no_reason_for_a_stand_in(tmp_path, monkeypatch, problem):
    def refuse(*_, **__):
        raise OSError(problem, os.strerror(problem))

    runs.build_task.cache_clear()
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DURNN_DATA", raising=False)
    monkeypatch.setattr(tasks.download, "FileLock", refuse)
    with pytest.raises(ValueError, match="MNIST cannot be kept in"):
        perform("table1", tmp_path, budget="smoke")
    runs.build_task.cache_clear()


def test_an_explicit_source_that_does_not_exist_stops_the_command(tmp_path):
    done = command(tmp_path, "table3", "--budget", "smoke", DURNN_NTU=f"{tmp_path}/mistyped")
    assert done.returncode == 2, done.stdout
    assert said_once(done) == f"DURNN_NTU={tmp_path}/mistyped does not exist."
    assert not (tmp_path / "runs").exists()


def can_become_nobody():
    """Whether a process can have a user id that nobody knows, and with it no home; files stay ours."""
    return shutil.which("unshare") and subprocess.run([*NOBODY, "true"], capture_output=True).returncode == 0


NOBODY = ("unshare", "--user", "--map-user=54321")


@pytest.mark.parametrize(
    "options", [["--list"], pytest.param(["--budget", "smoke", "--jobs", "1"], marks=pytest.mark.slow)]
)
def test_somebody_without_home_and_passwd_entry_can_use_a_command(tmp_path, options):
    if not can_become_nobody():
        pytest.skip("user namespaces are not to be had here")
    chosen = ["--rows", "rnn-tanh", "--cells", "adding-100", *options]
    done = command(tmp_path, "figure2", *chosen, wrapper=NOBODY, HOME=None, DURNN_CACHE=None, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "rnn-tanh" in done.stdout
    assert (tmp_path / "durnn-suite-54321").exists() == ("--list" not in options)


def test_a_home_that_nobody_has_is_one_sentence(tmp_path):
    done = command(tmp_path, "table1", "--budget", "smoke", DURNN_CACHE="~nobody-of-this-name/x", DURNN_DATA=None)
    assert done.returncode == 2, done.stdout
    assert "there is no home folder" in said_once(done)


def test_a_table_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "results" / "figure2.md").mkdir(parents=True)
    done = command(tmp_path, "figure2", "--report-only")
    assert done.returncode == 1
    assert "figure2.md" in said_once(done)
