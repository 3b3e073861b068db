"""DuRNN with the norm before the long half on W_s i_t, against a loop that shares no code with it, in float64."""

import pytest
import torch

import models
from models.norms import FrameNorm, SequenceNorm

T, B, M, N = 6, 5, 2, 5
EPS, TOLERANCE = 1e-5, 1e-11


def build(norm="frame", **options):
    torch.manual_seed(0)
    net = models.DuRNN(M, N, length=T, dtype=torch.float64, seed=0, norm=norm, second_norm="product", **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    net.constrain_()
    return net


def leaves_of(net):
    return {name.split(".", 2)[2]: parameter for name, parameter in net.named_parameters()}


def gradients(net, x, w):
    x = x.clone().requires_grad_()
    y, _ = net(x)
    leaves = leaves_of(net) | {"x": x}
    return {"y": y.detach()} | dict(zip(leaves, torch.autograd.grad((y * w).sum(), list(leaves.values())), strict=True))


def by_hand(net, x, w, mistake=None):
    """Eqs. (1)-(5) with BN(W_in x_t) and BN(W_s i_t), statistics of each frame."""
    cell = net.layers[0]
    p = {name: parameter.detach().clone().requires_grad_() for name, parameter in leaves_of(net).items()}
    x = x.clone().requires_grad_()

    def normed(name, v, t):
        norm = getattr(cell, name)
        if net.training:
            mean, var = v.mean(0), v.var(0, unbiased=False)
        else:
            mean, var = (s.view(T, N)[t].clone() for s in (norm.running_mean, norm.running_var))
        return (v - mean) / (var + EPS).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]

    h_short = h = torch.zeros(B, N, dtype=torch.float64)
    outputs = []
    for t in range(T):
        h_short = torch.relu(normed("before", x[t] @ p["W_in"].T, t) + p["b_short"] + h_short @ p["W_rec"].T)
        v = h_short.detach() @ p["W_ss"].T + h.detach() @ p["W_ls"].T + p["b_s"]
        low, high = v.min(1, keepdim=True).values.detach(), v.max(1, keepdim=True).values.detach()
        i = torch.relu((v - low) / (high - low) - p["b_thre"]) * h_short
        if mistake == "norm on i":
            product = normed("norm_product", i, t) @ p["W_s"].T
        elif mistake == "norm takes in U h":
            product = normed("norm_product", i @ p["W_s"].T + p["U"] * h, t) - p["U"] * h
        else:
            product = normed("norm_product", i @ p["W_s"].T, t)
        h = torch.relu(product + p["U"] * h + p["b_long"])
        outputs.append(h)
    y = torch.stack(outputs)
    leaves = p | {"x": x}
    found = torch.autograd.grad((y * w).sum(), list(leaves.values()))
    return {"y": y.detach()} | dict(zip(leaves, found, strict=True))


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda m, n=name: f"{n}: {m}")


def inputs():
    torch.manual_seed(1)
    return torch.randn(T, B, M, dtype=torch.float64), torch.randn(T, B, N, dtype=torch.float64)


@pytest.mark.parametrize("training", [True, False])
def test_outputs_and_all_gradients_equal_the_equations(training):
    net, (x, w) = build(), inputs()
    for _ in range(3):
        net(x + torch.randn_like(x))
    net.train(training)
    assert_same(gradients(net, x, w), by_hand(net, x, w))


@pytest.mark.parametrize("mistake", ["norm on i", "norm takes in U h"])
def test_a_mistake_is_caught(mistake):
    net, (x, w) = build(), inputs()
    got = gradients(net, x, w)
    with pytest.raises(AssertionError):
        assert_same(got, by_hand(net, x, w, mistake))


def test_no_step_depends_on_later_inputs():
    net, (x, _) = build(), inputs()
    y, _ = net(x)
    x[4:] += 1
    changed, _ = net(x)
    assert torch.equal(y[:4], changed[:4])
    assert not torch.equal(y[4], changed[4])


def test_neutral_statistics_give_the_network_without_norm():
    net, (x, _) = build().eval(), inputs()
    cell = net.layers[0]
    for norm in (cell.before, cell.norm_product):
        norm.running_mean.zero_()
        norm.running_var.fill_(1 - EPS)
        with torch.no_grad():
            norm.weight.fill_(1.0)
            norm.bias.zero_()
    plain = models.DuRNN(M, N, length=T, dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in net.state_dict().items() if "before" not in k and "norm_product" not in k})
    torch.testing.assert_close(net(x)[0], plain(x)[0], rtol=1e-12, atol=1e-12)


def test_without_selection_the_product_is_normalised_as_a_whole():
    net, (x, _) = build(selection=False), inputs()
    cell = net.layers[0]
    h_short, _ = cell.scan_short(cell.project(x), torch.zeros(B, N, dtype=torch.float64))
    h = torch.zeros(B, N, dtype=torch.float64)
    for h_short_t in h_short:
        v = h_short_t @ cell.W_s.T
        v = (v - v.mean(0)) / (v.var(0, unbiased=False) + EPS).sqrt() * cell.norm_product.weight
        h = torch.relu(v + cell.norm_product.bias + cell.U * h + cell.b_long)
    torch.testing.assert_close(net(x)[0][-1], h, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("norm", "after"), [("frame", torch.nn.Identity), ("frame+after", SequenceNorm)])
def test_places_of_the_norms(norm, after):
    layer = build(norm).layers[0]
    kinds = (type(layer.before), type(layer.between), type(layer.norm_product), type(layer.after))
    assert kinds == (FrameNorm, torch.nn.Identity, FrameNorm, after)
    other = models.DuRNN(M, N, length=T, norm=norm).layers[0]
    assert sum(p.numel() for p in layer.parameters()) == sum(p.numel() for p in other.parameters())


@pytest.mark.parametrize("norm", [None, "after", "sequence", "sequence+after"])
def test_only_frames_can_be_normalised_inside_the_loop(norm):
    with pytest.raises(ValueError, match="second_norm='product' needs norm 'frame' or 'frame\\+after'"):
        models.DuRNN(M, N, length=T, norm=norm, second_norm="product")
    with pytest.raises(ValueError, match="second_norm='long' is not known"):
        models.DuRNN(M, N, length=T, norm=norm, second_norm="long")
