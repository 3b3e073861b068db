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
from reproduce.report import figures, publish, records, tables
from reproduce.report.activations import Layer, capture
from reproduce.report.latex import latex
from reproduce.report.overview import overview
from reproduce.report.publish import report
from reproduce.report.records import Records, Visit
from reproduce.report.selection import agree, blocks, most_telling, number
from reproduce.report.tables import Footnotes
from reproduce.train.network import Network
from reproduce.train.outcome import Place

TABLE1 = EXPERIMENTS["table1"]


def block_of(experiment, published, yours=(), **chosen):
    """The block of a cell; the first one by default."""
    found = blocks(experiment, published, yours)
    return next(b for b in found if all(getattr(b, name) == value for name, value in chosen.items()))


def line_of(block, row):
    return next(line for line in block.lines if line.row == row)


def texts(block, row, with_yours=False):
    notes = Footnotes()
    names = tables.columns(block, with_yours)
    return dict(zip(names, tables.cells(block, line_of(block, row), names, notes), strict=True)), notes.texts


FIVE = (1.66, 1.67, 1.68, 1.69, 1.70)
NTU = {"row": "durnn-1", "cell": "ntu-cs", "recipe_name": "table3", "metric": "accuracy_percent", "higher": True}
ADDING = {"recipe_name": "adding", "cell": "adding-100", "metric": "mse", "name": "adding[100]"}


def test_every_row_of_the_paper_is_listed_with_its_numbers():
    for name, table in paper.load().tables.items():
        shown = blocks(EXPERIMENTS[name], [])
        assert [block.cell for block in shown] == table.cells
        for block in shown:
            assert {line.row: line.printed for line in block.lines} == {
                row: table.printed(row, block.cell) for row in EXPERIMENTS[name].shown_rows
            }
            assert [line.row for line in block.lines][: len(table.rows)] == list(table.rows)
            assert {line.verdict.word for line in block.lines} <= {"not run", "not implemented"}


def test_mean_difference_and_number_of_seeds_are_shown():
    shown, notes = texts(block_of(TABLE1, seeds(*FIVE)), "durnn-1")
    assert shown["published"] == "1.68 (5)"
    assert shown["paper"] == "1.68"
    assert shown["− paper"] in ("+0.00 ± 0.02", "−0.00 ± 0.02")
    assert shown["verdict"] == "reproduced"
    assert notes == []


def test_budgets_never_share_a_block():
    found = blocks(TABLE1, [*seeds(*FIVE), *seeds(3.1, budget="quick"), *seeds(4.0, row="lstm", budget="cpu")])
    assert [(b.cell, b.budget) for b in found] == [("mnist", "paper"), ("mnist", "cpu"), ("mnist", "quick")]
    for block in found:
        assert {r.budget for r in block.records} == {block.budget}
    quick = line_of(found[2], "durnn-1")
    assert (quick.verdict.word, quick.verdict.reason) == ("inconclusive", "quick budget")
    assert "neither confirms nor denies" in tables.heading(found[2])


def test_a_figure_compares_at_the_largest_budget_that_has_two_rows():
    one, cpu = seeds(1.7), [*seeds(3.0, budget="cpu"), *seeds(4.0, row="lstm", budget="cpu")]
    quick = [r for row in ("durnn-1", "lstm", "irnn") for r in seeds(9.0, row=row, budget="quick")]
    assert most_telling(blocks(TABLE1, [*one, *cpu, *quick]), "mnist").budget == "cpu"
    assert most_telling(blocks(TABLE1, [*one, *quick]), "mnist").budget == "quick"
    assert most_telling(blocks(TABLE1, one), "mnist").budget == "paper"
    assert most_telling(blocks(TABLE1, []), "mnist") is None


def test_standin_has_a_section_of_its_own_without_the_papers_column():
    made = [*seeds(*FIVE, is_standin=True, name="mnist-synthetic"), *seeds(2.0)]
    found = blocks(TABLE1, made)
    assert [b.data for b in found] == ["", "stand-in"]
    shown, _ = texts(found[1], "durnn-1")
    assert set(shown) == {"model", "published"}
    assert line_of(found[1], "durnn-1").verdict.word == "not comparable"
    text = tables.markdown(TABLE1, found)
    section = text.split("## MNIST")[2]
    assert "Generated stand-in data (mnist-synthetic)" in section
    assert "1.68 |" not in section.split("1.68 (5)")[1], "the paper's value stands beside a stand-in's"


def test_partial_data_is_said_once_above_the_block():
    made = [make_record(test=80.0, name="ntu-cs[10 of 60 classes]", partial="10 of 60 classes", **NTU)]
    block = block_of(EXPERIMENTS["table3"], made)
    assert block.data == "10 of 60 classes"
    assert tables.markdown(EXPERIMENTS["table3"], [block]).count("10 of 60 classes:") == 1
    assert line_of(block, "durnn-1").verdict.word == "not comparable"


def test_published_and_yours_stand_side_by_side_and_the_verdict_says_whose_it_is():
    theirs, mine = seeds(*FIVE), seeds(2.5, 2.6)
    shown, _ = texts(block_of(TABLE1, theirs, mine), "durnn-1", with_yours=True)
    assert (shown["published"], shown["yours"], shown["verdict"]) == ("1.68 (5)", "2.55 (2)", "reproduced")
    shown, _ = texts(block_of(TABLE1, seeds(1.0), seeds(*FIVE)), "durnn-1", with_yours=True)
    assert (shown["published"], shown["yours"], shown["verdict"]) == ("1.00 (1)", "1.68 (5)", "reproduced (yours)")


def test_agreement_with_the_published_runs_is_counted():
    theirs = seeds(*FIVE)
    good, bad = make_record(test=1.685, seed=0), make_record(test=3.0, seed=1)
    lines = tables.agreement_lines([block_of(TABLE1, theirs, [good, bad])])
    assert lines[0].startswith("1 of 2 of your runs that can be compared agree")
    assert "prediction interval" in lines[1]
    assert lines[2].startswith("durnn-1 on mnist: ")
    alone = tables.agreement_lines([block_of(TABLE1, seeds(1.68), [good])])
    assert alone[0].startswith("None of your 1 runs can be compared")


def test_equal_bits_are_expected_where_they_must_be():
    same = {"backend": "reference"}
    theirs = seeds(1.68, 1.70, 1.72, **same)
    equal, other = make_record(test=1.68, seed=0, **same), make_record(test=1.69, seed=0, **same)
    assert agree(equal, theirs).word == "equal"
    assert agree(other, theirs).word == "differs"
    fused = make_record(test=1.69, seed=0, backend="fused")
    assert agree(fused, theirs).word == "agrees"


def with_rate(settings, lr):
    return settings.model_copy(update={"optimiser": settings.optimiser.model_copy(update={"lr": lr})})


def test_the_present_recipe_speaks_before_an_older_one():
    old = make_record(test=9.0, seed=7)
    outdated = old.model_copy(update={"settings": with_rate(old.settings, 0.5), "run": "0" * 64})
    line = line_of(block_of(TABLE1, [outdated, *seeds(1.7)]), "durnn-1")
    assert line.published.values == [1.7]
    block = block_of(TABLE1, [outdated])
    assert line_of(block, "durnn-1").verdict.reason == "older recipe"
    assert texts(block, "durnn-1")[1] == ["made with an older recipe"]


def test_diverged_and_unfinished_runs_are_told():
    shown, notes = texts(block_of(TABLE1, [make_record(status="diverged")]), "durnn-1")
    assert shown["published"] == "diverged [1]"
    assert notes == ["1 of 1 seeds diverged, at update 1,234"]
    shown, notes = texts(block_of(TABLE1, [make_record(status="unfinished", steps_done=500)]), "durnn-1")
    assert shown["published"] == "unfinished [1]"
    assert notes == ["seed 0 unfinished, at 500 of 1,200,000 updates"]
    some = [*seeds(*FIVE), make_record(seed=9, status="diverged")]
    assert line_of(block_of(TABLE1, some), "durnn-1").verdict.word == "inconclusive"


def test_runs_at_chance_say_so():
    """88.65 % is the share of a constant answer on MNIST."""
    _, notes = texts(block_of(TABLE1, seeds(88.65, row="lstm", budget="cpu")), "lstm")
    assert notes[-1] == "at chance: the best constant answer has 88.65"
    _, notes = texts(block_of(TABLE1, seeds(80.0, row="lstm", budget="cpu")), "lstm")
    assert not any("chance" in note for note in notes)
    _, notes = texts(block_of(EXPERIMENTS["figure2"], seeds(0.1667, row="lstm", **ADDING)), "lstm")
    assert any("chance" in note for note in notes)


def visit(**changes):
    facts = {"from_step": 0, "to_step": 300, "started": "", "seconds": 1.0, "commit": "c" * 40, "machine": "A"}
    return Visit(**(facts | {"threads": 1, "ended": "schedule"} | changes))


def test_runs_that_crossed_a_change_are_marked_wherever_their_number_stands():
    crossed = make_record(lineage=[visit(), visit(commit="d" * 40)])
    moved = make_record(seed=1, lineage=[visit(), visit(machine="B")])
    loose = make_record(seed=2, dirty=True)
    block = block_of(TABLE1, [crossed, moved, loose])
    assert texts(block, "durnn-1")[1] == [
        "seed 0 continued under other code",
        "seed 1 continued on another machine",
        "seed 2 made by code that no commit holds",
    ]
    assert "seed 0 continued under other code" in tables.markdown(TABLE1, [block])
    assert "seed 0 continued under other code" in tables.comma_separated([block])


def test_figures_name_what_each_number_is():
    shown, _ = texts(block_of(EXPERIMENTS["figure2"], seeds(0.01, 0.02, row="durnn", **ADDING)), "durnn")
    assert shown["published"] == "0.015 (2)"
    assert shown["last"] == number(0.5 / 300, "mse")
    assert shown["last 10"] == number((0.5 / 100 + 0.5 / 200 + 0.5 / 300) / 3, "mse")


def test_other_protocols_are_not_compared():
    protocol = {"row": "lstm-zoneout", "cell": "pmnist", "name": "pmnist[exprnn]"}
    if protocol["row"] not in recipe.load("table1").rows:
        pytest.skip("the zoo has no zoneout yet")
    assert line_of(block_of(TABLE1, seeds(6.9, **protocol)), "lstm-zoneout").verdict.word == "different protocol"


def everything():
    made = [
        *seeds(*FIVE),
        *seeds(3.0, row="lstm", budget="quick"),
        *seeds(2.0, is_standin=True, name="mnist-synthetic"),
    ]
    made += [*seeds(0.001, 0.002, 0.003, row="durnn", **ADDING), *seeds(0.1, 0.2, 0.3, row="lstm", **ADDING)]
    return made


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
@pytest.mark.parametrize("with_yours", [False, True])
def test_tables_fit_a_hundred_columns(name, with_yours):
    shown = blocks(EXPERIMENTS[name], everything(), everything() if with_yours else ())
    console = Console(width=100, file=io.StringIO(), record=True)
    for block in shown:
        console.print(tables.terminal(block, with_yours, Footnotes()))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    for block in shown:
        for line in block.lines:
            assert sum(line.label in printed for printed in text.splitlines()) >= 1, f"{line.label} takes several lines"
    body = [row for row in tables.markdown(EXPERIMENTS[name], shown, with_yours).splitlines() if row.startswith("|")]
    widest = max(len(row) for row in body)
    assert widest <= 110, "about 100 columns, pipes aside"


def test_comma_separated_values_hold_every_line_in_full():
    shown = blocks(TABLE1, seeds(*FIVE))
    rows = list(csv.DictReader(io.StringIO(tables.comma_separated(shown))))
    assert len(rows) == sum(len(block.lines) for block in shown)
    (line,) = [r for r in rows if (r["row"], r["cell"]) == ("durnn-1", "mnist")]
    assert float(line["mean"]) == pytest.approx(1.68)
    assert line["values"] == "1.66 1.67 1.68 1.69 1.7"
    assert (line["paper"], line["n"], line["budget"], line["commits"]) == ("1.68", "5", "paper", "c" * 10)
    assert line["verdict"] == "reproduced"
    assert float(line["difference_low_90"]) < 0 < float(line["difference_high_90"])


def every_tex():
    made = everything()
    return {name: latex(EXPERIMENTS[name], blocks(EXPERIMENTS[name], made, made), True) for name in EXPERIMENTS}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_latex_is_well_formed(name):
    text = every_tex()[name]
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    kinds = re.findall(r"\\(?:begin|end)\{(\w+)\}", body)
    assert kinds == ["table", "tabular", "tabular", "table"] * (len(kinds) // 4)
    assert kinds
    unescaped = re.sub(r"\\[&%$#_{}]", "", body)
    assert "_" not in unescaped
    assert "#" not in unescaped
    assert "%" not in unescaped
    assert unescaped.count("{") == unescaped.count("}")
    assert unescaped.count("$") % 2 == 0
    assert all(ord(character) < 128 for character in body)
    for part in body.split(r"\begin{tabular}")[1:]:
        width = len(re.match(r"\{([lr]+)\}", part)[1])
        rows = part.split(r"\toprule")[1].split(r"\bottomrule")[0].replace(r"\midrule", "").strip().splitlines()
        for row in filter(None, rows):
            assert row.endswith(r"\\")
            assert len(re.findall(r"(?<!\\)&", row)) == width - 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX on this machine")
def test_latex_compiles(tmp_path):
    head = r"\documentclass{article}\usepackage{booktabs,amssymb}\begin{document}"
    parts = [head, *every_tex().values(), r"\end{document}"]
    (tmp_path / "all.tex").write_text("\n".join(parts))
    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"], cwd=tmp_path, check=True)


def test_order_of_models_is_by_all_pairs():
    made = [
        *seeds(0.010, 0.011, 0.012, row="durnn", **ADDING),
        *seeds(0.0105, 0.0115, 0.0125, row="indrnn-2", **ADDING),
        *seeds(0.160, 0.161, 0.162, row="lstm", **ADDING),
        *seeds(0.170, row="irnn", **ADDING),
    ]
    line = tables.order_line(block_of(EXPERIMENTS["figure2"], made))
    assert line.startswith("T = 100, paper budget: DuRNN ? IndRNN (2 layers) ? LSTM ? IRNN")
    assert "DuRNN < LSTM" in line
    assert "DuRNN < IRNN" not in line, "one seed makes no order"


def test_a_seed_that_was_run_again_counts_once_by_its_latest_record():
    first, other = seeds(0.02, 0.03, row="durnn", **ADDING)
    again = first.model_copy(update={"run": "f" * 64, "test": 0.01, "finished": "2027-01-01T00:00:00+00:00"})
    broken_off = again.model_copy(
        update={"run": "e" * 64, "status": "unfinished", "finished": "2027-01-02T00:00:00+00:00"}
    )
    for made in ([first, other, again, broken_off], [broken_off, again, other, first]):
        assert line_of(block_of(EXPERIMENTS["figure2"], made), "durnn").published.values == [0.01, 0.03]


def test_curves_are_drawn_with_provenance_and_without_change(tmp_path):
    made = [*seeds(0.01, 0.02, row="durnn", **ADDING), *seeds(0.1, row="lstm", budget="quick", **ADDING)]
    made.append(make_record(row="irnn", status="diverged", **ADDING))
    shown = blocks(EXPERIMENTS["figure2"], made)
    svg, png = figures.curves(EXPERIMENTS["figure2"], shown, tmp_path / "a")
    again, _ = figures.curves(EXPERIMENTS["figure2"], shown, tmp_path / "b")
    assert svg.read_bytes() == again.read_bytes()
    text = svg.read_text()
    assert "cccccccccc" in text, "the commit is not in the metadata"
    assert "some &amp; CPU_1" in text
    assert "(paper budget, 1 to 2 seeds)" in text
    with Image.open(png) as image:
        assert "cccccccccc" in image.info["Description"]
        assert min(image.size) > 500


def test_a_model_has_one_colour_everywhere():
    assert len(set(figures.COLOURS.values())) == len(figures.COLOURS)
    shown = [e.rows for e in EXPERIMENTS.values() if e.kind == "curves"]
    assert {row for rows in shown for row in rows} == {*figures.COLOURS, *figures.VARIANTS}
    assert {*figures.VARIANTS.values()} <= {*figures.COLOURS}
    for rows in shown:
        varied = [figures.VARIANTS[row] for row in rows if row in figures.VARIANTS]
        assert len(set(varied)) == len(varied), "two lines of one figure would look alike"


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


def test_overview_tells_what_is_there_and_what_is_missing():
    made = [*seeds(*FIVE), *seeds(3.0, row="lstm", budget="quick")]
    text = overview(Records(made, ["x.json: is not a run record"]))
    assert "6 runs: 5 at the paper budget, 1 at the quick budget." in text
    assert "1 reproduced" in text
    assert "some & CPU_1" in text
    assert "skipped record: x.json" in text
    missing = text.split("## What is missing")[1].split("- Table II")[0]
    # 200,000 updates of 50 samples at the speed of 10 updates of 32 samples per second
    assert "lstm 5 × 8.7 h" in missing
    assert all("durnn-1 " not in line for line in missing.splitlines() if "`--cells mnist`" in line)
    assert "`--cells pmnist`" in missing.split("--budget open")[1]
    assert "irnn 3 × time not measured" in missing.split("--budget cpu")[1]


def test_overview_counts_the_runs_that_no_table_shows():
    first, again = make_record(), make_record(run="b" * 64, finished="2026-01-02T00:00:00+00:00")
    assert "stand in no table" not in overview(Records([first], []))
    assert "1 of them stand in no table or figure" in overview(Records([first, again], []))


def test_open_division_lists_the_rows_that_have_a_recipe_for_it():
    found = block_of(TABLE1, seeds(*FIVE, budget="open"), budget="open")
    assert [line.row for line in found.lines] == ["lstm", "indrnn-6", "durnn-1", "gru"]
    assert len(block_of(TABLE1, seeds(*FIVE, budget="cpu")).lines) == 14


def test_every_command_has_a_line_of_its_own():
    made = [*seeds(*FIVE), *seeds(3.0, budget="quick", command="python reproduce/table1.py")]
    text = tables.markdown(TABLE1, blocks(TABLE1, made))
    assert text.endswith(
        "- commands:\n    - `python reproduce/table1.py --budget paper`\n    - `python reproduce/table1.py`\n"
    )


def test_missing_seeds_are_counted_budget_by_budget():
    text = overview(Records([*seeds(3.0, 3.1), *seeds(4.0, 4.1, budget="open")], []))
    paper, opened, cpu = text.split("## What is missing")[1].split("- Table II")[0].split("--budget ")[1:]
    assert "durnn-1 3 × 33 h" in paper
    assert "durnn-1 1 × 0.99 h" in opened
    assert "durnn-1 3 × 0.25 h" in cpu


def test_report_names_bad_records_and_goes_on(tmp_path):
    place = Place(runs=tmp_path / "runs", records=tmp_path / "results" / "records")
    records.write(make_record(), place.records)
    (place.records / "broken[bold].json").write_text("{")
    console = Console(record=True, width=200, file=io.StringIO())
    written = report(TABLE1, place, console)
    assert {path.name for path in written} == {"table1.md", "table1.csv", "table1.tex"}
    assert "skipped record: broken[bold].json" in console.export_text()


def test_publishing_writes_the_overview_and_has_no_column_for_yours(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "PUBLISHED", tmp_path)
    place = Place(runs=tmp_path / "runs", records=tmp_path / "records")
    records.write(make_record(), place.records)
    written = report(TABLE1, place, Console(file=io.StringIO()))
    assert "README.md" in {path.name for path in written}
    assert "yours" not in (tmp_path / "table1.md").read_text()
