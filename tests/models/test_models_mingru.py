"""minGRU and the linear scan it shares with LRU: the equations, every gradient, the start."""

import pytest
import torch

import models
from models.linear_scan import linear_scan


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


def by_hand(x, W_in, b, h, candidate):
    """One number after the other, as the paper writes it, with W_in = [W_z; W_h]."""
    N, ys = h.shape[1], []
    for x_t in x:
        z = 1 / (1 + torch.exp(-(x_t @ W_in[:N].T + b[:N])))
        v = x_t @ W_in[N:].T + b[N:]
        if candidate == "positive":
            v = torch.stack([q + 0.5 if q >= 0 else 1 / (1 + torch.exp(-q)) for q in v.flatten()]).view_as(v)
        h = (1 - z) * h + z * v
        ys.append(h)
    return torch.stack(ys)


@pytest.mark.parametrize("candidate", ["positive", "linear"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_equations_and_every_gradient(candidate, backend):
    torch.manual_seed(0)
    net = models.MinGRU(3, 5, candidate=candidate, backend=backend, dtype=torch.float64)
    cell, x = net.layers[0], torch.randn(13, 4, 3, dtype=torch.float64, requires_grad=True)
    h0 = torch.rand(1, 4, 5, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        cell.b.normal_()
    inputs, weight = [x, h0, cell.W_in, cell.b], torch.randn(13, 4, 5, dtype=torch.float64)
    y, state = net(x, h0)
    expected = by_hand(x, cell.W_in, cell.b, h0[0], candidate)
    close(y, expected)
    close(state[0], expected[-1])
    close(torch.autograd.grad((y * weight).sum(), inputs), torch.autograd.grad((expected * weight).sum(), inputs))


@pytest.mark.parametrize("T", [1, 2, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "varying"])
def test_the_scan_is_the_loop(T, dtype, constant):
    torch.manual_seed(0)
    shapes = [(3,) if constant else (T, 2, 3), (T, 2, 3), (2, 3)]
    a, b, h0 = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)
    y, h = [], h0
    for t in range(T):
        h = (a if constant else a[t]) * h + b[t]
        y.append(h)
    y, weight = torch.stack(y), torch.randn(T, 2, 3, dtype=dtype)
    got = linear_scan(a, b, h0)
    close(got, y)
    real = torch.real if dtype.is_complex else lambda value: value
    losses = [real((value * weight).sum()) for value in (got, y)]
    close(*(torch.autograd.grad(loss, [a, b, h0]) for loss in losses))
    assert torch.autograd.gradcheck(linear_scan, (a, b, h0))


def test_the_scan_is_of_the_widest_type():
    a, b, h0 = torch.rand(4, 2, 3).bfloat16(), torch.rand(4, 2, 3), torch.zeros(2, 3)
    assert linear_scan(a, b, h0).dtype == torch.float32


def test_parameters():
    """A layer has 2 N (M + 1) numbers; three of 256 on pixels with a head of ten classes."""
    net = models.MinGRU(1, 256, 3)
    assert sum(p.numel() for p in net.parameters()) == 2 * 256 * 2 + 2 * (2 * 256 * 257)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"candidate": "tanh"}, "candidate='tanh'")],
)
def test_bad_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.MinGRU(2, 4, **options)
    assert "\n" not in str(error.value)
