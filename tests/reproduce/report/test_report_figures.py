"""Figures appear whole or not at all, and are the same bytes each time."""

import pytest
from matplotlib import pyplot as plt

from reproduce.report import figures

FACTS = ["commit: c", "budget: smoke"]


def draw():
    figure, axis = plt.subplots()
    axis.plot([0, 1], [0, 1])
    return figure


def test_bytes_are_those_that_matplotlib_writes_to_a_file(tmp_path):
    svg, png = figures.save(draw(), tmp_path / "ours", "figure2", "A title", FACTS)
    about = {"Title": "A title", "Description": "; ".join(FACTS)}
    figure = draw()
    with figures.matplotlib.rc_context({"svg.hashsalt": "figure2"}):
        figure.savefig(tmp_path / "plain.svg", dpi=150, bbox_inches="tight", metadata=about | {"Date": None})
    figure.savefig(tmp_path / "plain.png", dpi=150, bbox_inches="tight", metadata=about)
    plt.close(figure)
    assert svg.read_bytes() == (tmp_path / "plain.svg").read_bytes()
    assert png.read_bytes() == (tmp_path / "plain.png").read_bytes()


def test_an_interrupted_figure_leaves_the_one_before(tmp_path, monkeypatch):
    made = figures.save(draw(), tmp_path, "figure2", "A title", FACTS)
    before = [path.read_bytes() for path in made]
    figure = draw()

    def interrupted(file, **_):
        (file.write if hasattr(file, "write") else file.write_bytes)(b"half of a figure")
        raise KeyboardInterrupt

    monkeypatch.setattr(figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        figures.save(figure, tmp_path, "figure2", "A title", FACTS)
    plt.close(figure)
    assert [path.read_bytes() for path in made] == before
    assert sorted(tmp_path.iterdir()) == sorted(made)
