"""HyperLSTM: the equations gate by gate, every gradient, what it is without its parts, where it starts, its noise."""

import pytest
import torch
import torch.nn.functional as F

import models
from models.norms import BlockNorm


def norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], eps=1e-3) * weight + bias


def gate(values, index):
    """The part of gate ``index`` (of i, f, g, o) of a vector or matrix over all gates."""
    return values.chunk(4)[index]


def by_hand(cell, x, state):
    """One gate after the other, as the paper and the released cell write them."""
    h, c, k, m = state  # k, m: the hyper cell's output and memory
    N_z, hs = cell.W_d.shape[1], []
    for x_t in x:
        a = []
        for q in range(4):
            pre = torch.cat([x_t, h], 1) @ torch.cat([gate(cell.W_x_hat, q), gate(cell.W_h_hat, q)], 1).T
            pre = pre + k @ gate(cell.W_rec_hat, q).T
            a.append(norm(pre, gate(cell.norm_gates_hat.weight, q), gate(cell.b_hat, q)))
        m = torch.sigmoid(a[1]) * m + torch.sigmoid(a[0]) * torch.tanh(a[2])
        k = torch.sigmoid(a[3]) * torch.tanh(norm(m, cell.norm_c_hat.weight, cell.norm_c_hat.bias))
        a = []
        for q in range(4):
            z = [k @ cell.W_z[(4 * part + q) * N_z : (4 * part + q + 1) * N_z].T for part in range(3)]
            z = [z[part] + cell.b_z[(4 * part + q) * N_z :][:N_z] for part in range(2)] + z[2:]
            d_h, d_x, b = (z[part] @ cell.W_d[4 * part + q] for part in range(3))
            pre = d_h * (h @ gate(cell.W_rec, q).T) + d_x * (x_t @ gate(cell.W_in, q).T) + b + gate(cell.b, q)
            a.append(norm(pre, gate(cell.norm_gates.weight, q), gate(cell.norm_gates.bias, q)))
        c = torch.sigmoid(a[1]) * c + torch.sigmoid(a[0]) * torch.tanh(a[2])
        h = torch.sigmoid(a[3]) * torch.tanh(norm(c, cell.norm_c.weight, cell.norm_c.bias))
        hs.append(h)
    return torch.stack(hs), (h, c, k, m)


def test_the_equations_and_every_gradient():
    torch.manual_seed(0)
    net = models.HyperLSTM(3, 6, hyper_size=5, embedding_size=2, dtype=torch.float64)
    cell, x = net.layers[0], torch.randn(8, 4, 3, dtype=torch.float64, requires_grad=True)
    start = [torch.randn(4, width, dtype=torch.float64, requires_grad=True) for width in (6, 6, 5, 5)]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    found = []
    for y, state in (cell(x, tuple(start)), by_hand(cell, x, start)):
        weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        grads = torch.autograd.grad((y * weight).sum() + sum(s.sum() for s in state), [x, *start, *cell.parameters()])
        found.append([y, *state, *grads])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_scales_of_one_and_no_normalisation_give_an_lstm():
    ours = models.HyperLSTM(3, 6, hyper_size=5, layer_norm=False, dtype=torch.float64, seed=0)
    theirs, cell = torch.nn.LSTM(3, 6, dtype=torch.float64), ours.layers[0]
    with torch.no_grad():
        cell.W_d[:8] = 1 / cell.W_d.shape[1]
        cell.W_in.copy_(theirs.weight_ih_l0)
        cell.W_rec.copy_(theirs.weight_hh_l0)
        cell.b.copy_(theirs.bias_ih_l0 + theirs.bias_hh_l0)
    x = torch.randn(11, 4, 3, dtype=torch.float64)
    y, (h, c, _, _) = ours(x)
    expected, (h_n, c_n) = theirs(x)
    torch.testing.assert_close([y, h, c], [expected, h_n, c_n], rtol=1e-10, atol=1e-10)


def test_it_starts_as_the_released_cell():
    cell = models.HyperLSTM(3, 200, seed=0).layers[0]
    d_h, d_x, b = cell.scales(torch.randn(7, 128))
    assert torch.allclose(d_h, torch.tensor(0.1))
    assert torch.allclose(d_x, torch.tensor(0.1))
    assert not b.any()
    assert not cell.W_z[: 8 * 4].any()
    assert 0.008 < cell.W_z[8 * 4 :].std() < 0.012
    for matrix, width in ((cell.W_rec, 200), (cell.W_rec_hat, 128)):
        for block in matrix.split(width):
            torch.testing.assert_close(block @ block.T, torch.eye(width), rtol=0, atol=1e-4)
    assert cell.norm_gates.bias.chunk(4)[1].eq(1).all()
    assert cell.b_hat.chunk(4)[1].eq(1).all()
    assert cell.norm_gates.bias.sum() == 200
    assert cell.b_hat.sum() == 128
    assert cell.norm_gates.eps == cell.norm_c.eps == 1e-3


def test_the_number_of_parameters_is_the_papers():
    """Table 4 of Ha et al.: 4.92 M with 1000 units, 128 in the hyper cell, N_z = 4, 50 one-hot characters, the head."""
    N, H, M, N_z = 1000, 128, 50, 4
    large = 4 * N * (M + N)
    hyper = 4 * H * (M + N + H)
    norms = 4 * (2 * N) + 2 * N + 4 * (2 * H) + 2 * H
    embeddings = 4 * (3 * N_z * H + 2 * N_z)
    scales = 4 * (3 * N_z * N + N)
    head = M * N + M
    expected = large + hyper + norms + embeddings + scales + head
    assert expected == 4_922_642
    net = models.HyperLSTM(M, N, device="meta")
    assert sum(p.numel() for p in net.parameters()) + head == expected


def test_dropout_of_the_candidate_is_new_at_every_step_and_for_training_alone():
    torch.manual_seed(0)
    net = models.HyperLSTM(3, 400, layer_norm=False, recurrent_dropout=0.25)
    cell, zeros = net.layers[0], net.layers[0].initial(2)
    u = cell.project(torch.randn(1, 2, 3))[0]
    _, (_, kept, _, _) = cell.eval().step(u, zeros)  # c = σ(i) tanh(g)
    masks = []
    for _ in range(2):
        _, (_, c, _, _) = cell.train().step(u, zeros)
        ratio = c / kept
        assert ((ratio - 1 / 0.75).abs().lt(1e-4) | ratio.eq(0)).all()
        masks.append(ratio.eq(0))
    assert 0.2 < masks[0].float().mean() < 0.3
    assert not torch.equal(*masks)


def test_dropout_of_input_and_output():
    torch.manual_seed(0)
    x, zero = torch.ones(50, 40, 3), {"W_rec_init": "zeros", "hyper_size": 4}
    plain = models.HyperLSTM(3, 8, seed=0, **zero)
    dropped = models.HyperLSTM(3, 8, seed=0, output_dropout=0.5, **zero)
    ratio = dropped(x)[0] / plain(x)[0]
    assert (ratio.eq(0) | (ratio - 2).abs().lt(1e-4)).all()
    assert ratio.eq(0).any(0).all(), "the mask is not new at every step"
    assert torch.equal(dropped.eval()(x)[0], plain(x)[0])
    seen = models.HyperLSTM(3, 8, seed=0, input_dropout=0.5, **zero).layers[0]
    assert not torch.equal(seen.project(x)[0], seen.project(x)[1])
    assert torch.equal(seen.eval().project(x), plain.layers[0].project(x))


def test_block_norm_normalises_each_block_by_itself():
    x = torch.randn(5, 12, dtype=torch.float64)
    got = BlockNorm(3, 4, eps=1e-12, bias=False).double()(x).unflatten(-1, (3, 4))
    torch.testing.assert_close(got.mean(-1), torch.zeros(5, 3).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(got.square().mean(-1), torch.ones(5, 3).double(), rtol=0, atol=1e-9)
    assert BlockNorm(3, 4, bias=False).bias is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hyper_size": 0}, "hyper_size=0"),
        ({"embedding_size": 1.5}, "embedding_size=1.5"),
        ({"recurrent_dropout": 1.0}, "recurrent_dropout=1.0"),
        ({"output_dropout": "0.1"}, "output_dropout='0.1'"),
    ],
)
def test_bad_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.HyperLSTM(2, 4, **options)
    assert "\n" not in str(error.value)
