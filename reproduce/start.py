"""Where the scripts begin, before the seconds that the imports take, so that Ctrl-C never shows a traceback."""

from __future__ import annotations

import os
import signal
from typing import Any

INTERRUPTED = "interrupted; run the same command again to continue"

SPINS = "1000"
"""How often a thread of OpenMP looks for work before it sleeps. By default it keeps its core busy for milliseconds, and
two commands on one machine, or a run beside anything else, spend most of their time waiting for each other."""


def main(name: str) -> None:
    """Load and run the command of a table or figure."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)
    from reproduce import cli

    signal.signal(signal.SIGINT, before)
    cli.main(name)


def _leave(*_: Any) -> None:
    """An exception in the middle of an import may be swallowed or reported by whoever imports; nothing runs yet."""
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(130)
