import pytest
import torch

import models
from models.noise import TimeSharedDropout


def test_dropout_keeps_one_mask_over_time_and_scales():
    torch.manual_seed(0)
    dropped = TimeSharedDropout(0.25)(torch.ones(6, 50, 40))
    assert torch.equal(dropped, dropped[:1].expand(6, -1, -1))
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not torch.equal(dropped[0, 0], dropped[0, 1])


def test_dropout_is_the_identity_in_evaluation():
    x = torch.randn(3, 2, 4)
    assert TimeSharedDropout(0.9).eval()(x) is x


def test_durnn_drops_each_half_at_its_own_rate():
    layer = models.DuRNN(2, 4, length=5, dropout=(0.3, 0.25)).layers[0]
    assert (layer.dropout_short.p, layer.dropout.p) == (0.3, 0.25)
