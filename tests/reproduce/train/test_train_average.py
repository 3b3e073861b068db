"""The part ``average``: what is scored and reported is a running mean of the weights, and training does not notice."""

import pytest
import torch
from run_samples import StopAt, make_place, make_run, outcome_of

from reproduce.train import checkpoint
from reproduce.train.loop import Training, train


def averaged(**changes):
    plain = {"training": {"updates": 60}, "schedule": {"name": "constant"}, "average": {"decay": 0.5}}
    return make_run(**(plain | changes))


def test_the_mean_is_that_of_the_formula():
    training = Training(averaged(), backend="reference")
    parameters = dict(training.network.named_parameters())
    means = {name: p.detach().clone() for name, p in parameters.items()}
    for step in range(1, 13):
        training.update()
        keep = min(0.5, (1 + step) / (10 + step))  # 2/11, 3/12, … up to the decay
        for name, p in parameters.items():
            means[name] = keep * means[name] + (1 - keep) * p.detach()
    for name, mean in training.average.means.items():
        torch.testing.assert_close(mean, means[name])
    assert not torch.equal(means["readout.head.weight"], parameters["readout.head.weight"])


def test_scoring_the_mean_leaves_the_training_as_it_was():
    """Same batches, masks and weights; only what is evaluated differs."""
    found = []
    for run in (averaged(average=None), averaged()):
        found.append(Training(run, backend="reference"))
        for _ in range(3):
            for _ in range(7):
                found[-1].update()
            found[-1].evaluate()
    plain, mean = found
    for ours, theirs in zip(mean.network.parameters(), plain.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert [p["train_loss"] for p in mean.curve] == [p["train_loss"] for p in plain.curve]
    assert [p["valid"] for p in mean.curve] != [p["valid"] for p in plain.curve]


def test_the_mean_is_what_is_reported(tmp_path):
    run, place = averaged(evaluation={"every": 60}), make_place(tmp_path)
    done = train(run, place)
    training = Training(run, backend="reference")
    for _ in range(60):
        training.update()
    weights = checkpoint.load_weights(run.folder(place.runs), done.record.weights_sha256)
    for name, mean in training.average.means.items():
        assert torch.equal(weights[name], mean), name


@pytest.mark.parametrize("limit", [1, 20, 33])
def test_a_stopped_run_goes_on_with_the_same_mean(tmp_path, monkeypatch, limit):
    run, place = averaged(), make_place(tmp_path / "stopped")
    whole = train(run, make_place(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        assert train(run, place, stop=StopAt(patch, limit)).status == "unfinished"
    assert outcome_of(train(run, place)) == outcome_of(whole)
