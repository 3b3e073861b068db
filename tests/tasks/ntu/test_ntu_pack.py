"""The packed cache: complete or absent, whatever happens while it is made."""

import errno
import json
import os
import signal
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.download import DataError
from tasks.ntu import packing, shards
from tasks.ntu.bodies import select_people
from tasks.ntu.clip import Clip, SkeletonError
from tasks.ntu.names import ClipName
from tasks.ntu.packing import Packed, pack
from tasks.ntu.preprocessing import CONVENTIONS
from tasks.ntu.readers import text
from tasks.ntu.readers.clip_sets import ClipArchive, ClipFolder
from tasks.ntu.standin.clip_set import GeneratedClips
from tasks.ntu.standin.sensor import film

NAMES = sorted(GeneratedClips(2, 0).names)[::30]  # a dozen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "files"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.skeleton").write_bytes(text.dump(film(ClipName.parse(name), 0)))
    return folder


def cache(folder: Path) -> Path:
    return folder.parent / "cache" / "data" / "ntu"


def kept(folder: Path) -> list[str]:
    """What stands in the cache, locks aside."""
    return sorted(path.name for path in cache(folder).glob("*") if not path.name.startswith(".lock"))


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; its exit code, or minus the signal that ended it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on, forks of processes with threads are
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_packed_frames_are_those_of_the_files(folder: Path) -> None:
    packed = pack(ClipFolder(folder), "test")
    assert packed.names == NAMES
    clip_set = ClipFolder(folder)
    for k, name in enumerate(NAMES):
        frames = select_people(clip_set.read(name))
        np.testing.assert_array_equal(packed.clip("raw", k), frames)
        for convention in CONVENTIONS:
            np.testing.assert_array_equal(packed.clip(convention, k), CONVENTIONS[convention](frames))
    for convention in CONVENTIONS:
        assert not packed.frames(convention)[packed.zero_row].any()
    assert len(kept(folder)) == 1
    assert not [path for path in packed.folder.iterdir() if path.name.startswith((".frames", ".seal"))]


def test_it_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pack(ClipFolder(folder), "test")
    first.frames("s-trans")
    monkeypatch.setattr(packing, "_make", None)
    monkeypatch.setattr(Packed, "_convert", None)
    second = pack(ClipFolder(folder), "test")
    assert second.sha256 == first.sha256
    second.frames("s-trans")


def test_changed_files_are_packed_again(folder: Path) -> None:
    before = pack(ClipFolder(folder), "test")
    (folder / f"{NAMES[0]}.skeleton").write_bytes(text.dump(film(ClipName.parse(NAMES[0]), 1)))
    after = pack(ClipFolder(folder), "test")
    assert after.sha256 != before.sha256


def nothing(*args: object) -> None: ...


KILL_POINTS = {
    "while clips are read": (shards, "select_people", 5),
    "when all are read": (packing, "_join", 1),
    "before the frames are safe": (packing, "_flush", 1),
    "before the index is safe": (packing, "_flush", 2),
    "before the frames are sealed": (os, "replace", 1),
    "before the index is sealed": (os, "replace", 2),
    "before the folder gets its name": (os, "replace", 3),
}


@pytest.mark.parametrize("point", KILL_POINTS)
def test_killed_at_any_moment_it_leaves_nothing_and_works_the_next_time(point: str, folder: Path) -> None:
    module, function, call = KILL_POINTS[point]
    original = getattr(module, function)
    calls = 0

    def deadly(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    def work() -> None:
        setattr(module, function, deadly)
        pack(ClipFolder(folder), "test")

    assert in_child(work) == -signal.SIGKILL
    assert [name for name in kept(folder) if not name.startswith(".packing-")] == []
    packed = pack(ClipFolder(folder), "test")
    assert packed.names == NAMES
    assert len(kept(folder)) == 1  # what the killed process left is gone


def test_killed_while_preprocessing(folder: Path) -> None:
    packed = pack(ClipFolder(folder), "test")

    def deadly(frames: np.ndarray) -> np.ndarray:
        os.kill(os.getpid(), signal.SIGKILL)
        return frames

    def work() -> None:
        CONVENTIONS["p-ntu"] = deadly
        packed.frames("p-ntu")

    assert in_child(work) == -signal.SIGKILL
    frames = packed.frames("p-ntu")
    assert frames.shape == packed.frames("raw").shape
    assert not [path for path in packed.folder.iterdir() if path.name.startswith((".frames", ".seal"))]


def test_two_processes_at_once(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            pack(ClipFolder(folder), "test").frames("s-rota")
            os._exit(0)
        except BaseException:
            os._exit(1)
    packed = pack(ClipFolder(folder), "test")
    packed.frames("s-rota")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("damage", ["index", "truncated index", "other index", "frames", "one byte", "no seal"])
def test_a_damaged_cache_is_made_again(damage: str, folder: Path) -> None:
    packed = pack(ClipFolder(folder), "test")
    index, frames = packed.folder / "index.json", packed.folder / "frames.npy"
    match damage:
        case "index":
            index.unlink()
        case "truncated index":
            index.write_text(index.read_text()[:50])
        case "frames":
            frames.write_bytes(frames.read_bytes()[:-1000])
        case "other index":
            index.write_text(json.dumps(json.loads(index.read_text()) | {"lengths": [1] * len(NAMES)}))
        case "one byte":
            frames.write_bytes(frames.read_bytes()[:-2000] + b"x" + frames.read_bytes()[-1999:])
        case "no seal":
            (packed.folder / "seal-frames.npy.json").unlink()
    again = pack(ClipFolder(folder), "test")
    assert again.sha256 == packed.sha256
    for k, name in enumerate(NAMES):
        np.testing.assert_array_equal(again.clip("raw", k), select_people(ClipFolder(folder).read(name)))


def test_damaged_preprocessed_frames_are_made_again(folder: Path) -> None:
    packed = pack(ClipFolder(folder), "test")
    before = np.array(packed.frames("s-rota"))
    (path,) = packed.folder.glob("frames-s-rota*")
    for damaged in (path.read_bytes()[:-1000], b"x" + path.read_bytes()[1:], path.read_bytes()[:-1] + b"x"):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(packed.frames("s-rota"), before)


def test_killed_between_the_seal_and_the_name_of_a_preprocessing(folder: Path) -> None:
    packed = pack(ClipFolder(folder), "test")
    replace, calls = os.replace, 0

    def deadly(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*args)

    def work() -> None:
        os.replace = deadly  # type: ignore[assignment]
        packed.frames("s-rota")

    assert in_child(work) == -signal.SIGKILL
    assert not list(packed.folder.glob("frames-s-rota*"))
    assert packed.frames("s-rota").shape == packed.frames("raw").shape
    assert not [path for path in packed.folder.iterdir() if path.name.startswith((".frames", ".seal"))]


def test_another_preprocessing_under_the_same_name_makes_another_array(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack(ClipFolder(folder), "test")
    before = np.array(packed.frames("s-rota"))
    monkeypatch.setitem(CONVENTIONS, "s-rota", CONVENTIONS["p-ntu"])
    assert not np.array_equal(packed.frames("s-rota"), before)
    np.testing.assert_array_equal(packed.frames("s-rota"), packed.frames("p-ntu"))
    assert len(list(packed.folder.glob("frames-s-rota*"))) == 2


def test_a_body_of_zeros_is_none(folder: Path) -> None:
    zeros = Clip(3, np.arange(3), np.full(3, 7, np.uint64), np.zeros((3, 25, 3), np.float32))
    (folder / f"{NAMES[2]}.skeleton").write_bytes(text.dump(zeros))
    assert pack(ClipFolder(folder), "test").without_bodies == [NAMES[2]]


@pytest.mark.parametrize(("number", "reason"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "Read-only")])
def test_a_disk_that_cannot_take_it(number: int, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(packing, "_join", fail)
    with pytest.raises(DataError, match=f"{reason}.*DURNN_CACHE"):
        pack(ClipFolder(folder), "test")
    assert kept(folder) == []


def test_a_bad_file_stops_the_packing_with_its_name(folder: Path) -> None:
    (folder / f"{NAMES[3]}.skeleton").write_bytes(b"1\n1\nnothing\n")
    with pytest.raises(SkeletonError, match=rf"{NAMES[3]}\.skeleton, line 3: "):
        pack(ClipFolder(folder), "test")
    assert kept(folder) == []


def test_clips_without_a_body_are_left_out_and_listed(folder: Path) -> None:
    empty = Clip(3, np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros((0, 25, 3), np.float32))
    (folder / f"{NAMES[2]}.skeleton").write_bytes(text.dump(empty))
    packed = pack(ClipFolder(folder), "test")
    assert packed.without_bodies == [NAMES[2]]
    assert packed.names == NAMES[:2] + NAMES[3:]


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_WORTH_A_PROCESS", 1)


@pytest.mark.usefixtures("worth_it")
def test_several_processes_make_the_same(folder: Path) -> None:
    alone = pack(ClipFolder(folder), "alone", processes=1)
    done: list[int] = []
    (folder.parent / "shards").mkdir()
    written = shards.write_shards(ClipFolder(folder), folder.parent / "shards", 2, done.append)
    assert len(written) == 2
    assert sum(done) == len(NAMES)
    together = pack(ClipFolder(folder), "together", processes=2)
    assert together.sha256 == alone.sha256
    assert together.names == alone.names
    np.testing.assert_array_equal(together.lengths, alone.lengths)
    archive = folder.parent / "all.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as stream:
        for name in NAMES:
            stream.write(folder / f"{name}.skeleton", f"nturgb+d_skeletons/{name}.skeleton")
    assert pack(ClipArchive(archive), "zip", processes=2).sha256 == alone.sha256


@pytest.mark.usefixtures("worth_it")
def test_errors_in_processes_arrive(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        shards.write_shards(ClipFolder(folder), folder.parent / "nowhere", 2, nothing)
    (folder / f"{NAMES[-1]}.skeleton").write_bytes(b"1\n1\nnothing\n")
    with pytest.raises(SkeletonError, match=rf"{NAMES[-1]}\.skeleton, line 3: "):
        shards.write_shards(ClipFolder(folder), folder.parent, 2, nothing)
