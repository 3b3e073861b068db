"""The command line that all tables and figures share."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table

from reproduce.execute.console import make_console, say
from reproduce.execute.local import Inline, LocalProcesses, Workers, share, stopping_on_signals
from reproduce.execute.progress import Display, clock
from reproduce.plan.added import add
from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.plan.imports import Import
from reproduce.plan.recipe import Budget
from reproduce.plan.runs import ROOT, Run, plan
from reproduce.report import records
from reproduce.report.estimates import time_left
from reproduce.start import INTERRUPTED
from reproduce.train import checkpoint
from reproduce.train.loop import finished_record
from reproduce.train.outcome import SAID, Place
from suite.files import nearest

MOST_SEEDS, MOST_JOBS = 1000, 256
SEEDS = {"smoke": 1, "quick": 1, "cpu": 1, "paper": 3}


@dataclass
class Arguments:
    budget: Budget = "quick"
    """smoke: seconds per run, shows that it works. quick: about ten minutes for the whole table or figure on two cores.
    cpu: hours, a reduced schedule or width that is stated in the recipe. paper: the full schedule; only this budget on
    the paper's data can confirm or deny a number."""

    seeds: int = 0
    """How many seeds (0, 1, 2, ...). 0 stands for 3 with the paper budget and for 1 otherwise and for activations."""

    rows: str = ""
    """Only these rows, separated by commas, such as durnn-1,lstm; see --list."""

    cells: str = ""
    """Only these cells (tasks), separated by commas, such as mnist."""

    time_limit: str = ""
    """Save everything and stop after this long: 90s, 45m, 2h, 1h30m. Run again to continue."""

    jobs: int = 0
    """Runs at a time. 0 chooses: one per core on a CPU, one on a GPU. -1: no worker processes, for debugging."""

    device: str = "cpu"
    """cpu, cuda or cuda:1."""

    backend: Literal["auto", "reference", "fused"] = "auto"
    """Who computes the recurrences; see models/kernels."""

    add: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A row of your own: a TOML file that names a model which need not be in this repository; see the README."""

    list: bool = False
    """Show what would run, what is done and how long it takes, and stop."""

    report_only: bool = False
    """Train nothing; show the published numbers, and yours where there are any."""

    publish: bool = False
    """For maintainers: the runs, tables and figures go to results/, which is what this project publishes."""

    results: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where your records, tables and figures go. Default: runs/, and runs/smoke/ for the smoke budget."""

    runs: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where checkpoints and weights go. Default: runs/."""


def main(name: str, argv: list[str] | None = None) -> None:
    """The command: errors that the user can mend are one sentence and exit code 2, Ctrl-C is one and exit code 130."""
    experiment = EXPERIMENTS[name]
    about = (getattr(sys.modules.get("__main__"), "__doc__", None) or "").strip()
    arguments = tyro.cli(
        Arguments,
        args=argv,
        prog=f"python reproduce/{name}.py",
        description=f"{experiment.title}.\n\n{about}\n\n{examples(experiment)}",
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    console = make_console()
    try:
        sys.exit(execute(experiment, arguments, console))
    except ValueError as error:
        say(Console(stderr=True), str(error), "red")
        sys.exit(2)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        say(Console(stderr=True), f"a file could not be used: {what}", "red")
        sys.exit(1)
    except KeyboardInterrupt:
        say(Console(stderr=True), INTERRUPTED, "red")
        sys.exit(130)


def examples(experiment: Experiment) -> str:
    """The part of --help that most people are after."""
    row, cell = experiment.runnable_rows[-1], experiment.all_cells[0]
    start = f"python reproduce/{experiment.name}.py"
    return (
        "A run that is interrupted, by Ctrl-C, a time limit or a crash, continues when the same command is given "
        "again; a finished one is not repeated.\n\nExamples:\n\n"
        f"  {start}\n"
        f"  {start} --list\n"
        f"  {start} --rows {row} --cells {cell} --time-limit 2h\n"
        f"  {start} --budget paper --seeds 5 --device cuda"
    )


def execute(experiment: Experiment, arguments: Arguments, console: Console, workers: Workers | None = None) -> int:
    """Plan, run, report. Returns the exit code: 0 all done, 1 something failed, 3 stopped before the end."""
    began = time.monotonic()
    check_numbers(arguments)
    recipes = experiment.load_recipe()
    imports: tuple[Import, ...] = ()
    if arguments.add:
        recipes, imports = add(recipes, arguments.add)
        experiment = experiment.with_recipe(recipes)
    rows = choose("row", arguments.rows, experiment.runnable_rows)
    cells = choose("cell", arguments.cells, experiment.all_cells)
    seeds = list(range(arguments.seeds or (1 if experiment.weights else SEEDS[arguments.budget])))
    place = make_place(experiment, arguments, began)
    code = 0
    if not arguments.report_only:
        runs, notes = plan(recipes, rows, cells, seeds, arguments.budget, imports)
        for note in notes:
            say(console, f"note: {note}", "yellow")
        if arguments.list:
            console.print(listing(runs, place, experiment.title))
            return 0
        check_writable(experiment, place)
        if not runs:
            raise ValueError("nothing can be run: no task of the chosen cells can be had here; see the notes above")
        code = perform(runs, place, arguments, console, workers)
    from reproduce.report.publish import report  # late: plotting libraries are slow to load; a listing needs none

    report(experiment, place, console, () if arguments.report_only or arguments.publish else (arguments.budget,))
    return code


def perform(runs: list[Run], place: Place, arguments: Arguments, console: Console, workers: Workers | None) -> int:
    who = workers or (Inline() if arguments.jobs < 0 else LocalProcesses(share(arguments.jobs, arguments.device)[0]))
    with stopping_on_signals() as stop, Display(runs, console) as display:
        who.do(runs, place, display.watch, stop)
    if stop.reason:
        say(console, f"stopped by {SAID[stop.reason]}; run the same command again to continue")
        return 3
    statuses = {outcome.status for _, outcome in display.outcomes}
    return 1 if "failed" in statuses else 3 if statuses & {"unfinished", "busy"} else 0


def make_place(experiment: Experiment, arguments: Arguments, began: float) -> Place:
    runs = arguments.runs or ROOT / "runs"
    if arguments.publish and (arguments.results or arguments.budget == "smoke"):
        raise ValueError("--publish writes to results/ and goes with neither --results nor the smoke budget")
    default = runs / "smoke" if arguments.budget == "smoke" else ROOT / "results" if arguments.publish else runs
    results = arguments.results or default
    limit = parse_duration(arguments.time_limit) if arguments.time_limit else 0.0
    return Place(
        runs=runs, records=results / "records", device=arguments.device, backend=arguments.backend,
        threads=share(max(0, arguments.jobs), arguments.device)[1],
        deadline=began + limit if limit else 0.0, need_weights=experiment.weights,
    )  # fmt: skip


def check_numbers(arguments: Arguments) -> None:
    """Refuse counts that cannot be meant, and a device that is not there."""
    if not 0 <= arguments.seeds <= MOST_SEEDS:
        raise ValueError(
            f"--seeds {arguments.seeds} is not a number of seeds; give 1 to {MOST_SEEDS}, or 0 for the default"
        )
    if not -1 <= arguments.jobs <= MOST_JOBS:
        raise ValueError(f"--jobs {arguments.jobs} is not a number of runs at a time; give 1 to {MOST_JOBS}, 0 or -1")
    if arguments.device != "cpu" and not re.fullmatch(r"cuda(:\d+)?", arguments.device):
        raise ValueError(f"--device {arguments.device!r} is not known; give cpu, cuda or cuda:1")
    if arguments.device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"--device {arguments.device} was asked for, but torch sees no CUDA GPU here")


def check_writable(experiment: Experiment, place: Place) -> None:
    """Find out before the first update whether everything that comes of the last one could be written down."""
    results = place.records.parent
    figures = [] if experiment.kind == "table" else [results / "figures"]
    for folder in (place.runs, place.records, results, *figures):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError as error:
            what = error.strerror or str(error)
            raise ValueError(
                f"{folder} cannot be written to ({what}); choose another with --results and --runs"
            ) from None
    for folder in (results, *figures):
        for path in folder.glob(f"{experiment.name}.*"):
            if path.is_dir():
                raise ValueError(f"{path} is a folder, where a file belongs; choose another place with --results")


def choose(kind: str, wanted: str, known: tuple[str, ...]) -> list[str]:
    """The names in a comma-separated list, all of them if it is empty."""
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; {nearest(name, known)}")
    return names or list(known)


def parse_duration(text: str) -> float:
    """ "90", "90s", "45m", "2h" or "1h30m" in seconds."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise ValueError(f"--time-limit {text!r} is not a duration; write 90s, 45m, 2h or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = 3600.0 * hours + 60.0 * minutes + seconds
    if not total:
        raise ValueError(f"--time-limit {text!r} leaves no time; leave the option out for no limit")
    return total


def listing(runs: list[Run], place: Place, title: str) -> Table:
    """What --list shows."""
    published = records.read_all(ROOT / "results" / "records").good
    known = [*records.read_all(place.records).good, *published]
    numbers = {(r.identity, r.row): r.test for r in published}
    table = Table(title=title)
    for name in ("row", "cell", "seed", "task", "updates", "state", "time", "published"):
        table.add_column(name)
    for run in runs:
        done = finished_record(run, place)
        step = checkpoint.latest_step(run.folder(place.runs))
        state = done.status if done else f"at update {step:,}" if step else "to do"
        left = time_left(run.recipe, run.row, run.settings, step, known)
        time_ = (
            f"took {clock(done.wall_seconds)}" if done else "not measured" if left is None else f"about {clock(left)}"
        )
        updates = f"{run.settings.training.updates:,}"
        number = numbers.get((run.id, run.row))
        shown = "–" if number is None else f"{number:.4g}"
        table.add_row(run.row, run.cell, str(run.seed), run.task, updates, state, time_, shown)
    return table
