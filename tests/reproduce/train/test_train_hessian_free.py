"""Hessian-free optimisation: its matrix against an explicit one, its parts by hand, and whether it pays."""

import itertools
import math

import pytest
import torch
from run_samples import make_place, make_run, make_settings, outcome_of
from test_train_parts import limited

import models
from models import inputs, readouts
from models.base import Part
from reproduce.plan.parts import Optimiser
from reproduce.train import hessian_free, optimisers
from reproduce.train.hessian_free import Curvature, HessianFree, backtrack, conjugate_gradients, line_search
from reproduce.train.loop import Training, train
from reproduce.train.network import Objective


class Small(Part):
    """A recurrent network in double precision with a loss."""

    def __init__(self, model, readout, M, N, K, kind, symbols=False):
        super().__init__()
        torch.manual_seed(0)
        self.input = inputs.build("one-hot", M).double() if symbols else None
        self.model = models.build(model, M, N, seed=0, dtype=torch.float64)
        self.readout = readouts.build(readout, N, K).double()
        self.kind = kind

    def forward(self, x, state=None, mask=None):
        seen = self.input(x) if self.input else x
        y, state = self.model(seen, state)
        return self.readout(y, seen), state

    def loss(self, outputs, y):
        if self.kind == "square":
            return torch.nn.functional.mse_loss(outputs, y)
        return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), y.flatten())


def case(kind):
    """A tiny network and a batch: squares of the last output, or characters at every step."""
    generator = torch.Generator().manual_seed(1)
    if kind == "square":
        x = torch.randn(4, 6, 2, dtype=torch.float64, generator=generator)
        y = torch.randn(6, 2, dtype=torch.float64, generator=generator)
        return Small("mrnn", "last", 2, 3, 2, kind), (x, y, None)
    x = torch.randint(4, (5, 6), generator=generator)
    return Small("mrnn", "every", 4, 3, 4, kind, symbols=True), (x, x.roll(-1, 0), None)


def explicit(network, batch, samples, structural):
    """JᵀHJ + structural · J_hᵀJ_h / (number of states), written out."""
    x, y = batch[0][:, :samples], batch[1]
    y = y[:, :samples] if network.readout.every_step else y[:samples]
    names, parameters = zip(*network.named_parameters(), strict=True)
    shapes = [p.shape for p in parameters]
    flat = torch.cat([p.detach().flatten() for p in parameters])

    def run(theta):
        pieces = [t.view(s) for t, s in zip(theta.split([s.numel() for s in shapes]), shapes, strict=True)]
        weights = dict(zip(names, pieces, strict=True))
        inside = {n.removeprefix("model."): w for n, w in weights.items() if n.startswith("model.")}
        seen = network.input(x) if network.input else x
        h = torch.func.functional_call(network.model, inside, (seen,))[0]
        read = h if network.readout.every_step else h[-1]
        return read @ weights["readout.head.weight"].T + weights["readout.head.bias"], h

    outputs, h = run(flat)
    J = torch.autograd.functional.jacobian(lambda t: run(t)[0].flatten(), flat)
    J_h = torch.autograd.functional.jacobian(lambda t: run(t)[1].flatten(), flat)
    H = torch.autograd.functional.hessian(lambda o: network.loss(o.view_as(outputs), y), outputs.detach().flatten())
    return J.T @ H @ J + structural / (h.shape[0] * h.shape[1]) * J_h.T @ J_h


@pytest.mark.parametrize("kind", ["square", "characters"])
@pytest.mark.parametrize(("share", "structural"), [(1.0, 0.0), (1.0, 0.7), (0.5, 0.7)])
def test_products_are_those_of_the_explicit_matrix(kind, share, structural):
    network, batch = case(kind)
    G = explicit(network, batch, round(6 * share), structural)
    curvature = Curvature(Objective(network, batch, None, {}, None), list(network.parameters()), share)
    for number in range(3):
        v = torch.randn(len(G), dtype=torch.float64, generator=torch.Generator().manual_seed(number))
        torch.testing.assert_close(curvature.product(v, structural), G @ v, rtol=1e-10, atol=1e-12)
    assert torch.linalg.eigvalsh(G).min() > -1e-12, "a Gauss–Newton matrix has no negative curvature"


def quadratic(size=8):
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(size, size, dtype=torch.float64, generator=generator)
    return A @ A.T + torch.eye(size, dtype=torch.float64), torch.randn(size, dtype=torch.float64, generator=generator)


def test_conjugate_gradients_solve_the_model():
    B, g = quadratic()
    solution = -torch.linalg.solve(B, g)
    iterates = conjugate_gradients(lambda v: B @ v, g, torch.zeros_like(g), 8)
    torch.testing.assert_close(iterates[-1][0], solution, rtol=1e-6, atol=1e-8)
    for delta, q in iterates:
        assert q == pytest.approx(float(g @ delta + 0.5 * delta @ B @ delta))
    assert all(a > b for (_, a), (_, b) in itertools.pairwise(iterates))
    warm = conjugate_gradients(lambda v: B @ v, g, 0.99 * solution, 2)[-1]
    cold = conjugate_gradients(lambda v: B @ v, g, torch.zeros_like(g), 2)[-1]
    assert warm[1] < cold[1]
    assert torch.equal(conjugate_gradients(lambda v: B @ v, 0 * g, 0 * g, 5)[-1][0], 0 * g), "nothing to do"


def test_conjugate_gradients_stop_when_the_model_has_stopped_falling():
    calls = []
    size = 400
    B = torch.linspace(1, 1.5, size, dtype=torch.float64)
    conjugate_gradients(lambda v: calls.append(1) or B * v, torch.ones_like(B), torch.zeros_like(B), 300)
    assert 10 < len(calls) < 25


def test_backtracking_takes_the_iterate_before_the_loss_rises():
    iterates = [(torch.tensor([float(k)]), -float(k)) for k in range(6)]
    losses = [3.0, 1.0, 2.0, 0.5, 1.5, math.nan]
    delta, q, loss = backtrack(iterates, lambda d: losses[int(d)])
    assert (delta.item(), q, loss) == (3.0, -3.0, 0.5)


def test_line_search_shortens_until_the_loss_falls():
    delta = torch.tensor([1.0])
    tried = []

    def loss_at(d):
        tried.append(d.item())
        return (d.item() - 0.1) ** 2

    length = line_search(delta, -0.2, 0.01, 0.81, loss_at)
    assert length == pytest.approx(0.8**8)
    assert tried[-1] == pytest.approx(length)
    assert line_search(delta, -0.2, 0.01, 0.0, loss_at) == 1.0
    assert line_search(delta, -1.0, 0.0, 1.0, lambda d: 1.0) == 0.0


@pytest.mark.parametrize(("fall", "factor"), [(0.1, 1.5), (0.5, 1.0), (0.9, 1 / 1.5), (-1.0, 1.5)])
def test_damping_follows_the_reduction_ratio(monkeypatch, fall, factor):
    network, batch = case("square")
    before = Objective(network, batch, None, {}, None)().item()

    def fake(iterates, loss_at):
        delta, q = iterates[-1]
        return delta, q, before + fall * q

    monkeypatch.setattr(hessian_free, "backtrack", fake)
    optimiser = HessianFree([{"params": list(network.parameters())}], 1.0, damping=2.0)
    optimiser.step(Objective(network, batch, None, {}, None))
    assert optimiser.state[next(network.parameters())]["damping"].item() == pytest.approx(2.0 * factor)


@pytest.mark.parametrize("kind", ["square", "characters"])
def test_no_update_raises_the_loss_of_its_batch(kind):
    network, batch = case(kind)
    optimiser = HessianFree([{"params": list(network.parameters()), "weight_decay": 1e-3}], 1.0, damping=1e-4)
    losses = [optimiser.step(Objective(network, batch, None, {}, None)).item() for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(b <= a + 1e-3 for a, b in itertools.pairwise(losses))  # but for what decay takes


def memory_task(seed):
    """Recall the first input after 8 steps, from mixtures in which two of its three parts are 30 and 1000 times weaker.

    The curvature of such a task spans many orders of magnitude in directions that no rate per weight can separate.
    """
    generator = torch.Generator().manual_seed(seed)
    e = torch.randn(64, 3, dtype=torch.float64, generator=generator)
    Q, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    x = torch.zeros(8, 64, 3, dtype=torch.float64)
    x[0] = (e * torch.tensor([1.0, 0.03, 0.001], dtype=torch.float64)) @ Q.T
    return Small("rnn-tanh", "last", 3, 10, 3, "square"), (x, 0.3 * e, None)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3, 4))])
def test_it_gets_further_than_adam_for_as_many_evaluations(seed):
    network, batch = memory_task(seed)
    optimiser = HessianFree([{"params": list(network.parameters())}], 1.0, damping=1e-3)
    for _ in range(20):
        optimiser.step(Objective(network, batch, None, {}, None))
    reached = Objective(network, batch, None, {}, None).forward().item()
    best = math.inf
    for lr in (1e-3, 3e-3, 1e-2):
        network, _ = memory_task(seed)
        adam = torch.optim.Adam(network.parameters(), lr=lr)
        for _ in range(optimiser.evaluations):
            best = min(best, Objective(network, batch, None, {}, None)().item())
            adam.step()
    assert reached < best / 5, f"Hessian-free {reached:.2e}, Adam {best:.2e}, {optimiser.evaluations} evaluations"


PARTS = {
    "model": {"name": "mrnn", "hidden_size": 6, "num_layers": 1},
    "optimiser": {"name": "hessian-free", "lr": 1.0, "iterations": 6, "curvature": 0.5, "damping": 0.1},
    "clip": None,
    "schedule": None,
    "training": {"updates": 30, "batch_size": 8},
    "evaluation": {"every": 10, "statistics_batches": None},
}


def test_a_stop_leaves_no_trace(tmp_path):
    """The damping and the start of conjugate gradients are saved with the weights."""
    whole = train(make_run(**PARTS), make_place(tmp_path / "whole"))
    assert whole.status == "completed"
    place = make_place(tmp_path / "stopped")
    for limit in (4, 13, 21):
        update = limited(limit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Training, "update", update)
            assert train(make_run(**PARTS), place, stop=update.stop).status == "unfinished"
    assert outcome_of(train(make_run(**PARTS), place)) == outcome_of(whole)


def test_its_memory_is_in_the_checkpoint():
    training = Training(make_run(**PARTS), backend="reference")
    training.update()
    tensors = optimisers.tensors_of(training.optimiser)
    names = {name.partition("/")[2] for name in tensors}
    assert names == {"direction", "damping"}
    assert tensors["0/damping"].item() != pytest.approx(0.1), "the first update did not move the damping"
    assert training.backend is not None


@pytest.mark.parametrize(
    ("option", "value"), [("damping", 0.0), ("structural", -1.0), ("iterations", 0), ("curvature", 1.5)]
)
def test_bad_options_get_one_sentence(option, value):
    with pytest.raises(ValueError, match=f"^optimiser: {option}={value} is not a "):
        optimisers.check(Optimiser(name="hessian-free", lr=1.0, **{option: value}))
    assert make_settings(**PARTS).optimiser.options["iterations"] == 6
