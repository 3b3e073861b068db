"""Gradient control (paper §IV-B) in numbers: what the formulas give, and what a network shows beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import tasks
from models import analysis
from models.nets import RecurrentNet
from reproduce.plan import recipe
from reproduce.plan.parts import canonical
from reproduce.plan.runs import build_task
from reproduce.plan.sentences import Bound, Quantity
from reproduce.report.activations import run_of
from reproduce.report.records import Record
from reproduce.report.rules import ClaimVerdict, every
from reproduce.train.loop import weights_of
from reproduce.train.network import Network
from reproduce.train.outcome import Place

LENGTHS = (20, 50, 100, 784, 1000, 5000)
EPSILON, GAMMA, KEPT = 0.5, 2.0, 0.5  # the paper's: U in [ε^(1/L), γ^(1/L)], δ = 0.5^(1/L)


@dataclass(frozen=True)
class Line:
    """The constants of §IV-B for sequences of one length; ``bound`` is s γ / (1 − δ)."""

    length: int
    delta: float
    amplification: float  # 1 / (1 − δ), close to L / ln 2
    u_low: float
    u_high: float
    geometric_sum: float  # δ^0 + … + δ^L, which the paper bounds by the amplification
    bound: float


def line(length: int, s: float = 1.0) -> Line:
    if length < 1:
        raise ValueError(f"a sequence has at least one step, not {length}")
    gap = -math.expm1(math.log(KEPT) / length)  # 1 − δ without cancellation
    delta, amplification = KEPT ** (1 / length), 1 / gap
    return Line(
        length,
        delta,
        amplification,
        EPSILON ** (1 / length),
        GAMMA ** (1 / length),
        (1 - KEPT * delta) * amplification,
        s * GAMMA * amplification,
    )


def formulas(lengths: Sequence[int] = LENGTHS, s: float = 1.0) -> list[Line]:
    return [line(length, s) for length in lengths]


def quantity(name: Quantity, length: int) -> float:
    """A quantity that a ``bound`` rule names, at one length."""
    if name == "adding chance":
        return 1 / 6  # the variance of the sum of two independent uniform numbers, whatever the length
    at = line(length)
    return {"delta": at.delta, "amplification": at.amplification, "geometric sum": at.geometric_sum}[name]


def judge_bound(rule: Bound) -> tuple[ClaimVerdict, dict[int, float]]:
    """The verdict of a rule that formulas decide, and the quantity at each length."""
    found = {length: quantity(rule.quantity, length) for length in rule.lengths}
    if rule.constant:
        low, high = min(found.values()), max(found.values())
        holds = high <= low * (1 + rule.within)
        said = f"{rule.quantity} is {_short(found[rule.lengths[0]])} at L = {rule.lengths[0]:,}"
        said += "".join(f", {_short(found[length])} at {length:,}" for length in rule.lengths[1:])
        return ClaimVerdict("supported" if holds else "contradicted", said), found
    parts = {}
    for length, value in found.items():
        if rule.equal is not None:
            holds, said = math.isclose(value, rule.equal, rel_tol=rule.within), f"{_short(value)} ≈ {rule.equal:g}"
        else:
            limit = rule.below if isinstance(rule.below, float) else quantity(_named(rule.below), length)
            holds, said = value < limit, f"{_short(value)} < {_short(limit)}"
        parts[f"L = {length:,}"] = ClaimVerdict(
            "supported" if holds else "contradicted", said if holds else f"not {said}"
        )
    return every(parts), found


def _named(name: Quantity | float | None) -> Quantity:
    assert isinstance(name, str)
    return name


def _short(value: float) -> str:
    return f"{value:,.1f}" if value >= 1000 else f"{value:.5g}"


# On networks


@dataclass(frozen=True)
class Gradient:
    """Spectral norms at one lag, of what back-propagation multiplies by, with what §IV-B says of them."""

    lag: int
    long: float  # ‖∂h_T/∂h_{T−k}‖
    long_ceiling: float  # u_max^k, the largest that the constraint allows
    short: float  # ‖∂h_T/∂h~_{T−k}‖
    bound: float  # s γ / (1 − δ), for ``short``


def gradients(net: RecurrentNet, x: Tensor, lags: Sequence[int]) -> list[Gradient]:
    """Of a DuRNN without normalisation; x: (T, B, M), the first sample counts."""
    bound = analysis.gradient_bound(net)
    u_max = float(getattr(net.cells[-1], "u_max"))  # noqa: B009 - gradient_bound has made sure that it is a DuRNN
    return [
        Gradient(
            lag,
            norm(analysis.jacobian(net, x, lag)) if lag else 1.0,
            u_max**lag,
            norm(analysis.short_to_long_jacobian(net, x, lag)),
            bound,
        )
        for lag in lags
    ]


def norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


@dataclass(frozen=True)
class Subject:
    """A network to measure on: ``x`` (T, B, M) are test sequences, ``origin`` says where the weights are from."""

    network: Network
    x: Tensor
    origin: str


def subject(recipe_name: str, row: str, cell: str, records: Sequence[Record], place: Place) -> Subject:
    """The trained network of the first record whose weights are on this machine, else a freshly initialised one."""
    for record in records:
        if (record.recipe, record.row, record.cell) == (recipe_name, row, cell) and (found := trained(record, place)):
            return found
    recipes = recipe.load(recipe_name)
    settings, _ = recipes.resolve(row, cell, "paper")
    task = build_task(recipes.cells[cell].task, canonical(settings.data))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network(settings, task, place.backend).eval()
    return Subject(network, sequences(task, 1), "freshly initialised, not trained")


def trained(record: Record, place: Place, count: int = 1) -> Subject | None:
    """The network of a record with that many test sequences, if its weights are on this machine."""
    run = run_of(record)
    if (weights := weights_of(record, run, place)) is None:
        return None
    task = run.build_task()
    network = Network(run.settings, task, place.backend).eval()
    network.load_state_dict(weights)
    origin = f"trained weights of run {record.run[:12]} ({record.budget} budget, seed {record.seed})"
    return Subject(network, sequences(task, count), origin)


def sequences(task: tasks.Task, count: int) -> Tensor:
    """The first test sequences, (T, count, M)."""
    return tasks.unpack(next(iter(task.batches("test", count))))[0]


def markdown(lines: Sequence[Line], found: Sequence[Gradient] = (), origin: str = "") -> str:
    """The two tables of the page on gradient control."""
    text = [
        "| L | δ | 1/(1 − δ) | U between | bound s γ/(1 − δ), s = 1 |",
        "|---:|---:|---:|---|---:|",
        *(
            f"| {at.length:,} | {at.delta:.6f} | {at.amplification:,.1f} | {at.u_low:.6f} and {at.u_high:.6f} "
            f"| {at.bound:,.1f} |"
            for at in lines
        ),
    ]
    if found:
        text += [
            "",
            f"Measured on one sequence, {origin}:",
            "",
            "| lag k | ‖∂h_T/∂h_(T−k)‖ | at most | ‖∂h_T/∂h~_(T−k)‖ | bound |",
            "|---:|---:|---:|---:|---:|",
            *(f"| {g.lag:,} | {g.long:.4g} | {g.long_ceiling:.4g} | {g.short:.4g} | {g.bound:.4g} |" for g in found),
        ]
    return "\n".join(text) + "\n"
