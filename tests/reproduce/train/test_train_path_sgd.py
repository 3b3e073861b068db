"""Path-SGD: its preconditioner against all paths one by one, and what it exists for, invariance to rescaling."""

import copy
import itertools

import pytest
import torch
from run_samples import make_place, make_run, make_settings, outcome_of
from test_train_parts import limited

import models
import tasks
from models import readouts
from models.base import Part
from reproduce.plan.parts import Clip
from reproduce.train import optimisers
from reproduce.train.loop import Training, train
from reproduce.train.network import Network, Objective
from reproduce.train.path_sgd import PathSGD, path_sums

N, M, K, T = 3, 2, 2, 4  # units, inputs, outputs, steps


class Small(Part):
    """A relu RNN and a readout; the loss is a mean square."""

    input = None

    def __init__(self, readout, **options):
        super().__init__()
        shared = {"seed": 0, "dtype": torch.float64, "W_in_init": "normal-1"}
        self.model = models.build("rnn-relu", M, N, **shared | options)
        self.readout = readouts.build(readout, N, K).double()
        with torch.no_grad():
            self.model.cells[0].b.uniform_(0.1, 0.5, generator=torch.Generator().manual_seed(1))

    def forward(self, x, state=None, mask=None):
        y, state = self.model(x, state)
        return self.readout(y, x), state

    def loss(self, outputs, y):
        return (outputs - y).square().mean()


def every_path(network, readout):
    """κ by walking along each path of the unrolled network: a list of (parameter, index), one per edge."""
    cell, head = network.model.cells[0], network.readout.head
    read = range(T) if readout == "every" else [T - 1]
    found = {p: torch.zeros_like(p) for p in network.parameters()}
    paths = []
    for last in read:
        for output in range(K):
            paths.append([(head.bias, (output,))])
            for first in range(last + 1):
                for units in itertools.product(range(N), repeat=last - first + 1):
                    inside = [(cell.W_rec, (b, a)) for a, b in itertools.pairwise(units)]
                    end = (head.weight, (output, units[-1]))
                    for start in [*((cell.W_in, (units[0], m)) for m in range(M)), (cell.b, (units[0],))]:
                        paths.append([start, *inside, end])
    for path in paths:
        for place, (parameter, index) in enumerate(path):
            rest = [p[i].item() ** 2 for number, (p, i) in enumerate(path) if number != place]
            found[parameter][index] += torch.tensor(rest, dtype=torch.float64).prod()
    return found


@pytest.mark.parametrize("readout", ["last", "every"])
@pytest.mark.parametrize("zero", [False, True])
def test_kappa_is_the_sum_over_all_paths(readout, zero):
    network = Small(readout)
    if zero:  # a unit without input passes no gradient through a relu, but has paths
        with torch.no_grad():
            network.model.cells[0].W_in[1] = network.model.cells[0].b[1] = network.model.cells[0].W_rec[1] = 0.0
    expected = every_path(network, readout)
    for name, parameter in network.named_parameters():
        got = path_sums(network, T)[parameter]
        torch.testing.assert_close(got, expected[parameter], rtol=1e-12, atol=1e-13, msg=lambda m, n=name: f"{n}: {m}")


def rescaled(network, c):
    """The same function: what goes into unit k times c_k, what comes out of it divided by c_k."""
    other = copy.deepcopy(network)
    cell, head = other.model.cells[0], other.readout.head
    with torch.no_grad():
        cell.W_in.mul_(c[:, None])
        cell.b.mul_(c)
        cell.W_rec.mul_(c[:, None] / c)
        head.weight.div_(c)
    return other


def batch():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(T, 5, M, dtype=torch.float64, generator=generator)
    return x, torch.randn(5, K, dtype=torch.float64, generator=generator), None


def trained(network, optimiser, steps):
    for _ in range(steps):
        objective = Objective(network, batch(), None, {}, None)
        if getattr(optimiser, "takes_objective", False):
            optimiser.step(objective)
        else:
            objective()
            optimiser.step()
    return network


def groups(network):
    return [{"params": list(network.parameters())}]


def test_updates_do_not_see_a_rescaling_of_the_units():
    c = torch.tensor([0.1, 1.0, 20.0], dtype=torch.float64)
    plain = Small("last")
    other = rescaled(plain, c)
    x = batch()[0]
    torch.testing.assert_close(plain(x)[0], other(x)[0])
    sgd = [copy.deepcopy(plain), copy.deepcopy(other)]
    for network in sgd:
        trained(network, torch.optim.SGD(network.parameters(), lr=1e-3), 3)
    assert not torch.allclose(sgd[0](x)[0], sgd[1](x)[0], rtol=1e-2), "SGD does not see the rescaling either"
    start = plain(x)[0].detach()
    for network in (plain, other):
        trained(network, PathSGD(groups(network), lr=0.1, refresh=2), 5)
    torch.testing.assert_close(other(x)[0], plain(x)[0], rtol=1e-9, atol=1e-9)
    assert (plain(x)[0] - start).abs().max() > 0.01
    for ours, theirs in zip(rescaled(plain, c).parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_one_update_by_hand():
    network = Small("last")
    kappa, before = path_sums(network, T), {p: p.detach().clone() for p in network.parameters()}
    mean = sum((kappa[p] * p.detach() ** 2).sum() for p in kappa) / sum(p.numel() for p in kappa)
    expected_loss = Objective(network, batch(), None, {}, None)()
    objective = Objective(network, batch(), None, {}, Clip(norm=0.5))
    loss = PathSGD([{"params": list(network.parameters()), "weight_decay": 0.1}], lr=0.3).step(objective)
    assert torch.equal(loss, expected_loss), "the loss is not that before the update"
    norm = torch.cat([p.grad.flatten() for p in kappa]).norm()
    assert norm.item() == pytest.approx(0.5), "the gradient is not clipped"
    for p in kappa:
        expected = before[p] - 0.3 * (p.grad + 0.1 * before[p]) / (kappa[p] / mean)
        torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=1e-12)


def test_kappa_is_refreshed_when_it_is_due():
    network = Small("last")
    optimiser, seen = PathSGD(groups(network), lr=0.1, refresh=3), []
    for _ in range(7):
        trained(network, optimiser, 1)
        seen.append(optimiser.state[network.model.cells[0].W_rec]["kappa"].clone())
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise(seen)]
    assert changed == [False, False, True, False, False, True]


def test_the_floor_holds():
    network = Small("last")
    optimiser = PathSGD(groups(network), lr=0.1, floor=2.0)
    trained(network, optimiser, 1)
    kappas = torch.cat([optimiser.state[p]["kappa"].flatten() for p in network.parameters()])
    assert kappas.min() == 2.0 < kappas.max()


PARTS = {
    "model": {"name": "rnn-relu", "hidden_size": 6, "num_layers": 1},
    "optimiser": {"name": "path-sgd", "lr": 3.0, "refresh": 4},
    "clip": {"value": None, "norm": 1.0},
    "schedule": {"name": "cosine"},
    "training": {"updates": 60},
    "evaluation": {"every": 10, "statistics_batches": None},
}


def test_a_stop_between_two_refreshes_leaves_no_trace(tmp_path):
    whole = train(make_run(**PARTS), make_place(tmp_path / "whole"))
    assert whole.record.curve[-1].valid < whole.record.curve[0].valid
    place = make_place(tmp_path / "stopped")
    for limit in (3, 14, 41):
        update = limited(limit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Training, "update", update)
            assert train(make_run(**PARTS), place, stop=update.stop).status == "unfinished"
    assert outcome_of(train(make_run(**PARTS), place)) == outcome_of(whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "rnn-tanh", "hidden_size": 6, "num_layers": 1}}, "paths of relu RNNs alone"),
        ({"model": {"name": "lstm", "hidden_size": 6, "num_layers": 1}}, "paths of relu RNNs alone"),
        ({"model": {"name": "rnn-relu", "hidden_size": 6, "num_layers": 1, "norm": "after"}}, "neither norm nor noise"),
        ({"model": {"name": "rnn-relu", "hidden_size": 6, "num_layers": 1, "dropout": 0.1}}, "neither norm nor noise"),
    ],
)
def test_a_network_without_such_paths_gets_one_sentence(changes, message):
    settings = make_settings(**PARTS | changes)
    network = Network(settings, tasks.build("adding", **settings.data), "reference")
    with pytest.raises(ValueError, match=message) as error:
        path_sums(network, 5)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("option", "value"), [("refresh", 0), ("refresh", 2.5), ("floor", 0.0)])
def test_bad_options_get_one_sentence(option, value):
    settings = make_settings(optimiser={"name": "path-sgd", "lr": 1.0, option: value})
    with pytest.raises(ValueError, match=f"^optimiser: {option}={value} is not a positive"):
        optimisers.check(settings.optimiser)
