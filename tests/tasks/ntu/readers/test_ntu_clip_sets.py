"""Folders, zips, and archives that mean harm."""

import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tasks
from tasks.download import DataError, ExplicitSourceError
from tasks.ntu.clip import SkeletonError
from tasks.ntu.names import ClipName
from tasks.ntu.readers import clip_sets, text
from tasks.ntu.readers.clip_sets import ClipArchive, ClipFolder, find_clips
from tasks.ntu.standin.sensor import film

NAMES = ("S001C001P001R001A001", "S001C002P003R002A055")
FILES = {name: text.dump(film(ClipName.parse(name), 0)) for name in NAMES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / f"{NAMES[0]}.skeleton").write_bytes(FILES[NAMES[0]])
    (tmp_path / "inner" / f"{NAMES[1]}.skeleton").write_bytes(FILES[NAMES[1]])
    for other in ("S001C002P005R002A008", "S018C001P041R001A061", "S001C001P009R001A001"):  # missing, 120, unknown
        (tmp_path / f"{other}.skeleton").write_bytes(b"never read")
    (tmp_path / "readme.txt").write_text("hello")
    return tmp_path


def zip_of(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_folder_and_its_zip_hold_the_same_clips(folder: Path) -> None:
    archive = zip_of(folder / "all.zip", {f"nturgb+d_skeletons/{name}.skeleton": FILES[name] for name in NAMES})
    for clip_set in (ClipFolder(folder), ClipArchive(archive)):
        assert clip_set.names == list(NAMES)
        for name in NAMES:
            clip = clip_set.read(name)
            np.testing.assert_array_equal(clip.joints, text.parse(FILES[name], name).joints)


def test_signature_follows_the_content(folder: Path) -> None:
    before = ClipFolder(folder).signature
    assert ClipFolder(folder).signature == before
    (folder / f"{NAMES[0]}.skeleton").write_bytes(FILES[NAMES[0]] + b"\n")
    assert ClipFolder(folder).signature != before
    one = ClipArchive(zip_of(folder / "one.zip", {f"{NAMES[0]}.skeleton": FILES[NAMES[0]]})).signature
    two = ClipArchive(zip_of(folder / "two.zip", {f"{NAMES[0]}.skeleton": FILES[NAMES[0]] + b" "})).signature
    assert one != two


def test_text_is_preferred_to_npy(folder: Path) -> None:
    (folder / "inner" / f"{NAMES[0]}.skeleton.npy").write_bytes(b"never read")
    (folder / f"{NAMES[1]}.skeleton.npy").write_bytes(b"never read")
    clip_set = ClipFolder(folder)
    assert {path.suffix for path in clip_set.files.values()} == {".skeleton"}
    clip_set.read(NAMES[0])
    clip_set.read(NAMES[1])


def test_a_clip_that_stands_twice(folder: Path) -> None:
    (folder / "inner" / f"{NAMES[0]}.skeleton").write_bytes(FILES[NAMES[0]])
    with pytest.raises(DataError, match=f"{NAMES[0]}.*twice"):
        ClipFolder(folder)


def test_files_that_cannot_be_read_are_named(folder: Path) -> None:
    clip_set = ClipFolder(folder)
    (folder / f"{NAMES[0]}.skeleton").unlink()
    with pytest.raises(SkeletonError, match=rf"{NAMES[0]}.skeleton: cannot be read: No such file"):
        clip_set.read(NAMES[0])
    with pytest.raises(DataError, match=rf"{NAMES[0]}.skeleton cannot be read: No such file"):
        _ = clip_set.signature


def test_find_place(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("DURNN_NTU", raising=False)
    with pytest.raises(DataError, match=r"DURNN_NTU(.|\n)*\.skeleton(.|\n)*ntu-cs-synthetic"):
        find_clips(None)
    with pytest.raises(ExplicitSourceError, match=r"source=.*does not exist"):
        find_clips(folder / "nowhere")
    monkeypatch.setenv("DURNN_NTU", str(folder / "nowhere"))
    with pytest.raises(ExplicitSourceError, match=r"DURNN_NTU=.*does not exist"):
        find_clips(None)
    monkeypatch.setenv("DURNN_NTU", str(folder))
    assert isinstance(find_clips(None), ClipFolder)
    zips = tmp_path_factory.mktemp("zips")
    with pytest.raises(ExplicitSourceError, match="holds no clip"):
        find_clips(zips)
    zip_of(zips / "a.zip", {f"{NAMES[0]}.skeleton": FILES[NAMES[0]]})
    assert isinstance(find_clips(zips), ClipArchive)
    zip_of(zips / "b.zip", {f"{NAMES[1]}.skeleton": FILES[NAMES[1]]})
    with pytest.raises(DataError, match=r"a\.zip, b\.zip"):
        find_clips(zips)
    zip_of(zips / "nturgbd_skeletons_s001_to_s017.zip", {f"{NAMES[1]}.skeleton": FILES[NAMES[1]]})
    assert find_clips(zips).names == [NAMES[1]]
    assert find_clips(zips / "a.zip").names == [NAMES[0]]


@pytest.mark.parametrize(
    "member", ["/etc/x", "../x", "a/../../x", "..\\x", "C:\\x", "\\x", f"../{NAMES[0]}.skeleton", "a\0b"]
)
def test_hostile_member_names_are_refused(member: str, tmp_path: Path) -> None:
    path = tmp_path / "evil.zip"
    info = zipfile.ZipInfo("placeholder".ljust(len(member), "x")[: len(member)])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{NAMES[0]}.skeleton", FILES[NAMES[0]])
        archive.writestr(info, b"1")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(info.filename.encode(), member.encode()))
    with pytest.raises(DataError, match="points outside"):
        ClipArchive(path)


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    name = f"{NAMES[0]}.skeleton"
    with pytest.raises(DataError, match="which no skeleton file does"):
        ClipArchive(zip_of(tmp_path / "ratio.zip", {name: b"0\n" * 5_000_000}))
    with pytest.raises(DataError, match="which no skeleton file does"):
        ClipArchive(zip_of(tmp_path / "large.zip", {name: bytes(text.MAX_BYTES + 1)}, zipfile.ZIP_STORED))


def test_a_member_larger_than_it_claims_is_not_unpacked_further(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "liar.zip", {f"{NAMES[0]}.skeleton": b"0\n" * 5_000_000})
    size = struct.pack("<L", 10_000_000)
    path.write_bytes(path.read_bytes().replace(size, struct.pack("<L", 1000)))
    with pytest.raises(SkeletonError, match=r"liar.zip:S001"):
        ClipArchive(path).read(NAMES[0])


def test_damaged_zips(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "x.zip", {f"{NAMES[0]}.skeleton": FILES[NAMES[0]]})
    raw = bytearray(path.read_bytes())
    raw[200:300] = bytes(100)
    path.write_bytes(raw)
    with pytest.raises(SkeletonError, match="cannot be unpacked"):
        ClipArchive(path).read(NAMES[0])
    path.write_bytes(raw[:500])
    with pytest.raises(DataError, match="no readable zip"):
        ClipArchive(path)
    twice = tmp_path / "twice.zip"
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr(f"a/{NAMES[0]}.skeleton", b"0")
        archive.writestr(f"b/{NAMES[0]}.skeleton", b"0")
    with pytest.raises(DataError, match="twice"):
        ClipArchive(twice)


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "x.zip", {f"{NAMES[0]}.skeleton": FILES[NAMES[0]]})
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="encrypted"):
        ClipArchive(path)


def test_an_error_in_a_zip_names_archive_member_and_line(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "x.zip", {f"in/{NAMES[0]}.skeleton": b"1\n1\nwrong"})
    with pytest.raises(SkeletonError, match=rf"x.zip:in/{NAMES[0]}.skeleton, line 3: "):
        ClipArchive(path).read(NAMES[0])


def test_npy_in_a_zip(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array({"skel_body0": np.ones((3, 25, 3))}, dtype=object), allow_pickle=True)
    path = zip_of(tmp_path / "x.zip", {f"{NAMES[0]}.skeleton.npy": stream.getvalue()})
    assert ClipArchive(path).read(NAMES[0]).length == 3


def test_limits_have_room_for_real_files() -> None:
    data = FILES[NAMES[1]]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", data)
        info = archive.getinfo("x")
    assert info.file_size < clip_sets.MAX_RATIO / 10 * info.compress_size


def test_only_the_absence_of_any_source_lets_a_stand_in_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURNN_NTU", raising=False)
    with pytest.raises(DataError) as caught:
        tasks.build("ntu-cs")
    assert not isinstance(caught.value, ExplicitSourceError)


def test_a_zip_that_was_named_and_cannot_be_used_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"no zip")
    with pytest.raises(ExplicitSourceError, match="no readable zip"):
        tasks.build("ntu-cs", source=tmp_path / "x.zip")


@pytest.mark.parametrize("ending", ["skeleton", "skeleton.npy"])
def test_a_pipe_that_is_named_like_a_clip_is_not_waited_for(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{NAMES[0]}.{ending}")
    with pytest.raises(SkeletonError, match=rf"{NAMES[0]}\.{ending}: cannot be read: it is no regular file"):
        ClipFolder(tmp_path).read(NAMES[0])


def test_a_pipe_that_is_named_like_a_zip_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "all.zip")
    with pytest.raises(ExplicitSourceError, match="holds no clip"):
        find_clips(tmp_path)
    with pytest.raises(ExplicitSourceError, match="is neither a folder nor a file"):
        find_clips(tmp_path / "all.zip")
