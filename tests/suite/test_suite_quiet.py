"""Who else used the processors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suite import quiet
from suite.quiet import Disturbance, Processors, between

BEFORE = Processors(count=2, wall=100.0, busy=50.0, stolen=1.0, own=30.0)


def test_others_are_what_was_busy_without_this_process() -> None:
    after = Processors(count=2, wall=110.0, busy=65.0, stolen=1.0, own=44.0)
    found = between(BEFORE, after)
    assert found.others == pytest.approx(1 / 20)
    assert found.stolen == 0
    assert str(found) == ""


def test_a_disturbed_measurement_says_by_whom() -> None:
    after = Processors(count=2, wall=110.0, busy=65.0, stolen=2.0, own=39.0)
    assert str(between(BEFORE, after)) == "others used 30% of the processors and the hypervisor took 5%"


def test_rounding_of_the_clocks_is_nobody() -> None:
    after = Processors(count=2, wall=110.0, busy=65.0, stolen=1.0, own=45.01)
    assert between(BEFORE, after) == Disturbance(0.0, 0.0)


def test_nothing_is_claimed_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quiet, "_STAT", tmp_path / "no such file")
    assert quiet.look() is None
    assert between(None, BEFORE) == Disturbance(None, None)
    assert str(Disturbance()) == ""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="asks for the processors of this process")
def test_only_the_processors_of_this_process_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    second = os.sysconf("SC_CLK_TCK")
    ticks = [seconds * second for seconds in (1, 2, 3, 1000, 1000, 4, 5, 6, 0, 0)]
    line = " ".join(map(str, ticks))
    (tmp_path / "stat").write_text(f"cpu  {line}\ncpu0 {line}\ncpu1 {line}\ncpu10 {line}\nintr 5\n")
    monkeypatch.setattr(quiet, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {1})
    found = quiet.look()
    assert found is not None
    assert (found.count, found.busy, found.stolen) == (1, 15, 6)
