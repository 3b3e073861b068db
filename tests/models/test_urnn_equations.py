"""uRNN against its equations, written out with complex matrices; unitarity over 784 steps; parameter count."""

import pytest
import torch

import models
from models.urnn import as_complex, as_real, modrelu

n, M, T, B = 6, 3, 7, 4


def network(**options):
    net = models.build("urnn", M, n, seed=0, dtype=torch.float64, b_range=0.3, **options)
    return net, net.cells[0]


def matrix(cell):
    """W = D_3 R_2 F⁻¹ D_2 P R_1 F D_1 as an (n, n) matrix that acts on columns."""
    size = cell.hidden_size
    k = torch.arange(size, dtype=torch.float64)
    F = torch.exp(-2j * torch.pi * torch.outer(k, k) / size) / size**0.5
    P = torch.eye(size, dtype=torch.complex128)[cell.P]
    eye = torch.eye(size, dtype=torch.complex128)

    def diagonal(omega):
        return torch.diag(torch.complex(omega.cos(), omega.sin()))

    def reflection(v):
        v = torch.complex(v[:size], v[size:])
        return eye - 2 * torch.outer(v, v.conj()) / (v.abs() ** 2).sum()

    D_1, D_2, D_3 = (diagonal(omega) for omega in (cell.omega_1, cell.omega_2, cell.omega_3))
    return D_3 @ reflection(cell.v_2) @ F.mH @ D_2 @ P @ reflection(cell.v_1) @ F @ D_1


def by_hand(net, cell, x):
    W, V = matrix(cell), torch.complex(cell.V[:n], cell.V[n:])
    columns = []
    for sample in range(B):
        h, outputs = torch.complex(cell.start_h[:n], cell.start_h[n:]), []
        for x_t in x[:, sample].to(torch.complex128):
            z = W @ h + V @ x_t
            modulus = torch.sqrt(z.real**2 + z.imag**2 + 1e-5)
            h = torch.stack([z[k] * (modulus[k] + cell.b[k]).clamp(min=0) / modulus[k] for k in range(n)])
            outputs.append(torch.cat([h.real, h.imag]))
        columns.append(torch.stack(outputs))
    return torch.stack(columns, dim=1)  # (T, B, 2n)


def test_outputs_and_all_gradients_are_those_of_the_equations():
    net, cell = network()
    x = torch.randn(T, B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    weights = torch.linspace(-1, 1, T * B * 2 * n, dtype=torch.float64).view(T, B, 2 * n)
    found = []
    for y in (net(x)[0], by_hand(net, cell, x)):
        assert (y.detach() == 0).any(), "no unit is off, so modReLU's kink is not tested"
        found.append([y, *torch.autograd.grad((y * weights).sum(), [x, *net.parameters()])])
    names = ["y", "x", *dict(net.named_parameters())]
    for name, got, expected in zip(names, *found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")
        assert expected.any(), name


@pytest.mark.parametrize("size", [1, 6, 128])
def test_w_is_unitary(size):
    cell = models.build("urnn", M, size, seed=2, dtype=torch.float64).cells[0]
    W = cell.rotate(torch.eye(size, dtype=torch.complex128), cell.factors()).T  # rows are W e_k
    torch.testing.assert_close(W.mH @ W, torch.eye(size, dtype=torch.complex128), rtol=0, atol=1e-12)
    torch.testing.assert_close(W, matrix(cell), rtol=0, atol=1e-12)


def test_the_norm_is_kept_over_784_steps():
    net = models.build("urnn", 1, 64, seed=0, dtype=torch.float64)
    y, _ = net(torch.zeros(784, 3, 1, dtype=torch.float64))
    norms = torch.linalg.vector_norm(y, dim=-1)
    expected = torch.linalg.vector_norm(net.cells[0].start_h).expand_as(norms)
    torch.testing.assert_close(norms, expected, rtol=1e-12, atol=0)
    (grad,) = torch.autograd.grad(y[-1].sum(), net.cells[0].start_h)
    torch.testing.assert_close(grad.norm(), y.new_full((2 * 64,), 3.0).norm(), rtol=1e-12, atol=0)


def test_modrelu_by_hand():
    z = torch.tensor([3 + 4j, 3 + 4j, 3 + 4j, 0j], dtype=torch.complex128)
    got = modrelu(z, torch.tensor([0.0, 5.0, -6.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(got, torch.tensor([3 + 4j, 6 + 8j, 0j, 0j], dtype=torch.complex128), rtol=1e-6, atol=0)


def test_states_are_real_and_hold_both_parts():
    z = torch.randn(5, n, dtype=torch.complex128)
    assert torch.equal(as_complex(as_real(z)), z)
    net, cell = network()
    assert (net.size, cell.states, cell.hidden_size) == (2 * n, {"h": 2 * n}, n)
    assert all(not p.is_complex() for p in net.parameters())


def test_parameter_count_with_head():
    net = models.build("urnn", 1, 512)
    assert sum(p.numel() for p in net.parameters()) + (net.size + 1) * 10 == 16_394


def test_initial_draws():
    cell = models.build("urnn", 1, 512, seed=0, b_range=0.01).cells[0]
    bound = (3 / 1024) ** 0.5
    assert 0.95 * bound < cell.start_h.abs().max() <= bound
    assert cell.start_h.norm().item() == pytest.approx(1, abs=0.1)
    assert 3.0 < cell.omega_2.abs().max() <= torch.pi
    assert 0.009 < cell.b.abs().max() <= 0.01
    assert not models.build("urnn", 1, 512).cells[0].b.any()
    assert sorted(cell.P.tolist()) == list(range(512))
    assert cell.P.tolist() != list(range(512))


def test_bad_options_get_one_sentence():
    with pytest.raises(ValueError, match=r"b_range=-1 is not a number from 0 up\."):
        models.build("urnn", 1, 4, b_range=-1)
