"""Part-aware LSTM: against a loop of part cells written out, and against nn.LSTM with masked input weights."""

import pytest
import torch

import models
from models.part_lstm import PARTS, part_of_column

T, B, n = 6, 3, 4
N = 5 * n


def build(num_layers=1, **options):
    net = models.build("part-lstm", 150, n, num_layers, seed=0, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in net.parameters():  # biases that start at 0 hide mistakes
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return net


def clips(seed=2):
    return torch.randn(T, B, 150, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def columns(part):
    """Where x y z of the joints of a part stand in a frame of two bodies."""
    return [75 * body + 3 * joint + axis for body in (0, 1) for joint in PARTS[part] for axis in range(3)]


def part_cells(cell, x, state, reads):
    """The equations of the paper, part by part; ``reads[p]``: the columns of x that part p sees."""
    h, c = state[0], list(state[1].split(n, dim=-1))
    outputs = []
    for x_t in x:
        new = []
        for p, seen in enumerate(reads):
            i, f, g = (
                x_t[:, seen] @ cell.W_in[k * n : (k + 1) * n, seen].T
                + h @ cell.W_rec[k * N + p * n : k * N + (p + 1) * n].T
                + cell.b[k * N + p * n : k * N + (p + 1) * n]
                for k in range(3)
            )
            new.append(f.sigmoid() * c[p] + i.sigmoid() * g.tanh())
        o = x_t @ cell.W_o.T + h @ cell.W_rec[3 * N :].T + cell.b[3 * N :]
        c, h = new, o.sigmoid() * torch.cat(new, dim=-1).tanh()
        outputs.append(h)
    return torch.stack(outputs), (h, torch.cat(c, dim=-1))


def with_gradients(net, y, state, x):
    loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() + sum(s.sum() for s in state)
    return [y, *state, *torch.autograd.grad(loss, [x, *net.parameters()])]


def test_each_joint_belongs_to_one_part():
    joints = [joint for part in PARTS.values() for joint in part]
    assert sorted(joints) == list(range(25))
    part = part_of_column(models.Slot(150, n))
    for number, name in enumerate(PARTS):
        assert [column for column, of in enumerate(part) if of == number] == sorted(columns(name))
    above = part_of_column(models.Slot(N, n, index=1))
    assert above == [p for p in range(5) for _ in range(n)]


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_it_is_the_loop_of_its_part_cells(backend):
    net, x = build(2, backend=backend), clips().requires_grad_()
    start = torch.randn(2, 2, B, N, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    got = with_gradients(net, *net(x, (start[0], start[1])), x)
    y, finals = x, []
    for layer, cell in enumerate(net.cells):
        reads = [columns(p) for p in PARTS] if layer == 0 else [range(p * n, (p + 1) * n) for p in range(5)]
        y, final = part_cells(cell, y, (start[0, layer], start[1, layer]), [list(r) for r in reads])
        finals.append(final)
    state = [torch.stack(s) for s in zip(*finals, strict=True)]
    torch.testing.assert_close(got, with_gradients(net, y, state, x), rtol=1e-12, atol=1e-12)


def test_it_is_an_lstm_whose_input_weights_are_masked():
    net, x = build(), clips()
    cell, theirs = net.cells[0], torch.nn.LSTM(150, N, dtype=torch.float64)
    W = torch.zeros(4 * N, 150, dtype=torch.float64)
    for p, name in enumerate(PARTS):
        for k in range(3):
            rows = slice(k * N + p * n, k * N + (p + 1) * n)
            W[rows, columns(name)] = cell.W_in[k * n : (k + 1) * n, columns(name)].detach()
    W[3 * N :] = cell.W_o.detach()
    with torch.no_grad():
        for parameter, value in zip(theirs.parameters(), (W, cell.W_rec, cell.b, 0 * cell.b), strict=True):
            parameter.copy_(value)
    y, state = net(x)
    expected, last = theirs(x)
    assert (y - expected).abs().max() < 3e-15
    for ours, other in zip(state, last, strict=True):
        assert (ours - other).abs().max() < 1e-14


def test_a_part_does_not_see_the_others():
    """The memory of a part after one step depends on its own joints alone, its output on all through the gate."""
    net, x = build(), clips()[:1]
    moved = x.clone()
    moved[..., columns("left arm")] += 1.0
    (y, (_, c)), (y_moved, (_, c_moved)) = net(x), net(moved)
    same = (c == c_moved).view(B, 5, n).all(-1)  # (B, parts)
    assert same.tolist() == [[True, False, True, True, True]] * B
    assert not (y == y_moved).any()


@pytest.mark.parametrize(("num_layers", "parameters"), [(1, 1_122_000), (2, 2_524_000)])
def test_parameters(num_layers, parameters):
    """N = 5 · 100 units: in each layer 3 · 100 · inputs, N · inputs, 4 N² and 4 N."""
    net = models.build("part-lstm", 150, 100, num_layers)
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_input_weights_start_as_those_of_five_small_layers():
    cell = models.build("part-lstm", 150, 50, seed=0).cells[0]
    for name, joints in PARTS.items():
        block = cell.W_in[:, columns(name)]
        most = (6 / (6 * len(joints) + 150)) ** 0.5  # glorot: fan_in = 2 bodies · 3 · joints, fan_out = 3 · 50
        assert 0.97 * most < block.abs().max() <= most
    assert cell.b.unique().tolist() == [0.0, 1.0]
    assert (cell.b[250:500] == 1).all()


def test_it_reads_two_bodies_and_nothing_else():
    with pytest.raises(ValueError, match=r"^PartLSTM reads the 25 joints of two bodies, input_size=150, and got 75\.$"):
        models.build("part-lstm", 75, 8)
