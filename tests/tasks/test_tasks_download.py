"""Getting data: every way in which it can go wrong leaves a clear message and an intact cache."""

import errno
import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from suite.files import write_atomic
from tasks import download, registry, sources
from tasks.download import CacheError, DataError, ExplicitSourceError
from tasks.sources import DataSet, File, Source, UnavailableError

CONTENTS = {"first.bin": b"first" * 5000, "second.bin": b"second" * 7000, "third.bin": b"3" * 11}
FILES = tuple(File(name, len(c), hashlib.sha256(c).hexdigest()) for name, c in CONTENTS.items())


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DURNN_DATA", raising=False)
    return tmp_path / "cache" / "data" / "toy"


@pytest.fixture
def offer(monkeypatch):
    """Register the data set "toy" with the given sources and a stand-in."""
    tasks.names()
    standin = registry._Entry(tasks.Task, {}, "", stands_in_for="toy")
    monkeypatch.setitem(registry._entries, "toy-synthetic", standin)

    def register(*fetches) -> None:
        offered = tuple(Source(f"source {place}", fetch) for place, fetch in enumerate(fetches))
        toy = DataSet("toy", "Toy", FILES, offered, licence="none")
        monkeypatch.setitem(sources.DATA_SETS, "toy", toy)

    return register


def good(scratch: Path) -> dict[str, bytes]:
    (scratch / "left").write_bytes(b"scratch")
    return dict(CONTENTS)


def gone(scratch: Path) -> dict[str, bytes]:
    raise UnavailableError("no answer")


def kept(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} - {".lock"} if home.exists() else set()


def test_what_a_source_delivers_is_kept_and_then_read_from_the_cache(cache, offer) -> None:
    offer(gone, good)
    assert download.load("toy") == CONTENTS
    assert kept(cache) == set(CONTENTS)
    offer(lambda scratch: pytest.fail("asked again"))
    assert download.load("toy") == CONTENTS


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c + b"x", lambda c: b"x" + c[1:], lambda c: b""])
def test_a_wrong_or_truncated_download_is_refused_and_the_next_source_asked(cache, offer, damage) -> None:
    def wrong(scratch: Path) -> dict[str, bytes]:
        return CONTENTS | {"second.bin": damage(CONTENTS["second.bin"])}

    offer(wrong, lambda scratch: {})
    with pytest.raises(DataError, match=r"second\.bin has the wrong content"):
        download.load("toy")
    assert kept(cache) == set()
    offer(wrong, good)
    assert download.load("toy") == CONTENTS


def test_a_damaged_cache_is_repaired(cache, offer) -> None:
    offer(good)
    download.load("toy")
    (cache / "first.bin").write_bytes(b"rotten")
    (cache / "third.bin").unlink()
    assert download.load("toy") == CONTENTS
    assert (cache / "first.bin").read_bytes() == CONTENTS["first.bin"]


def test_when_nothing_is_reachable_one_screen_says_which_file_goes_where(cache, offer, monkeypatch, tmp_path) -> None:
    offer(gone, gone)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("DURNN_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError) as caught:
        download.load("toy")
    message = str(caught.value)
    assert len(message.splitlines()) < 25
    for expected in (*CONTENTS, FILES[0].sha256, str(cache), "DURNN_DATA", "no answer", "toy-synthetic", "source 1"):
        assert expected in message
    # following the message works
    cache.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENTS.items():
        (cache / f"{name}.gz").write_bytes(gzip.compress(content))
    assert download.load("toy") == CONTENTS


def test_a_local_folder_comes_first_and_is_only_read(cache, offer, monkeypatch, tmp_path) -> None:
    offer(lambda scratch: pytest.fail("asked a source"))
    folder = tmp_path / "mine"
    (folder / "toy").mkdir(parents=True)
    (folder / "toy" / "first.bin").write_bytes(CONTENTS["first.bin"])
    (folder / "second.bin.gz").write_bytes(gzip.compress(CONTENTS["second.bin"]))
    (folder / "third.bin").write_bytes(CONTENTS["third.bin"])
    assert download.load("toy", folder) == CONTENTS
    monkeypatch.setenv("DURNN_DATA", str(folder))
    assert download.load("toy") == CONTENTS
    assert not cache.exists()


def test_a_local_folder_that_is_not_there_stops(cache, offer, monkeypatch, tmp_path) -> None:
    offer(good)
    monkeypatch.setenv("DURNN_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(ExplicitSourceError, match=r"DURNN_DATA folder: .*mistyped is not a folder"):
        download.load("toy")


def test_a_disk_without_room_is_named_before_anything_is_fetched(cache, offer, monkeypatch) -> None:
    offer(lambda scratch: pytest.fail("asked a source"))
    usage = download.shutil.disk_usage("/")
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage._replace(free=1))
    with pytest.raises(CacheError, match=r"disk is full \(1 MB are needed\)"):
        download.load("toy")


TOO_LONG = gzip.compress(CONTENTS["first.bin"] + b"x")


DAMAGED = {
    "not gzip": b"junk",
    "bomb": gzip.compress(b"x" * 10_000_000),
    "too long": TOO_LONG,
    "cut": TOO_LONG[:-3],
    "empty": b"",
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_local_file_is_reported_and_passed_over(cache, offer, tmp_path, capsys, damaged: bytes) -> None:
    offer(good)
    (tmp_path / "first.bin.gz").write_bytes(damaged)
    assert download.load("toy", tmp_path) == CONTENTS
    assert "first.bin has the wrong content" in capsys.readouterr().err


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_leaves_nothing_half_written(cache, offer, monkeypatch, code: int) -> None:
    offer(good)
    written = []

    def fsync(handle: int) -> None:
        written.append(handle)
        if len(written) == 2:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DataError, match=r"disk is full \(1 MB are needed\).*DURNN_CACHE"):
        download.load("toy")
    assert kept(cache) == {"first.bin"}
    assert (cache / "first.bin").read_bytes() == CONTENTS["first.bin"]
    monkeypatch.undo()


def test_a_write_that_fails_keeps_the_file_that_was_there(tmp_path, monkeypatch) -> None:
    target = tmp_path / "file"
    write_atomic(target, b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path, offer, monkeypatch) -> None:
    offer(good)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be kept in .*file/data/toy: Not a directory\..*set DURNN_CACHE"):
        download.load("toy")


def test_a_read_only_cache_folder_is_named(cache, offer, monkeypatch) -> None:
    offer(good)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(download.tempfile, "mkdtemp", refuse)
    with pytest.raises(DataError, match=r"cannot be kept in .*: Read-only file system\. .*write permission"):
        download.load("toy")


def test_a_complete_read_only_cache_works_without_a_lock(cache, offer, monkeypatch) -> None:
    cache.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (cache / name).write_bytes(content)
    cache.chmod(0o555)
    offer(gone)
    monkeypatch.setattr(download, "FileLock", lambda *_: pytest.fail("took a lock"))
    assert download.load("toy") == CONTENTS
    assert kept(cache) == set(CONTENTS)
    assert not (cache / ".lock").exists()
    cache.chmod(0o755)


# Runs in a fresh interpreter that forks: the parent of the forks has no threads.
PROCESSES = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
import test_tasks_download as here
from suite import files
from tasks import download, sources

def fork(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid

def offer(fetch):
    source = sources.Source("source", fetch)
    sources.DATA_SETS["toy"] = sources.DataSet("toy", "Toy", here.FILES, (source,), "none")

home = download.data_cache() / "toy"
"""

KILLED = (
    PROCESSES
    + """
def killed_at(step):
    # the process dies without warning before the step-th operation on the disk
    done = 0
    def die(function):
        def instead(*args, **kwargs):
            nonlocal done
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return instead
    def fetch(scratch):
        (scratch / "half").write_bytes(b"x" * 100)
        die(lambda: None)()
        return dict(here.CONTENTS)
    offer(fetch)
    for module, name in ((os, "fsync"), (os, "replace"), (files, "flush_to_disk")):
        setattr(module, name, die(getattr(module, name)))
    download.load("toy")

deaths, step = 0, 0
while True:
    step += 1
    _, status = os.waitpid(fork(lambda: killed_at(step)), 0)
    died = os.WIFSIGNALED(status)
    deaths += died
    for name in here.CONTENTS:
        if (home / name).exists():
            assert (home / name).read_bytes() == here.CONTENTS[name], (step, name)
    offer(here.good)
    assert download.load("toy") == here.CONTENTS, step
    assert here.kept(home) == set(here.CONTENTS), (step, here.kept(home))
    for name in here.CONTENTS:
        (home / name).unlink()
    if not died:
        break
print(deaths)
"""
)

TOGETHER = (
    PROCESSES
    + """
calls = Path(sys.argv[1])
def fetch(scratch):
    with calls.open("a") as log:
        log.write("x")
    time.sleep(0.3)
    return dict(here.CONTENTS)
offer(fetch)
def work():
    assert download.load("toy") == here.CONTENTS
pids = [fork(work) for _ in range(4)]
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0, 0]
print(calls.read_text())
"""
)


def run(script: str, tmp_path: Path, *arguments: str) -> str:
    environment = os.environ | {"DURNN_CACHE": str(tmp_path / "cache")}
    environment.pop("DURNN_DATA", None)
    script = script.replace("{here!r}", repr(str(Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_killing_a_download_at_any_moment_leaves_nothing_or_valid_files(tmp_path) -> None:
    deaths = int(run(KILLED, tmp_path))
    assert deaths >= 4 * len(CONTENTS) + 1  # every disk operation of every file, and once in the source


def test_four_processes_at_once_download_once(tmp_path) -> None:
    assert run(TOGETHER, tmp_path, str(tmp_path / "calls")) == "x"


def test_unknown_data_sets_are_named() -> None:
    with pytest.raises(ValueError, match="no data set 'cifar' to download; there are: mnist, ptb-c"):
        download.load("cifar")
