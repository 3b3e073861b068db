"""Where the scripts begin, before the seconds that the imports take, so that Ctrl-C never shows a traceback."""

from __future__ import annotations

import os
import signal
from typing import Any

INTERRUPTED = "interrupted; run the same command again to continue"


def main(name: str) -> None:
    """Load and run the command of a table or figure."""
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
