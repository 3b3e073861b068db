"""Tests over the whole registry: a new model is tested the moment it is registered."""

import copy

import pytest
import torch

import models
from models.base import Cell
from models.registry import example, example_input

VARIANTS = [(name, {}) for name in models.names()] + [
    ("durnn", {"selection": False}),
    ("durnn", {"short": "independent"}),
]
IDS = [name + "".join(f"-{key}={value}" for key, value in options.items()) for name, options in VARIANTS]
every_model = pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)


def build(name, options, num_layers=2, **more):
    if issubclass(models.registry.ZOO.entry(name).cls, models.Lockstep):
        more.pop("norm", None)  # it takes none
    return example(name, 3, 8, num_layers, length=100, **{"seed": 0} | options | more)


def as_tuple(state):
    return (state,) if isinstance(state, torch.Tensor) else state


def test_the_zoo_has_the_families_of_the_paper():
    assert {"rnn-tanh", "rnn-relu", "irnn", "lstm", "gru", "indrnn", "durnn"} <= set(models.names())
    assert {"hyperlstm", "hm-lstm", "mingru", "lru"} <= set(models.names())


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("T", [1, 100])
@pytest.mark.parametrize("B", [1, 5])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_forward_and_backward(name, options, dtype, T, B, backend):
    net = build(name, options, dtype=dtype, backend=backend)
    x = example_input(name, net, T, B).requires_grad_()
    y, state = net(x)
    assert y.shape == (T, B, net.size)
    assert y.dtype == dtype
    widths = net.cells[0].states.values()
    assert [s.shape for s in as_tuple(state)] == [(2, B, width) for width in widths]
    y.square().sum().backward()
    for parameter_name, parameter in [("x", x), *net.named_parameters()]:
        assert parameter.grad is not None, f"{parameter_name} got no gradient"
        assert parameter.grad.isfinite().all(), f"{parameter_name} got a gradient that is not finite"


@every_model
def test_last_state_is_the_last_output_of_the_last_layer(name, options):
    net = build(name, options)
    joins = getattr(type(net), "gather", models.Lockstep.gather) is not models.Lockstep.gather
    if "h" not in net.state_names or joins:
        pytest.skip("its output is no state")
    y, state = net(example_input(name, net, 7, 4))
    torch.testing.assert_close(as_tuple(state)[net.state_names.index("h")][-1], y[-1])


@every_model
@pytest.mark.parametrize(
    "more", [{}, {"norm": "after"}, {"dropout": 0.3}, {"batch_first": True}], ids=lambda more: "".join(more) or "plain"
)
def test_last_output_is_the_last_step_of_the_output(name, options, more):
    if issubclass(models.registry.ZOO.entry(name).cls, models.Lockstep) and "dropout" in more:
        pytest.skip("it takes no dropout")
    net = build(name, options, dtype=torch.float64, **more)
    x = example_input(name, net, 7, 4)
    y, state = net(x.transpose(0, 1) if net.batch_first else x)
    last, step = net.last_output(y, state), y[:, -1] if net.batch_first else y[-1]
    torch.testing.assert_close(last, step, rtol=0, atol=0)
    weights = torch.rand(step.shape, dtype=step.dtype)
    for found, expected in zip(
        *(torch.autograd.grad(out, list(net.parameters()), weights, retain_graph=True) for out in (last, step)),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_the_gradient_of_the_last_output_holds_no_sequence_of_zeros():
    net = models.build("durnn", 2, 8, length=50, seed=0)
    y, state = net(torch.randn(50, 3, 2))
    seen = []
    y.register_hook(seen.append)
    net.last_output(y, state).sum().backward()
    assert all(gradient is None for gradient in seen)


@every_model
@pytest.mark.parametrize("split", [1, 40, 99])
def test_two_halves_with_carried_state_give_the_whole(name, options, split):
    net = build(name, options, dtype=torch.float64)
    x = example_input(name, net, 100, 3)
    whole, final = net(x)
    first, state = net(x[:split])
    second, last = net(x[split:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(last, final, rtol=1e-10, atol=1e-10)


@every_model
def test_batch_first_is_the_transpose(name, options):
    net = build(name, options)
    x = example_input(name, net, 9, 4)
    y, state = net(x)
    y_first, state_first = build(name, options, batch_first=True)(x.transpose(0, 1))
    torch.testing.assert_close(y_first.transpose(0, 1), y)
    torch.testing.assert_close(state_first, state)


@every_model
@pytest.mark.parametrize("norm", [None, "after", "frame", "sequence", "frame+after", "sequence+after"])
def test_state_dict_round_trip(name, options, norm, tmp_path):
    net = build(name, options, norm=norm)
    x = example_input(name, net, 12, 6)
    net(x)  # moves running statistics
    torch.save(net.state_dict(), tmp_path / "net.pt")
    other = build(name, options, seed=7, norm=norm)
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
    other = build(name, options, seed=1).state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)


@every_model
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e6])
def test_no_nan_for_zero_or_extreme_input(name, options, scale):
    if scale == 0 and "layer_norm" in models.options(name):
        # Units that are all equal leave a layer norm with a slope of 1/√eps at every step, which 100 steps multiply up.
        options = options | {"layer_norm": False}
    net = build(name, options)
    x = example_input(name, net, 100, 3) * scale
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
    y, _ = net(example_input(name, net, 20, 4, generator).abs())
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
    known = {"W_in", "W_o", "W_s", "C", "W_glu", "V", "W_hx"}
    assert {names[id(p)] for p in decayed["params"]} <= known


@every_model
def test_repr_is_one_line_with_the_sizes(name, options):
    net = build(name, options, norm="after")
    text = repr(net)
    assert text.startswith(f"{type(net).__name__}({net.input_size}, 8, num_layers=2")
    assert "\n" not in text


@every_model
def test_step_is_what_scan_computes(name, options):
    """Outputs, states and all gradients of the readable equations against those of the kernel."""
    net = build(name, options, num_layers=1, dtype=torch.float64, start="zeros")
    cell, x = net.cells[0], example_input(name, net, 9, 4)
    if type(cell).scan is Cell.scan:
        pytest.skip("its scan is the loop over its steps")
    torch.manual_seed(0)
    start = [torch.rand(4, width, dtype=torch.float64).requires_grad_() for width in cell.states.values()]
    with torch.no_grad():
        for parameter in cell.parameters():  # biases that start at 0 hide mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
    found = []
    for scan in (cell.scan, lambda u, state: Cell.scan(cell, u, state)):
        y, state = scan(cell.project(x), tuple(start))
        loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() + sum(s.sum() for s in state)
        grads = torch.autograd.grad(loss, [*cell.parameters(), *start])
        found.append([y, *state, *grads])
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


@every_model
def test_the_options_are_the_true_defaults(name, options):
    """Building with every option spelt out changes nothing."""
    spelt = models.options(name) | {"seed": 0, "length": 100} | options
    plain, full = build(name, options), models.build(name, build(name, options).input_size, 8, 2, **spelt)
    assert repr(plain) == repr(full)
    x = example_input(name, plain, 5, 3)
    assert torch.equal(plain(x)[0], full(x)[0])


@every_model
def test_what_a_model_needs_is_what_it_says(name, options):
    refused = False
    try:
        models.build(name, build(name, options).input_size, 8, **options)
    except ValueError as error:
        refused = "needs length" in str(error)
    assert refused == ("length" in models.needs(name))
    assert models.paper(name)


@every_model
def test_learned_start_begins_as_zeros_and_learns(name, options):
    if models.options(name)["start"] == "learned":
        pytest.skip("starts learned by itself")
    plain, learned = build(name, options), build(name, options, start="learned")
    x = example_input(name, plain, 5, 3)
    assert torch.equal(plain(x)[0], learned(x)[0])
    names = [state for state in plain.state_names if state not in learned.cells[0].unlearned]
    with torch.no_grad():
        for parameter in learned.parameters():  # weights that start at 0 pass no gradient
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        for cell in learned.cells:
            for state in names:
                getattr(cell, f"start_{state}").fill_(0.3)
    learned(x)[0].sum().backward()
    extra = {name for name, _ in learned.named_parameters()} - {name for name, _ in plain.named_parameters()}
    assert extra == {f"layers.{layer}.start_{state}" for layer in (0, 1) for state in names}
    assert all(learned.get_parameter(name).grad.any() for name in extra)
    assert not set(map(id, models.decayed_parameters(learned))) & {id(learned.get_parameter(name)) for name in extra}


@every_model
def test_start_noise_is_for_training_alone(name, options):
    net, plain = build(name, options, start_noise=0.5), build(name, options)
    if not net.cells[0].noisy:
        pytest.skip("reads no state")
    x = example_input(name, net, 5, 3)
    before = torch.get_rng_state()
    assert torch.equal(net.eval()(x)[0], plain(x)[0])
    assert torch.equal(torch.get_rng_state(), before), "noise that is off drew random numbers"
    noisy = net.train()(x)[0]
    assert not torch.equal(noisy, plain(x)[0])
    state = plain(x)[1]
    assert torch.equal(net(x, state)[0], plain(x, state)[0]), "a carried state is not a start"


@every_model
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, options, dtype):
    net = build(name, options, dtype=dtype)
    x = example_input(name, net, 6, 3)
    y, state = net(x)
    y, _ = net(x, state)
    y.float().sum().backward()
    net.constrain_()
    assert y.dtype == dtype
    assert all(p.dtype == dtype and p.grad.isfinite().all() for p in net.parameters())


@every_model
def test_a_model_without_numbers_has_shapes(name, options):
    net = build(name, options, device="meta")
    y, _ = net(torch.empty(6, 3, net.input_size, device="meta"))
    assert y.is_meta
    assert y.shape == (6, 3, net.size)


def in_float32(state):
    return state.float() if isinstance(state, torch.Tensor) else tuple(map(in_float32, state))


@every_model
def test_autocast_takes_back_its_own_state(name, options):
    """As if the state had been widened by hand; exactly, because no bound on rounding holds at a threshold."""
    net = build(name, options)
    x = example_input(name, net, 6, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, state = net(x)
        y, _ = net(x.bfloat16(), state)
        assert torch.equal(y, net(x.bfloat16().float(), in_float32(state))[0])
        if name != "feed-forward":  # which reads no state
            assert not torch.equal(y, net(x.bfloat16())[0]), "the state was left out"
    after, _ = net(x, state)  # also once autocast is over
    assert after.dtype == torch.float32
    assert torch.equal(after, net(x, in_float32(state))[0])


@every_model
def test_a_model_can_be_copied_after_a_step(name, options):
    net = build(name, options)
    x = example_input(name, net, 4, 2)
    net(x)[0].sum().backward()
    assert torch.equal(copy.deepcopy(net)(x)[0], net(x)[0])


@every_model
def test_traces_end_in_the_output(name, options):
    net = build(name, options, norm="after").eval()
    x = example_input(name, net, 6, 3)
    traces = net.traces(x)
    assert len(traces) == 2
    assert torch.equal(next(reversed(traces[-1].values())), net(x)[0])


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
