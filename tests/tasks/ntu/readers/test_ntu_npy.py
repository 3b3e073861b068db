"""The official .skeleton.npy files, and pickles that are something else."""

import io
import os
import pickle
import pickletools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.ntu.clip import SkeletonError
from tasks.ntu.readers import official_npy


def official(bodies: list[np.ndarray], **more: object) -> bytes:
    """A file as the official converter writes it; bodies (T, 25, 3)."""
    content: dict[str, object] = {"file_name": "S001C001P001R001A001", "nbodys": [1], "njoints": 25}
    for slot, body in enumerate(bodies):
        content[f"skel_body{slot}"] = body
        content[f"rgb_body{slot}"] = body[..., :2]
    stream = io.BytesIO()
    np.save(stream, np.array(content | more, dtype=object), allow_pickle=True)
    return stream.getvalue()


def walker(length: int = 30, x: float = 0.0, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    shape = generator.normal((x, 0.0, 3.0), 0.3, (1, 25, 3))
    return shape + np.linspace(0.0, 0.5, length)[:, None, None]


@pytest.mark.parametrize("dtype", ["<f8", "<f4"])
def test_one_body(dtype: str) -> None:
    body = walker().astype(dtype)
    body[3] = 0.0  # nobody there
    clip = official_npy.parse(official([body]), "clip")
    assert clip.length == 30
    np.testing.assert_array_equal(clip.frame, [t for t in range(30) if t != 3])
    assert set(clip.body.tolist()) == {0}
    np.testing.assert_array_equal(clip.joints, body[clip.frame].astype(np.float32))


def test_fortran_order_and_numpy_scalars() -> None:
    body = np.asfortranarray(walker())
    clip = official_npy.parse(official([body], njoints=np.int64(25), note=np.float32(1.5)), "clip")
    np.testing.assert_array_equal(clip.joints, body.astype(np.float32))


def test_people_are_followed_when_slots_swap() -> None:
    left, right = walker(x=-1.0, seed=1), walker(x=1.0, seed=2)
    a, b = left.copy(), right.copy()
    a[10:20], b[10:20] = right[10:20], left[10:20]
    clip = official_npy.parse(official([a, b]), "clip")
    for identity, person in ((0, left), (1, right)):
        np.testing.assert_array_equal(clip.joints[clip.body == identity], person.astype(np.float32))


def test_somebody_far_away_is_somebody_new() -> None:
    first, second = walker(x=-1.0, seed=1), walker(x=4.0, seed=2)
    slot0, slot1 = first.copy(), np.zeros_like(second)
    slot0[15:] = second[15:]  # the first has left, the second stands in slot 0
    slot1[10:15] = second[10:15]
    clip = official_npy.parse(official([slot0, slot1]), "clip")
    assert clip.bodies() == [0, 1]
    np.testing.assert_array_equal(clip.frame[clip.body == 1], np.arange(10, 30))


class Malice:
    def __init__(self, function: object, *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call  # type: ignore[return-value]


@pytest.mark.parametrize(
    "call",
    [
        (os.system, "touch hacked"),
        (eval, "open('hacked', 'w')"),
        (getattr, "x", "upper"),
        (np.load, "x.npy"),
        (np.zeros, 10**12),
        (bytearray, 10**12),
    ],
)
def test_foreign_functions_are_not_called(
    call: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    with pytest.raises(SkeletonError, match=r"clip: this is no official .skeleton.npy file: it asks for"):
        official_npy.parse(official([walker()], extra=Malice(*call)), "clip")
    assert list(folder.iterdir()) == []


def with_pickle(program: bytes) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": ()})
    return stream.getvalue() + program


HOSTILE = {
    "array that claims to be huge": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
    b"U\x01b\x87R(K\x01J\xff\xff\xff\x7f\x85cnumpy\ndtype\nU\x02f8K\x00K\x01\x87RU\x01x\x89tb.",
    "memo that claims to be huge": b"\x80\x02Nr\xff\xff\xff\xff.",
    "bytearray that claims to be huge": b"\x80\x05\x96\x00\x00\x00\x00\xff\x00\x00\x00.",
    "persistent id": b"\x80\x02U\x01xQ.",
    "state of a function": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}U\x04nameU\x01xsb.",
    "instance opcode": b"(ios\nsystem\n.",
    "extension registry": b"\x80\x02\x82\x01.",
    "object": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "nothing": b"",
    "no array": b"\x80\x02}.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_refused_in_little_memory(case: str) -> None:
    tracemalloc.start()
    with pytest.raises(SkeletonError, match="clip: this is no official"):
        official_npy.parse(with_pickle(HOSTILE[case]), "clip")
    assert vars(official_npy._reconstruct) == {}
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_every_instruction_of_the_official_files_is_known_and_no_other_matters() -> None:
    program = official([walker()])[128:]
    needed = {opcode.code.encode("latin-1")[0] for opcode, _, _ in pickletools.genops(program)}
    assert needed <= set(official_npy.RestrictedUnpickler.dispatch)
    assert pickle.INST[0] not in official_npy.RestrictedUnpickler.dispatch
    assert pickle.NEWOBJ[0] not in official_npy.RestrictedUnpickler.dispatch


@pytest.mark.parametrize("kept", [0, 5, 60, 128, 200, 1000, -1])
def test_truncated_files(kept: int) -> None:
    with pytest.raises(SkeletonError, match="clip: "):
        official_npy.parse(official([walker()])[:kept], "clip")


@pytest.mark.parametrize(
    "bodies",
    [[], [np.zeros((5, 24, 3))], [np.zeros((5, 25, 3)), np.zeros((4, 25, 3))], [np.array([["a"] * 3] * 25)]],
)
def test_wrong_content(bodies: list[np.ndarray]) -> None:
    with pytest.raises(SkeletonError, match="clip: "):
        official_npy.parse(official(bodies), "clip")


SOUND = official([walker(4), walker(4, x=1.0, seed=1)])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=5)), min_size=1, max_size=4))
def test_damaged_files_are_refused_or_read(edits: list[tuple[int, bytes]]) -> None:
    data = bytearray(SOUND)
    for place, content in edits:
        data[place % 1200 : place % 1200 + len(content)] = content  # where the instructions are
    try:
        clip = official_npy.parse(bytes(data), "clip")
    except SkeletonError as error:
        message = str(error)
    else:
        message = "clip: "
        assert clip.joints.shape == (len(clip.body), 25, 3)
    assert message.startswith("clip: ")


def test_coordinates_must_be_finite() -> None:
    body = walker()
    body[4, 3, 2] = np.nan
    with pytest.raises(SkeletonError, match="not a number"):
        official_npy.parse(official([body]), "clip")


def test_bodies_that_share_one_array_are_refused_in_little_memory() -> None:
    one = walker(250)
    shared = official([one], **{f"skel_body{slot}": one for slot in range(1, 64)})
    assert len(shared) < 1_000_000
    tracemalloc.start()
    with pytest.raises(SkeletonError, match=r"clip: this is no official .* larger than the file"):
        official_npy.parse(shared, "clip")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_more_frames_than_a_clip_may_have_are_refused() -> None:
    with pytest.raises(SkeletonError, match="100001 frames are more than the 100000"):
        official_npy.parse(official([np.zeros((100_001, 25, 3), dtype=np.int8)]), "clip")


@pytest.mark.parametrize("value", [np.iinfo(np.int64).min, np.iinfo(np.int64).max, 10_001, -10_001])
def test_whole_numbers_far_away_are_refused(value: int) -> None:
    body = np.ones((3, 25, 3), dtype=np.int64)
    body[1, 2, 0] = value
    with pytest.raises(SkeletonError, match="clip: a coordinate is not a number or too large"):
        official_npy.parse(official([body]), "clip")


def test_a_pickled_number_of_many_digits_is_no_body() -> None:
    with pytest.raises(SkeletonError, match="clip: this is no official"):
        official_npy.parse(official([], skel_body0=10**400), "clip")
