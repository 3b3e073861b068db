"""The cache folder, whatever the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite import files
from suite.files import cache_folder, expanded

HOMELESS = """
import os
from suite.files import cache_folder
os.setgroups([]); os.setgid(54321); os.setuid(54321)
print(cache_folder())
"""


def test_the_cache_may_be_written_with_a_tilde_or_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for given, meant in {"~/x": tmp_path / "x", ".": tmp_path, "x/y": tmp_path / "x" / "y"}.items():
        monkeypatch.setenv("DURNN_CACHE", given)
        assert cache_folder() == meant
    monkeypatch.delenv("DURNN_CACHE")
    assert cache_folder() == tmp_path / ".cache" / "durnn-suite"


def test_a_file_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    replace = os.replace

    def replacing(old: Path, new: Path) -> None:
        assert flushed == [old.stat().st_ino]
        replace(old, new)

    monkeypatch.setattr(os, "replace", replacing)
    files.write_atomic(tmp_path / "x", b"content")
    assert flushed[1:] == [tmp_path.stat().st_ino]


@pytest.mark.parametrize("when", ["fsync", "replace"])
def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    (tmp_path / "x").write_bytes(b"before")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomic(tmp_path / "x", b"after")
    assert (tmp_path / "x").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_tilde_without_a_home_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="~nobody-of-this-name/x: there is no home folder"):
        expanded("~nobody-of-this-name/x")
    monkeypatch.setattr(files.Path, "home", _no_home)
    monkeypatch.delenv("DURNN_CACHE", raising=False)
    assert cache_folder().name == f"durnn-suite-{os.getuid()}"


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody unknown")
def test_somebody_without_home_and_passwd_entry_has_a_cache() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "DURNN_CACHE")}
    command = [sys.executable, "-c", HOMELESS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().endswith("/durnn-suite-54321")
    done = subprocess.run(command, env=environment | {"DURNN_CACHE": "~/x"}, capture_output=True, text=True)
    assert done.stderr.strip().endswith("write the path out")
