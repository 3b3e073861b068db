"""Tests over the whole registry: a new model is tested the moment it is registered."""

import pytest
import torch

import models

VARIANTS = [(name, {}) for name in models.names()] + [
    ("durnn", {"selection": False}),
    ("durnn", {"short": "independent"}),
]
IDS = [name + "".join(f"-{key}={value}" for key, value in options.items()) for name, options in VARIANTS]
every_model = pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)


def build(name, options, num_layers=2, **more):
    return models.build(name, 3, 8, num_layers, length=100, seed=0, **options, **more)


def as_tuple(state):
    return (state,) if isinstance(state, torch.Tensor) else state


def test_the_zoo_has_the_families_of_the_paper():
    assert {"rnn-tanh", "rnn-relu", "irnn", "lstm", "gru", "indrnn", "durnn"} <= set(models.names())


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("T", [1, 100])
@pytest.mark.parametrize("B", [1, 5])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_forward_and_backward(name, options, dtype, T, B, backend):
    net = build(name, options, dtype=dtype, backend=backend)
    x = torch.randn(T, B, 3, dtype=dtype, requires_grad=True)
    y, state = net(x)
    assert y.shape == (T, B, 8)
    assert y.dtype == dtype
    assert all(s.shape == (2, B, 8) for s in as_tuple(state))
    y.square().sum().backward()
    for parameter_name, parameter in [("x", x), *net.named_parameters()]:
        assert parameter.grad is not None, f"{parameter_name} got no gradient"
        assert parameter.grad.isfinite().all(), f"{parameter_name} got a gradient that is not finite"


@every_model
def test_last_state_is_the_last_output_of_the_last_layer(name, options):
    net = build(name, options)
    y, state = net(torch.randn(7, 4, 3))
    torch.testing.assert_close(as_tuple(state)[net.state_names.index("h")][-1], y[-1])


@every_model
@pytest.mark.parametrize("split", [1, 40, 99])
def test_two_halves_with_carried_state_give_the_whole(name, options, split):
    net, x = build(name, options, dtype=torch.float64), torch.randn(100, 3, 3, dtype=torch.float64)
    whole, final = net(x)
    first, state = net(x[:split])
    second, last = net(x[split:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(last, final, rtol=1e-10, atol=1e-10)


@every_model
def test_batch_first_is_the_transpose(name, options):
    x = torch.randn(9, 4, 3)
    y, state = build(name, options)(x)
    y_first, state_first = build(name, options, batch_first=True)(x.transpose(0, 1))
    torch.testing.assert_close(y_first.transpose(0, 1), y)
    torch.testing.assert_close(state_first, state)


@every_model
@pytest.mark.parametrize("norm", [None, "after", "frame", "sequence", "frame+after", "sequence+after"])
def test_state_dict_round_trip(name, options, norm, tmp_path):
    net = build(name, options, norm=norm)
    x = torch.randn(12, 6, 3)
    net(x)  # moves running statistics
    torch.save(net.state_dict(), tmp_path / "net.pt")
    other = models.build(name, 3, 8, 2, length=100, seed=7, norm=norm, **options)
    other.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    net.eval()
    other.eval()
    assert torch.equal(net(x)[0], other(x)[0])


@every_model
def test_construction_is_a_function_of_the_seed(name, options):
    torch.manual_seed(1)
    first = build(name, options).state_dict()
    before = torch.get_rng_state()
    second = build(name, options).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(torch.get_rng_state(), before), "a seeded construction touched the global generator"
    other = models.build(name, 3, 8, 2, length=100, seed=1, **options).state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)


@every_model
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_no_nan_for_zero_or_extreme_input(name, options, scale):
    net, x = build(name, options), torch.randn(100, 3, 3) * scale
    y, _ = net(x)
    y.mean().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in net.parameters())


@every_model
def test_no_nan_after_200_random_optimiser_steps(name, options):
    net, generator = build(name, options), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(200):
        for parameter in net.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        net.constrain_()
    y, _ = net(torch.rand(20, 4, 3, generator=generator))
    y.sum().backward()
    assert all(p.isfinite().all() and p.grad.isfinite().all() for p in net.parameters())


@every_model
def test_constraining_twice_is_constraining_once(name, options):
    net = build(name, options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3)
    net.constrain_()
    once = {key: value.clone() for key, value in net.state_dict().items()}
    net.constrain_()
    assert all(torch.equal(once[key], value) for key, value in net.state_dict().items())


@every_model
def test_parameter_groups_hold_every_parameter_once_and_decay_no_recurrence(name, options):
    net = build(name, options, norm="after")
    decayed, free = net.parameter_groups(1e-4)
    assert decayed["weight_decay"] == 1e-4
    assert free["weight_decay"] == 0.0
    grouped = [*decayed["params"], *free["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, net.parameters()))
    names = {id(p): n.rsplit(".", 1)[1] for n, p in net.named_parameters()}
    assert {names[id(p)] for p in decayed["params"]} <= {"W_in", "W_s", "W_ss", "W_ls"}


@every_model
def test_repr_is_one_line_with_the_sizes(name, options):
    text = repr(build(name, options, norm="after"))
    assert text.startswith(type(build(name, options)).__name__ + "(3, 8, num_layers=2")
    assert "\n" not in text


def test_lstm_and_rnn_and_gru_equal_torch_nn():
    x = torch.randn(11, 4, 3, dtype=torch.float64)
    pairs = [
        (models.LSTM(3, 8, dtype=torch.float64), torch.nn.LSTM(3, 8, dtype=torch.float64)),
        (models.GRU(3, 8, dtype=torch.float64), torch.nn.GRU(3, 8, dtype=torch.float64)),
        (models.RNN(3, 8, dtype=torch.float64), torch.nn.RNN(3, 8, dtype=torch.float64)),
        (
            models.RNN(3, 8, nonlinearity="relu", dtype=torch.float64),
            torch.nn.RNN(3, 8, nonlinearity="relu", dtype=torch.float64),
        ),
    ]
    for ours, theirs in pairs:
        layer = ours.layers[0]
        with torch.no_grad():
            layer.W_in.copy_(theirs.weight_ih_l0)
            layer.W_rec.copy_(theirs.weight_hh_l0)
            bias = theirs.bias_ih_l0 + theirs.bias_hh_l0
            if isinstance(ours, models.GRU):
                bias[16:] = theirs.bias_ih_l0[16:]
                layer.b_new.copy_(theirs.bias_hh_l0[16:])
            layer.b.copy_(bias)
        for got, expected in zip(ours(x), theirs(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
