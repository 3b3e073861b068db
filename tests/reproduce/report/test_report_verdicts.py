"""The rules of the verdicts on numbers with known answers, and the error rates of the rule for printed values."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reproduce.report import error_rates, verdicts
from reproduce.report.error_rates import simulate, simulate_order
from reproduce.report.orders import MOST, Order, all_pairs, holm, is_on_log_scale, order, seeds_to_separate
from reproduce.report.rules import every, order_claim, threshold_claim
from reproduce.report.verdicts import (
    Obstacle,
    agreement,
    compare,
    decided,
    default_margin,
    half_unit,
    judge,
    judge_open,
    prediction_interval,
    printed_difference,
    sampling_error,
    summarise,
)


def spread(mean, deviation, n):
    """n values with exactly this mean and deviation."""
    values = np.linspace(-1, 1, n)
    return list(mean + deviation * values / values.std(ddof=1))


# Means and intervals


def test_interval_has_the_textbook_value():
    summary = summarise([1.0, 2.0, 3.0])
    assert (summary.n, summary.mean, summary.deviation) == (3, 2.0, 1.0)
    assert summary.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # t(0.975, 2) from a printed table


def test_one_value_has_no_interval_and_none_no_summary():
    assert (summarise([1.0]).half, summarise([1.0]).deviation) == (None, None)
    assert summarise([]) is None


@pytest.mark.parametrize("n", [2, 3, 7])
def test_equal_values_have_no_spread_at_all(n):
    summary = summarise([0.1] * n)  # 0.1 + 0.1 + 0.1 is not 0.3
    assert (summary.mean, summary.deviation, summary.half) == (0.1, 0.0, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="not finite"):
        summarise([1.0, value])


def test_prediction_interval_has_the_textbook_value():
    low, high = prediction_interval([1.0, 2.0, 3.0])
    assert (low + high) / 2 == 2.0
    assert (high - low) / 2 == pytest.approx(4.302653 * math.sqrt(1 + 1 / 3), rel=1e-6)
    assert prediction_interval([1.0]) is None


# A printed number


def test_half_a_printed_digit():
    assert [half_unit(text) for text in ("18", "5.0", "1.68", "1.230", "0")] == [0.5, 0.05, 0.005, 0.0005, 0.5]


@pytest.mark.parametrize("text", ["", "about 3", "nan", "1,5"])
def test_what_is_no_printed_number_is_refused(text):
    with pytest.raises(ValueError, match="not a printed number"):
        half_unit(text)


OLD_FAILURES = [
    ("82.53", 0.6, [67.2, 70.5, 73.8], True),
    ("1.230", 0.02, [1.39, 1.42, 1.47], False),
]


@pytest.mark.parametrize(("printed", "margin", "values", "higher"), OLD_FAILURES)
def test_three_far_seeds_do_not_decide(printed, margin, values, higher):
    verdict = judge(printed, margin, values, higher)
    assert verdict.word == "inconclusive"
    assert verdict.reason == "3 of at least 5 seeds; 5 seeds would decide if mean and deviation stay"
    assert verdict.seeds_needed == 5


@pytest.mark.parametrize(("printed", "margin", "values", "higher"), OLD_FAILURES)
def test_five_far_seeds_do_not_reproduce(printed, margin, values, higher):
    verdict = judge(printed, margin, [*values, sum(values[:2]) / 2, sum(values[1:]) / 2], higher)
    assert str(verdict) == "not reproduced (ours is worse)"


@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.1, 0.3, 0.35, 0.5, 1.0, 5.0])
def test_twenty_seeds_with_a_far_mean_never_reproduce(deviation):
    verdict = judge("1.68", 0.2, spread(2.39, deviation, 20), False)
    assert verdict.word == ("not reproduced" if deviation <= 0.3 else "inconclusive")


def test_near_seeds_reproduce_if_there_are_five():
    near = [1.2509, 1.2510, 1.2511]
    assert judge("1.247", 0.02, near, False).word == "inconclusive"
    assert judge("1.247", 0.02, near, False).seeds_needed == 5
    assert judge("1.247", 0.02, [*near, 1.2510, 1.2510], False).word == "reproduced"


def test_reproduced_is_two_one_sided_tests_at_5_percent():
    random = np.random.RandomState(1)
    words = []
    for _ in range(300):
        values = list(random.normal(1.7, 0.05, 6))
        tests = [
            stats.ttest_1samp(values, 1.68 - 0.1, alternative="greater"),
            stats.ttest_1samp(values, 1.68 + 0.1, alternative="less"),
        ]
        word = judge("1.68", 0.1, values, False).word
        assert (word == "reproduced") == (max(t.pvalue for t in tests) <= 0.05)
        words.append(word)
    assert 100 < words.count("reproduced") < 290


def test_not_reproduced_needs_the_95_percent_interval_outside():
    reach = stats.t.ppf(0.975, 29) * 0.1 / math.sqrt(30)  # n = 30: the interval decides, not the prediction interval
    values = spread(0.0, 0.1, 30)
    assert judge("0.00", 0.3, [v + 0.3 + 1.01 * reach for v in values], False).word == "not reproduced"
    assert judge("0.00", 0.3, [v + 0.3 + 0.99 * reach for v in values], False).word == "inconclusive"
    assert judge("0.00", 0.3, [v - 0.3 - 1.01 * reach for v in values], False).word == "not reproduced"


def test_not_reproduced_needs_the_printed_value_outside_the_prediction_interval():
    reach = stats.t.ppf(0.975, 5) * 1.0 * math.sqrt(1 + 1 / 6) + 0.005  # and half a printed digit
    assert judge("0.00", 0.1, spread(1.001 * reach, 1.0, 6), True).word == "not reproduced"
    verdict = judge("0.00", 0.1, spread(0.999 * reach, 1.0, 6), True)
    assert verdict.word == "inconclusive"
    assert verdict.reason.startswith("mean outside the margin, but a single run of ours may give the printed value")


def test_verdict_says_which_side_is_better():
    assert judge("1.68", 0.1, spread(1.2, 0.01, 5), False).reason == "ours is better"
    assert judge("1.68", 0.1, spread(2.2, 0.01, 5), False).reason == "ours is worse"
    assert judge("72.91", 0.5, spread(80, 0.1, 5), True).reason == "ours is better"
    assert judge("72.91", 0.5, spread(60, 0.1, 5), True).reason == "ours is worse"


def test_equal_seeds_decide():
    assert judge("1.68", 0.0, [1.684] * 5, False).word == "reproduced"
    assert judge("1.68", 0.0, [1.686] * 5, False).word == "not reproduced"
    assert judge("1.7", 0.0, [1.75] * 5, False).word == "reproduced"  # 1.75 − 1.7 > 0.05 in binary
    assert judge("1.247", 0.02, [1.267] * 5, False).word == "reproduced"
    assert judge("1.247", 0.02, [1.2671] * 5, False).word == "not reproduced"
    assert judge("1.68", 0.1, [1.68] * 4, False).seeds_needed == 5


def test_margin_is_at_least_half_a_printed_digit():
    assert compare("18", 0.2, [18.4] * 5).margin == 0.5
    assert compare("1.68", 0.2, [1.7] * 5).margin == 0.2


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_a_margin_that_is_none_is_refused(margin):
    with pytest.raises(ValueError, match="a margin is"):
        judge("1.68", margin, [1.7] * 5, False)


def test_difference_and_its_intervals_are_in_every_verdict():
    values = [1.60, 1.66, 1.72, 1.78]
    difference = judge("1.68", 0.1, values, False).difference
    assert difference.mean == pytest.approx(0.01)
    for level, interval in ((0.90, difference.interval_90), (0.95, difference.interval_95)):
        low, high = stats.ttest_1samp(values, 0).confidence_interval(level)
        assert interval == pytest.approx((low - 1.68, high - 1.68))
    low, high = prediction_interval(values)
    assert difference.prediction == pytest.approx((low - 1.68, high - 1.68))
    assert judge("1.68", 0.1, [1.7], False).difference.interval_95 is None
    assert judge("1.68", 0.1, values, False, [Obstacle("inconclusive", "cpu budget")]).difference == difference
    for mean in (1.68, 3.0):
        assert judge("1.68", 0.1, spread(mean, 0.01, 5), False).difference.mean == pytest.approx(mean - 1.68)


def test_numbers_that_measure_different_things_are_not_subtracted():
    for word in ("not comparable", "different protocol"):
        assert judge("1.68", 0.1, [1.68] * 5, False, [Obstacle(word)]).difference is None


@pytest.mark.parametrize(
    ("mean", "deviation", "n", "doubt"),
    [
        (1.70, 0.20, 5, "mean within the margin, its interval not"),
        (1.90, 0.10, 5, "mean outside the margin, its interval not"),
        (1.85, 0.06, 5, "mean outside the margin, its interval not"),
    ],
)
def test_seeds_needed_is_the_smallest_number_that_decides(mean, deviation, n, doubt):
    verdict = judge("1.68", 0.1, spread(mean, deviation, n), False)
    assert verdict.reason.startswith(doubt)
    assert judge("1.68", 0.1, spread(mean, deviation, verdict.seeds_needed), False).word != "inconclusive"
    assert verdict.seeds_needed > n + 1
    for fewer in range(n, verdict.seeds_needed):
        assert judge("1.68", 0.1, spread(mean, deviation, fewer), False).word == "inconclusive"


def test_where_no_number_of_seeds_decides():
    verdict = judge("1.68", 0.1, spread(2.39, 1.0, 20), False)
    assert verdict.seeds_needed is None
    assert verdict.reason.endswith("no number of seeds up to 1,000 would decide")


def test_one_seed_says_nothing_about_how_many_would_decide():
    verdict = judge("1.68", 0.1, [1.68], False)
    assert str(verdict) == "inconclusive (1 of at least 5 seeds)"
    assert verdict.seeds_needed is None


def test_nothing_to_judge():
    assert judge("1.68", 0.1, [], False).word == "not run"
    assert judge("1.68", 0.1, [], False, [Obstacle("not implemented")]).word == "not implemented"
    assert judge("-", 0.1, [1.0] * 5, False).word == "no printed value"
    assert judge(None, 0.1, [1.0] * 5, False).word == "no printed value"
    assert judge(None, 0.1, [], False).word == "not run"


@pytest.mark.parametrize("judging", [judge, judge_open])
@pytest.mark.parametrize("word", verdicts.PRECEDENCE)
def test_no_obstacle_lets_a_number_decide(judging, word):
    verdict = judging("1.68", 0.1, [1.68] * 5, False, [Obstacle(word, "why")])
    assert str(verdict) == f"{word} (why)"


def test_the_first_obstacle_decides_and_reasons_of_its_word_are_joined():
    found = [Obstacle("inconclusive", "cpu budget"), Obstacle("inconclusive", "1 of 5 seeds diverged")]
    assert str(judge("1.68", 0.1, [1.6] * 4, False, found)) == "inconclusive (cpu budget; 1 of 5 seeds diverged)"
    found.append(Obstacle("not comparable", "stand-in"))
    assert str(judge("-", 0.1, [1.6] * 4, False, found)) == "not comparable (stand-in)"
    assert judge("1.68", 0.1, [], False, [Obstacle("diverged", "at update 7")]).word == "diverged"
    assert judge("1.68", 0.1, [], False, [Obstacle("inconclusive", "unfinished")]).word == "inconclusive"
    assert judge("1.68", 0.1, [], False, [Obstacle("different protocol")]).word == "not run"
    assert judge("1.68", 0.1, [1.6], False, [*found[:2], Obstacle("different protocol")]).word == "different protocol"


# The open division


def test_open_division_reaches_and_never_reproduces():
    assert judge_open("1.230", 0.02, spread(1.229, 0.001, 3), False).word == "reached"
    assert judge_open("1.230", 0.02, [1.23] * 3, False).word == "reached"
    assert judge_open("82.53", 0.6, spread(83.0, 0.2, 3), True).word == "reached"
    assert judge_open("82.53", 0.6, spread(95.0, 0.2, 3), True).word == "reached"


def test_open_division_is_not_reached_by_a_worse_mean_or_a_wide_bound():
    assert str(judge_open("1.230", 0.02, [1.2301] * 3, False)) == "not reached (mean is worse than the printed value)"
    assert judge_open("82.53", 0.6, [82.5] * 5, True).word == "not reached"
    bound = stats.t.ppf(0.95, 4) / math.sqrt(5)  # deviations that the one-sided bound lies from the mean
    assert judge_open("82.53", 0.6, spread(82.6, 0.66 / bound, 5), True).word == "reached"
    wide = judge_open("82.53", 0.6, spread(82.6, 0.68 / bound, 5), True)
    assert str(wide) == "not reached (the 95 % bound of the mean is worse by more than the margin)"
    assert judge_open("82.53", 0.6, [83.0] * 2, True).word == "inconclusive"
    assert judge_open("82.53", 0.6, [83.0], True).word == "inconclusive"


# What the printed numbers can show by themselves


@pytest.mark.parametrize(
    ("a", "b", "samples", "ratio"),
    [(0.96, 1.0, 10_000, 0.3), (3.46, 4.0, 10_000, 2.0), (82.53, 81.80, 16_487, 1.7), (89.34, 87.97, 18_932, 4.2)],
)
def test_standard_errors_between_printed_numbers(a, b, samples, ratio):
    found = printed_difference(a, b, samples)
    assert round(found.ratio, 1) == ratio
    assert found.difference == pytest.approx(a - b)
    assert printed_difference(b, a, samples).ratio == found.ratio


def test_best_on_mnist_is_four_digits_ahead():
    assert printed_difference(0.96, 1.0, 10_000).samples_apart == pytest.approx(-4)


def test_sampling_error():
    assert sampling_error(50, 10_000) == pytest.approx(0.5)
    assert sampling_error(1, 10_000) == pytest.approx(100 * stats.binom(10_000, 0.01).std() / 10_000)
    assert printed_difference(0, 0, 100).ratio == 0
    assert printed_difference(0, 100, 100).ratio == math.inf
    for value, samples in ((-1, 100), (101, 100), (math.nan, 100), (1, 0)):
        with pytest.raises(ValueError, match=r"percentage|sample"):
            sampling_error(value, samples)


def test_margins_of_the_design():
    margins = [default_margin(1.0, 10_000), default_margin(4.0, 10_000), default_margin(80.0, 16_487)]
    assert [round(margin, 1) for margin in margins] == [0.2, 0.4, 0.6]
    assert default_margin(1.23, None, 0.02) == 0.02
    assert default_margin(1.0, 10_000, 0.5) == 0.5
    with pytest.raises(ValueError, match="a margin needs"):
        default_margin(1.23, None)


# An order


@pytest.mark.parametrize("log_scale", [False, True])
def test_order_is_welchs_test(log_scale):
    a, b = [0.9, 1.0, 1.4, 1.1], [1.2, 1.9, 1.5]
    found = order(a, b, False, log_scale)
    x, y = (np.log(a), np.log(b)) if log_scale else (a, b)
    reference = stats.ttest_ind(x, y, equal_var=False)
    assert found.p_value == pytest.approx(reference.pvalue)
    interval = reference.confidence_interval(0.95)
    expected = np.mean(x) - np.mean(y), interval.low, interval.high
    expected = np.exp(expected) if log_scale else expected
    assert (found.effect, *found.effect_interval) == pytest.approx(expected)


def test_order_turns_with_the_sides_and_with_the_metric():
    a, b = [1.0, 1.1, 1.2], [2.0, 2.1, 2.2]
    words = [order(a, b, False, False).word, order(b, a, False, False).word, order(a, b, True, False).word]
    assert words == ["better", "worse", "worse"]
    assert [order(a, b, False, False).improvement, order(a, b, True, False).improvement] == [1.0, 0.0]


def test_errors_over_decades_are_separated_on_a_log_scale_only():
    a, b = [1e-5, 1e-4, 3e-4], [1e-2, 0.1, 0.5]
    assert order(a, b, False, False).word == "not separated"
    assert order(a, b, False, True).word == "better"
    assert all_pairs({"a": a, "b": b}, False, log_scale=True).line == "a < b"
    assert all_pairs({"a": a, "b": b}, False).line == "a ? b"


def test_the_log_scale_is_for_squared_errors_above_zero():
    scales = {metric: is_on_log_scale(metric) for metric in ("mse", "error_percent", "bits_per_character")}
    assert scales == {"mse": True, "error_percent": False, "bits_per_character": False}
    with pytest.raises(ValueError, match="above 0"):
        order([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], False, True)


def test_probability_of_improvement_counts_ties_half():
    found = order([1, 2, 3], [2, 3, 4], False, False)  # 9 pairs: 6 wins, 2 ties
    assert found.improvement == pytest.approx(7 / 9)


def test_bootstrap_interval_is_that_of_another_implementation_and_repeats():
    a, b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.5, 3.5, 4.5, 5.5, 6.5]

    def wins(x, y):
        return np.mean(np.asarray(x)[:, None] < np.asarray(y)[None, :])

    random = np.random.RandomState(5)
    means = [wins(random.choice(a, 6), random.choice(b, 5)) for _ in range(4000)]
    found = order(a, b, False, False)
    assert found.improvement_interval == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.03)
    assert order(a, b, False, False) == found


def test_orders_without_spread():
    same, other = [0.1] * 3, [0.2] * 4
    assert order(same, other, False, False).p_value == 0
    assert order(same, other, False, False).word == "better"
    assert order(same, [0.1] * 4, False, False).p_value == 1
    assert order(same, [0.1] * 4, False, False).word == "not separated"
    one_sided = order(same, [0.2, 0.3, 0.4], False, False)
    assert one_sided.p_value == pytest.approx(stats.ttest_1samp([0.2, 0.3, 0.4], 0.1).pvalue)


def test_fewer_than_three_seeds_are_too_few_and_say_how_many_are_missing():
    found = order([1.0], [2.0, 2.1, 2.2], False, False)
    assert (found.word, found.missing, found.p_value) == ("too few seeds", (2, 0), None)
    close = order([1.0, 2.0, 3.0], [1.1, 2.1, 3.1, 3.2], False, False)
    assert (close.word, close.missing) == ("not separated", (2, 1))
    assert order([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], False, False).missing == (0, 0)


def test_seeds_to_separate_is_where_the_test_first_succeeds():
    a, b = spread(1.0, 0.5, 5), spread(1.4, 0.5, 5)
    n = seeds_to_separate(a, b, False)
    assert order(a, b, False, False).word == "not separated"
    assert stats.ttest_ind_from_stats(1.0, 0.5, n, 1.4, 0.5, n, equal_var=False).pvalue <= 0.05
    assert stats.ttest_ind_from_stats(1.0, 0.5, n - 1, 1.4, 0.5, n - 1, equal_var=False).pvalue > 0.05
    assert seeds_to_separate(a, a, False) is None
    assert seeds_to_separate([10.0**v for v in a], [10.0**v for v in b], True) == n < MOST


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_all_pairs_are_corrected_together():
    groups = {"c": spread(3, 1, 5), "a": spread(1, 1, 5), "b": spread(1.5, 1, 5)}
    found = all_pairs(groups, False)
    assert found.ranked == ("a", "b", "c")
    assert list(found.orders) == [("a", "b"), ("a", "c"), ("b", "c")]
    raw = [o.p_value for o in found.orders.values()]
    assert [o.p_adjusted for o in found.orders.values()] == holm(raw)
    assert raw[2] < 0.05 < found.orders["b", "c"].p_adjusted
    assert [found.beats(name) for name in found.ranked] == [["c"], [], []]
    assert found.line == "a ? b ? c; a < c"


def test_line_shows_a_sign_only_where_all_before_beat_all_after():
    lower = {"LSTM": spread(3, 0.1, 4), "DuRNN": spread(1, 0.1, 4), "IndRNN": spread(2.95, 0.1, 4)}
    assert all_pairs(lower, False).line == "DuRNN < IndRNN ? LSTM"
    assert all_pairs(lower, True).line == "LSTM ? IndRNN > DuRNN"
    chain = {"a": spread(1, 0.1, 5), "b": spread(1.1, 0.1, 5), "c": spread(1.25, 0.1, 5), "d": spread(9, 0.1, 5)}
    assert all_pairs(chain, False).line == "a ? b ? c < d; a < c"
    wide = {"a": spread(1, 0.05, 4), "b": spread(1.5, 0.05, 4), "c": spread(2, 3, 4)}  # neighbours are not enough
    assert all_pairs(wide, False).line == "a ? b ? c; a < b"


def test_models_with_too_few_seeds_spoil_no_other_pair():
    groups = {"a": [1.0, 1.1, 1.2], "b": [2.0, 2.1, 2.2], "one": [1.5], "none": []}
    found = all_pairs(groups, False)
    assert found.orders["a", "b"].p_adjusted == found.orders["a", "b"].p_value
    assert found.line == "a ? one ? b ? none; a < b"


def test_a_long_row_of_models_that_are_not_told_apart_is_not_listed():
    alike = {f"m{n}": [1.0, 2.0, 3.0] for n in range(9)}
    assert all_pairs(alike, False).line == "0 of 36 pairs are told apart"
    better = alike | {"m0": [-99.0, -98.0, -97.0], "m8": [-100.0, 2.0, 98.0]}  # m8 hides that m0 is better than others
    line = all_pairs(better, False).line
    assert line == f"7 of 36 pairs are told apart; m0 < {', '.join(f'm{n}' for n in range(1, 8))}"
    apart = alike | {"m0": [-99.0, -98.0, -97.0]}
    assert all_pairs(apart, False).line.startswith("m0 < m1 ? m2")
    assert all_pairs({}, False).line == ""
    assert all_pairs({"a": [1.0]}, False).line == "a"


# A user's run beside the published ones


def test_the_same_bits_are_equal():
    assert agreement(82.4, [78.2, 82.4], True).word == "equal"
    assert agreement(82.4, [82.4], False, counterpart=82.4).word == "equal"
    assert agreement(1.0, [1.0, 1.1, 1.2], False, counterpart=1.1).word == "agrees"  # a tie with another seed


def test_other_bits_where_equal_ones_were_expected_differ():
    found = agreement(1.15, [1.0, 1.1, 1.2], True)
    assert str(found) == "differs (equal bits were expected; inside the spread between seeds)"
    assert str(agreement(1.15, [1.0], True)) == "differs (equal bits were expected)"
    assert agreement(9.9, [1.0, 1.1, 1.2], True).reason.endswith("outside the spread between seeds")


def test_agreement_is_judged_by_the_prediction_interval():
    published = [78.2, 80.0, 81.0, 79.0]
    reach = stats.t.ppf(0.975, 3) * np.std(published, ddof=1) * math.sqrt(1 + 1 / 4)
    for sign in (-1, 1):
        assert agreement(np.mean(published) + sign * 0.999 * reach, published, False).word == "agrees"
        assert agreement(np.mean(published) + sign * 1.001 * reach, published, False).word == "differs"
    assert agreement(82.4, published, False).reason == "4 published seeds predict 75.23 to 83.87"
    assert agreement(1.1, [1.0, 1.0], False).word == "differs"


def test_agreement_without_a_spread():
    assert agreement(1.1, [1.0], False).word == "one published seed"
    assert agreement(1.1, [], False).word == "nothing published"
    assert agreement(1.1, [], True).word == "nothing published"


# A claim


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.001, 0.002, 0.003], "supported (3 of 3 seeds below 0.01)"),
        ([0.001, 0.002, 0.3], "undecided (2 of 3 seeds below 0.01)"),
        ([0.1, 0.2, 0.3], "contradicted (0 of 3 seeds below 0.01)"),
        ([0.1, 0.2, math.inf], "contradicted (0 of 3 seeds below 0.01)"),
        ([0.01, 0.01, 0.01], "contradicted (0 of 3 seeds below 0.01)"),
        ([0.001], "undecided (1 of 1 seeds below 0.01; 2 more needed)"),
        ([], "undecided (0 of 0 seeds below 0.01; 3 more needed)"),
    ],
)
def test_threshold(values, text):
    assert str(threshold_claim(values, 0.01)) == text


def test_threshold_from_above():
    assert threshold_claim([3.0, 4.0, 5.0], 2.0, below=False).word == "supported"
    assert threshold_claim([1.0, 1.0, -math.inf], 2.0, below=False).word == "contradicted"
    with pytest.raises(ValueError, match="not a number"):
        threshold_claim([math.nan], 1.0)


def test_order_claims():
    good = order([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], False, False)
    bad = order([2.0, 2.1, 2.2], [1.0, 1.1, 1.2], False, False)
    open_ = order([1.0, 2.0, 3.0], [1.1, 2.1, 3.1], False, False)
    few = order([1.0], [2.0, 2.1], False, False)
    assert order_claim({"LSTM": good}).word == "supported"
    assert order_claim({"LSTM": good, "RNN": open_, "GRU": bad}).word == "contradicted"
    assert order_claim({"LSTM": good, "RNN": open_}).word == "undecided"
    assert order_claim({"RNN": open_}).reason == "RNN: p = 0.91, 2 and 2 seeds missing"
    assert order_claim({"LSTM": good, "GRU": few}).reason == "GRU: too few seeds, 2 and 1 missing"
    assert order_claim({}).word == "undecided"


def test_order_claims_are_corrected_over_their_own_pairs():
    close = Order((5, 5), False, ahead=1, p_value=0.03, p_adjusted=0.9)
    assert order_claim({"b": close}).word == "supported"
    assert order_claim({"b": close, "c": close}).word == "undecided"


def test_a_claim_of_parts_names_those_that_decide():
    parts = {"x": threshold_claim([1.0] * 3, 2.0), "y": threshold_claim([3.0] * 3, 2.0), "z": threshold_claim([], 2.0)}
    assert str(every(parts)) == "contradicted (y: 0 of 3 seeds below 2)"
    assert every({"x": parts["x"], "z": parts["z"]}).word == "undecided"
    assert every({"x": parts["x"]}).word == "supported"


# How often the rule for printed values errs

PAGE = Path(error_rates.__file__).with_suffix(".md")
TRIALS = 40_000
DEVIATIONS = (0.1, 0.25, 0.5, 1.0, 2.0)


def noise(rate):
    """Four standard errors of a simulated rate."""
    return 4 * math.sqrt(rate * (1 - rate) / TRIALS)


def test_simulation_applies_the_rule_of_judge():
    random = np.random.RandomState(3)
    draws = random.normal(0.5, 0.6, (200, 6))
    inside, outside = decided(draws.mean(axis=1), draws.std(axis=1, ddof=1), 6, 1.0, half_unit("0.00"))
    words = [judge("0.00", 1.0, list(values), False).word for values in draws]
    assert [word == "reproduced" for word in words] == list(inside)
    assert [word == "not reproduced" for word in words] == list(outside)
    assert {"reproduced", "inconclusive"} <= set(words)


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("offset", [-1.0, 1.0])
def test_wrong_verdicts_at_the_margin_are_rare(n, offset):
    for deviation in DEVIATIONS:
        rates = simulate(n, deviation, offset, trials=TRIALS, seed=n)
        assert rates.reproduced <= 0.05 + noise(0.05)
        assert rates.not_reproduced <= 0.025 + noise(0.025)
    rates = simulate(n, 0.1, offset, trials=TRIALS, seed=n)  # where the other margin is far, the level is used in full
    assert rates.reproduced >= 0.05 - noise(0.05)
    assert rates.not_reproduced >= 0.025 - noise(0.025)


@pytest.mark.parametrize("n", [5, 10, 20])
def test_a_printed_run_like_ours_is_rarely_not_reproduced(n):
    for deviation in (*DEVIATIONS, 100.0):
        rates = simulate(n, deviation, 0.0, printed="run", trials=TRIALS, seed=n)
        assert rates.not_reproduced <= 0.05 + noise(0.05)
    assert rates.not_reproduced >= 0.05 - noise(0.05)  # the last, where the margin is nothing


def is_rising(rates):
    return all(b >= a - noise(a) for a, b in pairwise(rates)) and rates[-1] >= rates[0]


def test_more_seeds_raise_the_power_to_reproduce():
    for deviation in DEVIATIONS:
        rates = [simulate(n, deviation, 0.0, trials=TRIALS).reproduced for n in (3, 5, 7, 10, 15, 20, 40)]
        assert rates[0] == 0
        assert is_rising(rates)
        assert rates[-1] > 0.8


@pytest.mark.parametrize("offset", [2.0, 3.0, -3.0])
def test_more_seeds_raise_the_power_not_to_reproduce(offset):
    for deviation in (d for d in DEVIATIONS if abs(offset) >= 2 * d):
        rates = [simulate(n, deviation, offset, trials=TRIALS).not_reproduced for n in (3, 5, 7, 10, 15, 20, 40)]
        assert rates[0] == 0
        assert is_rising(rates)
        assert rates[-1] > (0.4 if abs(offset) == 2 * deviation else 0.9)


def test_more_seeds_lower_it_where_one_run_may_give_the_printed_value():
    rates = [simulate(n, 2.0, 2.0, trials=TRIALS).not_reproduced for n in (5, 10, 20, 40)]
    assert is_rising(rates[::-1])
    assert rates[-1] < 0.01


def test_a_long_tail_breaks_the_promise_and_the_page_says_so():
    rates = [simulate(n, 0.5, 1.0, tail=True).reproduced for n in (5, 20, 100)]
    assert 0.2 > rates[0] > rates[1] > rates[2] > 0.05
    assert "With a long tail on the far side it does not" in PAGE.read_text()


def test_page_of_error_rates_is_the_committed_one():
    assert PAGE.read_bytes() == error_rates.error_rates_markdown().encode()


# How often an order errs


def test_the_simulation_of_orders_applies_the_test_of_order():
    a, b = np.random.RandomState(4).normal([[[0.0]], [[1.0]]], [[[1.0]], [[3.0]]], (2, 50, 5))
    expected = [order(list(x), list(y), False, False).p_value for x, y in zip(a, b, strict=True)]
    assert error_rates._welch_p(a, b) == pytest.approx(expected)


@pytest.mark.parametrize("ratio", [1.0, 3.0, 10.0])
def test_a_second_look_at_equal_rows_errs_more_often_than_one_and_less_than_twice_as_often(ratio):
    three, or_five = simulate_order(ratio, 0.0)
    assert three <= 0.06 + noise(0.06)
    assert three + noise(0.05) < or_five < 2 * three
    assert simulate_order(ratio, 4.0 * ratio)[1] > 0.99
