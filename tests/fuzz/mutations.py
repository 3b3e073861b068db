"""Seeded damage: to bytes as accidents and attackers do it, and to JSON as an editor does it."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"99999999999999999999999",
    b"9223372036854775808",
    b"-0.0",
    b"",
    b"\xff",
    b"1 1",
)
VALUES: tuple[Any, ...] = (
    None, 0, -1, 1, 0.5, 10**40, 1e308, float("inf"), float("nan"), "", "x", "[/b]", "\x1b[2J", "\ud800", "é" * 5000,
    True, [], {}, [[]], {"a": {}}, [None] * 1000,
)  # fmt: skip
_TOKEN = re.compile(rb"[0-9.eE+-]+")


def damaged(data: bytes, rng: random.Random, others: tuple[bytes, ...] = ()) -> bytes:
    """One to four kinds of damage, one after the other."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = _damage(data, rng, others)
    return data


def _damage(data: bytes, rng: random.Random, others: tuple[bytes, ...]) -> bytes:
    if not data:
        return rng.randbytes(rng.randrange(1, 40))
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice((1, 1, 4, 32, 400)))
    match rng.randrange(8):
        case 0:  # flip a bit
            return data[:start] + bytes([data[start] ^ 1 << rng.randrange(8)]) + data[start + 1 :]
        case 1:  # cut
            return data[:start]
        case 2:  # lose a stretch
            return data[:start] + data[stop:]
        case 3:  # repeat a stretch
            return data[:stop] + data[start:stop] * rng.choice((1, 1, 50)) + data[stop:]
        case 4:  # noise
            return data[:start] + rng.randbytes(stop - start) + data[stop:]
        case 5 if found := list(_TOKEN.finditer(data)):  # another number
            token = rng.choice(found)
            return data[: token.start()] + rng.choice(NUMBERS) + data[token.end() :]
        case 6 if others:  # the end of another file
            other = rng.choice(others)
            return data[:start] + other[rng.randrange(len(other)) :]
        case _:  # swap halves
            return data[start:] + data[:start]


def edited(tree: Any, rng: random.Random) -> Any:
    """A copy of JSON with one to three places changed, lost, added or moved."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        holder, key = rng.choice(places)
        match rng.randrange(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice(("x", "name", "", "[/b]"))] = copy.deepcopy(rng.choice(VALUES))
            case 2:
                other, name = rng.choice(places)
                holder[key] = copy.deepcopy(other[name])
            case _:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
        if not list(_places(tree)):
            break
    return tree


def _places(tree: Any) -> Any:
    """Every (container, key) of a tree."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
