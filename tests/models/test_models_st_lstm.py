"""ST-LSTM against a loop over joints and frames, against nn.LSTM, and in what it trusts."""

import itertools

import pytest
import torch

import models
from models import inputs
from models.skeleton import BEYOND, WALK_OVER_16, walk
from models.walk_scan import walk_scan

VISITS, FRAMES, B, M, N = 5, 3, 4, 3, 6


def net_of(layers=1, **options):
    """In fp64, with weights far from those it starts with."""
    torch.manual_seed(0)
    net = models.STLSTM(M, N, layers, visits=VISITS, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return net


def by_hand(net, x, spread=0.5):
    """Visit by visit, with the states of all visits in a table of frames and joints."""
    for cell in net.layers:
        N = cell.hidden_size
        h, c = {}, {}
        for number, x_jt in enumerate(x):
            t, j = divmod(number, cell.visits)
            zero = x.new_zeros(x.shape[1], N)
            in_space = (t, j - 1) if j else (t - 1, cell.visits - 1)
            h_S, c_S = h.get(in_space, zero), c.get(in_space, zero)
            h_T, c_T = h.get((t - 1, j), zero), c.get((t - 1, j), zero)
            gates = []
            for gate in range(5):
                rows = slice(gate * N, (gate + 1) * N)
                gates.append(
                    x_jt @ cell.W_in[rows].T + cell.b[rows] + h_S @ cell.W_S[rows].T + cell.b_S[rows]
                    + h_T @ cell.W_T[rows].T + cell.b_T[rows]
                )  # fmt: skip
            o, i, f_S, f_T = (torch.sigmoid(gate) for gate in gates[:4])
            u = torch.tanh(gates[4])
            if cell.trust_gate:
                M_S, M_T, b_p = cell.W_S[5 * N :], cell.W_T[5 * N :], cell.b_S[5 * N :] + cell.b_T[5 * N :]
                p = torch.tanh(h_S @ M_S.T + h_T @ M_T.T + b_p)
                tau = torch.exp(-spread * (u - p) * (u - p))
                c[t, j] = tau * i * u + (1 - tau) * f_S * c_S + (1 - tau) * f_T * c_T
            else:
                c[t, j] = i * u + f_S * c_S + f_T * c_T
            h[t, j] = o * torch.tanh(c[t, j])
        x = torch.stack(list(h.values()))
    return x, h, c


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("length", [VISITS * FRAMES, VISITS * FRAMES - 2, VISITS, 2])
@pytest.mark.parametrize("options", [{}, {"backend": "reference"}, {"trust_gate": False}, {"spread": 1.3}])
def test_the_equations_and_every_gradient(options, length, layers):
    net = net_of(layers, **options)
    x = torch.randn(length, B, M, dtype=torch.float64).requires_grad_()
    y, state = net(x)
    expected, h, c = by_hand(net, x, options.get("spread", 0.5))
    found = []
    for out, last_h, last_c in (
        (y, state[0][-1], state[1][-1]),
        (expected, list(h.values())[-1], list(c.values())[-1]),
    ):
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        loss = (out * weight).sum() + last_h.sum() + last_c.square().sum()
        grads = torch.autograd.grad(loss, [x, *net.parameters()], retain_graph=True)
        found.append([out, last_h, last_c, *grads])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_the_walk_over_a_frame_and_its_gradient_in_every_argument():
    torch.manual_seed(0)
    shapes = [(4, 2, 6 * 3), (6 * 3, 3), (2, 3), (2, 3), (4, 2, 3)]
    arguments = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *a: walk_scan(*a, 0.7), arguments)


def test_without_gate_and_time_it_is_an_lstm_over_186_visits():
    clips = torch.randn(18, B, 150, dtype=torch.float64)
    clips[:, 0, 75:] = 0.0  # one person
    clips[5:, 1] = 0.0  # a short clip
    x = inputs.build("joint-walk", 150)(clips)
    assert x.shape == (186, B, 18)
    net = models.STLSTM(18, N, trust_gate=False, dtype=torch.float64)
    cell, theirs = net.layers[0], torch.nn.LSTM(18, N, dtype=torch.float64)
    blocks = [cell.W_in.split(N), cell.W_S.split(N), cell.b.split(N), cell.b_S.split(N)]
    with torch.no_grad():
        cell.W_T.zero_()
        cell.b_T.zero_()
        cell.b[3 * N : 4 * N] = -1e9  # f_T = 0
        for name, (o, i, f_S, _, u) in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), blocks, strict=True):
            getattr(theirs, f"{name}_l0").copy_(torch.cat([i, f_S, u, o]))
    (y, state), (expected, (h, c)) = net(x), theirs(x)
    torch.testing.assert_close([y, state[0], state[1]], [expected, h, c], rtol=1e-12, atol=1e-12)


def test_a_corrupted_joint_is_trusted_less():
    """Units that expect what they saw a frame before, of joints that hardly move."""
    net = models.STLSTM(1, 1, visits=VISITS, dtype=torch.float64)
    cell = net.layers[0]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        cell.b[:2], cell.b[2:4] = 20.0, -20.0  # o = i = 1, nothing is kept
        cell.W_in[4] = 1.0  # u = tanh(x)
        cell.W_T[5] = 1.2  # p = tanh(1.2 h_T)
    joints = torch.tensor([0.3, -0.2, 0.4, 0.1, -0.3], dtype=torch.float64)
    x = (joints + 0.01 * torch.randn(6, 1, VISITS, dtype=torch.float64)).transpose(1, 2).reshape(-1, 1, 1)
    trusted = cell.trust(x)
    broken = x.clone()
    where = 4 * VISITS + 2
    broken[where] += 3.0
    doubted = cell.trust(broken)
    assert (trusted[VISITS:] > 0.99).all()
    assert doubted[where] < 0.9
    others = [k for k in range(len(x)) if k != where and k != where + VISITS]  # the next visit expects it
    torch.testing.assert_close(doubted[others], trusted[others], rtol=0.02, atol=0.02)


def test_the_numbers_of_parameters():
    assert sum(p.numel() for p in models.STLSTM(18, 128, 2, device="meta").parameters()) + 128 * 60 + 60 == 498_748


def test_it_starts_as_the_release():
    cell = models.STLSTM(18, 50, seed=0).layers[0]
    assert (cell.b[100:200] == 1).all()
    drawn = torch.cat([cell.b[:100], cell.b[200:], *(p.flatten() for n, p in cell.named_parameters() if n != "b")])
    assert 0.079 < drawn.abs().max() <= 0.08
    assert drawn.std().item() == pytest.approx(0.08 / 3**0.5, rel=0.02)


def bones():
    return {frozenset((joint, beyond)) for joint, some in BEYOND.items() for beyond in some}


def test_walks_follow_bones_and_come_back():
    full = walk()
    assert len(full) == 49
    assert {frozenset(pair) for pair in itertools.pairwise(full)} == bones()
    assert set(full) == set(range(1, 26))
    assert full[0] == full[-1] == WALK_OVER_16[0] == WALK_OVER_16[-1] == 2
    assert (len(WALK_OVER_16), len(set(WALK_OVER_16))) == (31, 16)
    left_out = {frozenset(pair) for pair in itertools.pairwise(WALK_OVER_16)} - bones()
    assert left_out == {frozenset((21, 4)), frozenset((10, 24)), frozenset((6, 22))}  # past neck and wrists


@pytest.mark.parametrize(
    ("options", "message"),
    [({"visits": 1}, "visits=1"), ({"visits": 2.0}, "visits=2.0"), ({"spread": -1}, "spread=-1")],
)
def test_bad_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.STLSTM(2, 4, **options)
    assert "\n" not in str(error.value)
