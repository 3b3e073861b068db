"""Intervals and the verdict rule on constructed records with known answers."""

import math

import pytest
from record_samples import make_record, seeds

from reproduce.plan import recipe
from reproduce.report.judging import judge, printed_step, summarise


def test_interval_has_the_textbook_value():
    summary = summarise([1.0, 2.0, 3.0])
    assert summary.mean == 2.0
    assert summary.deviation == 1.0
    assert summary.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # t(0.975, 2) from a printed table


def test_one_value_has_no_interval():
    assert summarise([1.0]).half is None
    assert summarise([]) is None


def test_half_a_printed_digit():
    assert [printed_step(text) for text in ("18", "5.0", "1.68", "1.230")] == [0.5, 0.05, 0.005, 0.0005]


def word(*arguments, **options):
    return judge(*arguments, **options).word


def test_near_values_reproduce():
    assert word("1.68", seeds(1.67, 1.70, 1.69)) == "reproduced"


def test_far_values_do_not_and_say_which_way():
    assert str(judge("1.68", seeds(2.00, 2.01, 2.02))) == "not reproduced (ours is worse)"
    assert str(judge("1.68", seeds(1.20, 1.21, 1.22))) == "not reproduced (ours is better)"
    better = judge("72.91", seeds(80.0, 80.1, 80.2, metric="accuracy_percent", higher=True))
    assert str(better) == "not reproduced (ours is better)"


def test_prediction_interval_and_not_that_of_the_mean_decides():
    values = (1.60, 1.66, 1.72, 1.78)  # mean 1.69, s 0.0775: mean interval ± 0.123, prediction interval ± 0.276
    assert word("1.90", seeds(*values)) == "reproduced"
    assert word("1.98", seeds(*values)) == "not reproduced"


def test_last_printed_digit_widens_the_interval():
    same = seeds(1.684, 1.684, 1.684)
    assert word("1.68", same) == "reproduced"
    assert word("1.68", seeds(1.686, 1.686, 1.686)) == "not reproduced"
    assert word("1.7", seeds(1.74, 1.74, 1.74)) == "reproduced"


def test_wide_interval_is_inconclusive():
    verdict = judge("1.68", seeds(1.0, 1.7, 2.4))
    assert verdict.word == "inconclusive"
    assert "more seeds" in verdict.reason


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_seeds_are_inconclusive(n):
    verdict = judge("1.68", seeds(*[1.68] * n))
    assert verdict.word == "inconclusive"
    assert "seeds" in verdict.reason


@pytest.mark.parametrize("budget", [b for b in recipe.BUDGETS if b != "paper"])
@pytest.mark.parametrize("value", [1.68, 1.0, 30.0])
def test_no_reduced_budget_can_read_reproduced(budget, value):
    verdict = judge("1.68", seeds(value, value, value, value, value, budget=budget))
    assert verdict.word == "inconclusive"
    assert budget in verdict.reason


def test_one_reduced_run_among_full_ones_spoils_the_verdict():
    mixed = [*seeds(1.68, 1.68, 1.68), make_record(test=1.68, seed=9, budget="cpu")]
    assert word("1.68", mixed) == "inconclusive"


def test_runs_cut_short_are_inconclusive():
    cut = [*seeds(1.68, 1.68, 1.68), make_record(test=1.68, seed=3, ended="time-cap", steps_done=7)]
    assert word("1.68", cut) == "inconclusive"
    unfinished = [*seeds(1.68, 1.68, 1.68), make_record(seed=3, status="unfinished", steps_done=5)]
    assert "5 of" in judge("1.68", unfinished).reason


def test_standin_and_partial_data_never_compare():
    standin = seeds(1.68, 1.68, 1.68, is_standin=True, name="mnist-synthetic")
    assert word("1.68", standin) == "not comparable"
    part = seeds(1.68, 1.68, 1.68, name="ntu-cs[10 of 60 classes]", partial="10 of 60 classes")
    assert word("1.68", part) == "not comparable"
    assert word("1.68", seeds(1.68, 1.68, 1.68, name="pmnist[exprnn]")) == "reproduced"


def test_diverged_seeds():
    gone = [make_record(seed=s, status="diverged") for s in range(3)]
    assert word("1.68", gone) == "diverged"
    assert "1,234" in judge("1.68", gone).reason
    some = [*seeds(1.68, 1.68, 1.68), make_record(seed=5, status="diverged")]
    assert str(judge("1.68", some)) == "inconclusive (1 of 4 seeds diverged)"


def test_nothing_to_judge():
    assert word("1.68", []) == "not run"
    assert word("1.68", [], implemented=False) == "not implemented"
    assert word("-", seeds(1.0, 1.0, 1.0)) == "no printed value"
