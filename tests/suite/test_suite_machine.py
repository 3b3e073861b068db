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


def test_two_processors_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["model name\t: AMD EPYC", "cpu family\t: 26", "model\t\t: 2", "flags\t\t: avx512f"]
    monkeypatch.setattr(machine, "_cpuinfo", lambda: lines)
    assert machine.cpu_name.__wrapped__() == "AMD EPYC (family 26, model 2)"
    lines[1:3] = ["cpu family\t: 25", "model\t\t: 1"]
    assert machine.cpu_name.__wrapped__() == "AMD EPYC (family 25, model 1)"
    lines[1:3] = []
    assert machine.cpu_name.__wrapped__() == "AMD EPYC"
    lines.clear()
    assert machine.cpu_name.__wrapped__()  # a system without such a file
