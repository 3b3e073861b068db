"""A family that exists only here: two states of different widths, a learned start, a penalty, an option.

What it takes to add one: the class and the line that makes a model of it.
"""

import pytest
import torch
from torch import nn

import models
from models.registry import ZOO
from models.states import state_from_tensors, state_tensors


class ToyCell(models.Cell):
    """A slow memory m of ``slow`` units beside a fast one: ``m_t = m_{t-1} + (W_m h_{t-1} − m_{t-1}) / 4``,
    ``h_t = tanh(W_in x_t + W_h h_{t-1} + W_back m_t + b)``, and the penalty "level", the mean of h².

    slow: 3, to differ from everything else.
    """

    decayed = ("W_in", "W_m", "W_back")
    penalty_names = ("level",)

    def __init__(self, slot, *, slow=3):
        N = slot.hidden_size
        super().__init__(slot, states={"m": slow, "h": N})
        self.W_in = slot.matrix(N, slot.input_size, "glorot")
        self.W_h = slot.matrix(N, N, "orthogonal-0.5")
        self.W_m = slot.matrix(slow, N, "glorot")
        self.W_back = slot.matrix(N, slow, "glorot")
        self.b = nn.Parameter(torch.zeros(N))

    def first_start(self, name, width, slot):
        return torch.full((width,), 0.125 if name == "m" else 0.0)

    def project(self, x):
        return self.affine(x, self.W_in, self.b)

    def step(self, u_t, state):
        m, h = state  # (B, slow), (B, N)
        m = m + (h @ self.W_m.T - m) / 4
        h = torch.tanh(u_t + h @ self.W_h.T + m @ self.W_back.T)
        return h, (m, h)

    def finish(self, y):
        if self.training:
            self.collect("level", y.square().mean())
        return super().finish(y)


class Toy(models.Stack):
    """The toy, layer by layer."""

    cell = ToyCell


class ToyInStep(models.Lockstep):
    """The toy, all layers within a step."""

    cell = ToyCell


SIZES = [(6, 1), (6, 3), ([6, 4], 1), ([6, 4, 5], 3)]
IDS = ["one", "three", "two-widths", "three-widths"]


def pair(hidden_size, num_layers, **options):
    shared = {"start": "learned", "seed": 0, "dtype": torch.float64} | options
    return tuple(net(2, hidden_size, num_layers, **shared) for net in (Toy, ToyInStep))


def sequence(T=7, B=3):
    return torch.randn(T, B, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("hidden_size", "num_layers"), SIZES, ids=IDS)
def test_lockstep_and_stack_compute_the_same(hidden_size, num_layers):
    results = []
    for net in pair(hidden_size, num_layers):
        y, state = net(sequence())
        loss = y.square().sum() + net.penalties()["level"]
        grads = torch.autograd.grad(loss, list(net.parameters()))
        results.append([y, *state_tensors(state).values(), *grads, net.penalties()["level"]])
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("hidden_size", "num_layers"), SIZES, ids=IDS)
def test_state_of_two_widths_can_be_carried_and_saved(hidden_size, num_layers):
    for net in pair(hidden_size, num_layers):
        x = sequence(10)
        whole, final = net(x)
        first, state = net(x[:4])
        restored = state_from_tensors(state_tensors(models.detach(state)))
        second, last = net(x[4:], restored)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(last, final, rtol=1e-12, atol=1e-12)
        m, h = state
        assert m.shape == (net.num_layers, 3, 3)
        if isinstance(hidden_size, int):
            assert h.shape == (num_layers, 3, 6)
        else:
            assert [part.shape for part in h] == [(3, width) for width in hidden_size]


def test_learned_start_is_used_and_begins_where_the_cell_says():
    net, _ = pair(6, 1)
    m, h = net.cells[0].initial(4)
    assert torch.equal(m, torch.full((4, 3), 0.125, dtype=torch.float64))
    assert not h.any()
    zeros, _ = pair(6, 1, start="zeros")
    assert not zeros.cells[0].initial(4)[0].any()
    assert not torch.equal(net(sequence())[0], zeros(sequence())[0])


@pytest.mark.parametrize("kind", [Toy, ToyInStep])
def test_gradients_are_the_derivatives(kind):
    net = kind(2, [3, 2], start="learned", seed=0, dtype=torch.float64, slow=2)
    names = [name for name, _ in net.named_parameters()]
    x = sequence(3, 2).requires_grad_()

    def function(x, *values):
        y, state = torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))
        return y, *state_tensors(state).values()

    values = [p.detach().clone().requires_grad_() for p in net.parameters()]
    assert torch.autograd.gradcheck(function, (x, *values))


@pytest.mark.parametrize("kind", [Toy, ToyInStep])
def test_it_trains_and_its_penalty_pulls(kind):
    def train(weight):
        net, generator = kind(2, 8, 2, start="learned", seed=0), torch.Generator().manual_seed(0)
        optimizer, losses = torch.optim.Adam(net.parameter_groups(1e-4), lr=1e-2), []
        for _ in range(40):
            x = torch.rand(6, 16, 2, generator=generator)
            loss = (net(x)[0][-1].mean(-1) - x[-1].mean(-1)).square().mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            (loss + weight * net.penalties()["level"]).backward()
            optimizer.step()
            net.constrain_()
        return losses, net.penalties()["level"].item()

    free, level = train(0.0)
    assert free[-1] < 0.3 * free[0]
    assert train(10.0)[1] < level


def test_penalties_are_those_of_training_and_summed_over_the_layers():
    net = Toy(2, 6, 2, seed=0)
    assert net.penalties() == {}
    net.eval()(sequence().float())
    assert net.penalties() == {}
    net.train()(sequence().float())
    first, second = (cell.penalties()["level"] for cell in net.cells)
    assert torch.equal(net.penalties()["level"], first + second)


def test_it_is_known_after_one_line(monkeypatch):
    monkeypatch.setattr(ZOO, "entries", dict(ZOO.entries))
    before = set(models.names())
    models.register("toy", paper="nobody", slow=4)(Toy)
    assert models.options("toy")["slow"] == 4
    assert models.build("toy", 2, 6).cells[0].states == {"m": 4, "h": 6}
    assert models.build("toy", 2, 6, slow=5).cells[0].states == {"m": 5, "h": 6}
    assert set(models.names()) - before == {"toy"}


def test_its_weights_decay_by_name():
    net = Toy(2, 6, 2, seed=0)
    decayed = set(map(id, models.decayed_parameters(net)))
    names = {name.rsplit(".", 1)[1] for name, p in net.named_parameters() if id(p) in decayed}
    assert names == {"W_in", "W_m", "W_back"}
