"""Verdicts on a claim: rules on plain numbers and on orders, and how parts make a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reproduce.report.orders import Order, OrderWord, adjust
from reproduce.report.verdicts import FEWEST_FOR_ORDER

ClaimWord = Literal["supported", "contradicted", "undecided"]


@dataclass(frozen=True)
class ClaimVerdict:
    """``reason`` says what the word rests on or what is missing; the budget it was judged at is the caller's to add."""

    word: ClaimWord
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def threshold_claim(values: Sequence[float], limit: float, below: bool = True) -> ClaimVerdict:
    """The claim "every run ends below (above) the limit", strictly, from at least three seeds.

    *supported* if all seeds do, *contradicted* if none does, *undecided* if only some do or seeds are missing. A
    diverged seed is a failure: it is given as infinity (minus infinity for a lower limit), not left out.
    """
    if any(math.isnan(v) for v in values):
        raise ValueError("a value is not a number; a diverged seed is given as infinity")
    met, side = sum(v < limit if below else v > limit for v in values), "below" if below else "above"
    reason = f"{met} of {len(values)} seeds {side} {limit:g}"
    if len(values) < FEWEST_FOR_ORDER:
        return ClaimVerdict("undecided", f"{reason}; {FEWEST_FOR_ORDER - len(values)} more needed")
    return ClaimVerdict("supported" if met == len(values) else "undecided" if met else "contradicted", reason)


def order_claim(orders: Mapping[str, Order]) -> ClaimVerdict:
    """The claim "a is better than b" for each named pair, with Holm's correction over the pairs of the claim.

    *supported* if a is *better* in all pairs, *contradicted* if it is *worse* in one, else *undecided*.
    """
    return every({name: pair_claim(o) for name, o in zip(orders, adjust(list(orders.values())), strict=True)})


def pair_claim(found: Order) -> ClaimVerdict:
    """The claim "a is better than b", from an order whose p-value was corrected by the caller."""
    lacking = " and ".join(str(n) for n in found.missing)
    if found.p_adjusted is None:
        return ClaimVerdict("undecided", f"too few seeds, {lacking} missing")
    words: dict[OrderWord, ClaimWord] = {"better": "supported", "worse": "contradicted"}
    reason = f"p = {found.p_adjusted:.2g}" + (f", {lacking} seeds missing" if any(found.missing) else "")
    return ClaimVerdict(words.get(found.word, "undecided"), reason)


def every(parts: Mapping[str, ClaimVerdict]) -> ClaimVerdict:
    """A claim that holds if all its parts do: one contradicted part contradicts it, else one undecided leaves it open.

    The reason names the parts that decide.
    """
    found = {part.word for part in parts.values()}
    if not found:
        return ClaimVerdict("undecided", "nothing to judge")
    precedence: tuple[ClaimWord, ...] = ("contradicted", "undecided", "supported")
    word = next(w for w in precedence if w in found)
    reasons = [f"{name}: {part.reason}" if part.reason else name for name, part in parts.items() if part.word == word]
    return ClaimVerdict(word, "; ".join(reasons))
