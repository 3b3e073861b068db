"""Facts about the checkout: a git that fails costs the facts, not the run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from suite import machine
from suite.machine import commit

FAKES = {"slow": "exec sleep 60", "broken": "exit 128", "talkative": "printf '\\377\\376'"}


@pytest.mark.parametrize("fake", FAKES)
def test_a_slow_or_broken_git_leaves_the_commit_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake) -> None:
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\n{FAKES[fake]}\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "GIT_SECONDS", 0.3)
    began = time.monotonic()
    assert commit(tmp_path, "suite") == ("unknown", True)
    assert time.monotonic() - began < 30  # a bound on a hang, not a measurement


def test_a_missing_git_leaves_the_commit_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(tmp_path, "suite") == ("unknown", True)
