"""The picture of one clip: what is drawn is what the trained parts compute, and only ever a generated clip."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from site_samples import Page, write_records

import models
from models import inputs, readouts
from reproduce.report import clip_views
from reproduce.report.site.build import render
from reproduce.report.site.content import gather
from reproduce.report.site.pages import clip_pages
from tasks.ntu.preprocessing import CONVENTIONS

T = 9


class Packed:
    """Two clips: one with two people, one with one."""

    names = ("S001C001P003R001A001", "S001C001P003R001A002")

    def clip(self, convention, number):
        frames = np.random.default_rng(number).normal(size=(T, 2, 25, 3)).astype(np.float32) + 1
        frames[:, 1] *= number == 0
        return CONVENTIONS[convention](frames)


def task(preprocessing):
    return SimpleNamespace(packed=Packed(), members={"test": np.array([0, 1])}, preprocessing=preprocessing)


def sta():
    torch.manual_seed(0)
    part, readout = inputs.build("joint-attention", 150, size=4), readouts.build("attention-sum", 4, 3, 150, size=4)
    with torch.no_grad():
        for parameter in [*part.parameters(), *readout.parameters()]:
            parameter.add_(0.5 * torch.randn_like(parameter))
    return SimpleNamespace(input=part.eval(), readout=readout.eval())


def va():
    part = inputs.build("view-adaptation", 150, size=4)
    with torch.no_grad():
        part.angles.bias[1] = np.pi / 2  # about x
        part.shift.bias[0] = 2.0
    return SimpleNamespace(input=part.eval())


def block(cell, *rows, data="stand-in"):
    lines = tuple(SimpleNamespace(row=row, label=row.upper()) for row in rows)
    return SimpleNamespace(data=data, cell=cell, label=cell.upper(), budget="quick", lines=lines)


@pytest.fixture
def weights(monkeypatch):
    """Rows whose trained weights are there."""
    there = {"sta-lstm": (sta(), task("p-ntu")), "va-rnn": (va(), task("s-trans"))}

    def trained(line, place):
        return (*there[line.row], SimpleNamespace(run="ab" * 32)) if line.row in there else None

    monkeypatch.setattr(clip_views, "trained", trained)
    return there


ROWS = ("durnn-1", "va-rnn", "sta-lstm")


def test_what_is_seen_is_what_the_parts_compute(weights):
    seen = clip_views.look([block("ntu-cs", *ROWS), block("ntu-cv", *ROWS)], None)
    assert seen.clip == Packed.names[1], "a clip of one person is easier to read"
    assert "NTU-CV" in seen.facts[0]
    raw, moved, turned, adapted = seen.views.values()
    packed = Packed()
    for frames, convention in ((raw, "raw"), (moved, "s-trans"), (turned, "s-rota"), (seen.attended, "p-ntu")):
        np.testing.assert_array_equal(frames, packed.clip(convention, 1))
    x, y, z = np.moveaxis(moved[:, 0], -1, 0)
    np.testing.assert_allclose(adapted[:, 0], np.stack([x - 2, -z, y], -1), atol=1e-5)  # a quarter turn about x
    assert not adapted[:, 1].any()
    network, clip = weights["sta-lstm"][0], torch.from_numpy(seen.attended).reshape(T, 1, 150)
    with torch.no_grad():
        np.testing.assert_allclose(seen.joints.reshape(T, 1, 50), network.input.weights(clip), rtol=1e-5)
        np.testing.assert_allclose(seen.times, network.readout.weights(network.input(clip)).flatten(), rtol=1e-5)


def test_without_a_trained_view_its_row_is_left_out_and_without_attention_nothing_is_drawn(weights, tmp_path):
    del weights["va-rnn"]
    seen = clip_views.look([block("ntu-cv", *ROWS)], None)
    assert len(seen.views) == 3
    assert len(seen.facts) == 1
    assert clip_views.draw([block("ntu-cv", "durnn-1")], None, tmp_path) == []
    del weights["sta-lstm"]
    assert clip_views.draw([block("ntu-cv", *ROWS)], None, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_clips_of_real_people_are_never_drawn(weights):
    real = [block("ntu-cv", *ROWS, data=""), block("ntu-cs", *ROWS, data="10 of 60 classes")]
    assert clip_views.look(real, None) is None


def test_the_figure_is_the_same_bytes_each_time_and_its_numbers_are_beside_it(weights, tmp_path):
    blocks = [block("ntu-cv", *ROWS)]
    first, second = (clip_views.draw(blocks, None, tmp_path / name) for name in "ab")
    assert [path.name for path in first] == ["table3-clip.svg", "table3-clip.png", "table3-clip.csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    seen = clip_views.look(blocks, None)
    rows = list(csv.DictReader(io.StringIO(first[2].read_text())))
    joints = [row for row in rows if row["of"] == "joint"]
    assert {row["which"] for row in joints} == set(clip_views.JOINT_NAMES)
    best = clip_views.JOINT_NAMES[seen.joints[:, 0].mean(0).argmax()]
    assert joints[0]["which"] == best
    assert [float(row["attention"]) for row in rows if row["of"] == "frame"] == pytest.approx(seen.times, abs=1e-4)


def test_the_site_shows_it_where_it_was_drawn(weights, tmp_path):
    folder = write_records(tmp_path / "records")
    assert list(clip_pages(gather(folder))) == []
    clip_views.draw([block("ntu-cv", *ROWS)], None, tmp_path)
    files = render(gather(folder))
    found = Page(files["clip.html"].decode())
    assert "figures/table3-clip.svg" in found.loaded
    assert files["figures/table3-clip.svg"].startswith(b"<?xml")
    assert not found.problems
    assert Packed.names[1] in found.text
    assert "clip.html" in Page(files["table3.html"].decode()).links
    assert "clip.html" not in Page(files["table1.html"].decode()).links


def test_names_of_joints_are_those_of_the_walks():
    names = dict(enumerate(clip_views.JOINT_NAMES, 1))
    arms = {names[further] for joint in (8, 12) for further in models.skeleton.BEYOND[joint]}
    assert arms == {"left hand tip", "left thumb", "right hand tip", "right thumb"}
    assert [names[joint] for joint in models.skeleton.walk()[:4]] == ["spine mid", "spine shoulder", "neck", "head"]
