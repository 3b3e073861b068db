"""The rules of a claim in words."""

from __future__ import annotations

from reproduce.plan.sentences import (
    Bound,
    Failure,
    Measured,
    Open,
    Order,
    Parameters,
    Rule,
    Smooth,
    Speed,
    Threshold,
)  # fmt: skip
from reproduce.report.evidence import cell_label, chosen_rows, ending, label


def rule_in_words(rule: Rule) -> str:
    match rule:
        case Order():
            gap = f", minus that on {cell_label(rule.recipe, rule.minus)} of the same seed" if rule.minus else ""
            return f"The test metric of {label(rule.recipe, rule.row)} is better than that of {_others(rule)}{gap}."
        case Speed():
            return (
                f"The validation metric of {label(rule.recipe, rule.row)} passes {rule.until:g} after fewer updates "
                f"than that of {_others(rule)}; a run that never does needs all of its updates."
            )
        case Smooth():
            return (
                f"The curve of {label(rule.recipe, rule.row)} is smoother than that of {_others(rule)}: all changes of "
                f"log10 of the validation metric, over its net fall, {_listed([ending(u) for u in rule.until])} alike."
            )
        case Threshold():
            return f"Every run of {_rows(rule)} ends with a test metric better than {rule.limit:g}."
        case Failure():
            return f"No run of {_rows(rule)} ends with a test metric better than {rule.limit:g}."
        case Measured():
            side = "above" if rule.below is None else "below"
            limit = rule.limit if isinstance(rule.limit, str) else f"{rule.limit:g}"
            where = _listed([cell_label(rule.recipe, cell) for cell in rule.cells])
            return f"On trained weights, {rule.value} of {label(rule.recipe, rule.row)} is {side} {limit} on {where}."
        case Bound():
            lengths = _listed([f"{length:,}" for length in rule.lengths])
            relation = "is the same" if rule.constant else f"equals {rule.equal:g}" if rule.equal is not None else ""
            relation = relation or f"stays below {rule.below}"
            return f"By its formula, the {rule.quantity} {relation} for sequences of {lengths} steps."
        case Parameters():
            own, other = (label(rule.recipe, row) for row in (rule.row, rule.than))
            return f"{own} has at most {rule.at_most:g} times the parameters of {other}, at the paper's budget."
        case Open():
            return f"No run of this suite decides it; what would: {rule.needs}"


def _others(rule: Order | Speed | Smooth) -> str:
    rows = dict.fromkeys(row for cell in rule.cells for row in chosen_rows(rule.over, rule.recipe, rule.row, cell))
    names = [label(rule.recipe, row) for row in rows]
    who = f"each of {len(names)} others ({', '.join(names)})" if len(names) > 3 else _listed(names)
    return f"{who} on {_listed([cell_label(rule.recipe, cell) for cell in rule.cells])}"


def _rows(rule: Threshold | Failure) -> str:
    where = _listed([cell_label(rule.recipe, cell) for cell in rule.cells])
    return f"{_listed([label(rule.recipe, row) for row in rule.rows])} on {where}"


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
