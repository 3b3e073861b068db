"""Names, splits and the list of missing clips."""

import pytest

from tasks.ntu.names import ClipName, all_names, missing_names, usable_names


def test_the_grid_of_names_has_the_published_size() -> None:
    names = all_names()
    assert len(names) == len(set(names)) == 56_880
    assert names == sorted(names)
    assert {name.subject for name in names} == set(range(1, 41))
    assert {name.setup for name in names} == set(range(1, 18))


def test_missing_clips_are_names_of_the_grid() -> None:
    assert len(missing_names()) == 302
    assert missing_names() <= {str(name) for name in all_names()}


@pytest.mark.parametrize(("protocol", "train", "test"), [("cs", 40_091, 16_487), ("cv", 37_646, 18_932)])
def test_split_sizes_are_the_published_ones(protocol: str, train: int, test: int) -> None:
    sides = [name.trains(protocol) for name in usable_names()]
    assert (sides.count(True), sides.count(False)) == (train, test)


def test_a_name_reads_back_as_it_was_written() -> None:
    name = ClipName.parse("S017C003P020R002A060")
    assert (name.setup, name.camera, name.subject, name.replication, name.action) == (17, 3, 20, 2, 60)
    assert str(name) == "S017C003P020R002A060"
    assert name.in_ntu60


@pytest.mark.parametrize("text", ["S018C001P041R001A061", "S001C001P009R001A001", "S001C004P001R001A001"])
def test_names_outside_of_ntu60(text: str) -> None:
    assert not ClipName.parse(text).in_ntu60


@pytest.mark.parametrize("text", ["", "S1C1P1R1A1", "S001C001P001R001A001.skeleton", "S００1C001P001R001A001", "x"])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ValueError, match="no NTU"):
        ClipName.parse(text)


def test_unknown_protocol() -> None:
    with pytest.raises(ValueError, match="'cs' or 'cv'"):
        all_names()[0].trains("xs")
