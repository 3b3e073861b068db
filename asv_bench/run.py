"""Speed and memory of the zoo across commits: ``python asv_bench/run.py COMMAND``.

check          run every benchmark once on the files as they are; saves nothing
measure        measure the current commit
range A..B     measure the commits of a range, or the commits named one by one; nothing is installed per commit
compare A B    measure two commits in turns; exit status 1 if B is slower or hungrier
publish        write the dashboard to asv_bench/html, with all its scripts
serve          publish, and serve it on this machine
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    sys.path.insert(0, str(ROOT))  # a script's path begins with its own folder
    from compare import CompareError
    from publish import PublishError

    for name in ("profile", "models", "shapes"):
        value = getattr(options, name, None)
        if value:
            os.environ[f"DURNN_BENCH_{name.upper()}"] = value
    try:
        return options.run(options)
    except (CompareError, PublishError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def check(options: argparse.Namespace) -> int:
    from asv.util import load_json, write_json

    # asv writes its list of benchmarks even in a dry run: a configuration of its own keeps the results as they are.
    with tempfile.TemporaryDirectory() as folder:
        config = load_json(str(HERE / "asv.conf.json"), js_comments=True)
        config |= {"benchmark_dir": str(HERE / "benchmarks"), "repo": str(ROOT), "results_dir": folder}
        config |= {"environment_type": "existing", "pythons": ["same"], "matrix": {}, "plugins": []}
        write_json(f"{folder}/asv.conf.json", config)
        arguments = ["--quick", "--dry-run", "--show-stderr"]
        return _asv(options, arguments, {"DURNN_BENCH_TREE": str(ROOT)}, Path(folder) / "asv.conf.json")


def measure(options: argparse.Namespace) -> int:
    if _git("status", "--porcelain", "--", "models", "tasks"):
        print("There are uncommitted changes; what is measured is the commit.", file=sys.stderr)
    return _measure_commits(options, [_git("rev-parse", "HEAD")])


def measure_range(options: argparse.Namespace) -> int:
    if len(options.commits) == 1 and ".." in options.commits[0]:
        commits = _git("rev-list", "--first-parent", "--reverse", options.commits[0]).split()
    else:
        commits = [_git("rev-parse", "--verify", f"{commit}^{{commit}}") for commit in options.commits]
    if not commits:
        raise ValueError(f"There is no commit in {options.commits[0]!r}; A..B leaves out A itself.")
    return _measure_commits(options, commits)


def _measure_commits(options: argparse.Namespace, commits: list[str]) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as hashes:
        hashes.write("\n".join(commits))
        hashes.flush()
        env = {"DURNN_BENCH_MODELS": options.models or ",".join(_registered())}
        return _asv(options, [f"HASHFILE:{hashes.name}"], env)


def _asv(
    options: argparse.Namespace, arguments: list[str], env: dict[str, str], config_file: Path = HERE / "asv.conf.json"
) -> int:
    """``asv run``. It forks each benchmark from a process that has imported torch and computed nothing."""
    from suite.machine import cpu_name

    machine = options.machine or f"{platform.system().lower()}-{platform.machine()}-{os.cpu_count()}core"
    asv = [sys.executable, "-m", "asv"]
    facts = ["--os", platform.system(), "--arch", platform.machine(), "--num_cpu", str(os.cpu_count())]
    facts += ["--cpu", cpu_name(), "--ram", _ram()]
    config = ["--config", str(config_file)]
    subprocess.run([*asv, "machine", "--yes", *config, "--machine", machine, *facts], check=True, cwd=HERE)
    command = [*asv, "run", *config, "--machine", machine, "--launch-method", "forkserver", *arguments]
    for pattern in options.bench:
        command += ["--bench", pattern]
    return subprocess.run(command, cwd=HERE, env=os.environ | env, check=False).returncode


def _ram() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def _registered() -> list[str]:
    from benchmarks.cases import registered

    return registered()


def compare(options: argparse.Namespace) -> int:
    from benchmarks.cases import SHAPES, lacking, measured_shapes, registered
    from compare import Plan, tree_of
    from compare import compare as compare_trees

    models = options.models.split(",") if options.models else _registered()
    pairs = [(model, shape) for shape in SHAPES if shape in measured_shapes() for model in models]
    cases = tuple(pair for pair in pairs if pair[0] not in registered() or not lacking(*pair))
    plan = Plan(cases, options.threshold, options.launches, options.rounds)
    with tree_of(options.A, ROOT) as before, tree_of(options.B, ROOT) as after:
        return 1 if compare_trees(before, after, plan) else 0


def publish(options: argparse.Namespace) -> int:
    import publish as dashboard

    print(f"The dashboard is in {dashboard.publish(offline=options.offline)}.")
    return 0


def serve(options: argparse.Namespace) -> int:
    import publish as dashboard

    with dashboard.server(dashboard.publish(), options.port) as server:
        print(f"http://127.0.0.1:{server.server_port}/ (end with Ctrl-C)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--models", help="comma-separated names; default: everything registered")
    chosen.add_argument("--shapes", help="comma-separated names, see benchmarks/cases.py; default: the profile's")
    for name, action, profile in (
        ("check", check, "fast"),
        ("measure", measure, "full"),
        ("range", measure_range, "full"),
    ):
        command = commands.add_parser(name, parents=[chosen])
        command.set_defaults(run=action)
        command.add_argument("--profile", default=profile, choices=("fast", "full"))
        command.add_argument("--machine", help="name to file the results under; default: system, architecture, cores")
        command.add_argument("--bench", action="append", default=[], help="only benchmarks that match this expression")
        if name == "range":
            command.add_argument("commits", nargs="+", metavar="A..B", help="a range, or commits one by one")
    command = commands.add_parser("compare", parents=[chosen])
    command.set_defaults(run=compare)
    command.add_argument("A")
    command.add_argument("B")
    command.add_argument("--profile", default="fast", choices=("fast", "full"), help="which shapes")
    command.add_argument("--threshold", type=float, default=0.10, help="relative slow-down that counts; default 0.10")
    command.add_argument("--launches", type=int, default=3, help="pairs of new processes")
    command.add_argument("--rounds", type=int, default=7, help="pairs of blocks in each of them")
    command = commands.add_parser("publish")
    command.set_defaults(run=publish)
    command.add_argument(
        "--offline", action="store_true", help="take the page's scripts from the cache, ask no registry"
    )
    command = commands.add_parser("serve")
    command.set_defaults(run=serve)
    command.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
