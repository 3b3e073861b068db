"""Metrics: every sample weighs the same, padding weighs nothing, NaN is not hidden."""

import math

import pytest
import torch
from torch.nn import functional

import tasks
from tasks.meters import (
    IGNORE,
    METERS,
    Accuracy,
    AveragedAccuracy,
    BitsPerCharacter,
    Error,
    MeanSquaredError,
    constant_answer,
)


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


@pytest.mark.parametrize("steps", [1, 7])
def test_a_text_of_one_sample_counts_its_characters(steps: int) -> None:
    meter = BitsPerCharacter()
    y = torch.arange(steps)[:, None]
    meter.update(torch.zeros(steps, 1, 50), y)
    assert meter.count == steps
    padded = y.clone()
    padded[-1] = IGNORE
    meter.update(torch.zeros(steps, 1, 50), padded)
    assert meter.count == 2 * steps - 1
    assert meter.value() == pytest.approx(math.log2(50), rel=1e-6)


@pytest.mark.parametrize("samplings", [1, 2, 5])
def test_several_samplings_count_their_clip_once(samplings: int) -> None:
    meter = AveragedAccuracy()
    for clips in (4, 1):  # the last batch may hold a single clip
        y = torch.full((clips, samplings), IGNORE)
        y[:, 0] = torch.arange(clips)
        meter.update(torch.randn(clips * samplings, 6), y.flatten())
    assert meter.count == 5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adding", {"length": 5, "held_out": 37}),
        ("mnist-synthetic", {}),
        ("ptb-c-synthetic", {}),
        ("ptb-c-synthetic", {"segments": "independent"}),
        ("ntu-cs-synthetic", {"performances": 2}),
        ("ntu-cs-synthetic", {"performances": 2, "test_samplings": 3}),
        ("ntu-cs-synthetic", {"performances": 2, "frames": "whole", "length": 300}),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 16])
def test_an_evaluation_counts_every_sample_of_a_split_once(
    name: str, options: dict[str, object], batch_size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DURNN_CACHE", str(tmp_path_factory.getbasetemp() / "meters"))
        task = tasks.build(name, **options)
    for split in ("valid", "test"):
        if batch_size == 1 and task.batches_per_epoch(split, 1) > 1000:
            continue
        meter = task.meter()
        for batch in task.batches(split, batch_size):
            _, y, _ = tasks.unpack(batch)
            outputs = torch.zeros_like(y) if task.kind == "regression-last" else torch.zeros(*y.shape, task.output_size)
            meter.update(outputs, y)
        assert meter.count == task.count(split)


def test_constant_answers():
    labels = torch.tensor([0, 1, 1, 1, 2, 2, 0, 1])
    assert constant_answer("accuracy_percent", labels) == 50.0
    assert constant_answer("error_percent", labels) == 50.0
    assert constant_answer("bits_per_character", labels) == pytest.approx(1.5)
    assert constant_answer("mse", torch.tensor([0.0, 2.0])) == 1.0


def test_chance_of_a_task_is_what_a_constant_network_scores():
    adding = tasks.build("adding", length=5, held_out=2000)
    assert adding.chance == pytest.approx(1 / 6, rel=0.1)
    standin = tasks.build("ptb-c-synthetic")
    meter = standin.meter()
    batch = list(standin.batches("test", 64))
    counts = torch.bincount(torch.cat([y[y != tasks.IGNORE] for _, y in batch]), minlength=standin.output_size)
    logits = (counts / counts.sum()).clamp(min=1e-12).log()
    for _, y in batch:
        meter.update(logits.expand(*y.shape, -1), y)
    assert standin.chance == pytest.approx(meter.value(), rel=1e-5)
