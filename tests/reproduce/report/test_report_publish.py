"""What a command leaves behind takes nothing away."""

import io

import numpy as np
import pytest
from record_samples import make_record
from rich.console import Console

from reproduce.plan.experiments import EXPERIMENTS
from reproduce.report import activations, publish
from reproduce.report.selection import blocks
from reproduce.train.outcome import Place

FIGURE4 = EXPERIMENTS["figure4"]


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Draws Figure 4 where only the weights of the given rows are on the machine; returns what was said."""
    known = [make_record(row=row, cell="adding-100", recipe_name="adding", budget="quick") for row in FIGURE4.rows]
    shown = blocks(FIGURE4, known, [], ())

    def run(*rows):
        def layers_of(line, place):
            return (
                [activations.Layer(line.row, f"{line.label}: layer 1", np.ones((100, 4)))] if line.row in rows else []
            )

        monkeypatch.setattr(activations, "layers_of", layers_of)
        text = io.StringIO()
        place = Place(runs=tmp_path / "runs", records=tmp_path / "records")
        publish._figures(FIGURE4, shown, place, tmp_path, Console(file=text, width=200))
        return text.getvalue()

    return run


def files(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def test_a_figure_of_activations_keeps_rows_whose_weights_are_elsewhere(tmp_path, draw):
    draw(*FIGURE4.rows)
    whole = files(tmp_path)
    assert {"figure4.svg", "figure4.png", "figure4-activations.csv"} <= set(whole)
    assert "left as it was" in draw("indrnn-2-first-low")
    assert files(tmp_path) == whole


def test_a_figure_of_activations_grows(tmp_path, draw):
    draw("indrnn-2")
    before = files(tmp_path)
    assert "left as it was" not in draw("indrnn-2", "indrnn-2-first-low")
    assert files(tmp_path)["figure4.svg"] != before["figure4.svg"]
    assert activations.rows_of(tmp_path / "figure4-activations.csv") == {"indrnn-2", "indrnn-2-first-low"}
