import pytest
import torch

import models
from models.kernels import bernoulli
from models.noise import PerStepDropout, StepNoise, TimeSharedDropout, UpdateDropout, Zoneout
from models.norms import FrameNorm


def test_dropout_keeps_one_mask_over_time_and_scales():
    torch.manual_seed(0)
    dropped = TimeSharedDropout(0.25)(torch.ones(6, 50, 40))
    assert torch.equal(dropped, dropped[:1].expand(6, -1, -1))
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not torch.equal(dropped[0, 0], dropped[0, 1])


def test_dropout_per_step_has_a_mask_for_each_step():
    torch.manual_seed(0)
    net = models.LSTM(2, 40, dropout=0.25, dropout_per="step")
    drop = net.layers[0].dropout
    dropped = drop(torch.ones(6, 50, 40, dtype=torch.float64))
    assert dropped.dtype == torch.float64
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (dropped == 0).double().mean(dim=(1, 2)).tolist() == pytest.approx([0.25] * 6, abs=0.03)
    agree = [(dropped[s] == dropped[t]).double().mean().item() for s in range(6) for t in range(s)]
    assert agree == pytest.approx([0.75**2 + 0.25**2] * 15, abs=0.05)


@pytest.mark.parametrize("kind", [TimeSharedDropout, PerStepDropout])
def test_dropout_is_the_identity_in_evaluation(kind):
    x = torch.randn(3, 2, 4)
    assert kind(0.9).eval()(x) is x
    assert kind(0.0)(x) is x


def test_durnn_drops_each_half_at_its_own_rate():
    layer = models.DuRNN(2, 4, length=5, dropout=(0.3, 0.25)).layers[0]
    assert (layer.dropout_short.p, layer.dropout.p) == (0.3, 0.25)
    assert not isinstance(layer.dropout, PerStepDropout)
    layer = models.DuRNN(2, 4, length=5, dropout=(0.3, 0.25), dropout_per="step").layers[0]
    assert all(isinstance(drop, PerStepDropout) for drop in (layer.dropout_short, layer.dropout))


@pytest.mark.parametrize("p", [0.05, 0.15, 0.5, 0.95])
def test_masks_are_independent_over_steps_samples_and_units(p):
    torch.manual_seed(0)
    noise = StepNoise(p, 40)
    noise.begin(30, 50)
    mask = noise.mask.double()
    assert mask.mean().item() == pytest.approx(p, abs=0.01)
    spread = (p * (1 - p)) ** 0.5
    for axes, count in (((1, 2), 2000), ((0, 2), 1200), ((0, 1), 1500)):  # each step, each sample, each unit
        assert (mask.mean(axes) - p).abs().max() < 5 * spread / count**0.5
    for shifted in (mask.roll(1, 0), mask.roll(1, 1), mask.roll(1, 2)):
        correlation = ((mask - p) * (shifted - p)).mean() / spread**2
        assert abs(correlation) < 5 / mask.numel() ** 0.5


def test_a_mask_per_sequence_is_constant_over_time_alone():
    torch.manual_seed(0)
    noise = StepNoise(0.5, 40, "sequence")
    noise.begin(30, 50)
    assert torch.equal(noise.mask, noise.mask[:1].expand(30, 50, 40))
    assert not torch.equal(noise.mask[0, 0], noise.mask[0, 1])
    assert torch.equal(noise.next_mask(), noise.next_mask())


@pytest.mark.parametrize("p", [1e-9, 0.15, 1.0])
def test_bernoulli_has_its_probability_for_odd_shapes_too(p):
    torch.manual_seed(0)
    drawn = bernoulli((7, 1001, 3), p)
    assert drawn.shape == (7, 1001, 3)
    assert drawn.dtype == torch.bool
    assert drawn.double().mean().item() == pytest.approx(p, abs=0.01 if p < 1 else 0)


def test_noise_that_is_off_draws_nothing():
    before = torch.get_rng_state()
    for noise in (StepNoise(0.0, 3), StepNoise(0.5, 3).eval()):
        noise.begin(4, 2)
        assert noise.mask is None
    assert torch.equal(torch.get_rng_state(), before)


def test_a_step_before_the_beginning_is_refused():
    with pytest.raises(RuntimeError, match=r"Zoneout has no mask; call begin\(T, B\)"):
        Zoneout(0.5, 3)(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="does not know which frame"):
        FrameNorm(3, 4)(torch.zeros(2, 3))


def test_a_step_of_each_noise():
    old, new = torch.zeros(2, 3), torch.ones(2, 3)
    zone, drop = Zoneout(0.25, 3), UpdateDropout(0.25, 3)
    for noise in (zone, drop):
        noise.begin(1, 2)
        noise.mask = torch.tensor([[True, False, False], [False, True, False]]).expand(1, 2, 3)
    expected = torch.tensor([[0.0, 1, 1], [1, 0, 1]])
    assert torch.equal(zone(old, new), expected)
    assert torch.equal(drop(new), expected), "nothing is scaled in training"
    assert torch.equal(zone.eval()(old, new), torch.full((2, 3), 0.75))
    assert torch.equal(drop.eval()(new), torch.full((2, 3), 0.75))
