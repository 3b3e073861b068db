"""Metrics: every sample weighs the same, padding weighs nothing, NaN is not hidden."""

import math

import pytest
import torch
from torch.nn import functional

from tasks.meters import IGNORE, METERS, Accuracy, BitsPerCharacter, Error, MeanSquaredError


def test_ragged_batches_weigh_by_their_samples() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(11, 1), torch.randn(11, 1)
    meter = MeanSquaredError()
    for rows in (slice(0, 8), slice(8, 11)):
        meter.update(outputs[rows], y[rows])
    assert meter.count == 11
    assert meter.value() == pytest.approx(float(functional.mse_loss(outputs, y)), rel=1e-6)


def test_error_and_accuracy_add_up() -> None:
    logits = torch.eye(4)[[0, 1, 2, 3, 0]]
    y = torch.tensor([0, 1, 2, 0, 1])
    padded = torch.full((3,), IGNORE)
    error, accuracy = Error(), Accuracy()
    for meter in (error, accuracy):
        meter.update(logits[:2], y[:2])
        meter.update(logits[2:], y[2:])
        meter.update(logits[:3], padded)
    assert accuracy.value() == pytest.approx(60.0)
    assert error.value() == pytest.approx(40.0)


def test_bits_per_character_ignores_padding() -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 3, 50)
    y = torch.randint(50, (6, 3))
    y[4:, 2] = IGNORE
    meter = BitsPerCharacter()
    meter.update(logits[:4], y[:4])
    meter.update(logits[4:], y[4:])
    kept = y != IGNORE
    expected = float(functional.cross_entropy(logits[kept], y[kept])) / math.log(2)
    assert meter.count == 16
    assert meter.value() == pytest.approx(expected, rel=1e-6)
    uniform = BitsPerCharacter()
    uniform.update(torch.zeros(6, 3, 50), y)
    assert uniform.value() == pytest.approx(math.log2(50), rel=1e-6)


@pytest.mark.parametrize("name", METERS)
def test_nan_outputs_give_nan(name: str) -> None:
    regression = name == "mse"
    outputs = torch.ones(4, 1) if regression else torch.randn(2, 2, 5) if "bits" in name else torch.randn(4, 5)
    y = torch.ones(4, 1) if regression else torch.zeros(outputs.shape[:-1], dtype=torch.int64)
    outputs.view(-1)[0] = math.nan  # the right class of a sample: an argmax would call it correct
    meter = METERS[name]()
    meter.update(outputs, y)
    assert math.isnan(meter.value())


@pytest.mark.parametrize("name", METERS)
def test_shapes_that_would_broadcast_are_refused(name: str) -> None:
    meter = METERS[name]()
    with pytest.raises(ValueError, match="outputs"):
        meter.update(torch.zeros(4, 1, 1), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="before its first update"):
        meter.value()


def test_directions() -> None:
    better = {name for name, meter in METERS.items() if meter.higher_is_better}
    assert better == {"accuracy_percent"}
