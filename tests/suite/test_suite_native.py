"""C++ that is compiled once and cached: what is loaded again, what is built again, and what is left behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from suite import native

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler"
)

ANSWER = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "native"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.cpp"
    path.write_text(ANSWER)
    return path


@pytest.fixture
def builds(caplog: pytest.LogCaptureFixture):  # type: ignore[no-untyped-def]
    """How often something has been compiled."""
    return lambda: sum("compiling the deep thought" in record.getMessage() for record in caplog.records)


def check(library: ctypes.CDLL) -> None:
    if library.answer() != 42:
        raise ValueError(f"the answer is {library.answer()}")


def load(source: Path) -> ctypes.CDLL:
    return native.load("deep_thought", [source], check=check)


def replace(library: Path, content: bytes, with_digest: bool) -> None:
    """Put another file there, under a new inode: this process has mapped the old one."""
    other = library.with_name("other")
    other.write_bytes(content)
    os.replace(other, library)
    if with_digest:
        library.with_suffix(".sha256").write_text(native.sha256(content) + "\n")


def kept(cache: Path) -> tuple[Path, Path]:
    """The library and its digest, and that nothing else lies beside them."""
    digest, library = sorted(cache.iterdir())
    assert (digest.suffix, library.suffix) == (".sha256", ".so")
    return library, digest


def test_a_library_is_built_once_and_loaded_from_then_on(cache: Path, source: Path, builds) -> None:
    assert load(source).answer() == load(source).answer() == 42
    assert builds() == 1
    for path in kept(cache):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(cache.stat().st_mode) == 0o755


def test_the_key_covers_sources_flags_compiler_and_cpu(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [native._key([source], flags, "g++ 12") for flags in (native.FLAGS, (*native.FLAGS, "-g"))]
    keys.append(native._key([source], native.FLAGS, "g++ 13"))
    keys.append(native._key([source, source], native.FLAGS, "g++ 12"))
    monkeypatch.setattr(native, "cpu_signature", lambda: "another CPU")
    keys.append(native._key([source], native.FLAGS, "g++ 12"))
    source.write_text("int x;")
    keys.append(native._key([source], native.FLAGS, "g++ 12"))
    assert len(set(keys)) == len(keys)


def test_headers_are_found_and_belong_to_the_key(cache: Path, tmp_path: Path, builds) -> None:
    (tmp_path / "include").mkdir()
    header, source = tmp_path / "include" / "value.h", tmp_path / "answer.cpp"
    source.write_text('#include "value.h"\nextern "C" int answer() { return value; }\n')
    for value in (42, 40 + 2, 41 + 1):
        header.write_text(f"constexpr int value = {value};  // {builds()}\n")
        native.load("deep_thought", [source, header], check=check, include=header.parent)
    assert builds() == 3


@pytest.mark.parametrize("damage", ["truncated", "other bytes", "no digest", "wrong digest"])
def test_a_damaged_library_is_built_again(cache: Path, source: Path, damage: str, builds) -> None:
    load(source)
    library, digest = kept(cache)
    whole = library.read_bytes()
    if damage == "truncated":
        replace(library, whole[: len(whole) // 2], with_digest=False)
    elif damage == "other bytes":
        replace(library, b"damaged", with_digest=False)
    elif damage == "no digest":
        digest.unlink()
    else:
        digest.write_text("0" * 64 + "\n")
    assert load(source).answer() == 42
    assert builds() == 2
    library, digest = kept(cache)
    assert digest.read_text().strip() == native.sha256(library.read_bytes())


def test_half_a_library_does_not_kill_the_process(cache: Path, source: Path) -> None:
    """In a process of its own, which has not mapped the whole one."""
    load(source)
    library, _digest = kept(cache)
    content = library.read_bytes()
    replace(library, content[:5000], with_digest=False)
    program = (
        "import sys; from pathlib import Path; from suite import native\n"
        "print(native.load('deep_thought', [Path(sys.argv[1])]).answer())"
    )
    done = subprocess.run([sys.executable, "-c", program, str(source)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_loadable_but_wrong_library_is_built_again(cache: Path, source: Path, builds) -> None:
    load(source)
    library, _digest = kept(cache)
    wrong = source.with_name("wrong.cpp")
    wrong.write_text(ANSWER.replace("42", "54"))
    native.load("other", [wrong])
    (other,) = cache.glob("other-*.so")
    replace(library, other.read_bytes(), with_digest=True)
    for path in cache.glob("other-*"):
        path.unlink()
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_suite_native as t\n"
        f"print(t.load(Path({str(source)!r})).answer())"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "compiling the deep thought" in done.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.stdout, again.stderr) == ("42\n", "")
    kept(cache)


def test_library_and_digest_are_on_disk_before_they_get_their_names(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.add(os.fstat(handle).st_ino))
    replace_, order = os.replace, []

    def replacing(old: Path, new: Path) -> None:
        assert old.stat().st_ino in flushed
        order.append(Path(new).suffix)
        replace_(old, new)

    monkeypatch.setattr(os, "replace", replacing)
    load(source)
    assert order == [".sha256", ".so"]
    assert cache.stat().st_ino in flushed


def test_an_interrupted_compilation_leaves_nothing(cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = native._run

    def interrupted(command: list[str]) -> subprocess.CompletedProcess[str]:
        done = run(command)
        if "-o" in command:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(native, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(source)
    assert list(cache.iterdir()) == []


def test_a_library_that_fails_its_check_is_not_kept(cache: Path, source: Path) -> None:
    source.write_text(ANSWER.replace("42", "54"))
    with pytest.raises(native.BuildError, match="the answer is 54"):
        load(source)
    assert list(cache.iterdir()) == []


def test_flags_are_tried_in_order(cache: Path, source: Path, builds) -> None:
    flag_sets = [(*native.FLAGS, "-no-such-flag"), native.FLAGS]
    assert native.load("deep_thought", [source], flag_sets, check).answer() == 42
    assert builds() == 2
    kept(cache)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("path", ["folder", "library"])
def test_what_belongs_to_others_is_not_trusted(cache: Path, source: Path, path: str, builds) -> None:
    load(source)
    library, _digest = kept(cache)
    os.chown(cache if path == "folder" else library, 54321, 54321)
    assert load(source).answer() == 42
    assert builds() == 2


@pytest.mark.parametrize("path", ["folder", "library"])
def test_what_others_may_write_to_is_not_trusted(cache: Path, source: Path, path: str, builds) -> None:
    load(source)
    library, _digest = kept(cache)
    target = cache if path == "folder" else library
    target.chmod(target.stat().st_mode | stat.S_IWGRP)
    assert load(source).answer() == 42
    assert builds() == 2
    kept(cache)


@pytest.mark.parametrize("obstacle", ["a file", "read-only"])
def test_without_a_writable_cache_it_is_built_for_this_process(
    tmp_path: Path, source: Path, obstacle: str, monkeypatch: pytest.MonkeyPatch, builds
) -> None:
    blocked = tmp_path / "blocked"
    monkeypatch.setenv("DURNN_CACHE", str(blocked))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    if obstacle == "a file":
        blocked.write_text("a file where a folder should be")
    else:
        blocked.mkdir(mode=0o555)
        if os.access(blocked, os.W_OK):  # nothing is read-only to root
            monkeypatch.setattr(Path, "mkdir", _refuse)
    assert load(source).answer() == load(source).answer() == 42
    assert builds() == 2
    assert list(scratch.iterdir()) == []
    assert blocked.is_file() or list(blocked.iterdir()) == []


def _refuse(self: Path, *_: object, **__: object) -> None:
    raise PermissionError(13, "Read-only file system", str(self))


def test_the_compilers_message_is_passed_on(cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write_text("this is not C++\n")
    with pytest.raises(native.BuildError, match=r"failed with exit code \d+: .*error"):
        load(source)
    assert list(cache.iterdir()) == []
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(native.BuildError, match="could not be run"):
        load(source)


def test_what_a_killed_build_left_is_removed_in_time(cache: Path, source: Path) -> None:
    old, young = cache / ".build-old", cache / ".build-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "built.so").write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.chmod(0o755)
    load(source)
    assert not old.exists()
    assert young.exists()
