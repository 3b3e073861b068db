"""What a command sets before anything is imported."""

import os

import pytest

from reproduce import cli, start


@pytest.mark.parametrize(("given", "seen"), [(None, start.SPINS), ("77", "77")])
def test_threads_that_wait_soon_sleep_unless_the_user_says_otherwise(given, seen, monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", given or "")  # restored at the end, whatever the command leaves behind
    if given is None:
        del os.environ["GOMP_SPINCOUNT"]
    found = []
    monkeypatch.setattr(cli, "main", lambda name: found.append((name, os.environ["GOMP_SPINCOUNT"])))
    start.main("table1")
    assert found == [("table1", seen)]
