"""Names to tasks. A task is registered by a class or function whose keyword arguments are its options."""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from suite.files import nearest
from tasks.base import Task

# Imported on first use, so that `import tasks` stays quick. Each registers its tasks when it is imported.
_MODULES = ("tasks.adding", "tasks.mnist", "tasks.ptb", "tasks.ntu")


@dataclass(frozen=True)
class _Entry:
    factory: Callable[..., Task]
    presets: dict[str, Any]  # arguments that the name stands for, which are therefore no options
    summary: str
    stands_in_for: str | None


_entries: dict[str, _Entry] = {}
_loaded = False

Factory = TypeVar("Factory", bound=Callable[..., Task])


def register(
    name: str, *, summary: str = "", stands_in_for: str | None = None, **presets: Any
) -> Callable[[Factory], Factory]:
    """Class or function decorator: makes `build(name, **options)` call the decorated factory.

    summary: what the task is, in one line; by default the first line of the factory's docstring.
    stands_in_for: the task whose place this one takes where the data of that one cannot be had.
    presets: arguments that come with the name, so that several names can share a factory.

    A class that takes `**options` hands them on to its parent: the keyword-only arguments of the parent are then
    options of the task, too.
    """

    def add(factory: Factory) -> Factory:
        if name in _entries:
            raise ValueError(f"task {name!r} is registered twice")
        described = summary or (inspect.getdoc(factory) or "").partition("\n")[0]
        _entries[name] = _Entry(factory, presets, described, stands_in_for)
        return factory

    return add


def names() -> list[str]:
    """Every name that `build` knows, sorted."""
    _load()
    return sorted(_entries)


def options(name: str) -> dict[str, Any]:
    """The options of a task and their defaults (`inspect.Parameter.empty` for a required one)."""
    entry = _entry(name)
    return {p.name: p.default for p in _parameters(entry.factory) if p.name not in entry.presets}


def summary(name: str) -> str:
    """What a task is, in one line."""
    return _entry(name).summary


def standin_of(name: str) -> str | None:
    """The task that runs the same protocol on generated data, or None."""
    _load()
    return next((other for other, entry in _entries.items() if entry.stands_in_for == name), None)


def stands_in_for(name: str) -> str | None:
    """The task whose place this one takes, or None if it is no stand-in."""
    return _entry(name).stands_in_for


def build(name: str, **chosen: Any) -> Task:
    """Build a task by name; `options(name)` lists what can be chosen."""
    allowed = options(name)
    for option in chosen:
        if option not in allowed:
            listed = ", ".join(allowed) or "none"
            raise ValueError(f"task {name!r} has no option {option!r}; its options are: {listed}")
    missing = [o for o, default in allowed.items() if default is inspect.Parameter.empty and o not in chosen]
    if missing:
        raise ValueError(f"task {name!r} needs a value for: {', '.join(missing)}")
    entry = _entry(name)
    return entry.factory(**entry.presets, **chosen)


def _parameters(factory: Callable[..., Task]) -> list[inspect.Parameter]:
    """The arguments of a factory; those of a class go on with its parent's as long as there is a `**options`."""
    if not isinstance(factory, type):
        return list(inspect.signature(factory).parameters.values())
    found: list[inspect.Parameter] = []
    for depth, owner in enumerate(c for c in factory.__mro__ if "__init__" in vars(c)):
        _, *own = inspect.signature(vars(owner)["__init__"]).parameters.values()  # without self
        found += [p for p in own if p.kind is p.KEYWORD_ONLY or (depth == 0 and p.kind is p.POSITIONAL_OR_KEYWORD)]
        if not any(p.kind is p.VAR_KEYWORD for p in own):
            break
    return found


def _entry(name: str) -> _Entry:
    _load()
    if name not in _entries:
        raise ValueError(f"there is no task {name!r}; {nearest(name, sorted(_entries))}")
    return _entries[name]


def _load() -> None:
    global _loaded
    if _loaded:
        return
    for module in _MODULES:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    _loaded = True
