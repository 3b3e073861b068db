"""The engine of the claims: every kind of rule comes out supported, contradicted and undecided."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter
from record_samples import make_record

from reproduce.plan import paper, recipe
from reproduce.plan.sentences import Claim, Rule
from reproduce.report import claims, evidence
from reproduce.report.claims import judge_all, judge_claim, markdown
from reproduce.report.findings import Judge
from reproduce.report.measurements import Measurement
from reproduce.report.measurements import read_all as read_measurements
from reproduce.report.records import Point, is_current, read_all

ROOT = Path(__file__).parents[3]
PUBLISHED = read_all(ROOT / "results" / "records").good


def runs(row, *values, cell="adding-100", budget="paper", curve=None, **changes):
    """Runs on the adding problem, one per value; None: it diverged."""
    options = {"metric": "mse", "name": "adding", "recipe_name": "adding", "row": row, "cell": cell, "budget": budget}
    made = []
    for seed, value in enumerate(values):
        status = "diverged" if value is None else "completed"
        points = {"curve": [Point(step=s, train_loss=1.0, valid=v, lr=1e-3) for s, v in curve[seed]]} if curve else {}
        made.append(make_record(test=value, seed=seed, status=status, **options, **points, **changes))
    return made


def judged(rules, records=(), measurements=()):
    rules = rules if isinstance(rules, list) else [rules]
    shared = {"recipe": "adding", "cells": ["adding-100"]}
    claim = Claim.model_validate({"section": "§", "text": "t", "figures": ["figure2"], **shared, "rules": rules})
    return judge_claim("c", claim, Judge(records, measurements))


def word(rules, records=(), measurements=()):
    return judged(rules, records, measurements).verdict.word


ORDER = {"kind": "order", "row": "durnn", "over": ["lstm"]}
GOOD, BAD = (1e-4, 1.2e-4, 0.9e-4), (1e-2, 1.3e-2, 0.8e-2)


# Orders


def test_order_supported_contradicted_undecided():
    assert word(ORDER, runs("durnn", *GOOD) + runs("lstm", *BAD)) == "supported"
    assert word(ORDER, runs("durnn", *BAD) + runs("lstm", *GOOD)) == "contradicted"
    assert word(ORDER, runs("durnn", *GOOD) + runs("lstm", *GOOD)) == "undecided"


def test_order_without_runs_names_the_command():
    found = judged(ORDER, runs("durnn", *GOOD))
    assert found.verdict.reason == "no runs of LSTM on T = 100"
    assert found.missing == (
        "`python reproduce/figure2.py --rows durnn,lstm --cells adding-100 --budget paper --seeds 3`",
    )


def test_order_with_too_few_seeds_says_how_many_are_missing():
    found = judged(ORDER, runs("durnn", 1e-4) + runs("lstm", *BAD[:2]))
    assert found.verdict.reason == "too few seeds, 2 and 1 missing"
    assert "--seeds 3" in found.missing[0]


def test_seeds_are_asked_for_where_one_side_has_them():
    known = [
        *runs("durnn", *GOOD, budget="cpu"),
        *runs("durnn", 1e-4, budget="quick"),
        *runs("lstm", 1e-2, budget="quick"),
    ]
    assert "--rows durnn,lstm --cells adding-100 --budget cpu --seeds 3" in judged(ORDER, known).missing[0]


def test_rows_of_two_figures_need_two_commands():
    (line,) = judged({"kind": "order", "row": "indrnn-2", "over": ["indrnn-1"]}, runs("indrnn-1", 1e-1)).missing
    assert "figure2.py --rows indrnn-2 " in line
    assert "ablations.py --rows indrnn-1 " in line


def test_a_decided_part_needs_nothing_more():
    assert judged(ORDER, runs("durnn", *GOOD) + runs("lstm", *BAD)).missing == ()


def test_a_diverged_run_counts_as_a_failure():
    assert word(ORDER, runs("durnn", *GOOD) + runs("lstm", None, None, None)) == "supported"
    assert word(ORDER, runs("durnn", None, None, None) + runs("lstm", *GOOD)) == "contradicted"
    found = judged(ORDER, runs("durnn", *GOOD) + runs("lstm", None, *BAD[1:]))
    assert "diverged" in found.findings[0].sides[1].numbers


def test_budgets_are_never_mixed():
    paper_durnn, cpu_durnn = runs("durnn", *GOOD), runs("durnn", *BAD, budget="cpu")
    cpu_lstm = runs("lstm", *GOOD, budget="cpu")
    found = judged(ORDER, paper_durnn + cpu_durnn + cpu_lstm)
    assert found.verdict.word == "contradicted"
    assert found.where == ("cpu budget",)
    assert judged(ORDER, paper_durnn + cpu_lstm).findings[0].verdict.reason == "no budget and data that all share"


def test_a_row_at_chance_is_ordered_at_the_papers_budget_only():
    learned, chance = (1e-4, 2e-4, 1.5e-4), (0.166, 0.168, 0.167)
    for own, other in ((learned, chance), (chance, learned)):
        reduced = runs("durnn", *own, budget="cpu") + runs("lstm", *other, budget="cpu")
        found = judged(ORDER, reduced)
        assert found.verdict.word == "undecided"
        assert "at chance on T = 100" in found.findings[0].verdict.reason
        assert "--budget paper" in found.missing[0]
    assert word(ORDER, runs("durnn", *learned) + runs("lstm", *chance)) == "supported"


def test_rows_that_were_not_trained_alike_are_not_ordered_at_a_reduced_budget():
    def mnist(row, budget, *values):
        return [make_record(test=v, seed=s, row=row, budget=budget) for s, v in enumerate(values)]

    rule = {"kind": "order", "recipe": "table1", "cells": ["mnist"], "row": "durnn-3", "over": ["indrnn-6"]}
    quick = mnist("durnn-3", "quick", 20, 21, 22) + mnist("indrnn-6", "quick", 30, 31, 32)
    found = judged(rule, quick)
    assert (found.verdict.word, found.findings[0].verdict.reason) == (
        "undecided", "trained on 3,200 and on 5,120 samples"
    )  # fmt: skip
    assert "--budget cpu" in found.missing[0]
    assert word(rule, mnist("durnn-3", "cpu", 20, 21, 22) + mnist("indrnn-6", "cpu", 30, 31, 32)) == "supported"


def test_an_open_order_of_five_seeds_asks_for_no_more_of_the_same():
    close = runs("durnn", 1e-4, 2e-4, 3e-4, 4e-4, 5e-4), runs("lstm", 1.5e-4, 2e-4, 3.5e-4, 4e-4, 6e-4)
    assert "seeds a side, if means and spreads stay as they are" in judged(ORDER, [*close[0], *close[1]]).missing[0]
    assert "--seeds 5" in judged(ORDER, [*close[0], *close[1][:3]]).missing[0]


def test_the_largest_budget_with_enough_seeds_decides():
    enough = runs("durnn", *GOOD, budget="cpu") + runs("lstm", *BAD, budget="cpu")
    few = runs("durnn", 1.0) + runs("lstm", 1e-9)
    assert judged(ORDER, enough + few).where == ("cpu budget",)
    more = runs("durnn", *BAD) + runs("lstm", *GOOD)
    found = judged(ORDER, enough + more)
    assert (found.where, found.verdict.word) == (("paper budget",), "contradicted")


def test_smoke_runs_and_unfinished_ones_decide_nothing():
    smoke = runs("durnn", *GOOD, budget="smoke") + runs("lstm", *BAD, budget="smoke")
    assert judged(ORDER, smoke).verdict.reason == "no runs of DuRNN on T = 100 or LSTM on T = 100"
    unfinished = [r.model_copy(update={"status": "unfinished", "test": None}) for r in runs("durnn", *GOOD)]
    assert "no runs of DuRNN" in judged(ORDER, unfinished + runs("lstm", *BAD)).verdict.reason


def test_records_of_an_older_recipe_are_counted_but_decide_nothing():
    old = []
    for r in runs("durnn", *BAD):
        settings = r.settings.model_copy(update={"training": r.settings.training.model_copy(update={"batch_size": 7})})
        old.append(r.model_copy(update={"settings": settings}))
    assert not any(is_current(r, recipe.load("adding")) for r in old)
    found = judged(ORDER, old + runs("lstm", *GOOD))
    assert (found.verdict.word, found.older) == ("undecided", 3)
    assert "3 records of an older recipe" in markdown({"c": found})


def test_a_part_of_the_data_counts_only_where_the_rule_accepts_it():
    options = {
        "metric": "accuracy_percent",
        "higher": True,
        "recipe_name": "table3",
        "cell": "ntu-cs",
        "budget": "quick",
    }
    part = {"partial": "10 of 60 classes"} | options
    made = [make_record(test=v, seed=s, row=row, **part) for row, base in (("durnn-1", 80), ("lstm-1", 70))
            for s, v in enumerate((base, base + 1, base + 2))]  # fmt: skip
    rule = {"kind": "order", "recipe": "table3", "cells": ["ntu-cs"], "row": "durnn-1", "over": ["lstm-1"]}
    assert word(rule, made) == "undecided"
    found = judged(rule | {"data": ["real", "partial"]}, made)
    assert (found.verdict.word, found.where) == ("supported", ("quick budget, 10 of 60 classes",))
    standin = [
        r.model_copy(update={"task": r.task.model_copy(update={"is_standin": True, "partial": ""})}) for r in made
    ]
    assert word(rule | {"data": ["real", "partial"]}, standin) == "undecided"
    assert word(rule | {"data": ["stand-in"]}, standin) == "supported"


def test_holm_corrects_over_all_pairs_of_the_claim():
    records = runs("durnn", 1.0e-3, 1.3e-3, 1.1e-3) + runs("lstm", 1.5e-3, 1.7e-3, 1.4e-3)
    alone = judged(ORDER, records).findings[0].order.p_adjusted
    assert alone < 0.05
    more = [ORDER | {"over": ["lstm", "irnn", "rnn-tanh"]}]
    records += runs("irnn", 1.5e-3, 1.7e-3, 1.4e-3) + runs("rnn-tanh", 1.0e-3, 1.3e-3, 1.1e-3)
    assert min(f.order.p_adjusted for f in judged(more, records).findings) == pytest.approx(3 * alone)
    both = judged([ORDER, ORDER | {"over": ["irnn"]}, ORDER | {"over": ["rnn-tanh"]}], records)
    assert both.findings[0].order.p_adjusted == pytest.approx(3 * alone)


def test_order_of_a_difference_between_cells():
    def mnist(row, values, cell):
        return [make_record(test=v, seed=s, row=row, cell=cell, name=cell) for s, v in enumerate(values)]

    rule = {
        "kind": "order",
        "recipe": "table1",
        "cells": ["pmnist"],
        "row": "durnn-3",
        "over": ["indrnn-6"],
        "minus": "mnist",
    }
    durnn = mnist("durnn-3", (3.4, 3.5, 3.6), "pmnist") + mnist("durnn-3", (1.0, 1.1, 1.2), "mnist")
    indrnn = mnist("indrnn-6", (4.0, 4.1, 4.2), "pmnist") + mnist("indrnn-6", (1.0, 1.15, 1.2), "mnist")
    assert word(rule, durnn + indrnn) == "supported"
    # better on both cells, but by as much
    indrnn = mnist("indrnn-6", (4.0, 4.1, 4.2), "pmnist") + mnist("indrnn-6", (1.6, 1.7, 1.8), "mnist")
    assert word(rule, durnn + indrnn) == "undecided"
    indrnn = mnist("indrnn-6", (3.0, 3.1, 3.2), "pmnist") + mnist("indrnn-6", (1.6, 1.71, 1.8), "mnist")
    assert word(rule, durnn + indrnn) == "contradicted"


# Curves

FAST = [[(100, 0.1), (200, middle), (300, 1e-4)] for middle in (0.005, 0.004, 0.02)]
NEVER = [[(100, 0.17), (200, 0.16), (300, 0.15)]] * 3


def test_speed():
    rule = {"kind": "speed", "row": "durnn", "over": ["lstm"], "until": 0.01}
    quick, slow = runs("durnn", *GOOD, curve=FAST), runs("lstm", *BAD, curve=NEVER)
    found = judged(rule, quick + slow)
    assert found.verdict.word == "supported"
    assert [s.numbers for s in found.findings[0].sides] == [("200", "200", "300"), ("never",) * 3]
    assert word(rule, runs("durnn", *BAD, curve=NEVER) + runs("lstm", *GOOD, curve=FAST)) == "contradicted"
    assert word(rule, runs("durnn", *BAD, curve=NEVER) + runs("lstm", *BAD, curve=NEVER)) == "undecided"


def test_smooth():
    rule = {"kind": "smooth", "row": "durnn", "over": ["lstm"], "until": [0]}
    even = [[(i, 10.0 ** -(i / (10 + seed))) for i in range(30)] for seed in range(3)]
    uneven = [[(i, 10.0 ** -(i / 10) * (5 + seed if i % 2 else 1)) for i in range(30)] for seed in range(3)]
    assert word(rule, runs("durnn", *GOOD, curve=even) + runs("lstm", *GOOD, curve=uneven)) == "supported"
    assert word(rule, runs("durnn", *GOOD, curve=uneven) + runs("lstm", *GOOD, curve=even)) == "contradicted"
    assert word(rule, runs("durnn", *GOOD, curve=even) + runs("lstm", *GOOD, curve=even)) == "undecided"


def test_smooth_needs_the_same_order_wherever_the_descent_ends():
    rule = {"kind": "smooth", "row": "durnn", "over": ["lstm"], "until": [0.01, 0]}
    early = [[(1, 1.0), (2, 0.009), (3, 0.02 + seed / 1000), (4, 1e-3)] for seed in range(3)]  # turns after 0.01
    late = [[(1, 1.0), (2, 1.2 + seed / 100), (3, 0.009), (4, 1e-3)] for seed in range(3)]  # turns before it
    found = judged(rule, runs("durnn", *GOOD, curve=early) + runs("lstm", *GOOD, curve=late))
    assert found.verdict.word == "undecided"
    assert "turns with where the descent is taken to end" in found.findings[0].verdict.reason
    assert [side.label for side in found.findings[0].sides[::2]] == [
        "DuRNN until 0.01",
        "DuRNN until twice the best value",
    ]
    straight = [[(1, 1.0 + seed / 100), (2, 0.009), (3, 1e-3)] for seed in range(3)]
    uneven = [[*curve[:2], (2.5, 2.0 + seed / 10), *curve[2:]] for seed, curve in enumerate(late)]
    uneven = [[(i, value) for i, (_, value) in enumerate(curve)] for curve in uneven]
    assert word(rule, runs("durnn", *GOOD, curve=straight) + runs("lstm", *GOOD, curve=uneven)) == "supported"


def test_noise_at_the_floor_is_not_charged():
    (down,) = runs("durnn", 1e-4, curve=[[(1, 1.0), (2, 0.1), (3, 0.01)]])
    (noisy,) = runs("durnn", 1e-4, curve=[[(1, 1.0), (2, 0.1), (3, 0.01), (4, 0.05), (5, 0.0099), (6, 0.04)]])
    assert evidence.unevenness(down, 0) == evidence.unevenness(noisy, 0) == pytest.approx(1.0)
    assert evidence.unevenness(noisy, 0.2) == pytest.approx(1.0)
    assert evidence.unevenness(noisy, 2.0) == 1.0  # down before the first evaluation
    assert evidence.unevenness(noisy, 0.001) == float("inf")
    (rising,) = runs("durnn", 1.0, curve=[[(1, 0.1), (2, 0.2)]])
    assert evidence.unevenness(rising, 0) == float("inf")


# Levels


def test_threshold():
    rule = {"kind": "threshold", "rows": ["durnn"], "limit": 0.01}
    assert word(rule, runs("durnn", *GOOD)) == "supported"
    assert word(rule, runs("durnn", 0.1, 0.2, 0.15)) == "contradicted"
    assert word(rule, runs("durnn", None, None, 0.15)) == "contradicted"
    assert word(rule, runs("durnn", 1e-4, 1e-4, 0.15)) == "undecided"
    assert judged(rule, runs("durnn", 1e-4)).verdict.reason.endswith("2 more needed")


def test_failure():
    rule = {"kind": "failure", "rows": ["lstm"], "limit": 0.1}
    assert word(rule, runs("lstm", 0.16, None, 0.17)) == "supported"
    assert word(rule, runs("lstm", *GOOD)) == "contradicted"
    assert word(rule, runs("lstm", 0.16, 1e-4, 0.17)) == "undecided"


def test_less_training_shows_that_a_level_is_reached_but_not_that_it_never_is():
    reach, fail = (
        {"kind": "threshold", "rows": ["durnn"], "limit": 0.01},
        {"kind": "failure", "rows": ["durnn"], "limit": 0.1},
    )
    learned, not_yet = runs("durnn", *GOOD, budget="cpu"), runs("durnn", 0.16, 0.17, 0.16, budget="cpu")
    assert (word(reach, learned), word(fail, learned)) == ("supported", "contradicted")
    assert (word(reach, not_yet), word(fail, not_yet)) == ("undecided", "undecided")
    assert "less training" in judged(reach, not_yet).verdict.reason
    assert "--budget paper" in judged(reach, not_yet).missing[0]


def test_a_level_of_an_accuracy_is_reached_from_below():
    options = {
        "metric": "accuracy_percent",
        "higher": True,
        "recipe_name": "table3",
        "cell": "ntu-cs",
        "row": "durnn-1",
    }
    made = [make_record(test=v, seed=s, **options) for s, v in enumerate((80.0, 81.0, 82.0))]
    rule = {"kind": "threshold", "recipe": "table3", "cells": ["ntu-cs"], "rows": ["durnn-1"]}
    assert word(rule | {"limit": 75}, made) == "supported"
    assert word(rule | {"limit": 85}, made) == "contradicted"


# Measured, computed, open


def measured(records, **values):
    return [
        Measurement(run=r.run, weights_sha256="a" * 64, sequences=1, values={n: v[i] for n, v in values.items()})
        for i, r in enumerate(records)
    ]


def test_measured_against_a_number():
    rule = {"kind": "measured", "row": "durnn", "value": "x", "above": 0.5}
    records = runs("durnn", *GOOD)
    assert word(rule, records, measured(records, x=(0.6, 0.7, 0.8))) == "supported"
    assert word(rule, records, measured(records, x=(0.1, 0.2, 0.3))) == "contradicted"
    assert word(rule, records, measured(records, x=(0.1, 0.7, 0.8))) == "undecided"
    assert word(rule, records, measured(records[:2], x=(0.6, 0.7))) == "undecided"
    found = judged(rule, records)
    assert found.verdict.reason == "nothing was measured on trained weights"
    assert "reproduce.report.measurements" in found.missing[0]
    below = {"kind": "measured", "row": "durnn", "value": "x", "below": 0.5}
    assert word(below, records, measured(records, x=(0.1, 0.2, 0.3))) == "supported"


def test_measured_against_another_row():
    rule = {"kind": "measured", "row": "durnn", "value": "x", "above": "indrnn-2:y"}
    records = runs("durnn", *GOOD), runs("indrnn-2", *GOOD)
    high, low = (0.7, 0.75, 0.72), (0.1, 0.12, 0.15)
    for own, other, expected in ((high, low, "supported"), (low, high, "contradicted"), (low, low, "undecided")):
        values = measured(records[0], x=own) + measured(records[1], y=other)
        assert word(rule, records[0] + records[1], values) == expected
    assert word(rule, records[0] + records[1], measured(records[0], x=high)) == "undecided"


def test_what_an_untrained_network_shows_is_not_measured():
    rule = {"kind": "measured", "row": "durnn", "value": "x", "above": 0.5}
    records = runs("durnn", 0.166, 0.168, 0.167, budget="cpu")
    found = judged(rule, records, measured(records, x=(0.6, 0.7, 0.8)))
    assert (found.verdict.word, found.verdict.reason) == ("undecided", "DuRNN is at chance on T = 100")
    assert "--budget paper" in found.missing[0]


def test_measurements_of_other_weights_are_not_believed():
    rule = {"kind": "measured", "row": "durnn", "value": "x", "above": 0.5}
    records = runs("durnn", *GOOD)
    others = [m.model_copy(update={"weights_sha256": "b" * 64}) for m in measured(records, x=(0.6, 0.7, 0.8))]
    assert word(rule, records, others) == "undecided"


def test_parameters():
    rule = {"kind": "parameters", "recipe": "table1", "cells": ["mnist"], "row": "durnn-3", "than": "indrnn-6"}
    assert word(rule | {"at_most": 1.25}) == "contradicted"
    assert word(rule | {"at_most": 3}) == "supported"
    assert "233,869 against 86,410, 2.71 times" in judged(rule | {"at_most": 3}).verdict.reason


def test_open_is_undecided_and_says_what_is_needed():
    found = judged({"kind": "open", "needs": "noise"})
    assert (found.verdict.word, found.missing) == ("undecided", ("noise",))


def test_a_row_without_a_recipe_is_named():
    rule = {"kind": "order", "recipe": "table1", "cells": ["mnist"], "row": "durnn-3", "over": ["urnn", "rnn-path"]}
    absent = [row for row in ("urnn", "rnn-path") if row not in recipe.load("table1").rows]
    found = judged(rule)
    assert found.verdict.word == "undecided"
    if absent:
        assert any(line.startswith("a recipe for") for line in found.missing)


def test_one_contradicted_part_contradicts_and_one_undecided_leaves_open():
    computed = {"kind": "bound", "quantity": "delta", "lengths": [20, 784]}
    records = runs("durnn", *GOOD) + runs("lstm", *BAD)
    assert word([ORDER, computed | {"below": 1.0}], records) == "supported"
    assert word([ORDER, {"kind": "open", "needs": "x"}], records) == "undecided"
    assert word([ORDER, {"kind": "open", "needs": "x"}, computed | {"constant": True}], records) == "contradicted"


# Rows by pattern, printed numbers


def test_patterns_choose_rows_of_the_table_with_a_printed_value():
    chosen = evidence.chosen_rows(["*", "!durnn-*"], "table1", "durnn-3", "pmnist")
    assert "rnn-path" not in chosen  # the table prints "-"
    assert "urnn" in chosen
    assert not any(row.startswith("durnn") for row in chosen)
    assert evidence.chosen_rows(["lstm", "durnn"], "adding", "durnn", "adding-100") == ["lstm"]


def test_what_the_printed_numbers_show_by_themselves():
    def lines(**rule):
        return claims.printed_lines(TypeAdapter(Rule).validate_python({"kind": "order", **rule}))

    best = {"row": "durnn-3", "over": ["indrnn-6"]}
    (mnist,) = lines(recipe="table1", cells=["mnist"], **best)
    assert "4 of 10,000 samples, 0.3 standard errors: ahead, not separated" in mnist
    (permuted,) = lines(recipe="table1", cells=["pmnist"], **best)
    assert permuted.endswith("54 of 10,000 samples, 2.0 standard errors: ahead")
    subject, view = lines(recipe="table3", cells=["ntu-cs", "ntu-cv"], **best)
    assert "1.7 standard errors: ahead, not separated" in subject
    assert "4.2 standard errors: ahead" in view
    (order,) = lines(recipe="table1", cells=["pmnist"], minus="mnist", **best)
    assert "2.50 against 3.00" in order
    (tie,) = lines(recipe="table2", cells=["ptb-c"], row="durnn-3-100", over=["indrnn-3-150"])
    assert "0.0 times the 0.02 between re-runs, not separated" in tie
    assert lines(recipe="table2", cells=["ptb-c"], row="durnn-1-50", over=["durnn-1-50-norm-after"]) == []
    (behind,) = lines(recipe="table1", cells=["mnist"], row="durnn-1", over=["indrnn-6"])
    assert behind.endswith("behind")
    other_task = lines(recipe="table1", cells=["pmnist"], row="durnn-3", over=["*", "!durnn-*"])[-1]
    assert other_task.startswith("not compared")
    assert lines(recipe="adding", cells=["adding-100"], row="durnn", over=["lstm"]) == []


# The committed records


@pytest.fixture(scope="module")
def published():
    return judge_all(PUBLISHED, read_measurements())


def test_every_claim_gets_a_verdict_on_the_published_records(published):
    assert list(published) == list(paper.load().claims)
    for one in published.values():
        assert one.findings
        assert one.verdict.reason
        assert (one.verdict.word == "undecided") <= bool(one.missing)
    ids = {r.run[:12] for r in PUBLISHED}
    assert all(set(one.runs) <= ids for one in published.values())


def test_what_needs_no_run_is_decided_by_computation(published):
    assert published["bound-independent-of-length"].verdict.word == "contradicted"
    assert published["mnist-fair-contrast"].verdict.word == "contradicted"
    assert published["adding-baseline-mse"].verdict.word == "supported"


def test_the_page_is_the_committed_one_byte_for_byte(published):
    again = markdown(judge_all(list(reversed(PUBLISHED)), read_measurements()))
    assert again == markdown(published)
    assert again == (ROOT / "results" / "claims.md").read_text(encoding="utf-8")


def test_claims_without_any_record():
    for one in judge_all([]).values():
        assert one.verdict.word == "undecided" or set(one.where) == {"computed"}
