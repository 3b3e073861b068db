"""Citations say what the records say, and change with them."""

import re

import pytest
from record_samples import make_record, seeds
from site_samples import adding, write_records

from reproduce.plan import recipe
from reproduce.report.cite import bibtex, cite, main
from reproduce.report.records import Visit

FIVE = seeds(1.65, 1.66, 1.68, 1.70, 1.71)


def test_a_reproduced_number():
    found = cite("table1/durnn-1/mnist", FIVE)
    assert found.sentence == (
        "DuRNN (1 layer) on MNIST (Table I), trained at the paper budget (1,200,000 updates) on all of the paper's "
        "data, has a test error of 1.68 % ± 0.03 (mean of 5 seeds: 0, 1, 2, 3, 4; ± is the 95 % interval of the mean). "
        "The paper prints 1.68; the difference is +0.00 (90 % interval −0.02 to +0.02), the margin ± 0.26. "
        "Verdict: reproduced."
    )
    assert found.records == tuple(r.run for r in FIVE)
    assert found.commands == ("python reproduce/table1.py --rows durnn-1 --cells mnist --budget paper --seeds 5",)
    assert found.others == ()


def test_another_record_gives_another_sentence():
    mutated = [*FIVE[:4], make_record(5.0, seed=4)]
    before, after = (cite("table1/durnn-1/mnist", some).sentence for some in (FIVE, mutated))
    assert before != after
    assert "2.34 % ± 1.85" in after
    assert "Verdict: inconclusive" in after


def test_one_seed_at_a_reduced_budget_confirms_nothing():
    said = cite("table1/durnn-1/mnist", [make_record(4.16, budget="cpu")]).sentence
    assert "at the cpu budget" in said
    assert "4.16 % with one seed (0), which gives no interval" in said
    assert "Verdict: inconclusive (cpu budget)." in said


def test_real_data_and_the_largest_budget_come_first_and_options_choose():
    made = [*FIVE, make_record(4.16, budget="cpu"), make_record(9.9, is_standin=True, name="mnist-synthetic")]
    first = cite("table1/durnn-1/mnist", made)
    assert "paper budget" in first.sentence
    assert first.others == ("--budget cpu --data real", "--budget paper --data stand-in")
    assert "4.16 %" in cite("table1/durnn-1/mnist", made, budget="cpu").sentence
    standin = cite("table1/durnn-1/mnist", made, data="stand-in").sentence
    assert "generated stand-in (mnist-synthetic), whose numbers compare with nothing but each other" in standin
    assert "9.90 %" in standin
    assert "1.68" not in standin


def test_a_part_of_the_data_is_named_and_not_compared():
    accuracy = {"recipe_name": "table3", "metric": "accuracy_percent", "higher": True}
    part = [make_record(83.0, cell="ntu-cs", partial="10 of 60 classes", **accuracy)]
    said = cite("table3/durnn-1/ntu-cs", part, data="10 of 60 classes").sentence
    assert "on a part of the data (10 of 60 classes), has a test accuracy of 83.00 %" in said
    assert said.endswith("so the two are not comparable.")


def test_remarks_of_the_runs_are_part_of_the_sentence():
    visits = [
        Visit(from_step=0, to_step=1, started="", seconds=1, commit=c * 40, machine=None, threads=1, ended="schedule")
        for c in "ab"
    ]
    diverged = make_record(status="diverged", seed=1)
    said = cite("table1/durnn-1/mnist", [make_record(lineage=visits), diverged]).sentence
    assert "1 of 2 seeds diverged, at update 1,234" in said
    assert "seed 0 continued under other code" in said
    assert "diverged in all of its 1 seeds" in cite("table1/durnn-1/mnist", [diverged]).sentence


def test_a_figure_has_no_printed_number():
    found = cite("figure2/durnn/adding-100", [adding(0), adding(1)])
    assert "DuRNN on T = 100 (Figure 2)" in found.sentence
    assert "test mean squared error of 0.0003 ± 0 " in found.sentence
    assert "Verdict" not in found.sentence


def test_a_whole_table():
    found = cite("table1", [*FIVE, make_record(4.0, row="lstm", budget="cpu")])
    assert found.sentence == (
        "Of the 14 rows of Table I: sequential and permuted MNIST, error rate (%), 2 have runs in this suite (6 runs; "
        "1 at the cpu budget on all of the data, 1 at the paper budget on all of the data). "
        "Verdicts on the 2 numbers with runs: 1 inconclusive, 1 reproduced."
    )
    assert len(found.records) == 6


def test_a_claim():
    found = cite("claim/adding-baseline-mse", [])
    assert "is judged supported by the rules and records of this suite" in found.sentence
    assert "“If the RNN model does not learn anything" in found.sentence
    assert found.records == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tabel1", "there is no table or figure 'tabel1'; did you mean 'table1'?"),
        ("table1/durn-1/mnist", "there is no row 'durn-1'; did you mean 'durnn-1'?"),
        ("table1/durnn-1/mnits", "there is no cell 'mnits'; did you mean 'mnist'?"),
        ("table1/durnn-1", "does not name a number; write table1/ROW/CELL with one of the cells mnist, pmnist"),
        ("claim/no-vanishin", "there is no claim 'no-vanishin'; did you mean 'no-vanishing'?"),
        ("claim", "write claim/NAME"),
        ("table1/irnn/mnist", "there is nothing to cite: no run of table1/irnn/mnist"),
        ("table1/durnn-3/mnist", "there is nothing to cite: no run has ended of table1/durnn-3/mnist"),
        ("table2", "there is nothing to cite: no run of table2 is among the records"),
    ],
)
def test_what_cannot_be_cited_is_said_in_one_sentence(name, said, tmp_path, capsys):
    folder = write_records(tmp_path / "records", [*FIVE, make_record(row="durnn-3", status="unfinished")])
    assert main([name, "--records", str(folder)]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_a_row_without_a_recipe_cannot_be_cited(tmp_path, capsys, monkeypatch):
    whole = recipe.load("table3")
    fewer = whole.model_copy(update={"rows": {row: spec for row, spec in whole.rows.items() if row != "va-rnn"}})
    monkeypatch.setattr(recipe, "load", lambda name: fewer)
    assert main(["table3/va-rnn/ntu-cs", "--records", str(write_records(tmp_path / "records", FIVE))]) == 2
    assert "there is nothing to cite: row va-rnn of table3 has no recipe yet" in capsys.readouterr().err


def test_an_unknown_budget_is_named(tmp_path, capsys):
    folder = write_records(tmp_path / "records", FIVE)
    assert main(["table1/durnn-1/mnist", "--budget", "papr", "--records", str(folder)]) == 2
    assert "did you mean 'paper'?" in capsys.readouterr().err


def test_the_command_prints_sentence_bibtex_records_and_command(tmp_path, capsys):
    folder = write_records(tmp_path / "records", FIVE)
    assert main(["table1/durnn-1/mnist", "--records", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(cite("table1/durnn-1/mnist", FIVE).sentence)
    assert all(r.run in out for r in FIVE)
    assert out.rstrip().endswith("--budget paper --seeds 5")
    assert bibtex() in out


def test_bibtex_names_the_suite_and_the_paper():
    entries = re.findall(r"@(\w+)\{([\w-]+),\n(.*?)\n\}", bibtex(), re.DOTALL)
    assert [(kind, key) for kind, key, _ in entries] == [("software", "durnn-suite"), ("article", "durnn-paper")]
    assert "Zhang, Chenpeng and Li, Shuai" in entries[1][2]
    assert "Learning Various Length Dependence" in entries[1][2]
    assert all(body.count("{") == body.count("}") for _, _, body in entries)
