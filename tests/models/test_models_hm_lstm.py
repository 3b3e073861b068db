"""HM-LSTM: update, copy and flush by cases, every gradient, the limits z ≡ 0 and z ≡ 1, the slope, the boundaries."""

import pytest
import torch
import torch.nn.functional as F

import models


def net_of(layers=3, width=5, **options):
    """In fp64, with weights large enough that boundaries fall."""
    torch.manual_seed(0)
    net = models.HMLSTM(3, width, layers, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return net


def sequence(T=12, B=4, M=3):
    return torch.randn(T, B, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], eps=1e-3) * weight + bias


def gates_of(cell, s, layer_norm):
    """σ(i), σ(f), tanh(g), σ(o) and s_z from s without its bias."""
    N, found = cell.hidden_size, []
    for index, act in enumerate((torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid)):
        part, b = s[:, index * N : (index + 1) * N], cell.b[index * N : (index + 1) * N]
        found.append(
            act(norm(part, cell.norm_gates.weight[index * N : (index + 1) * N], b) if layer_norm else part + b)
        )
    return *found, s[:, 4 * N :] + cell.b[4 * N :]


def by_hand(net, x, slope=1.0, layer_norm=True):
    """Masks times operations, each operation by its own; the straight-through estimator by detaching."""
    cells, B = list(net.layers), x.shape[1]
    h = [x.new_zeros(B, cell.hidden_size) for cell in cells]
    c = [x.new_zeros(B, cell.hidden_size) for cell in cells]
    z = [x.new_zeros(B, 1) for _ in cells]
    ys, zs = [], []
    for x_t in x:
        from_below, z_below, old_h, old_z = x_t, torch.ones(B, 1, dtype=x.dtype), list(h), list(z)
        for level, cell in enumerate(cells):
            is_top = level == len(cells) - 1
            s = old_h[level] @ cell.U.T + z_below * (from_below @ cell.W_in.T)
            if not is_top:
                s = s + old_z[level] * (old_h[level + 1] @ cell.U_above.T)
            i, f, g, o, s_z = gates_of(cell, s, layer_norm)
            was = old_z[level]
            c[level] = (
                (1 - was) * z_below * (f * c[level] + i * g) + (1 - was) * (1 - z_below) * c[level] + was * (i * g)
            )
            out = o * torch.tanh(norm(c[level], cell.norm_c.weight, cell.norm_c.bias) if layer_norm else c[level])
            kept = (1 - was) * (1 - z_below)
            h[level] = kept * old_h[level] + (1 - kept) * out
            if not is_top:
                soft = torch.clamp((slope * s_z + 1) / 2, 0, 1)
                z[level] = soft + ((s_z > 0).to(x.dtype) - soft).detach()
            from_below, z_below = h[level], z[level]
        joined = torch.cat(h, 1)
        total = 0
        for level, cell in enumerate(cells):
            w = torch.cat([other.w[level] for other in cells])
            total = total + torch.sigmoid(joined @ w).unsqueeze(1) * (h[level] @ cell.W_e.T)
        ys.append(torch.relu(total))
        zs.append(torch.stack([value.detach()[:, 0] for value in z[:-1]]))
    return torch.stack(ys), (torch.stack(h), torch.stack(c), torch.stack(z)), torch.stack(zs, 1)


@pytest.mark.parametrize("slope", [1.0, 2.6])
def test_the_equations_and_every_gradient(slope):
    net, x = net_of(), sequence().requires_grad_()
    net.on_epoch(round((slope - 1) / 0.04))
    found = []
    expected, final, boundaries = by_hand(net, x, slope)
    assert 0.2 < boundaries.mean() < 0.8, "all three operations have to occur"
    for y, state in (net(x), (expected, final)):
        weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        loss = (y * weight).sum() + sum(s.sum() for s in state)
        found.append([y, *state, *torch.autograd.grad(loss, [x, *net.parameters()], retain_graph=True)])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    assert torch.equal(net.boundaries(x.detach()), boundaries.round())


def test_each_sample_does_one_of_three_things():
    """By cases, sample by sample, on the middle layer of three, from its neighbours' states."""
    net, x = net_of(), sequence(30, 6)
    cell, seen = net.layers[1], set()
    step_among = cell.step_among

    def watched(u_t, state, below, above):
        y, new = step_among(u_t, state, below, above)
        for b in range(len(y)):
            h, c, z, z_below = state[0][b], state[1][b], state[2][b].item(), below[2][b].item()
            s = cell.U @ h + z_below * u_t[b] + z * (cell.U_above @ above[0][b])
            i, f, g, o, s_z = (value[0] for value in gates_of(cell, s.unsqueeze(0), True))
            if z == 1:
                case, c = "flush", i * g
            elif z_below == 1:
                case, c = "update", f * c + i * g
            else:
                case = "copy"
            if case != "copy":
                h = o * torch.tanh(norm(c, cell.norm_c.weight, cell.norm_c.bias))
            seen.add(case)
            torch.testing.assert_close([new[0][b], new[1][b]], [h, c], rtol=1e-10, atol=1e-10)
            assert new[2][b].item() == (s_z.item() > 0)
        return y, new

    cell.step_among = watched
    net(x)
    assert seen == {"update", "copy", "flush"}


def with_boundaries(net, value):
    with torch.no_grad():
        for cell in list(net.layers)[:-1]:
            cell.b[-1] = value
    return net


def test_without_boundaries_the_first_layer_is_an_lstm_and_the_others_copy():
    net = with_boundaries(net_of(layer_norm=False), -1e6)
    x, cell, theirs = sequence(), net.layers[0], torch.nn.LSTM(3, 5, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.W_in[:20])
        theirs.weight_hh_l0.copy_(cell.U[:20])
        theirs.bias_ih_l0.copy_(cell.b[:20])
        theirs.bias_hh_l0.zero_()
    ys, states = net.run_all(x, [cell.initial(4) for cell in net.layers])
    torch.testing.assert_close(ys[0], theirs(x)[0], rtol=1e-10, atol=1e-10)
    assert not ys[1].any()
    assert not ys[2].any()
    start = [tuple(torch.randn_like(s) if s.shape[1] > 1 else s for s in cell.initial(4)) for cell in net.layers]
    ys, states = net.run_all(x, start)
    for level in (1, 2):
        assert torch.equal(ys[level], start[level][0].expand(12, -1, -1))
        assert torch.equal(states[level][1], start[level][1])


def test_with_a_boundary_at_every_step_all_layers_but_the_top_flush():
    """From the second step on c forgets everything; the top layer, which has no boundary, updates as an LSTM."""
    net = with_boundaries(net_of(layer_norm=False), 1e6)
    x = sequence()
    ys, _ = net.run_all(x, [cell.initial(4) for cell in net.layers])
    first, second, third = net.layers
    for t in range(1, 12):
        for cell, below, own, above in ((first, x, ys[0], ys[1]), (second, ys[0], ys[1], ys[2])):
            s = below[t] @ cell.W_in.T + own[t - 1] @ cell.U.T + above[t - 1] @ cell.U_above.T
            i, _, g, o, _ = gates_of(cell, s, False)
            torch.testing.assert_close(own[t], o * torch.tanh(i * g), rtol=1e-10, atol=1e-10)
    theirs = torch.nn.LSTM(5, 5, dtype=torch.float64)
    with torch.no_grad():
        for name, value in (("weight_ih_l0", third.W_in), ("weight_hh_l0", third.U), ("bias_ih_l0", third.b)):
            getattr(theirs, name).copy_(value)
        theirs.bias_hh_l0.zero_()
    torch.testing.assert_close(ys[2], theirs(ys[1])[0], rtol=1e-10, atol=1e-10)


def test_the_slope_follows_the_epochs_and_changes_gradients_alone():
    net, x = net_of(), sequence()
    slopes = []
    for epoch in (0, 1, 25, 99, 100, 101, 500):
        net.on_epoch(epoch)
        slopes.append(net.layers[0].slope)
    assert slopes == pytest.approx([1, 1.04, 2, 4.96, 5, 5, 5])
    s = torch.tensor([[-3.0], [-0.1], [0.0], [0.1], [0.3]], dtype=torch.float64, requires_grad=True)
    z = net.layers[0].boundary(s)
    assert z.flatten().tolist() == [0, 0, 0, 1, 1]
    (grad,) = torch.autograd.grad(z.sum(), s)
    assert grad.flatten().tolist() == [0, 2.5, 2.5, 2.5, 0]
    y = net(x)[0]
    net.on_epoch(0)
    assert torch.equal(net(x)[0], y)
    flat = models.HMLSTM(3, 4, 2, slope_growth=0.0)
    flat.on_epoch(50)
    assert flat.layers[0].slope == 1


def test_the_number_of_parameters_is_8_43_million_and_the_norms():
    """Three layers of 512 on an embedding of 128, y of 512, 50 characters; the top layer has no boundary."""
    n, E, M, V = 512, 512, 128, 50
    rows = 4 * n + 1
    first = rows * (n + n + M) + rows
    second = rows * (n + n + n) + rows
    third = 4 * n * (n + n) + 4 * n
    joined = 3 * (3 * n) + 3 * (E * n)
    around = V * M + E * V + V
    assert first + second + third + joined + around == 8_434_100
    norms = 3 * (4 * n + 2 * n)
    net = models.HMLSTM(M, n, 3, device="meta")
    assert sum(p.numel() for p in net.parameters()) == first + second + third + joined + norms
    plain = models.HMLSTM(M, n, 3, device="meta", layer_norm=False)
    assert sum(p.numel() for p in plain.parameters()) + around == 8_434_100


def test_widths_and_what_is_joined():
    net = models.HMLSTM(3, [8, 5, 6], 3)
    y, (h, _, z) = net(torch.randn(7, 2, 3))
    assert y.shape == (7, 2, 6)
    assert [part.shape for part in h] == [(2, 8), (2, 5), (2, 6)]
    assert z.shape == (3, 2, 1)
    assert not z[-1].any()
    assert net.size == 6
    wide = models.HMLSTM(3, 4, 2, joined_size=9)
    assert wide.size == wide(torch.randn(7, 2, 3))[0].shape[-1] == 9


def test_boundaries_of_two_halves_are_those_of_the_whole():
    net, x = net_of(), sequence(20)
    whole = net.boundaries(x)
    assert whole.shape == (2, 20, 4)
    assert set(whole.unique().tolist()) == {0, 1}
    _, state = net(x[:7])
    assert torch.equal(torch.cat([net.boundaries(x[:7]), net.boundaries(x[7:], state)], 1), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"joined_size": -1}, "joined_size=-1"),
        ({"slope_growth": -0.1}, "slope_growth=-0.1"),
        ({"slope_max": 0.5}, "slope_max=0.5"),
        ({"norm": "after"}, "neither norm nor dropout"),
        ({"hidden_size": -4}, "hidden_size=-4"),
    ],
)
def test_bad_options_get_one_clear_sentence(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.HMLSTM(**{"input_size": 2, "hidden_size": 4, "num_layers": 2} | options)
    assert "\n" not in str(error.value)
