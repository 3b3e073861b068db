import pytest
import torch
from torch import nn

import models
from models.norms import FrameNorm, SequenceNorm


def test_sequence_norm_uses_one_statistic_per_unit():
    x = torch.randn(7, 5, 3) * torch.tensor([1.0, 10.0, 0.1]) + 4
    y = SequenceNorm(3)(x)
    torch.testing.assert_close(y.mean((0, 1)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var((0, 1), unbiased=False), torch.ones(3), atol=1e-2, rtol=0)
    assert y.mean(1).abs().max() > 0.05, "single steps must not be normalised on their own"


def test_frame_norm_uses_one_statistic_per_unit_and_step():
    x = torch.randn(7, 50, 3) * torch.arange(1, 8).view(7, 1, 1) + torch.arange(7).view(7, 1, 1)
    y = FrameNorm(3, length=9)(x)
    torch.testing.assert_close(y.mean(1), torch.zeros(7, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(1, unbiased=False), torch.ones(7, 3), atol=1e-3, rtol=0)


def test_frame_norm_with_cumulative_average_evaluates_to_the_population():
    norm, x = FrameNorm(3, length=4), torch.randn(8, 4, 50, 3) * 5 + 2
    norm.momentum = None
    norm.reset_running_stats()
    for batch in x:
        norm(batch)
    norm.eval()
    population = x.transpose(0, 1).reshape(4, 400, 3)
    expected = (population - population.mean(1, keepdim=True)) / population.var(1, keepdim=True).sqrt()
    torch.testing.assert_close(norm(population), expected, rtol=0.02, atol=0.02)


def test_frame_norm_reuses_the_last_step_past_its_length():
    norm = FrameNorm(2, length=3)
    for _ in range(200):
        norm(torch.randn(3, 30, 2) + torch.tensor([0.0, 10.0, 20.0]).view(3, 1, 1))
    y = norm.eval()(torch.full((5, 1, 2), 20.0))
    torch.testing.assert_close(y[2:], torch.zeros(3, 1, 2), atol=0.3, rtol=0)
    assert (y[0] > 10).all()


def test_norms_refuse_what_has_no_statistics():
    with pytest.raises(ValueError, match="one step of one sample"):
        SequenceNorm(3)(torch.zeros(1, 1, 3))
    with pytest.raises(ValueError, match="batch of one"):
        FrameNorm(3, 5)(torch.zeros(5, 1, 3))
    with pytest.raises(ValueError, match="length=5 steps and got 6"):
        FrameNorm(3, 5)(torch.zeros(6, 2, 3))


@pytest.mark.parametrize(
    ("norm", "before", "between", "after"),
    [
        (None, nn.Identity, nn.Identity, nn.Identity),
        ("after", nn.Identity, SequenceNorm, SequenceNorm),
        ("frame", FrameNorm, FrameNorm, nn.Identity),
        ("sequence", SequenceNorm, SequenceNorm, nn.Identity),
        ("sequence+after", SequenceNorm, SequenceNorm, SequenceNorm),
    ],
)
def test_places_of_the_norms_in_durnn(norm, before, between, after):
    layer = models.DuRNN(2, 4, length=5, norm=norm).layers[0]
    assert (type(layer.before), type(layer.between), type(layer.after)) == (before, between, after)


def test_norm_after_acts_on_outputs_and_not_on_states():
    torch.manual_seed(0)
    x = torch.randn(30, 20, 2) + 1
    plain, normed = (models.IndRNN(2, 6, length=30, seed=0, norm=norm) for norm in (None, "after"))
    y, state = plain(x)
    y_normed, state_normed = normed(x)
    assert torch.equal(state, state_normed)
    torch.testing.assert_close(y_normed, SequenceNorm(6)(y))


def test_frame_by_frame_is_the_whole_sequence():
    torch.manual_seed(0)
    whole, frames = FrameNorm(3, 5, scale=0.1).double(), FrameNorm(3, 5, scale=0.1).double()
    for _ in range(2):
        x = torch.randn(4, 6, 3, dtype=torch.float64) * 3 + 1
        frames.begin(4, 6)
        torch.testing.assert_close(torch.stack([frames(x_t) for x_t in x]), whole(x))
    torch.testing.assert_close(frames.state_dict(), whole.state_dict())
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    whole.eval()
    frames.eval().begin(7, 2)
    torch.testing.assert_close(torch.stack([frames(x_t) for x_t in x]), whole(x))


def test_frame_by_frame_refuses_what_the_whole_sequence_refuses():
    with pytest.raises(ValueError, match="batch of one"):
        FrameNorm(3, 5).begin(5, 1)
    with pytest.raises(ValueError, match="length=5 steps and got 6"):
        FrameNorm(3, 5).begin(6, 2)


def test_a_norm_without_shift_has_none():
    norm = FrameNorm(3, 5, scale=0.5, shift=False, momentum=0.2)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]
    assert norm.momentum == 0.2
    torch.testing.assert_close(
        norm(torch.randn(5, 50, 3)).var(1, unbiased=False), torch.full((5, 3), 0.25), atol=1e-3, rtol=0
    )
