"""The command line that all tables and figures share."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table

from reproduce.execute.console import make_console, say
from reproduce.execute.local import Inline, LocalProcesses, Workers, stopping_on_signals
from reproduce.execute.progress import Display, clock
from reproduce.execute.slots import slots, threads_of_each
from reproduce.execute.slurm import make_script, submit
from reproduce.plan.added import add
from reproduce.plan.experiments import EXPERIMENTS, Experiment
from reproduce.plan.imports import Import
from reproduce.plan.recipe import Budget
from reproduce.plan.runs import ROOT, Run, plan
from reproduce.report import records
from reproduce.report.estimates import rounded, time_left
from reproduce.start import INTERRUPTED
from reproduce.train import checkpoint, lease, provenance
from reproduce.train.loop import finished_record
from reproduce.train.outcome import SAID, Place
from suite.files import nearest, sha256
from suite.machine import cores

MOST_SEEDS, MOST_JOBS, MOST_TASKS = 1000, 256, 1000
SEEDS = {"smoke": 1, "quick": 1, "cpu": 1, "open": 3, "paper": 3}


@dataclass
class Arguments:
    budget: Budget = "quick"
    """smoke: seconds per run, shows that it works. quick: about ten minutes for the whole table or figure on two cores.
    cpu: hours, a reduced schedule or width that is stated in the recipe. paper: the full schedule; only this budget on
    the paper's data can confirm or deny a number. open: a training recipe of our own for the same task, model and
    number of parameters, for the rows that have one."""

    seeds: int = 0
    """How many seeds (0, 1, 2, ...). 0 stands for 3 with the paper budget and the open division, for 1 otherwise and
    for activations."""

    rows: str = ""
    """Only these rows, separated by commas, such as durnn-1,lstm; see --list."""

    cells: str = ""
    """Only these cells (tasks), separated by commas, such as mnist."""

    time_limit: str = ""
    """Save everything and stop after this long: 90s, 45m, 2h, 1h30m. Run again to continue."""

    jobs: int = 0
    """Runs at a time. 0 chooses: one per core on a CPU, --per-device on each GPU. -1: no worker processes, for
    debugging."""

    device: str = "cpu"
    """cpu, cuda (all GPUs that are visible) or cuda:1."""

    per_device: int = 0
    """Runs at a time on each GPU. 0 stands for 1."""

    on: Annotated[str, tyro.conf.arg(metavar="WHERE")] = "local"
    """Who does the runs. local: this machine. ray: a Ray cluster that is started on this machine; ray:HOST:PORT or
    ray:auto: one that stands. slurm: --workers tasks of one array. Commands on several hosts may also share the runs of
    one folder without any of this."""

    workers: int = 0
    """Tasks of a SLURM array; each does --jobs runs at a time (default 1)."""

    slurm: Annotated[str, tyro.conf.arg(metavar="OPTIONS")] = ""
    """Options for sbatch, such as "--partition=long --time=12:00:00 --gres=gpu:1"."""

    dry_run: bool = False
    """Show what would be submitted to SLURM, and stop."""

    allow_uncommitted: bool = False
    """Run code on a cluster that no commit holds. The records say so."""

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
        args=join_value("--slurm", sys.argv[1:] if argv is None else argv),
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


def join_value(option: str, words: list[str]) -> list[str]:
    """``--slurm --time=30`` as ``--slurm=--time=30``: a value that begins like an option would be taken for one."""
    if option not in words[:-1]:
        return words
    place = words.index(option)
    return [*words[:place], f"{option}={words[place + 1]}", *words[place + 2 :]]


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
    code, reports = 0, place.runs / f"report-{experiment.name}"
    reported_before = lease.look(reports).number
    if not arguments.report_only:
        runs, notes = plan(recipes, rows, cells, seeds, arguments.budget, imports)
        for note in notes:
            say(console, f"note: {note}", "yellow")
        if arguments.list:
            console.print(listing(runs, place, experiment.title, arguments.budget, at_a_time(arguments)))
            return 0
        check_writable(experiment, place)
        if not runs:
            why = "no task of the chosen cells can be had here; see the notes above"
            if not any(recipes.offers(row, cell, arguments.budget) for row in rows for cell in cells):
                why = f"none of the chosen rows and cells has a recipe for the budget {arguments.budget!r}"
            raise ValueError(f"nothing can be run: {why}")
        if arguments.on == "slurm":
            submit_array(experiment, arguments, place, console)
            return 0
        code = perform(runs, place, arguments, console, workers)
    from reproduce.report import publish  # late: plotting libraries are slow to load; a listing needs none

    budgets = () if arguments.report_only or arguments.publish else (arguments.budget,)
    publish.report_once(experiment, place, console, budgets, reports, reported_before)
    return code


def perform(runs: list[Run], place: Place, arguments: Arguments, console: Console, workers: Workers | None) -> int:
    who = workers or make_workers(arguments)
    with stopping_on_signals() as stop, Display(runs, console) as display:
        who.do(runs, place, display.watch, stop)
    if stop.reason:
        say(console, f"stopped by {SAID[stop.reason]}; run the same command again to continue")
        return 3
    statuses = {outcome.status for _, outcome in display.outcomes}
    return 1 if "failed" in statuses else 3 if statuses & {"unfinished", "busy"} else 0


def at_a_time(arguments: Arguments) -> int:
    """How many runs go on together; 0 if only the cluster knows."""
    if arguments.on == "local":
        return len(slots(max(0, arguments.jobs), arguments.device, arguments.per_device))
    return arguments.workers * max(1, arguments.jobs)


def make_workers(arguments: Arguments) -> Workers:
    if arguments.on != "local":
        from reproduce.execute.ray_cluster import RayCluster  # late: few need it

        return RayCluster(arguments.on.partition(":")[2], arguments.jobs, arguments.device, arguments.per_device)
    if arguments.jobs < 0:
        return Inline()
    return LocalProcesses(slots(arguments.jobs, arguments.device, arguments.per_device))


def submit_array(experiment: Experiment, arguments: Arguments, place: Place, console: Console) -> None:
    """Hand the command to SLURM, as many times as there are workers."""
    assert place.origin is not None
    on_gpu = arguments.device != "cpu"
    jobs = 0 if on_gpu else max(1, arguments.jobs)
    same = replace(
        arguments, on="local", workers=0, slurm="", dry_run=False, jobs=jobs, runs=place.runs.absolute(),
        results=None if arguments.publish else place.records.parent.absolute(),
        add=arguments.add and arguments.add.absolute(),
    )  # fmt: skip
    folder = place.runs.absolute() / "slurm"
    script = make_script(
        experiment.name, as_options(same), arguments.workers, jobs or 1, arguments.slurm, folder, place.origin
    )
    if arguments.dry_run:
        say(console, script)
        return
    say(console, submit(script, folder / f"{experiment.name}-{sha256(script)[:8]}.sh"))
    say(console, f"logs come to {folder}; --list shows how far the runs are, --report-only the table so far")


def as_options(arguments: Arguments) -> list[str]:
    """The command line that gives these arguments."""
    words = []
    for field in fields(arguments):
        value = getattr(arguments, field.name)
        if value != field.default:
            words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def make_place(experiment: Experiment, arguments: Arguments, began: float) -> Place:
    runs = arguments.runs or ROOT / "runs"
    if arguments.publish and (arguments.results or arguments.budget == "smoke"):
        raise ValueError("--publish writes to results/ and goes with neither --results nor the smoke budget")
    default = runs / "smoke" if arguments.budget == "smoke" else ROOT / "results" if arguments.publish else runs
    results = arguments.results or default
    limit = parse_duration(arguments.time_limit) if arguments.time_limit else 0.0
    origin = provenance.origin()
    if changed := provenance.changed_code(origin):
        if not arguments.allow_uncommitted:
            raise ValueError(changed)
        origin = replace(origin, dirty=True)
    if arguments.on != "local" and origin.dirty and not (arguments.allow_uncommitted or arguments.dry_run):
        raise ValueError(
            "the code has changes that no commit holds, so that nobody could tell later what ran on the cluster; "
            "commit them, or add --allow-uncommitted"
        )
    return Place(
        runs=runs, records=results / "records", device=arguments.device, backend=arguments.backend,
        threads=threads_of_each(at_a_time(arguments) if arguments.on == "local" else cores()),
        deadline=began + limit if limit else 0.0, origin=origin,
        need_weights=experiment.weights and not arguments.publish,  # a published run is never made again
    )  # fmt: skip


def check_numbers(arguments: Arguments) -> None:
    """Refuse counts that cannot be meant, options that do not go together, and a device that is not there."""
    if not 0 <= arguments.seeds <= MOST_SEEDS:
        raise ValueError(
            f"--seeds {arguments.seeds} is not a number of seeds; give 1 to {MOST_SEEDS}, or 0 for the default"
        )
    if not -1 <= arguments.jobs <= MOST_JOBS:
        raise ValueError(f"--jobs {arguments.jobs} is not a number of runs at a time; give 1 to {MOST_JOBS}, 0 or -1")
    if not 0 <= arguments.per_device <= MOST_JOBS or (arguments.per_device and arguments.device == "cpu"):
        raise ValueError(
            f"--per-device {arguments.per_device} goes with --device cuda and is a number up to {MOST_JOBS}"
        )
    if arguments.device != "cpu" and not re.fullmatch(r"cuda(:\d+)?", arguments.device):
        raise ValueError(f"--device {arguments.device!r} is not known; give cpu, cuda or cuda:1")
    if not re.fullmatch(r"local|slurm|ray(:.+)?", arguments.on):
        raise ValueError(f"--on {arguments.on!r} is not known; give local, ray, ray:HOST:PORT or slurm")
    if arguments.on != "local" and arguments.jobs < 0:
        raise ValueError("--jobs -1 does without worker processes and goes with --on local")
    if (arguments.on == "slurm") != (1 <= arguments.workers <= MOST_TASKS):
        raise ValueError(f"--on slurm and --workers, 1 to {MOST_TASKS}, go together")
    if arguments.on != "slurm" and (arguments.slurm or arguments.dry_run):
        raise ValueError("--slurm and --dry-run go with --on slurm")
    if arguments.on == "local" and arguments.device != "cpu" and not torch.cuda.is_available():
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


def listing(runs: list[Run], place: Place, title: str, budget: str, together: int) -> Table:
    """What --list shows."""
    published = records.read_all(ROOT / "results" / "records").good
    known = [*records.read_all(place.records).good, *published]
    numbers = {(r.identity, r.row): r.test for r in published}
    table = Table(title=title)
    ahead: list[float | None] = []
    for name in ("row", "cell", "seed", "updates", "state", "time", "published"):
        table.add_column(name, no_wrap=name == "row")
    for run in runs:
        done = finished_record(run, place)
        step = checkpoint.latest_step(run.folder(place.runs))
        state = done.status if done else f"at update {step:,}" if step else "to do"
        left = time_left(run.recipe, run.row, run.settings, step, known)
        if not done:
            ahead.append(left)
        time_ = (
            f"took {clock(done.wall_seconds)}" if done else "not measured" if left is None else f"about {clock(left)}"
        )
        updates = f"{run.settings.training.updates:,}"
        number = numbers.get((run.id, run.row))
        shown = "–" if number is None else f"{number:.4g}"
        table.add_row(run.row, run.cell, str(run.seed), updates, state, time_, shown)
    table.caption = cost(ahead, budget, together)
    return table


def cost(ahead: list[float | None], budget: str, together: int) -> str:
    """What is still to be paid for, in hours of one core of the machines that the estimates come from."""
    known = [seconds for seconds in ahead if seconds is not None]
    said = f"budget {budget}: {len(ahead)} runs to do"
    if known:
        hours = sum(known) / 3600
        said += f", about {rounded(hours)} core-hours"
        said += f", or {rounded(hours / together)} hours with {together} runs at a time" if together else ""
    if len(known) < len(ahead):
        said += f"; for {len(ahead) - len(known)} of them no time was ever measured"
    return said
