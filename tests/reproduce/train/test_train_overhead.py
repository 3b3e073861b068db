"""What an update takes besides its model: the arithmetic of the statement, and that every part is the loop's own."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from run_samples import make_run

from models.kernels.timing import Times
from reproduce.train import overhead
from reproduce.train.loop import Training
from reproduce.train.overhead import Overhead, parts_of

FOUND = Overhead(
    "durnn on adding",
    Times(
        {
            "update": [0.115] * 3, "model": [0.1] * 3, "batch": [0.001] * 3, "readout and loss": [0.002] * 3,
            "clipping": [0.0005] * 3, "optimiser": [0.0015] * 3, "projection": [0.01] * 3,
        },
        settled=True, others=0.3, stolen=0.0,
    ),
    evaluation=2.3, every=100,
)  # fmt: skip


def test_the_trainer_is_what_is_neither_model_nor_projection() -> None:
    assert FOUND.share == pytest.approx(0.05)
    assert FOUND.evaluation_share == pytest.approx(2.3 / (2.3 + 100 * 0.115))


def test_the_sentence_says_all_of_it_and_who_disturbed() -> None:
    said = FOUND.sentence()
    for words in (
        "an update takes 115.0 ms", "100.0 ms, the trainer adds 5.0%", "batch 1.0%, readout and loss 2.0%",
        "clipping 0.5%, optimiser 1.5%", "the projection 10.0%", "every 100 updates takes 16.7% of a run",
        "others used 30% of the processors",
    ):  # fmt: skip
        assert words in said, words


def test_it_survives_being_saved() -> None:
    saved = json.loads(json.dumps({"adding-100": asdict(FOUND)}))
    assert overhead.sentences(saved) == [FOUND.sentence()]


def test_every_part_runs_and_only_update_optimiser_and_projection_move_weights() -> None:
    training = Training(make_run(), backend="reference")
    parts = parts_of(training)
    assert set(overhead.SMALL) < set(parts)
    parts["update"]()
    for name, part in parts.items():
        before = [parameter.detach().clone() for parameter in training.network.parameters()]
        step = training.step
        part()
        after = list(training.network.parameters())
        moved = not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert moved == (name in ("update", "optimiser")) or name == "projection", name
        assert training.step == step + (name == "update")


def test_the_projection_finds_the_weights_of_an_update_every_time() -> None:
    training = Training(make_run(), backend="reference")
    seen: list[list[torch.Tensor]] = []
    project = training.network.constrain_

    def watch() -> None:
        seen.append([parameter.detach().clone() for parameter in training.network.parameters()])
        project()

    training.network.constrain_ = watch
    restore = overhead.before_projection(training)
    for _ in range(2):
        restore()
        training._constrain()
    assert len(seen) == 3  # one of them in the update
    for later in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], later, strict=True))
    step = training.step
    training.update()
    assert training.step == step + 1
    assert len(seen) == 4
