"""Parts and cells by themselves: what decays, what is collected, how options are declared."""

import copy

import pytest
import torch
from torch import nn

import models
from models.base import Cell, Part, Slot, decayed_parameters, declared_options

DECAYED = {
    "rnn-tanh": {"W_in"},
    "rnn-relu": {"W_in"},
    "rnn-trec": {"W_in"},
    "irnn": {"W_in"},
    "urnn": {"V"},
    "mrnn": {"W_hx"},
    "lstm": {"W_in"},
    "gru": {"W_in"},
    "indrnn": {"W_in"},
    "durnn": {"W_in", "W_s"},
}


def decayed_names(module):
    ids = set(map(id, decayed_parameters(module)))
    return [name for name, parameter in module.named_parameters() if id(parameter) in ids]


@pytest.mark.parametrize("name", DECAYED)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_exactly_these_weights_decay(name, num_layers):
    net = models.build(name, 2, 4, num_layers, length=5, norm="frame+after", start="learned")
    expected = {f"layers.{layer}.{leaf}" for layer in range(num_layers) for leaf in DECAYED[name]}
    assert set(decayed_names(net)) == expected


def test_ablations_of_durnn_decay_what_they_have():
    net = models.DuRNN(2, 4, length=5, selection=False)
    assert decayed_names(net) == ["layers.0.W_in", "layers.0.W_s"]
    net = models.DuRNN(2, 4, length=5, short="independent")
    assert decayed_names(net) == ["layers.0.W_in", "layers.0.W_s"]


class Leaf(Part):
    decayed = ("W", "inner.weight")
    penalty_names = ("size",)

    def __init__(self):
        super().__init__()
        self.W, self.inner, self.limits = nn.Parameter(torch.ones(2)), nn.Linear(2, 2), 0

    def forward(self):
        self.collect("size", self.W.sum())

    def constrain_(self):
        self.limits += 1


class Nested(Part):
    def __init__(self):
        super().__init__()
        self.leaves = nn.ModuleList([nn.Sequential(Leaf()), Leaf()])
        self.shared = self.leaves[1]


def test_parts_are_found_wherever_they_stand_and_parameters_once():
    module = nn.Sequential(nn.Linear(1, 1), Nested())
    assert decayed_names(module) == [f"1.leaves.{n}.{leaf}" for n in ("0.0", "1") for leaf in ("W", "inner.weight")]
    assert len(decayed_parameters(module)) == 4


def test_a_kernel_projects_its_input_unless_the_matrix_is_large_or_a_norm_follows_it():
    def inside(*sizes, **options):
        return models.build("lstm", *sizes, **options).cells[-1].projects_inside

    assert inside(1, 8)
    assert inside(50, 2000)
    assert inside(8, 8, 3)
    assert not inside(600, 600)
    assert not inside(1, 8, norm="frame", length=5)
    assert inside(1, 8, norm="after")


def test_a_decayed_name_without_a_parameter_is_an_error():
    part = Leaf()
    part.decayed = ("w",)
    with pytest.raises(ValueError, match=r"Leaf\.decayed names 'w', which is none of its parameters"):
        decayed_parameters(nn.Sequential(part))


def test_penalties_and_constraints_reach_the_parts_inside():
    part = Nested()
    for leaf in (part.leaves[0][0], part.leaves[1]):
        leaf()
    assert part.penalties()["size"].item() == 4, "a part that stands in two places counts once"
    part.constrain_()
    assert [leaf.limits for leaf in (part.leaves[0][0], part.leaves[1])] == [1, 1]


def test_a_collected_penalty_does_not_stand_in_the_way_of_a_copy():
    part = Leaf()
    part()
    assert copy.deepcopy(part).penalties() == {}
    assert part.penalties()["size"].requires_grad


def test_a_penalty_without_a_declared_name_is_refused():
    with pytest.raises(ValueError, match="penalty 'sise'"):
        Leaf().collect("sise", torch.zeros(()))


def test_a_cell_without_its_equations_cannot_be_built():
    class Empty(Cell):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Empty(Slot(2, 4))


def test_a_cell_stands_by_itself():
    cell = models.LSTM.cell(Slot(2, 4), forget_bias=2.0)
    y, (h, c) = cell(torch.randn(5, 3, 2))
    assert torch.equal(y[-1], h)
    assert c.shape == (3, 4)


@pytest.mark.parametrize(("name", "keeps"), [("lstm", 1), ("gru", 1), ("mingru", 0)])
def test_chrono_spreads_the_memories_over_the_length(name, keeps):
    gates = list(models.build(name, 1, 4000, chrono=100, seed=0).layers[0].b.detach().split(4000))
    b = gates.pop(keeps)
    memory = 1 + torch.exp(-b if name == "mingru" else b)  # steps that a state is kept for where x and h are 0
    assert 2 <= memory.min() < 3
    assert 98 < memory.max() <= 100
    assert abs(memory.mean() - 51) < 2
    if name == "lstm":
        assert torch.equal(gates.pop(0), -b)
    assert not any(gate.any() for gate in gates)


@pytest.mark.parametrize("name", ["lstm", "gru", "mingru"])
@pytest.mark.parametrize("chrono", [2, 7.5, True])
def test_chrono_is_a_number_of_steps(name, chrono):
    with pytest.raises(ValueError, match=f"chrono={chrono} is neither 0 nor") as error:
        models.build(name, 1, 4, chrono=chrono)
    assert "\n" not in str(error.value)


def test_noise_that_would_act_on_nothing_is_refused():
    class Voiceless(models.RNN.cell):
        noisy = ("v",)

    assert Voiceless(Slot(2, 4)).initial(3)[0].shape == (3, 4)
    with pytest.raises(ValueError, match="Voiceless has no state v for start_noise"):
        Voiceless(Slot(2, 4, start_noise=0.1))


def test_options_are_those_of_the_signature_and_of_the_base_that_takes_the_rest():
    class Base:
        def __init__(self, place, *, one=1, two):
            pass

    class Derived(Base):
        def __init__(self, place, *, one=3, four=4, **rest):
            super().__init__(place, one=one, **rest)

    assert declared_options(Base) == {"one": 1, "two": ...}
    assert declared_options(Derived) == {"one": 3, "four": 4, "two": ...}


def test_a_cell_may_not_declare_what_every_model_has():
    class Clash(models.LSTM.cell):
        def __init__(self, slot, *, norm="layer"):
            super().__init__(slot)

    with pytest.raises(TypeError, match="Clash declares norm"):
        type("ClashNet", (models.Stack,), {"cell": Clash})


def test_the_docstring_of_a_model_tells_its_options():
    for option in models.DuRNN.options():
        if option in declared_options(models.DuRNN.cell):
            assert option in models.DuRNN.__doc__, option


def test_durnn_traces_its_halves():
    net = models.DuRNN(2, 4, 2, length=6, norm="after", seed=0).eval()
    x = torch.randn(6, 3, 2)
    first, last = net.traces(x)
    assert list(first) == list(last) == ["full half", "independent half"]
    _, (h_short, _) = net(x)
    assert torch.equal(torch.stack([first["full half"][-1], last["full half"][-1]]), h_short)
    assert list(models.DuRNN(2, 4, length=6, short="independent").traces(x)[0]) == ["short half", "independent half"]
    assert list(models.LSTM(2, 4).traces(x)[0]) == ["output"]


def test_indrnn_plus_selection_is_a_two_layer_indrnn_but_for_the_selection():
    """With an open selection, the same weights give the same numbers, and both have the same bounds."""
    torch.manual_seed(0)
    two = models.IndRNN(2, 5, num_layers=2, length=9).double()
    ablation = models.DuRNN(2, 5, length=9, short="independent", selection=False).double()
    (one,), (first, second) = ablation.layers, two.layers
    for ours, theirs in (
        (one.W_in, first.W_in), (one.b_short, first.b), (one.U_short, first.U),
        (one.W_s, second.W_in), (one.b_long, second.b), (one.U, second.U),
    ):  # fmt: skip
        ours.data = theirs.data.clone().uniform_(-3, 3)
        theirs.data = ours.data.clone()
    two.constrain_()
    ablation.constrain_()
    torch.testing.assert_close(one.U_short, first.U)
    torch.testing.assert_close(one.U, second.U)
    assert one.U.min() < 0, "the bound is on the absolute value"
    x = torch.randn(9, 4, 2, dtype=torch.float64)
    torch.testing.assert_close(ablation(x)[0], two(x)[0])


def test_an_initialiser_may_be_divided_by_the_length():
    for length in (10, 1000):
        whole = models.DuRNN(2, 8, length=length, seed=0, W_s_init="kaiming").layers[0].W_s
        part = models.DuRNN(2, 8, length=length, seed=0, W_s_init="kaiming/L").layers[0].W_s
        torch.testing.assert_close(part * length, whole)
    with pytest.raises(ValueError, match="W_in_init='glorot/L' is divided by the number of steps and needs length"):
        models.LSTM(2, 8, W_in_init="glorot/L")
    with pytest.raises(ValueError, match="W_in_init='glorott'"):
        models.LSTM(2, 8, W_in_init="glorott/L")


def test_first_output_of_durnn_is_of_order_one_at_any_length():
    """W_s is divided by the length because the long half sums what the selection passes on."""
    sizes = []
    for length in (50, 500, 2000):
        x = torch.rand(length, 4, 2, generator=torch.Generator().manual_seed(0))
        net = models.DuRNN(2, 64, length=length, seed=0, W_s_init="kaiming/L")
        sizes.append(net(x)[0][-1].abs().max().item())
    assert all(0.01 < size < 10 for size in sizes), sizes
