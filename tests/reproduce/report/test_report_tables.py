"""What is made from records: tables in three formats, figures, the overview."""

import csv
import io
import re
import shutil
import subprocess

import pytest
from PIL import Image
from record_samples import make_record, seeds
from rich.console import Console

from reproduce.plan import paper, recipe
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.report import figures, records, tables
from reproduce.report.activations import Layer, capture
from reproduce.report.overview import overview
from reproduce.report.publish import publish
from reproduce.report.records import Records
from reproduce.report.selection import choose, collect, ours
from reproduce.train.network import Network
from reproduce.train.outcome import Place

TABLE1 = EXPERIMENTS["table1"]


def entry(entries, row, cell="mnist"):
    (found,) = [e for e in entries if (e.row, e.cell) == (row, cell)]
    return found


def test_every_row_of_the_paper_is_listed_with_its_numbers():
    for name, table in paper.load().tables.items():
        entries = collect(EXPERIMENTS[name], [])
        assert {(e.row, e.cell): e.printed for e in entries} == {
            (row, cell): value
            for row, line in table.rows.items()
            for cell, value in zip(table.cells, line.values, strict=True)
        }
        words = {e.verdict.word for e in entries}
        assert words == {"not run", "not implemented"}


def test_mean_interval_and_number_of_seeds_are_shown():
    entries = collect(TABLE1, seeds(1.60, 1.70, 1.80))
    assert ours(entry(entries, "durnn-1")) == "1.70 ± 0.25 (n=3)"
    assert entry(entries, "durnn-1").verdict.word == "inconclusive"  # 0.25 is more than a tenth of 1.68


def test_reduced_budget_is_plain_in_the_cell():
    entries = collect(TABLE1, seeds(3.1, budget="quick"))
    text = ours(entry(entries, "durnn-1"))
    assert text.startswith("3.10 (n=1) [quick budget; ")
    assert "of 1,200,000 updates" in text


def test_reduced_width_is_plain_in_the_cell():
    options = {"row": "lstm", "cell": "ptb-c", "recipe_name": "table2", "metric": "bits_per_character"}
    entries = collect(EXPERIMENTS["table2"], seeds(1.5, budget="cpu", **options))
    assert "256 of 1000 units" in ours(entry(entries, "lstm", "ptb-c"))


def test_standin_is_plain_in_the_cell_and_in_the_first_line():
    made = seeds(1.68, 1.68, 1.68, is_standin=True, name="mnist-synthetic")
    entries = collect(TABLE1, made)
    assert "STAND-IN DATA" in ours(entry(entries, "durnn-1"))
    assert entry(entries, "durnn-1").verdict.word == "not comparable"
    text = [line for line in tables.markdown(TABLE1, entries).splitlines() if line]
    assert text[1].startswith("**STAND-IN DATA: mnist-synthetic")
    assert "STAND-IN DATA" in tables.latex(TABLE1, entries)


def test_real_and_standin_stand_side_by_side():
    part = {"row": "durnn-1", "cell": "ntu-cs", "recipe_name": "table3", "metric": "accuracy_percent", "higher": True}
    made = [
        make_record(test=80.0, name="ntu-cs[10 of 60 classes]", partial="10 of 60 classes", **part),
        make_record(test=50.0, name="ntu-cs-synthetic", is_standin=True, fingerprint="e" * 64, **part),
    ]
    here = [e for e in collect(EXPERIMENTS["table3"], made) if (e.row, e.cell) == ("durnn-1", "ntu-cs")]
    assert [ours(e) for e in here] == ["80.00 (n=1) [10 of 60 classes]", "50.00 (n=1) [STAND-IN DATA]"]
    assert {e.verdict.word for e in here} == {"not comparable"}
    assert "80.00 (n=1) [10 of 60 classes]<br>50.00" in tables.markdown(
        EXPERIMENTS["table3"], collect(EXPERIMENTS["table3"], made)
    )


def with_rate(settings, lr):
    return settings.model_copy(update={"optimiser": settings.optimiser.model_copy(update={"lr": lr})})


def test_the_largest_budget_of_the_present_recipe_speaks():
    recipes = recipe.load("table1")
    old = make_record(test=9.0, seed=7)
    outdated = old.model_copy(update={"settings": with_rate(old.settings, 0.5), "run": "0" * 64})
    quick, full = seeds(5.0, budget="quick"), seeds(1.7, 1.7)
    (chosen,) = choose("durnn-1", "mnist", recipes, [outdated, *quick, *full])
    assert [r.test for r in chosen] == [1.7, 1.7]
    (chosen,) = choose("durnn-1", "mnist", recipes, [outdated, *quick])
    assert [r.test for r in chosen] == [5.0]
    entries = collect(TABLE1, [outdated])
    assert "older recipe" in ours(entry(entries, "durnn-1"))


def test_diverged_and_unfinished_runs_are_told():
    gone = collect(TABLE1, [make_record(status="diverged")])
    assert ours(entry(gone, "durnn-1")) == "1 diverged at update 1,234"
    open_ = collect(TABLE1, [make_record(status="unfinished", steps_done=500)])
    assert "unfinished: validation 1.50 at 500 of 1,200,000" in ours(entry(open_, "durnn-1"))


def test_comma_separated_values_hold_every_entry_in_full():
    entries = collect(TABLE1, seeds(1.6, 1.7, 1.8))
    rows = list(csv.DictReader(io.StringIO(tables.comma_separated(TABLE1, entries))))
    assert len(rows) == len(entries)
    (line,) = [r for r in rows if (r["row"], r["cell"]) == ("durnn-1", "mnist")]
    assert float(line["ours"]) == pytest.approx(1.7)
    assert line["values"] == "1.6 1.7 1.8"
    assert (line["paper"], line["n"], line["budget"], line["commits"]) == ("1.68", "3", "paper", "c" * 10)


def every_tex():
    made = [*seeds(1.6, 1.7, 1.8), *seeds(3.0, row="lstm", budget="quick")]
    curve = {"recipe_name": "adding", "cell": "adding-100", "metric": "mse", "name": "adding[100]"}
    made += [*seeds(0.001, 0.002, 0.003, row="durnn", **curve), *seeds(0.1, 0.2, 0.3, row="lstm", **curve)]
    return {name: tables.latex(EXPERIMENTS[name], collect(EXPERIMENTS[name], made)) for name in EXPERIMENTS}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_latex_is_well_formed(name):
    text = every_tex()[name]
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert re.findall(r"\\begin\{(\w+\*?)\}", body) == ["table*", "tabularx"]
    assert re.findall(r"\\end\{(\w+\*?)\}", body) == ["tabularx", "table*"]
    unescaped = re.sub(r"\\[&%$#_{}]", "", body)
    assert "_" not in unescaped
    assert "#" not in unescaped
    assert "%" not in unescaped
    assert unescaped.count("{") == unescaped.count("}")
    assert unescaped.count("$") % 2 == 0
    assert all(ord(character) < 128 for character in body)
    columns = re.search(r"\\begin\{tabularx\}\{\\textwidth\}\{(.*)\}\n", body)[1]
    width = len(re.findall("[lrX]", re.sub(r">\{.*?arraybackslash\}", "", columns)))
    rows = body.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert rows
    for row in rows:
        assert row.endswith(r"\\")
        assert len(re.findall(r"(?<!\\)&", row)) == width - 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX on this machine")
def test_latex_compiles(tmp_path):
    head = r"\documentclass{article}\usepackage{booktabs,tabularx,amssymb}\begin{document}"
    parts = [head, *every_tex().values(), r"\end{document}"]
    (tmp_path / "all.tex").write_text("\n".join(parts))
    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"], cwd=tmp_path, check=True)


def test_order_of_models_says_where_intervals_overlap():
    curve = {"recipe_name": "adding", "cell": "adding-100", "metric": "mse", "name": "adding[100]"}
    made = [
        *seeds(0.010, 0.011, 0.012, row="durnn", **curve),
        *seeds(0.011, 0.012, 0.013, row="indrnn-2", **curve),
        *seeds(0.160, 0.161, 0.162, row="lstm", **curve),
        *seeds(0.170, row="irnn", **curve),
    ]
    lines = tables.order_lines(collect(EXPERIMENTS["figure2"], made))
    assert lines[0].startswith("T = 100: DuRNN ≲ IndRNN (2 layers) < LSTM ? IRNN (")


def test_curves_are_drawn_with_provenance_and_without_change(tmp_path):
    curve = {"recipe_name": "adding", "cell": "adding-100", "metric": "mse", "name": "adding[100]"}
    made = [*seeds(0.01, 0.02, row="durnn", **curve), *seeds(0.1, row="lstm", budget="quick", **curve)]
    made.append(make_record(row="irnn", status="diverged", **curve))
    entries = collect(EXPERIMENTS["figure2"], made)
    svg, png = figures.curves(EXPERIMENTS["figure2"], entries, tmp_path / "a")
    again, _ = figures.curves(EXPERIMENTS["figure2"], entries, tmp_path / "b")
    assert svg.read_bytes() == again.read_bytes()
    text = svg.read_text()
    assert "cccccccccc" in text, "the commit is not in the metadata"
    assert "some &amp; CPU_1" in text
    with Image.open(png) as image:
        assert "cccccccccc" in image.info["Description"]
        assert min(image.size) > 500


def test_a_model_has_one_colour_everywhere():
    assert len(set(figures.COLOURS.values())) == len(figures.COLOURS)
    rows = {row for e in EXPERIMENTS.values() if e.kind == "curves" for row in e.rows}
    assert rows == set(figures.COLOURS)


def test_activations_of_both_halves_are_what_the_model_computes():
    import torch

    import tasks

    settings, _ = recipe.load("adding").resolve("durnn", "adding-100", "smoke")
    task = tasks.build("adding", length=20)
    network = Network(settings, task, "reference").eval()
    x, _ = next(iter(task.batches("test", 1)))
    short, long = capture(network, x, "durnn", "DuRNN")
    layer = network.model.layers[0]
    h_short = h = torch.zeros(1, settings.model.hidden_size)
    for t in range(20):
        _, (h_short, h) = layer.step(layer.project(x[t : t + 1])[0], (h_short, h))
        torch.testing.assert_close(torch.from_numpy(short.values[t]), h_short[0].detach())
        torch.testing.assert_close(torch.from_numpy(long.values[t]), h[0].detach())
    assert "full half" in short.title
    assert "independent half" in long.title


def test_active_share_and_roughness():
    import numpy as np

    steady = np.ones((10, 2))
    steady[:, 1] = 0
    layer = Layer("r", "t", steady)
    assert (layer.active, layer.roughness) == (0.5, 0.0)
    spiky = np.zeros((10, 1))
    spiky[::2] = 1.0
    assert Layer("r", "t", spiky).roughness == pytest.approx(2.0)


def test_overview_tells_what_is_there_and_what_is_missing(tmp_path):
    made = [*seeds(1.66, 1.68, 1.70), *seeds(3.0, row="lstm", budget="quick")]
    text = overview(Records(made, ["x.json: is not a run record"]), tmp_path)
    assert "4 runs: 3 at the paper budget, 1 at the quick budget." in text
    assert "1 reproduced" in text
    assert "some & CPU_1" in text
    assert "skipped record: x.json" in text
    missing = text.split("## What is missing")[1].split("- Table II")[0]
    # 228,000 updates of 50 samples at the speed of 10 updates of 32 samples per second
    assert "`--cells mnist`: irnn (time not measured), lstm (about 9.9 h per seed)" in missing
    assert "durnn-1" not in missing.split("`--cells mnist`")[1].splitlines()[0]
    assert "prediction interval" in text


def test_publish_reports_bad_records_and_goes_on(tmp_path):
    place = Place(runs=tmp_path / "runs", records=tmp_path / "results" / "records")
    records.write(make_record(), place.records)
    (place.records / "broken.json").write_text("{")
    console = Console(record=True, width=200)
    written = publish(TABLE1, place, console)
    assert {path.name for path in written} == {"table1.md", "table1.csv", "table1.tex", "README.md"}
    assert "skipped record: broken.json" in console.export_text()
