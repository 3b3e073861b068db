"""What is printed for people: one place, so that a text which came from a file or a command line is never markup."""

from __future__ import annotations

import sys

from rich.console import Console

PLAIN_WIDTH = 100  # columns where there is no terminal to ask


def make_console() -> Console:
    """Standard output; characters that its encoding lacks are replaced, not fatal."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
