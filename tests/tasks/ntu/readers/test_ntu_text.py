"""The .skeleton text format: both readers against each other, against the writer, and against damaged files."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.ntu.clip import Clip, SkeletonError
from tasks.ntu.readers import native, text

READERS = {
    "fast": text.parse,
    "line by line": text.parse_by_line,
}
PEOPLE = (72057594037931101, 72057594037931102, 2**64 - 1)  # neighbours that float64 cannot tell apart


def make_clip(orders: list[tuple[int, ...]], seed: int = 0) -> Clip:
    """A clip whose frame t has the bodies PEOPLE[k] for k in orders[t], in that order."""
    generator = np.random.default_rng(seed)
    frame = [t for t, order in enumerate(orders) for _ in order]
    body = [PEOPLE[k] for order in orders for k in order]
    joints = generator.normal(0.0, 2.0, (len(frame), 25, 3)).astype(np.float32)
    joints[..., 0] *= 10.0 ** generator.integers(-9, 3, joints.shape[:2]).astype(np.float32)
    return Clip(len(orders), np.array(frame, np.int64), np.array(body, np.uint64), joints)


def assert_same(a: Clip, b: Clip) -> None:
    assert a.length == b.length
    np.testing.assert_array_equal(a.frame, b.frame)
    np.testing.assert_array_equal(a.body, b.body)
    assert a.body.dtype == np.uint64
    np.testing.assert_array_equal(a.joints, b.joints)
    assert a.joints.dtype == np.float32


def test_the_fast_reader_is_built() -> None:
    assert native.reader() is not None


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "orders",
    [
        [(0,), (0,), (0,)],
        [(), (0,), (), (0,), ()],  # frames without a body
        [(0, 1), (1, 0), (0, 1), (1, 0)],  # order swaps
        [(0, 1, 2), (2, 0), (1,), (2, 1, 0)],
        [(), ()],
        [],
    ],
)
@pytest.mark.parametrize("reader", READERS)
def test_round_trip(reader: str, orders: list[tuple[int, ...]], newline: str) -> None:
    clip = make_clip(orders)
    data = text.dump(clip, newline=newline, digits=9)
    assert (b"\r\n" in data) == (newline == "\r\n")
    assert_same(READERS[reader](data, "clip"), clip)


def test_the_fast_reader_takes_what_the_writer_writes() -> None:
    read = native.reader()
    assert read is not None
    clip = make_clip([(0, 1), (), (1, 2, 0)])
    for digits in (5, 7, 9):
        for newline in ("\n", "\r\n"):
            data = text.dump(clip, newline=newline, digits=digits)
            fast = read(data)
            assert fast is not None
            assert_same(fast, text.parse_by_line(data, "clip"))


@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-0",
        "-0.0",
        "7",
        "1.",
        ".5",
        "-.5",
        "+2.5",
        "1e-05",
        "-1.234567E+2",
        "0.1234567890123456789",
        "000000000000000000000000000123.456",
        "3e-46",
        "1e-400",
        "1e4",
        "0.1",
        "-9999.99999999999",
        "2.00000017881393432617187499",
        "2.00000017881393432617187501",
    ],
)
def test_numbers_are_rounded_as_python_rounds_them(number: str) -> None:
    data = text.dump(make_clip([(0,)]), digits=9).split(b"\n")
    data[4] = number.encode() + b" " + data[4].split(b" ", 1)[1]
    clip = text.parse(b"\n".join(data), "clip")
    expected = np.float64(float(number)).astype(np.float32)
    assert clip.joints[0, 0, 0].tobytes() == expected.tobytes()


def test_blanks_and_empty_lines_at_the_end_are_accepted() -> None:
    clip = make_clip([(0,), (1,)])
    data = text.dump(clip, digits=9)
    for unusual in (data.rstrip(b"\n"), data + b"\n \r\n", data.replace(b" ", b"  \t"), data.replace(b"\n", b" \n")):
        for reader in READERS.values():
            assert_same(reader(unusual, "clip"), clip)


def test_unused_fields_may_be_undefined() -> None:
    lines = text.dump(make_clip([(0,)]), digits=9).split(b"\n")
    for word in (b"nan", b"NaN", b"-inf", b"-1.#IND"):
        fields = lines[10].split(b" ")
        fields[5] = word
        text.parse(b"\n".join([*lines[:10], b" ".join(fields), *lines[11:]]), "clip")


def broken(line: int, content: bytes) -> bytes:
    """A file of two frames whose line (from 1) is replaced."""
    lines = text.dump(make_clip([(0,), (0, 1)])).split(b"\n")
    lines[line - 1] = content
    return b"\n".join(lines)


GOOD_JOINT = b"0.1 0.2 3.0 1 2 3 4 0 0 0 0 2"
BAD_FILES = {
    "empty": (b"", 1, "ends"),
    "only blanks": (b"  \n", 1, "0 fields"),
    "letters for the frame count": (broken(1, b"two"), 1, "integer"),
    "negative frame count": (broken(1, b"-2"), 1, "integer"),
    "huge frame count": (broken(1, b"99999999999999999999999"), 1, "integer"),
    "more frames than an hour has": (b"100001\n" + b"0\n" * 100001, 1, "from 0 to 100000"),
    "zeros before the frame count": (broken(1, b"0" * 20 + b"2"), 1, "integer"),
    "zeros before a body id": (broken(3, b"0" * 20 + b"7 0 0 0 0 0 0 0 0 2"), 3, "bodyID"),
    "zeros without end": (broken(1, b"0" * 5000 + b"2"), 1, "integer"),
    "large frame count": (broken(1, b"90000"), 85, "ends"),
    "small frame count": (broken(1, b"1"), 30, "goes on"),
    "fraction as frame count": (broken(1, b"2.0"), 1, "integer"),
    "huge body count": (broken(2, b"4000000000"), 2, "integer"),
    "negative body count": (broken(2, b"-1"), 2, "integer"),
    "wrong body count": (broken(2, b"2"), 30, "10 fields"),
    "no bodies": (broken(2, b"0"), 3, "1 fields"),
    "huge joint count": (broken(4, b"1000000000000"), 4, "integer"),
    "wrong joint count": (broken(4, b"24"), 4, "25 joints"),
    "negative body id": (broken(3, b"-7 0 0 0 0 0 0 0 0 2"), 3, "bodyID"),
    "body id over 64 bits": (broken(3, b"18446744073709551616 0 0 0 0 0 0 0 0 2"), 3, "bodyID"),
    "letters in a coordinate": (broken(9, GOOD_JOINT.replace(b"0.2", b"O.2")), 9, "no number"),
    "not a number": (broken(9, GOOD_JOINT.replace(b"0.2", b"nan")), 9, "no number"),
    "infinity": (broken(9, GOOD_JOINT.replace(b"0.2", b"inf")), 9, "no number"),
    "two points": (broken(9, GOOD_JOINT.replace(b"0.2", b"0.2.1")), 9, "no number"),
    "underscore": (broken(9, GOOD_JOINT.replace(b"0.2", b"1_0")), 9, "no number"),
    "hexadecimal": (broken(9, GOOD_JOINT.replace(b"0.2", b"0x1p3")), 9, "no number"),
    "only a sign": (broken(9, GOOD_JOINT.replace(b"0.2", b"-")), 9, "no number"),
    "too large": (broken(9, GOOD_JOINT.replace(b"0.2", b"-1e39")), 9, "too large"),
    "too far": (broken(9, GOOD_JOINT.replace(b"0.2", b"10000.01")), 9, "too large"),
    "letters in an unused field": (broken(9, GOOD_JOINT[:-1] + b"two"), 9, "no number"),
    "NUL bytes": (broken(9, GOOD_JOINT.replace(b"0.2", b"\0\0\0")), 9, "no number"),
    "NUL in an unused field": (broken(9, GOOD_JOINT[:-1] + b"\0"), 9, "no number"),
    "a field too few": (broken(9, GOOD_JOINT[:-2]), 9, "11 fields"),
    "a field too many": (broken(9, GOOD_JOINT + b" 1"), 9, "13 fields"),
    "an empty line": (broken(9, b""), 9, "0 fields"),
    "the same body twice": (broken(58, b"72057594037931101 0 0 0 0 0 0 0 0 2"), 58, "twice"),
    "something after the end": (broken(9, GOOD_JOINT) + b"\n\n1\n", 87, "goes on"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", BAD_FILES)
def test_a_malformed_file_gives_one_error_with_file_and_line(case: str, reader: str) -> None:
    data, line, reason = BAD_FILES[case]
    with pytest.raises(SkeletonError, match=reason) as caught:
        READERS[reader](data, "folder/S001.skeleton")
    assert str(caught.value).startswith(f"folder/S001.skeleton, line {line}: ")
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def outcome(reader: Callable[[bytes, str], Clip], data: bytes) -> tuple[Clip | None, str]:
    try:
        return reader(data, "clip"), ""
    except SkeletonError as error:
        return None, str(error)


SOUND = text.dump(make_clip([(0,), (1, 0), ()], seed=3))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound file after a few edits: cuts, foreign bytes, other counts, lines lost, repeated or swapped."""
    data = SOUND
    for _ in range(draw(st.integers(1, 4))):
        lines = data.split(b"\n")
        place = draw(st.integers(0, max(len(lines) - 1, 0)))
        match draw(st.sampled_from(("cut", "bytes", "count", "drop", "repeat", "swap"))):
            case "cut":
                data = data[: draw(st.integers(0, len(data)))]
            case "bytes":
                at = draw(st.integers(0, len(data)))
                data = data[:at] + draw(st.binary(max_size=6)) + data[at + draw(st.integers(0, 6)) :]
            case "count":
                value = draw(st.sampled_from((b"-1", b"0", b"1", b"3", b"26", b"4294967295", b"1e9", b"\0", b"25 25")))
                data = b"\n".join([*lines[:place], value, *lines[place + 1 :]])
            case "drop":
                data = b"\n".join(lines[:place] + lines[place + 1 :])
            case "repeat":
                data = b"\n".join(lines[: place + 1] + lines[place:])
            case "swap":
                lines[0], lines[place] = lines[place], lines[0]
                data = b"\n".join(lines)
    return data


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_damaged_files_are_refused_or_read_alike(data: bytes) -> None:
    expected, message = outcome(text.parse_by_line, data)
    clip, same_message = outcome(text.parse, data)
    assert message == same_message
    if clip is None or expected is None:
        assert clip is expected
        assert message.startswith("clip, line ")
    else:
        assert_same(clip, expected)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    clip, message = outcome(text.parse, data)
    assert clip is not None or message.startswith("clip, line ")


@pytest.mark.parametrize("counts", [b"100000\n", b"1\n64\n", b"100000\n" + b"0\n" * 1000])
def test_promises_allocate_nothing(counts: bytes) -> None:
    text.parse(SOUND, "clip")
    tracemalloc.start()
    with pytest.raises(SkeletonError, match="ends"):
        text.parse(counts, "clip")
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_a_file_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(SkeletonError, match="more than"):
        text.parse(bytes(text.MAX_BYTES + 1), "clip")


def test_without_a_compiler_reading_is_slow_but_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "no-such-compiler")
    native.reader.cache_clear()
    try:
        clip = make_clip([(0,), (1, 0)])
        with pytest.warns(RuntimeWarning, match="line by line"):
            assert_same(text.parse(text.dump(clip, digits=9), "clip"), clip)
        assert_same(text.parse(text.dump(clip, digits=9), "clip"), clip)  # warned once only
    finally:
        native.reader.cache_clear()


def test_a_read_only_cache_still_gets_the_fast_reader(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DURNN_CACHE", str(folder))

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    native.reader.cache_clear()
    try:
        assert native.reader() is not None
        assert list(folder.iterdir()) == []
    finally:
        native.reader.cache_clear()


@pytest.mark.slow
def test_half_a_cached_library_is_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In processes of their own: mapped as it is, it would kill them."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DURNN_CACHE", str(folder))
    command = [sys.executable, "-c", "from tasks.ntu.readers import native; print(native.reader() is not None)"]

    def compilations() -> int:
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
        return done.stderr.count("compiling")

    assert compilations() == 1
    (library,) = folder.rglob("*.so")
    library.write_bytes(library.read_bytes()[:5000])
    assert [compilations(), compilations()] == [1, 0]
