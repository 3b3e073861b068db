import pytest
import torch

import models
from models import analysis

L = 30


def durnn(seed, **options):
    return models.DuRNN(2, 12, length=L, dtype=torch.float64, seed=seed, **options)


def sequence(seed, T=L, size=2):
    return torch.rand(T, 1, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def trained():
    """A DuRNN after 60 Adam steps at a rate high enough to drive all constraints to their bounds."""
    net, generator = durnn(0), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    for _ in range(60):
        x = torch.rand(L, 16, 2, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        (net(x)[0][-1].mean(1) - x.sum((0, 2))).square().mean().backward()
        optimizer.step()
        net.constrain_()
    layer = net.layers[0]
    assert torch.linalg.matrix_norm(layer.W_rec, 2) > layer.delta * 0.999, "training did not reach the bound of W_rec"
    return net


STACKS = [name for name in models.names() if issubclass(models.registry.ZOO.entry(name).cls, models.Stack)]


@pytest.mark.parametrize("name", STACKS)
def test_jacobian_equals_finite_differences(name):
    # Cut gradients are not derivatives, so DuRNN is compared without its selection.
    options = {"selection": False} if name == "durnn" else {}
    size = 150 if "skeleton" in models.registry.ZOO.entry(name).needs else 2
    net = models.build(name, size, 6, length=8, seed=3, dtype=torch.float64, **options)
    x = sequence(1, 8, size)
    of = "h" if "h" in net.state_names else net.state_names[0]
    got = analysis.jacobian(net, x, lag=3, of=of, wrt=of)
    _, state = net(x[:5])
    states = state if isinstance(state, tuple) else (state,)
    index, step = net.state_names.index(of), 1e-6
    for unit in range(states[index].shape[-1]):
        ends = []
        for sign in (1, -1):
            moved = [s.detach().clone() for s in states]
            moved[index][0, 0, unit] += sign * step
            _, final = net(x[5:], tuple(moved) if len(moved) > 1 else moved[0])
            ends.append((final if isinstance(final, torch.Tensor) else final[index])[0, 0])
        torch.testing.assert_close(got[:, unit], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_long_jacobian_is_the_product_of_u_and_relu(trained):
    x = sequence(2)
    got = analysis.jacobian(trained, x, lag=4)
    y, _ = trained(x)
    active = (y[-4:, 0] > 0).double().prod(0)
    torch.testing.assert_close(got, torch.diag(trained.layers[0].U.detach() ** 4 * active))


@pytest.mark.parametrize("seed", range(3))
def test_bound_holds_on_random_weights(seed):
    net = durnn(seed, W_rec_init="kaiming", W_s_init="glorot")
    check_bound(net, sequence(seed))


def test_bound_holds_on_trained_weights(trained):
    for seed in range(3):
        check_bound(trained, sequence(seed))


def test_without_contraction_there_is_no_bound():
    assert analysis.gradient_bound(durnn(0, delta=1.0)) == float("inf")


def check_bound(net, x):
    bound, layer = analysis.gradient_bound(net), net.layers[0]
    for lag in (0, 1, 5, L - 1):
        total = analysis.short_to_long_jacobian(net, x, lag)
        assert torch.linalg.matrix_norm(total, 2) < bound
        s = torch.linalg.matrix_norm(layer.W_s, 2)
        series = sum(layer.u_max**i * layer.delta ** (lag - i) for i in range(lag + 1))
        assert torch.linalg.matrix_norm(total, 2) <= s * series * (1 + 1e-9), "the sum behind the bound is violated"


def test_total_jacobian_adds_the_path_through_the_long_memory():
    net, x, lag, step = durnn(5), sequence(5), 3, 1e-6
    layer = net.layers[0]
    got = analysis.short_to_long_jacobian(net, x, lag)
    short, long = torch.zeros(1, 12).double(), torch.zeros(1, 12).double()
    with torch.no_grad():
        for t in range(L - lag):
            previous = long
            _, (short, long) = layer.step(layer.project(x)[t], (short, long))
        selections = [layer.select(short, previous)]
        h_short, h = short, long
        for t in range(L - lag, L):
            _, (new_short, new_long) = layer.step(layer.project(x)[t], (h_short, h))
            selections.append(layer.select(new_short, h))
            h_short, h = new_short, new_long

        def end(moved):  # the last h, with every S_t frozen, as the cut gradients have it
            h = torch.relu((selections[0] * moved) @ layer.W_s.T + layer.U * previous + layer.b_long)
            for S, t in zip(selections[1:], range(L - lag, L), strict=True):
                moved = torch.relu(x[t] @ layer.W_in.T + moved @ layer.W_rec.T + layer.b_short)
                h = torch.relu((S * moved) @ layer.W_s.T + layer.U * h + layer.b_long)
            return h[0]

        for unit in range(12):
            e = torch.zeros(1, 12).double()
            e[0, unit] = step
            difference = (end(short + e) - end((short - e).clamp(min=0))) / (2 * step)
            if short[0, unit] > step:
                torch.testing.assert_close(got[:, unit], difference, rtol=1e-5, atol=1e-7)


def test_lower_bound_epsilon_when_all_units_are_active():
    net = durnn(1)
    with torch.no_grad():
        net.layers[0].b_long.fill_(1.0)
        net.layers[0].W_s.abs_()
    J = analysis.jacobian(net, sequence(0, L + 1), lag=L)
    gains = J.diagonal()
    assert ((gains >= 0.5 * (1 - 1e-9)) & (gains <= 2 * (1 + 1e-9))).all()


def test_norms_of_a_contracting_and_of_an_expanding_network_differ():
    x = sequence(0)
    small = models.RNN(2, 6, dtype=torch.float64, seed=0, W_rec_init="orthogonal-0.5")
    norms = analysis.jacobian_norms(small, x, lags=(1, 5, 10))
    assert norms[1] <= 0.5 + 1e-9
    assert norms[10] < norms[5] < norms[1]


def test_analysis_refuses_what_it_is_not_defined_for():
    with pytest.raises(ValueError, match="not a full DuRNN"):
        analysis.gradient_bound(models.LSTM(2, 4))
    with pytest.raises(ValueError, match="no state 'c'"):
        analysis.jacobian(models.RNN(2, 4), torch.zeros(3, 1, 2), 1, wrt="c")
    with pytest.raises(ValueError, match="lag=9"):
        analysis.jacobian(models.RNN(2, 4), torch.zeros(3, 1, 2), 9)
