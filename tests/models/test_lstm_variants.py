"""The LSTM with noise and normalisation inside, against a loop that shares no code with it, in float64."""

import pytest
import torch

import models
from models.base import Cell

T, B, M, N = 7, 6, 3, 5
EPS = 1e-5
TOLERANCE = 1e-11
NOISY = [
    {"zoneout": (0.3, 0.2)},
    {"zoneout": [0.0, 0.4]},
    {"recurrent_dropout": 0.4},
    {"recurrent_dropout": 0.4, "recurrent_dropout_per": "sequence"},
]
NORMED = [
    {"recurrent_norm": "batch"},
    {"recurrent_norm": "batch", "zoneout": (0.3, 0.2)},
    {"recurrent_norm": "batch", "zoneout": (0.3, 0.2), "recurrent_dropout": 0.4},
]


def build(seed=0, **options):
    torch.manual_seed(100 + seed)
    net = models.LSTM(M, N, length=T, start="learned", dtype=torch.float64, seed=seed, **options)
    with torch.no_grad():
        for parameter in net.parameters():  # biases and starts at 0, scales at 0.1 hide mistakes
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def inputs():
    torch.manual_seed(7)
    return torch.randn(T, B, M, dtype=torch.float64), torch.randn(T, B, N, dtype=torch.float64)


def leaves_of(net):
    return {name.split(".", 2)[2]: parameter for name, parameter in net.named_parameters()}


def gradients(net, x, w):
    """Outputs, last cell, and the gradient of <w, y> + Σ c_T by every parameter and x."""
    x = x.clone().requires_grad_()
    y, (_, c) = net(x)
    leaves = leaves_of(net) | {"x": x}
    found = torch.autograd.grad((y * w).sum() + c.sum(), list(leaves.values()), allow_unused=True)
    return {"y": y.detach(), "c": c[0].detach()} | dict(zip(leaves, found, strict=True))


def by_hand(net, x, w, mistake=None):
    """The same from the equations alone, with the masks that ``net`` drew last, or in evaluation with what they are on
    average; ``mistake`` puts a plausible error in."""
    cell = net.layers[0]
    p = {name: parameter.detach().clone().requires_grad_() for name, parameter in leaves_of(net).items()}
    x = x.clone().requires_grad_()
    z_c, z_h, drop = cell.zone_c.p, cell.zone_h.p, cell.drop_update.p
    zones = [m.mask.double() if m.mask is not None else None for m in (cell.zone_c, cell.zone_h)]

    def zone(index, t, z):
        if mistake == "one mask for c and h" and zones[0] is not None:
            index = 0
        return zones[index][t] if zones[index] is not None else torch.tensor(z, dtype=torch.float64)

    def normed(name, v, t):
        norm, scale = getattr(cell, f"norm_{name}"), p[f"norm_{name}.weight"]
        if net.training:
            mean = v.sum(0) / B
            var = ((v - mean) ** 2).sum(0) / (B - 1 if mistake == "unbiased variance" else B)
        else:
            slot = min(t, norm.length - 1)
            mean, var = (s.view(norm.length, -1)[slot].clone() for s in (norm.running_mean, norm.running_var))
        return (v - mean) / torch.sqrt(var + EPS) * scale + (p["norm_c.bias"] if name == "c" else 0)

    h, c = p["start_h"].expand(B, N), p["start_c"].expand(B, N)
    outputs = []
    for t in range(T):
        from_x, from_h = x[t] @ p["W_in"].T, h @ p["W_rec"].T
        if cell.recurrent_norm and mistake == "one norm of the sum":
            a = normed("h", from_x + from_h, t) + 0 * p["norm_x.weight"] + p["b"]
        elif cell.recurrent_norm:
            a = normed("x", from_x, t) + normed("h", from_h, t) + p["b"]
        else:
            a = from_x + from_h + p["b"]
        i, f, o = (1 / (1 + torch.exp(-a[:, k * N : (k + 1) * N])) for k in (0, 1, 3))
        g = torch.tanh(a[:, 2 * N : 3 * N])
        keep = 1.0 - drop
        if cell.drop_update.mask is not None:
            keep = (~cell.drop_update.mask[t]).double()
            keep = keep / (1 - drop) if mistake == "scaled in training" else keep
        elif mistake == "not scaled in evaluation":
            keep = 1.0
        new_c = keep * (f * c + i * g) if mistake == "dropout on the memory" else f * c + keep * i * g
        d_c, d_h = zone(0, t, z_c), zone(1, t, z_h)
        next_c = d_c * c + (1 - d_c) * new_c
        read = next_c if mistake == "h~ from the zoned c" else new_c
        new_h = o * torch.tanh(normed("c", read, t) if cell.recurrent_norm else read)
        h, c = d_h * h + (1 - d_h) * new_h, next_c
        outputs.append(h)
    y = torch.stack(outputs)
    leaves = p | {"x": x}
    found = torch.autograd.grad((y * w).sum() + c.sum(), list(leaves.values()), allow_unused=True)
    return {"y": y.detach(), "c": c.detach()} | dict(zip(leaves, found, strict=True))


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert value is not None, name
        torch.testing.assert_close(got[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("options", NOISY + NORMED)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_training_equals_the_equations(options, backend):
    net, (x, w) = build(**options, backend=backend), inputs()
    assert_same(gradients(net, x, w), by_hand(net, x, w))


@pytest.mark.parametrize("options", NOISY + NORMED)
def test_evaluation_equals_the_expectation_rule(options):
    net, (x, w) = build(**options), inputs()
    for _ in range(3):
        net(x + torch.randn_like(x))  # moves running statistics
    net.eval()
    before = torch.get_rng_state()
    assert_same(gradients(net, x, w), by_hand(net, x, w))
    assert torch.equal(torch.get_rng_state(), before), "an evaluation drew random numbers"


@pytest.mark.parametrize(
    ("options", "mistake", "training"),
    [
        (NOISY[0], "h~ from the zoned c", True),
        (NOISY[0], "h~ from the zoned c", False),
        (NOISY[0], "one mask for c and h", True),
        (NOISY[2], "scaled in training", True),
        (NOISY[2], "not scaled in evaluation", False),
        (NOISY[3], "dropout on the memory", True),
        (NORMED[0], "one norm of the sum", True),
        (NORMED[0], "unbiased variance", True),
        (NORMED[1], "h~ from the zoned c", True),
    ],
)
def test_a_mistake_is_caught(options, mistake, training):
    net, (x, w) = build(**options).train(training), inputs()
    got = gradients(net, x, w)
    with pytest.raises(AssertionError):
        assert_same(got, by_hand(net, x, w, mistake))


def torch_lstm(net):
    """torch.nn.LSTM with the weights and the learned start of a plain net, as gradients by the names of ours."""
    theirs, cell = torch.nn.LSTM(M, N, dtype=torch.float64), net.layers[0]
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.W_in)
        theirs.weight_hh_l0.copy_(cell.W_rec)
        theirs.bias_ih_l0.copy_(cell.b)
        theirs.bias_hh_l0.zero_()
    start_h, start_c = (s.detach().clone().requires_grad_() for s in (cell.start_h, cell.start_c))

    def run(x, w):
        x = x.clone().requires_grad_()
        y, (_, c) = theirs(x, (start_h.expand(1, B, N).contiguous(), start_c.expand(1, B, N).contiguous()))
        leaves = {
            "start_h": start_h, "start_c": start_c, "W_in": theirs.weight_ih_l0, "W_rec": theirs.weight_hh_l0,
            "b": theirs.bias_ih_l0, "x": x,
        }  # fmt: skip
        found = torch.autograd.grad((y * w).sum() + c.sum(), list(leaves.values()))
        return {"y": y.detach(), "c": c[0].detach()} | dict(zip(leaves, found, strict=True))

    return run


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_without_noise_it_is_torch_nn_lstm(monkeypatch, loop, training):
    net, (x, w) = build(zoneout=(0.0, 0.0), recurrent_dropout=0.0).train(training), inputs()
    if loop:
        monkeypatch.setattr(type(net.layers[0]), "scan", Cell.scan)
    assert_same(gradients(net, x, w), torch_lstm(net)(x, w))


def neutral_(net):
    """Normalisation that changes nothing in evaluation: mean 0, variance 1 − eps, scale 1, shift 0."""
    cell = net.eval().layers[0]
    with torch.no_grad():
        for norm in (cell.norm_x, cell.norm_h, cell.norm_c):
            norm.running_mean.zero_()
            norm.running_var.fill_(1 - EPS)
            norm.weight.fill_(1.0)
        cell.norm_c.bias.zero_()
    return net


def test_recurrent_norm_with_neutral_statistics_is_torch_nn_lstm():
    net, (x, w) = neutral_(build(recurrent_norm="batch")), inputs()
    got = gradients(net, x, w)
    assert_same({name: value for name, value in got.items() if "norm" not in name}, torch_lstm(net)(x, w))


def test_both_limits_of_norm_with_zoneout():
    x, w = inputs()
    both, plain = build(recurrent_norm="batch", zoneout=(0.0, 0.0)), build(recurrent_norm="batch")
    assert_same(gradients(both, x, w), gradients(plain, x, w))
    both, plain = neutral_(build(recurrent_norm="batch", zoneout=(0.3, 0.2))), build(zoneout=(0.3, 0.2)).eval()
    plain.load_state_dict({k: v for k, v in both.state_dict().items() if "norm" not in k})
    got = {name: value for name, value in gradients(both, x, w).items() if "norm" not in name}
    assert_same(got, gradients(plain, x, w))


@pytest.mark.parametrize("training", [True, False])
def test_zoneout_of_one_freezes_the_state(training):
    net, (x, _) = build(zoneout=(1.0, 1.0)).train(training), inputs()
    cell = net.layers[0]
    y, (h, c) = net(x)
    assert torch.equal(y, cell.start_h.expand(T, B, N))
    assert torch.equal(h[0], cell.start_h.expand(B, N))
    assert torch.equal(c[0], cell.start_c.expand(B, N))


@pytest.mark.parametrize("options", NORMED[:2])
def test_statistics_of_every_step_are_those_of_the_batch_before_zoneout(options):
    net, (x, _) = build(**options, recurrent_norm_momentum=0.05), inputs()
    cell = net.layers[0]
    net(x)
    h, c = cell.start_h.expand(B, N), cell.start_c.expand(B, N)
    masks = [
        m.mask if m.mask is not None else torch.zeros(T, B, N, dtype=torch.bool) for m in (cell.zone_c, cell.zone_h)
    ]
    for t in range(T):
        seen = {"x": x[t] @ cell.W_in.T, "h": h @ cell.W_rec.T}
        normed = [(v - v.mean(0)) / (v.var(0, unbiased=False) + EPS).sqrt() for v in seen.values()]
        i, f, g, o = (normed[0] * cell.norm_x.weight + normed[1] * cell.norm_h.weight + cell.b).chunk(4, 1)
        seen["c"] = f.sigmoid() * c + i.sigmoid() * g.tanh()
        v = (seen["c"] - seen["c"].mean(0)) / (seen["c"].var(0, unbiased=False) + EPS).sqrt()
        h_new = o.sigmoid() * torch.tanh(v * cell.norm_c.weight + cell.norm_c.bias)
        for name, values in seen.items():
            norm = getattr(cell, f"norm_{name}")
            mean, var = (s.view(T, -1)[t] for s in (norm.running_mean, norm.running_var))
            torch.testing.assert_close(mean, 0.05 * values.mean(0))
            torch.testing.assert_close(var, 0.95 + 0.05 * values.var(0))  # torch's convention: unbiased
            assert norm.num_batches_tracked == 1, "a sequence is one batch"
        c, h = torch.where(masks[0][t], c, seen["c"]), torch.where(masks[1][t], h, h_new)


def test_steps_past_the_length_reuse_the_last_statistics():
    net, (x, _) = build(recurrent_norm="batch"), inputs()
    for _ in range(3):
        net(x)
    longer = torch.cat([x, x])
    y, _ = net.eval()(longer)
    first, state = net(x)
    torch.testing.assert_close(y[:T], first)
    cell = net.layers[0]
    for norm in (cell.norm_x, cell.norm_h, cell.norm_c):
        for statistics in (norm.running_mean, norm.running_var):
            statistics.copy_(statistics.view(T, -1)[-1].repeat(T))
    torch.testing.assert_close(y[T:], net(x, state)[0])


@pytest.mark.parametrize("options", NOISY + NORMED)
def test_same_seed_same_noise(options):
    net, (x, _) = build(**options), inputs()
    if not (net.layers[0].zone_h.p or net.layers[0].drop_update.p):
        return
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(net(x)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("options", [{}, *NOISY, *NORMED])
def test_scan_is_the_loop_over_step(options):
    net, (x, w) = build(**options), inputs()
    torch.manual_seed(3)
    got = gradients(net, x, w)
    net.layers[0].run = lambda x, state: Cell.scan(net.layers[0], net.layers[0].project(x), state)
    torch.manual_seed(3)
    assert_same(got, gradients(net, x, w))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"zoneout": (0.15, 0.15)}, 41_810),
        ({"recurrent_dropout": 0.5}, 41_810),
        ({"recurrent_norm": "batch", "start": "learned"}, 43_010),
        ({"recurrent_norm": "batch", "zoneout": (0.15, 0.15), "start": "learned"}, 43_010),
    ],
)
def test_parameters_with_a_head_for_ten_classes(options, expected):
    net = models.LSTM(1, 100, length=784, **options)
    assert sum(p.numel() for p in net.parameters()) + 101 * 10 == expected


def test_scales_start_where_they_are_told():
    cell = models.LSTM(1, 4, length=3, recurrent_norm="batch").layers[0]
    assert all((norm.weight == 0.1).all() for norm in (cell.norm_x, cell.norm_h, cell.norm_c))
    assert (cell.norm_x.bias, cell.norm_h.bias) == (None, None)
    assert {norm.eps for norm in (cell.norm_x, cell.norm_h, cell.norm_c)} == {EPS}
    cell = models.LSTM(1, 4, length=3, recurrent_norm="batch", recurrent_norm_scale=0.5).layers[0]
    assert (cell.norm_h.weight == 0.5).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zoneout": 0.1}, r"zoneout=0.1 is not a pair \(cell, hidden\)"),
        ({"zoneout": (0.1, 1.1)}, r"zoneout=1.1 is not a probability in \[0, 1\]"),
        ({"recurrent_dropout": 1.0}, r"recurrent_dropout=1.0 is not a probability in \[0, 1\)"),
        ({"recurrent_dropout_per": "batch"}, "recurrent_dropout_per='batch' is not known"),
        ({"recurrent_norm": "layer"}, "recurrent_norm='layer' is not known"),
        ({"recurrent_norm": "batch"}, "recurrent_norm='batch' keeps statistics per time step and needs length"),
        ({"recurrent_norm": "batch", "length": 5, "norm": "frame"}, "does not go with norm='frame'"),
        ({"recurrent_norm": "batch", "length": 5, "recurrent_norm_momentum": 2.0}, "recurrent_norm_momentum=2.0"),
    ],
)
def test_bad_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.LSTM(2, 4, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", NOISY + NORMED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_two_layers_and_no_numbers(options, dtype):
    net = models.LSTM(M, N, 2, length=T, norm="after", dropout=0.1, dtype=dtype, batch_first=True, **options)
    x = torch.randn(B, T, M).to(dtype)
    y, state = net(x)
    y, _ = net(x, state)
    y.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        net(x)
    y, _ = models.LSTM(M, N, length=T, device="meta", **options)(torch.empty(T, B, M, device="meta"))
    assert y.shape == (T, B, N)
