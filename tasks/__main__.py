"""Command line: python -m tasks list | download mnist ptb-c | info NAME [option=value ...] [--picture FILE]"""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

import tasks
from tasks import download as downloads
from tasks import registry
from tasks.sources import DATA_SETS

_out = Console(highlight=False, soft_wrap=True, markup=False)


def list_tasks() -> None:
    """Names, options with their defaults, and what each task is."""
    table = Table("task", "options", "what it is", box=None, pad_edge=False)
    for name in tasks.names():
        shown = ", ".join(f"{o}={_default(d)}" for o, d in tasks.options(name).items())
        table.add_row(name, shown, registry.summary(name))
    Console(highlight=False).print(table)


def download(names: tyro.conf.Positional[tuple[str, ...]] = ("mnist", "ptb-c")) -> None:
    """Fetch data sets into the cache and check them; what is there already is only checked.

    Args:
        names: Data sets by name: mnist, ptb-c.
    """
    for name in names:
        if name.startswith("ntu"):
            raise ValueError(
                "NTU RGB+D is given out under a signed licence and cannot be fetched;"
                " `python -m tasks info ntu-cs` says where its files go"
            )
        contents = downloads.load(DATA_SETS_BY_TASK.get(name, name))
        size = sum(len(content) for content in contents.values())
        _out.print(f"{name}: {len(contents)} files, {size:,} bytes, every sha256 as pinned")


def info(
    name: tyro.conf.Positional[str],
    options: tyro.conf.Positional[tuple[str, ...]] = (),
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
) -> None:
    """Counts, shapes, fingerprint and licence of a task.

    Args:
        name: A task, as `python -m tasks list` names it.
        options: Options of the task as option=value, for example permutation=bitreversal.
        picture: Also save an image of a few samples (.png, .svg or .pdf).
    """
    task = tasks.build(name, **parse_options(name, options))
    for key, value in task.info().items():
        if isinstance(value, dict):
            _out.print(f"{key}:")
            for inner, shown in value.items():
                _out.print(f"  {inner}: {_plain(shown)}")
        else:
            _out.print(f"{key}: {_plain(value)}")
    if picture is not None:
        task.picture(picture)
        _out.print(f"picture: {picture}")


def parse_options(name: str, given: tuple[str, ...]) -> dict[str, Any]:
    """`("length=50",)` to `{"length": 50}`; the type of a value is that of the option's default."""
    known = tasks.options(name)
    parsed: dict[str, Any] = {}
    for text in given:
        option, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not of the form option=value")
        default = known.get(option)
        if isinstance(default, bool):
            if value not in ("true", "false"):
                raise ValueError(f"{option}={value} must be true or false")
            parsed[option] = value == "true"
        elif isinstance(default, int | float):
            kind = "a whole number" if isinstance(default, int) else "a number"
            try:
                parsed[option] = type(default)(value)
            except ValueError:
                raise ValueError(f"{option}={value} must be {kind}") from None
        else:
            parsed[option] = value
    return parsed


DATA_SETS_BY_TASK = {"pmnist": "mnist"} | {name: name for name in DATA_SETS}


def _default(value: Any) -> str:
    return "(required)" if value is inspect.Parameter.empty else str(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "without end"
    return f"{value:,}" if isinstance(value, int) else repr(value) if value == "" or "\n" in str(value) else str(value)


def main() -> int:
    """The command line; returns the exit code."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"list": list_tasks, "download": download, "info": info}, prog="python -m tasks", description=__doc__
        )
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what was complete is kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
