"""Names to tasks. A task is registered by a factory whose keyword arguments are its options."""

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tasks.base import Task

# Imported on first use, so that `import tasks` stays quick. Each registers its tasks when it is imported.
_MODULES = ("tasks.adding", "tasks.mnist", "tasks.ptb", "tasks.ntu")

_factories: dict[str, Callable[..., Task]] = {}
_loaded = False

Factory = TypeVar("Factory", bound=Callable[..., Task])


def register(name: str) -> Callable[[Factory], Factory]:
    """Class or function decorator: makes `build(name, **options)` call the decorated factory."""

    def add(factory: Factory) -> Factory:
        if name in _factories:
            raise ValueError(f"task {name!r} is registered twice")
        _factories[name] = factory
        return factory

    return add


def names() -> list[str]:
    """Every name that `build` knows, sorted."""
    _load()
    return sorted(_factories)


def options(name: str) -> dict[str, Any]:
    """The options of a task and their defaults (`inspect.Parameter.empty` for a required one)."""
    return {p.name: p.default for p in inspect.signature(_factory(name)).parameters.values()}


def summary(name: str) -> str:
    """The first line of what a task says about itself."""
    return (inspect.getdoc(_factory(name)) or "").partition("\n")[0]


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
    return _factory(name)(**chosen)


def _factory(name: str) -> Callable[..., Task]:
    _load()
    if name not in _factories:
        near = difflib.get_close_matches(str(name), _factories, n=3, cutoff=0.4) or sorted(_factories)
        raise ValueError(f"there is no task {name!r}; the nearest names are: {', '.join(near)}")
    return _factories[name]


def _load() -> None:
    global _loaded
    if _loaded:
        return
    for module in _MODULES:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    _loaded = True
