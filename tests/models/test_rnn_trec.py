"""The relu with a threshold, and the penalty on changes of a state's norm."""

import math

import pytest
import torch

import models
from models.rnn import norm_stabiliser

N, M, T, B = 6, 3, 8, 4


def trec(**options):
    shared = {"seed": 0, "dtype": torch.float64, "W_rec_init": "orthogonal"}
    return models.build("rnn-trec", M, N, **shared | options)


def sequence():
    return torch.randn(T, B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(cell, x, theta):
    h, outputs = x.new_zeros(B, N), []
    for x_t in x:
        a = x_t @ cell.W_in.T + h @ cell.W_rec.T
        h = torch.where(a > theta, a, torch.zeros_like(a))
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("theta", [0.0, 0.4, 1.0])
def test_outputs_and_all_gradients_are_those_of_the_equations(theta):
    net, x, found = trec(theta=theta), sequence().requires_grad_(), []
    for y in (net(x)[0], by_hand(net.cells[0], x, theta)):
        assert 0.1 < (y > 0).double().mean() < 0.9
        assert y[y > 0].min() > theta
        loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
        found.append([y, *torch.autograd.grad(loss, [x, *net.parameters()])])
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bias", [True, False])
def test_a_threshold_of_zero_is_the_relu(bias):
    options = {"bias": bias, "W_rec_init": "orthogonal", "W_in_init": "normal-1"}
    relu = models.build("rnn-relu", M, N, seed=0, dtype=torch.float64, **options)
    net = trec(theta=0.0, **options)
    net.load_state_dict(relu.state_dict())
    assert torch.equal(net(sequence())[0], relu(sequence())[0])


def test_it_has_no_bias_and_a_threshold_of_one():
    net = trec()
    assert {name for name, _ in net.named_parameters()} == {"layers.0.W_in", "layers.0.W_rec"}
    assert net.cells[0].theta == 1.0
    with_head = models.build("rnn-trec", 50, 1000)
    assert sum(p.numel() for p in with_head.parameters()) + 1001 * 50 == 1_100_050


def test_characters_cross_the_threshold_at_the_start():
    """One-hot vectors must switch units on, or nothing is ever learned."""
    net = models.build("rnn-trec", 50, 1000, seed=0)
    y, _ = net(torch.eye(50).unsqueeze(0))  # one step, every character
    assert 0.1 < (y > 0).float().mean() < 0.2  # P(N(0, 1) > 1) = 0.16
    assert (y > 0).any(-1).all()


def test_norm_stabiliser_by_hand():
    h = torch.tensor([[[3.0, 4.0]], [[0.0, 1.0]], [[6.0, 8.0]]])  # norms 5, 1, 10
    assert norm_stabiliser(h).item() == pytest.approx(((1 - 5) ** 2 + (10 - 1) ** 2) / 3)
    two = torch.cat([h, torch.zeros_like(h)], dim=1)  # a second sample that does not move
    assert norm_stabiliser(two).item() == pytest.approx(97 / 3 / 2)
    assert norm_stabiliser(h[:1]).item() == 0.0, "the pair of initial and first state counts"


@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-relu", "rnn-trec"])
def test_penalty_of_a_network_is_the_sum_over_its_layers(name):
    net = models.build(name, M, N, 2, norm_stabiliser=True, dropout=0.5, seed=0)
    x = sequence().float()
    net(x)
    got = net.penalties()["norm-stabiliser"]
    states, below = [], x
    for cell in net.eval().cells:
        states.append(cell(below)[0])
        below = states[-1]
    # the second layer saw another input under dropout, the first layer did not
    assert net.cells[0].penalties()["norm-stabiliser"].item() == pytest.approx(norm_stabiliser(states[0]).item())
    assert got.item() == pytest.approx(sum(cell.penalties()["norm-stabiliser"].item() for cell in net.cells))
    assert got.requires_grad


def test_penalty_is_collected_where_it_is_asked_for_and_in_training():
    plain = models.build("rnn-tanh", M, N)
    plain(sequence().float())
    assert plain.penalties() == {}
    assert plain.cells[0].penalty_names == ()
    net = trec().eval()
    net(sequence())
    assert net.penalties() == {}


def test_penalty_has_a_gradient_where_the_state_is_zero():
    h = torch.zeros(3, 2, N, requires_grad=True)
    norm_stabiliser(h).backward()
    assert h.grad.isfinite().all()


@pytest.mark.parametrize("theta", [-0.5, math.nan])
def test_a_bad_threshold_gets_one_sentence(theta):
    with pytest.raises(ValueError, match=r"^theta=\S+ is not a threshold, a number from 0 up\.$"):
        trec(theta=theta)
    with pytest.raises(ValueError, match="no option 'theta'"):
        models.build("rnn-tanh", M, N, theta=theta)
