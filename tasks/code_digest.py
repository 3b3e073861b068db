"""A digest of what functions do, so that data made by other code is not taken for data made by this.

A version number would do if nobody ever forgot to raise it.
"""

import ast
import functools
import hashlib
import inspect
import re
import sys
import textwrap
from pathlib import PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tasks import rng

_PACKAGE = "tasks"
_IGNORED = {"annotation", "returns", "ctx", "kind", "type_comment", "type_params"}  # no part of what code does


def code_digest(*functions: Any) -> str:
    """16 hex digits that change when a function does something else, or anything in `tasks` that it uses.

    A function or class counts by its syntax tree: comments, docstrings, type hints and layout do not matter. Data that
    it names counts by value: numbers, strings, containers of them, arrays. What comes from other packages counts by
    name only.
    """
    walk = _Walk()
    for function in functions:
        walk.visit(function, always=True)
    return walk.digest.hexdigest()[:16]


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._seen: set[int] = set()  # what has been told already, by id

    def visit(self, value: Any, always: bool = False) -> None:
        if isinstance(value, functools._lru_cache_wrapper):
            value = value.__wrapped__
        match value:
            case FunctionType() | type():
                self._definition(value, always)
            case ModuleType():
                self._say(f"module {value.__name__}")
            case list() | tuple():
                self._say(f"{type(value).__name__} {len(value)}")
                for item in value:
                    self.visit(item)
            case dict():
                self.visit([*value.items()])
            case set() | frozenset():
                self.visit(sorted(value, key=repr))
            case np.ndarray() | np.generic():
                self._say(rng.digest(np.asarray(value)))
            case PurePath():
                self._say(value.name)
            case None | bool() | int() | float() | complex() | str() | bytes() | re.Pattern():
                self._say(repr(value))
            case _:
                self._say(f"a {type(value).__module__}.{type(value).__qualname__}")

    def _say(self, text: str) -> None:
        self.digest.update(f"{len(text)} {text}\n".encode())

    def _definition(self, value: Any, always: bool) -> None:
        if value.__module__.split(".")[0] != _PACKAGE and not always:
            self._say(f"{value.__module__}.{value.__qualname__}")
            return
        self._say(value.__qualname__)  # without the module: moving a file changes nothing
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._say(repr(_plain(_tree(value))))
        codes = [value.__code__] if isinstance(value, FunctionType) else _codes_of(value)
        known = vars(sys.modules[value.__module__]) if isinstance(value, type) else value.__globals__
        used = {word for code in codes for word in _words(code)}
        for word in sorted(used & known.keys()):
            found = known[word]
            if isinstance(found, ModuleType) and found.__name__.split(".")[0] == _PACKAGE:
                for inner in sorted(used & vars(found).keys()):
                    self.visit(vars(found)[inner])
            else:
                self.visit(found)
        for parent in value.__bases__ if isinstance(value, type) else ():
            self.visit(parent)
        for cell in getattr(value, "__closure__", None) or ():
            self.visit(cell.cell_contents)


def _tree(value: Any) -> ast.AST:
    source = textwrap.dedent(inspect.getsource(value))
    tree = ast.parse(source).body[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node, False):
            del node.body[0]
    return tree


def _plain(node: Any) -> Any:
    """A syntax tree as nested tuples. Empty fields are left out: Python versions differ in them."""
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if name not in _IGNORED]
        return type(node).__name__, *((name, _plain(value)) for name, value in fields if value not in (None, []))
    return [_plain(item) for item in node] if isinstance(node, list) else node


def _codes_of(owner: type) -> list[CodeType]:
    """The code of the methods of a class."""
    methods = [inspect.unwrap(getattr(m, "fget", getattr(m, "__func__", m))) for m in vars(owner).values()]
    return [method.__code__ for method in methods if isinstance(method, FunctionType)]


def _words(code: CodeType) -> set[str]:
    """Every global and every attribute that a code names, in functions inside of it, too."""
    inner = (_words(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
