"""Noise and statistics inside a recurrence: they survive a stop bit by bit, and an evaluation treats them rightly."""

import copy

import pytest
import torch
from run_samples import StopAt, make_place, make_run

from reproduce.train.evaluation import norms_of, reestimate_statistics
from reproduce.train.loop import Training, train

OPTIONS = {
    "zoneout": {"zoneout": [0.3, 0.2]},
    "dropout per step": {"recurrent_dropout": 0.4},
    "dropout per sequence": {"recurrent_dropout": 0.4, "recurrent_dropout_per": "sequence"},
    "norm": {"recurrent_norm": "batch", "start": "learned", "start_noise": 0.1},
    "norm and zoneout": {"recurrent_norm": "batch", "zoneout": [0.3, 0.2], "start_noise": 0.1},
    "product": {"name": "durnn", "norm": "frame", "second_norm": "product", "dropout": [0.3, 0.2]},
}


def changes(kind, updates=24):
    model = {"name": "lstm", "hidden_size": 6, "num_layers": 2} | OPTIONS[kind]
    return {"model": model, "training": {"updates": updates}, "evaluation": {"every": 8}}


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_a_run_that_was_stopped_goes_on_bit_by_bit(tmp_path, kind, backend):
    run = make_run(**changes(kind))
    whole = train(run, make_place(tmp_path / "whole", backend=backend)).record
    place = make_place(tmp_path / "stopped", backend=backend)
    for limit in (7, 17):
        with pytest.MonkeyPatch.context() as patch:
            assert train(run, place, stop=StopAt(patch, limit)).record.steps_done == limit
    resumed = train(run, place).record
    assert len(resumed.lineage) == 3
    for fact in ("test", "valid", "valid_step", "weights_sha256", "curve"):
        assert getattr(resumed, fact) == getattr(whole, fact), fact
    other = train(make_run(seed=1, **changes(kind)), make_place(tmp_path / "other", backend=backend)).record
    assert other.weights_sha256 != whole.weights_sha256


@pytest.mark.parametrize("kind", OPTIONS)
def test_an_evaluation_leaves_no_trace_in_the_training(kind):
    found = []
    for often in (True, False):
        training = Training(make_run(**changes(kind)), backend="reference")
        for _ in range(6):
            training.update()
            if often:
                training.evaluate()
        found.append(dict(training.network.named_parameters()))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize("kind", ["norm", "norm and zoneout", "product"])
def test_norms_inside_the_loop_are_re_estimated_as_a_plain_average(kind):
    """By a second network that meets the same batches one by one, each time from fresh statistics."""
    training = Training(make_run(**changes(kind)), backend="reference")
    for _ in range(4):
        training.update()
    network, task = training.network, training.task
    expected_kinds = 2 * (3 if "norm" in kind else 2)
    assert len(norms_of(network)) == expected_kinds
    before = [m.momentum for m in norms_of(network)]
    if "norm" in kind:
        for cell in network.model.layers:
            cell.start_noise = 0.0
    sums = None
    for number, (x, _) in enumerate(task.batches("train", 5, seed=1_000_003, epoch=0)):
        if number == 3:
            break
        single = copy.deepcopy(network).eval()
        for m in norms_of(single):
            m.reset_running_stats()
            m.momentum = 1.0
            m.train()
        with torch.no_grad():
            single(x)
        found = [torch.stack([m.running_mean, m.running_var]) for m in norms_of(single)]
        sums = found if sums is None else [a + b for a, b in zip(sums, found, strict=True)]
    reestimate_statistics(network, task, 5, 3, "cpu")
    for m, total in zip(norms_of(network), sums, strict=True):
        torch.testing.assert_close(torch.stack([m.running_mean, m.running_var]), total / 3)
        assert m.num_batches_tracked == 3
    assert [m.momentum for m in norms_of(network)] == before
    assert not any(part.training for part in network.modules())


def test_noise_on_the_initial_state_is_part_of_the_statistics():
    """Samples that begin alike have no variance of their own, and the weights have learned with the noise."""
    found = {}
    for noise in (0.1, 0.0):
        options = changes("norm")
        options["model"] = options["model"] | {"num_layers": 1, "start_noise": noise}
        training = Training(make_run(**options), backend="reference")
        before = torch.get_rng_state()
        reestimate_statistics(training.network, training.task, 5, 3, "cpu")
        assert torch.equal(torch.get_rng_state(), before), "an estimate drew from the training's generator"
        norm = training.network.model.layers[0].norm_h
        found[noise] = norm.running_var.view(norm.length, -1)[0].clone()
        reestimate_statistics(training.network, training.task, 5, 3, "cpu")
        assert torch.equal(found[noise], norm.running_var.view(norm.length, -1)[0])
    assert found[0.0].max() < 1e-10
    assert found[0.1].min() > 1e-5
