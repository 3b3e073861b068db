import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models import inputs
from models.base import decayed_parameters

SYMBOLS = torch.tensor([[0, 3], [2, 1], [4, 4]])  # (T, B)


def test_one_hot_is_one_unit_per_symbol():
    part = inputs.build("one-hot", 5)
    assert (part.size, part.takes_symbols) == (5, True)
    assert torch.equal(part(SYMBOLS, None), F.one_hot(SYMBOLS, 5).float())
    assert part.double()(SYMBOLS).dtype == torch.float64
    assert list(part.state_dict()) == []


def test_embedding_draws_as_nn_embedding_filled_uniformly():
    torch.manual_seed(3)
    part = inputs.build("embedding", 5, size=7, range=0.1)
    after = torch.rand(1)
    torch.manual_seed(3)
    expected = nn.Embedding(5, 7)
    nn.init.uniform_(expected.weight, -0.1, 0.1)
    assert torch.equal(after, torch.rand(1))
    assert torch.equal(part.embedding.weight, expected.weight)
    assert torch.equal(part(SYMBOLS, None), expected(SYMBOLS))
    assert (part.size, part.takes_symbols) == (7, True)
    assert inputs.options("embedding") == {"size": ..., "range": 0.04}


def test_the_embedding_decays():
    part = inputs.build("embedding", 5, size=7)
    assert decayed_parameters(part) == [part.embedding.weight]


def test_noise_is_gaussian_where_a_value_is_and_only_in_training():
    torch.manual_seed(0)
    part, x = inputs.build("noise", 150, deviation=0.075), torch.randn(40, 30, 150)
    x[:, :, 75:] = 0.0
    noise = part(x) - x
    assert not noise[:, :, 75:].any()
    assert noise[:, :, :75].std().item() == pytest.approx(0.075, rel=0.01)
    assert noise.mean().item() == pytest.approx(0.0, abs=1e-3)
    assert not torch.equal(noise[0], noise[1])
    assert part.eval()(x) is x
    assert inputs.build("noise", 150, deviation=0.0)(x) is x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inputs.build("onehot", 5), r"no input 'onehot' \(did you mean 'one-hot'"),
        (lambda: inputs.build("embedding", 5), "Input 'embedding' needs the option 'size'"),
        (lambda: inputs.build("one-hot", 5, size=3), "Input 'one-hot' has no option 'size'"),
        (lambda: inputs.build("noise", 5, deviation=-1), "deviation=-1 is not a standard deviation"),
    ],
)
def test_bad_inputs_get_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", inputs.names())
def test_every_input_gives_its_size_to_the_model(name):
    given = {"size": 6, "deviation": 0.1}
    needed = {option: given[option] for option, default in inputs.options(name).items() if default is ...}
    part = inputs.example(name, 5, **needed)
    x = SYMBOLS if part.takes_symbols else torch.randn(3, 2, part.input_size)
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    y = part(x, mask)
    assert y.shape == (len(part.mask(mask)), 2, part.size)
    assert part.mask(mask).dtype == torch.bool
    assert part.mask(None) is None
    decayed_parameters(part)
