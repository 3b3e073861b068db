"""Stack and Lockstep: the same numbers, widths per layer, what is refused."""

import pytest
import torch

import models
from models.registry import example, example_input
from models.states import state_tensors

STACKS = [name for name in models.names() if issubclass(models.registry.ZOO.entry(name).cls, models.Stack)]
every_stack = pytest.mark.parametrize("name", STACKS)


def in_lockstep(name, *sizes, **options):
    cls = models.registry.ZOO.entry(name).cls
    preset = models.registry.ZOO.entry(name).preset
    return type("InLockstep", (models.Lockstep,), {"cell": cls.cell})(*sizes, **preset, **options)


@every_stack
@pytest.mark.parametrize("hidden_size", [8, [8, 5, 6]], ids=["one-width", "widths"])
def test_lockstep_of_ordinary_cells_is_the_stack(name, hidden_size):
    options = {"length": 9, "seed": 0, "dtype": torch.float64}
    stack = example(name, 3, hidden_size, 3, **options)
    lockstep = in_lockstep(name, stack.input_size, hidden_size, 3, **options)
    x = example_input(name, stack, 9, 4)
    results = []
    for net in (stack, lockstep):
        y, state = net(x)
        y, state = net(x, state)
        grads = torch.autograd.grad(y.square().sum(), list(net.parameters()))
        results.append([y, *state_tensors(state).values(), *grads])
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(stack.traces(x), lockstep.traces(x), strict=True):
        torch.testing.assert_close(next(reversed(ours.values())), theirs["output"], rtol=1e-10, atol=1e-10)


class Neighbourly(models.RNN.cell):
    """Adds the new h of the layer below and the previous h of the layer above."""

    def step_among(self, u_t, state, below, above):
        for neighbour in (below, above):
            u_t = u_t if neighbour is None else u_t + neighbour[0]
        return self.step(u_t, state)


class Joined(models.Lockstep):
    cell = Neighbourly

    @property
    def size(self):
        return sum(cell.size for cell in self.cells)

    def gather(self, ys):
        return torch.cat(ys, dim=-1)


def test_a_cell_in_lockstep_sees_its_neighbours():
    net = Joined(2, 4, 3, seed=0, dtype=torch.float64)
    x = torch.randn(6, 2, 2, dtype=torch.float64)
    y, state = net(x)
    W_in, W_rec = [cell.W_in for cell in net.cells], [cell.W_rec for cell in net.cells]
    h = [torch.zeros(2, 4, dtype=torch.float64)] * 3
    for x_t, y_t in zip(x, y, strict=True):
        bottom = torch.tanh(x_t @ W_in[0].T + h[1] + h[0] @ W_rec[0].T)
        middle = torch.tanh(bottom @ W_in[1].T + bottom + h[2] + h[1] @ W_rec[1].T)
        top = torch.tanh(middle @ W_in[2].T + middle + h[2] @ W_rec[2].T)
        h = [bottom, middle, top]
        torch.testing.assert_close(y_t, torch.cat(h, dim=-1))
    torch.testing.assert_close(state, torch.stack(h))
    assert y.shape[-1] == net.size == 12


@pytest.mark.parametrize("options", [{"norm": "after"}, {"dropout": 0.1}, {"dropout": (0.0, 0.1)}])
def test_lockstep_refuses_norm_and_dropout(options):
    with pytest.raises(ValueError, match="neither norm nor dropout") as error:
        Joined(2, 4, 3, **options)
    assert "\n" not in str(error.value)


def test_each_layer_may_have_its_width():
    net = models.LSTM(3, [8, 4], norm="after")
    y, (h, c) = net(torch.randn(5, 2, 3))
    assert y.shape == (5, 2, 4)
    assert (net.size, net.num_layers, repr(net)) == (4, 2, "LSTM(3, [8, 4], num_layers=2, norm='after')")
    assert [part.shape for part in h] == [part.shape for part in c] == [(2, 8), (2, 4)]
    same = models.LSTM(3, [8, 8])(torch.randn(5, 2, 3))[1]
    assert same[0].shape == (2, 2, 8)
    single = models.GRU(3, [8, 4])(torch.randn(5, 2, 3))[1]
    assert [part.shape for part in single] == [(2, 8), (2, 4)]
    assert models.GRU(3, [8, 4])(torch.randn(5, 2, 3), single)[0].shape == (5, 2, 4)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: models.RNN(2, 4, dtype="float32"), TypeError, "dtype='float32' is not a torch.dtype"),
        (lambda: models.RNN(2, 4, gama=1), TypeError, "RNN has no option 'gama'"),
        (lambda: models.RNN(2, 4, dropout=None), ValueError, "dropout=None"),
        (lambda: models.RNN(2, 4, dropout="0.5"), ValueError, "dropout='0.5'"),
        (lambda: models.RNN(2, 4, start="ones"), ValueError, "start='ones' is not known"),
        (lambda: models.RNN(2, 4, start_noise=-0.1), ValueError, "start_noise=-0.1"),
        (lambda: models.RNN(2, "4"), ValueError, "hidden_size='4'"),
        (lambda: models.RNN(2, []), ValueError, r"hidden_size=\[\]"),
        (lambda: models.RNN(2, [4, 0]), ValueError, "hidden_size=0"),
        (lambda: models.RNN(2, [4, 5], 3), ValueError, "one width for each of num_layers=3"),
        (lambda: models.DuRNN(2, 4, length=5, u_max=-1), ValueError, "u_max=-1 is not an upper bound"),
        (lambda: models.DuRNN(2, 4, length=5, u_max="1"), ValueError, "u_max='1' is not an upper bound"),
        (lambda: models.IndRNN(2, 4, 2, length=5, u_max=[1.0, float("nan")]), ValueError, "is not an upper bound"),
    ],
)
def test_bad_options_get_one_clear_sentence(call, kind, message):
    with pytest.raises(kind, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("hidden_size", "state", "kind", "message"),
    [
        (4, (None, None), TypeError, r"takes state \(h, c\), each \(1, 3, 4\) torch.float32; got \(None, None\)"),
        (4, 7, TypeError, "got int"),
        (4, (torch.zeros(1, 3, 4),), ValueError, "takes state"),
        (4, (torch.zeros(1, 3, 4), torch.zeros(1, 3, 4).double()), ValueError, "torch.float64"),
        (4, (torch.zeros(1, 3, 4), torch.zeros(1, 3, 4).long()), ValueError, "torch.int64"),
        ([4, 5], (torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)), ValueError, r"each \(\(3, 4\), \(3, 5\)\)"),
        ([4, 5], ((torch.zeros(3, 4), torch.zeros(3, 4)),) * 2, ValueError, r"each \(\(3, 4\), \(3, 5\)\)"),
    ],
)
def test_bad_states_get_one_clear_sentence(hidden_size, state, kind, message):
    with pytest.raises(kind, match=message) as error:
        models.LSTM(2, hidden_size)(torch.zeros(5, 3, 2), state)
    assert "\n" not in str(error.value)


def test_a_skeleton_model_is_built_for_skeletons(monkeypatch):
    monkeypatch.setattr(models.registry.ZOO, "entries", dict(models.registry.ZOO.entries))
    models.register("bones", needs=["skeleton"])(models.RNN)
    models.register("words", needs=["symbols"])(models.RNN)
    assert example("bones").input_size == 150
    x = example_input("words", example("words", 7), 5, 3)
    assert x.shape == (5, 3, 7)
    assert torch.equal(x.sum(-1), torch.ones(5, 3))


def test_the_registry_refuses_what_is_not_there(monkeypatch):
    monkeypatch.setattr(models.registry.ZOO, "entries", dict(models.registry.ZOO.entries))
    with pytest.raises(ValueError, match=r"cannot need 'lenght' \(did you mean 'length'"):
        models.register("mine", needs=["lenght"])(models.RNN)
    with pytest.raises(ValueError, match="RNN has no option 'gates'"):
        models.register("mine", gates=3)(models.RNN)
    assert "mine" not in models.names()
    with pytest.raises(ValueError, match="no model 'mine'"):
        models.needs("mine")


def test_presets_are_defaults_and_what_a_name_states_is_fixed():
    assert models.options("rnn-relu")["W_rec_init"] == "orthogonal-0.9"
    assert models.options("rnn-tanh")["W_rec_init"] == "orthogonal"
    assert "nonlinearity" not in models.options("rnn-relu")
    net = models.build("rnn-relu", 2, 4, W_rec_init="identity")
    assert net.cells[0].nonlinearity == "relu"
    assert torch.equal(net.cells[0].W_rec, torch.eye(4))
    shared = {"length", "batch_first", "norm", "dropout", "backend", "start", "start_noise", "seed", "device", "dtype"}
    for name in models.names():
        assert shared <= set(models.options(name))
    assert models.options("lstm")["dropout"] == 0.0
    assert models.options("lstm")["backend"] == "auto"
