"""The multiplicative RNN against its equations, and its limit, the tanh RNN."""

import pytest
import torch

import models

N, K, M, T, B = 5, 3, 4, 6, 3


def network(**options):
    net = models.build("mrnn", M, N, seed=0, dtype=torch.float64, **options)
    with torch.no_grad():
        net.cells[0].b.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(3))
    return net, net.cells[0]


def sequence():
    return torch.randn(T, B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(cell, x):
    columns = []
    for sample in range(B):
        h, outputs = cell.b.new_zeros(N), []
        for x_t in x[:, sample]:
            W_rec = cell.W_hf @ torch.diag(cell.W_fx @ x_t) @ cell.W_fh  # the matrix that this input chooses
            h = torch.tanh(W_rec @ h + cell.W_hx @ x_t + cell.b)
            outputs.append(h)
        columns.append(torch.stack(outputs))
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("factors", [None, K])
def test_outputs_and_all_gradients_are_those_of_the_equations(factors):
    net, cell = network(factors=factors)
    x = sequence().requires_grad_()
    found = []
    for y in (net(x)[0], by_hand(cell, x)):
        loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
        found.append([y, *torch.autograd.grad(loss, [x, *net.parameters()])])
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


def test_where_the_factors_are_one_it_is_a_tanh_rnn():
    net, cell = network()
    rnn = models.build("rnn-tanh", M, N, dtype=torch.float64)
    x = sequence()
    x[..., 0] = 1.0
    with torch.no_grad():
        cell.W_fx.zero_()
        cell.W_fx[:, 0] = 1.0  # W_fx x ≡ 1
        rnn.cells[0].W_rec.copy_(cell.W_hf @ cell.W_fh)
        rnn.cells[0].W_in.copy_(cell.W_hx)
        rnn.cells[0].b.copy_(cell.b)
    torch.testing.assert_close(net(x)[0], rnn(x)[0], rtol=1e-12, atol=1e-12)


def test_parameter_count_with_head():
    net = models.build("mrnn", 50, 600)
    assert sum(p.numel() for p in net.parameters()) + (net.size + 1) * 50 == 810_650


@pytest.mark.parametrize("factors", [0, -1, 2.5, True])
def test_bad_factors_get_one_sentence(factors):
    with pytest.raises(ValueError, match=r"^factors=\S+ is not a positive whole number\.$"):
        models.build("mrnn", M, N, factors=factors)
