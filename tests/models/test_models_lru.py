"""LRU: the equations over the complex numbers, every gradient, the ring, stability."""

import math

import pytest
import torch
import torch.nn.functional as F

import models


def by_hand(cell, x, state):
    """The paper's equations with complex matrices; state (B, n) complex."""
    lam = torch.exp(-torch.exp(cell.nu) + 1j * torch.exp(cell.theta))
    B = cell.B[0::2] + 1j * cell.B[1::2]
    C = cell.C[:, 0::2] - 1j * cell.C[:, 1::2]
    W_a, W_b = cell.W_glu.chunk(2)
    b_a, b_b = cell.b_glu.chunk(2)
    hs = []
    for x_t in x:
        e = x_t @ cell.W_in.T + cell.b if cell.encodes else x_t
        v = F.layer_norm(e, e.shape[-1:], cell.layer_norm.weight, cell.layer_norm.bias)
        state = lam * state + torch.exp(cell.log_gamma) * (v.to(B.dtype) @ B.T)
        y = (state @ C.T).real + cell.D * v
        a = 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))
        hs.append(e + (a @ W_a.T + b_a) * torch.sigmoid(a @ W_b.T + b_b))
    return torch.stack(hs), state


def as_complex(state):
    return torch.view_as_complex(state.unflatten(-1, (-1, 2)).contiguous())


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_equations_and_every_gradient(backend):
    torch.manual_seed(0)
    net = models.LRU(3, 6, 2, state_size=5, backend=backend, dtype=torch.float64)
    x = torch.randn(9, 4, 3, dtype=torch.float64, requires_grad=True)
    x0 = torch.randn(2, 4, 10, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    h, finals = x, []
    for cell, before in zip(net.layers, x0, strict=True):
        h, after = by_hand(cell, h, as_complex(before))
        finals.append(after)
    y, state = net(x, x0)
    torch.testing.assert_close(y, h, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(as_complex(state), torch.stack(finals), rtol=1e-11, atol=1e-11)
    weight, inputs = torch.randn_like(y), [x, x0, *net.parameters()]
    grads = [torch.autograd.grad((value * weight).sum(), inputs, retain_graph=True) for value in (y, h)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


def test_only_a_change_of_width_is_encoded():
    assert [cell.encodes for cell in models.LRU(6, [6, 6, 4, 4]).layers] == [True, False, True, False]


def test_the_ring_and_what_normalises_it():
    cell = models.LRU(2, 4000, r_min=0.9, r_max=0.99, max_phase=math.pi / 10, seed=0, state_size=3000).layers[0]
    size, phase = torch.exp(-torch.exp(cell.nu)), torch.exp(cell.theta)
    assert 0.9 <= size.min() < 0.901
    assert 0.989 < size.max() <= 0.99
    assert abs(size.square().mean() - (0.81 + 0.99**2) / 2) < 0.002  # uniform on the ring
    assert 0 < phase.min() < 0.001
    assert 0.31 < phase.max() <= math.pi / 10 * (1 + 1e-6)
    torch.testing.assert_close(torch.exp(cell.log_gamma) ** 2, 1 - size**2, rtol=1e-3, atol=1e-6)


def test_white_noise_leaves_the_state_at_unit_scale():
    """What γ is for: |x|² settles at |B v|², whatever the radius."""
    torch.manual_seed(0)
    net = models.LRU(64, 64, r_min=0.8, r_max=0.99, state_size=200)
    _, state = net(torch.randn(800, 40, 64))
    assert 0.8 < as_complex(state[0]).abs().square().mean() < 1.2


def test_it_is_stable_whatever_the_parameters():
    """|λ| < 1 by construction: without input the state shrinks at every step, also after wild updates."""
    net = models.LRU(3, 16, dtype=torch.float64, seed=0)
    cell, generator = net.layers[0], torch.Generator().manual_seed(0)
    for _ in range(20):
        with torch.no_grad():
            cell.nu.add_(2 * torch.randn(16, generator=generator))
            cell.theta.add_(2 * torch.randn(16, generator=generator))
        lam = torch.complex(*cell.lam())
        assert (lam.abs() <= 1).all()
    with torch.no_grad():
        cell.nu.clamp_(min=-12)
        size = torch.complex(*cell.lam()).abs()
        assert (size < 1).all()
        state = torch.randn(1, 2, 32, dtype=torch.float64)
        before = as_complex(state[0]).abs()
        u = torch.cat([torch.zeros(1, 2, 32), torch.zeros(1, 2, 32)], dim=-1).double()
        _, (after,) = cell.scan(u, (state[0],))
        assert (as_complex(after).abs() < before).all()


def test_parameters():
    """Three layers of N = n = 112 on pixels: encoder 2N; LN 2N, λ and γ 3n, B and C 2nN each, D N, GLU 2N (N + 1)."""
    N = 112
    expected = 2 * N + 3 * (2 * N + 3 * N + 4 * N * N + N + 2 * N * (N + 1))
    assert sum(p.numel() for p in models.LRU(1, N, 3).parameters()) == expected == 228_704


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"r_min": 0.9, "r_max": 0.8}, "r_min=0.9 and r_max=0.8"),
        ({"r_max": 1.1}, "r_max=1.1"),
        ({"max_phase": 0.0}, "max_phase=0.0"),
        ({"state_size": -1}, "state_size=-1"),
    ],
)
def test_bad_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.LRU(2, 4, **options)
    assert "\n" not in str(error.value)
