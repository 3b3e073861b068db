"""Seals: a file is trusted without being read only as long as nothing has touched it."""

import hashlib
import os
from pathlib import Path

import pytest

from suite.files import sha256
from tasks.ntu import seal
from tasks.ntu.seal import BrokenSealError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "frames.npy"
    path.write_bytes(b"content")
    seal.seal(path, sha256(b"content"))
    return path


def touch(path: Path, seconds: int) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + seconds * 10**9))


def test_an_untouched_file_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashlib, "file_digest", None)
    seal.check(file)


def test_a_copy_is_read_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(file, 5)
    seal.check(file)
    monkeypatch.setattr(hashlib, "file_digest", None)
    seal.check(file)


def test_a_copy_in_a_folder_that_cannot_be_written_to_is_read_each_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(seal, "write_atomic", refuse)
    touch(file, 5)
    seal.check(file)
    seal.check(file)


@pytest.mark.parametrize("content", [b"Content", b"contents", b"", b"conten"])
def test_other_content_is_noticed(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    touch(file, 5)
    with pytest.raises(BrokenSealError, match=r"frames\.npy has"):
        seal.check(file)


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"{}", b"7", b"\xff"])
def test_a_broken_seal_is_no_seal(file: Path, content: bytes) -> None:
    seal._seal_of(file).write_bytes(content)
    with pytest.raises(BrokenSealError):
        seal.check(file)


def test_no_seal_and_no_file(file: Path) -> None:
    seal._seal_of(file).unlink()
    with pytest.raises(FileNotFoundError):
        seal.check(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        seal.check(file)


def test_a_seal_may_be_made_for_the_name_that_a_file_will_get(file: Path) -> None:
    final = file.with_name("final.npy")
    seal.seal(file, sha256(b"content"), final=final)
    os.replace(file, final)
    seal.check(final)
