"""The formulas of §IV-B against hand values, and networks against the formulas."""

import math

import pytest
import torch

import models
from reproduce.plan.sentences import Bound
from reproduce.report import measurements, theory
from reproduce.report.measurements import Measurement
from reproduce.train.outcome import Place


@pytest.mark.parametrize(("length", "amplification"), [(1, 2.0), (20, 29.357), (784, 1131.57), (5000, 7213.98)])
def test_amplification_by_hand(length, amplification):
    at = theory.line(length)
    assert at.amplification == pytest.approx(amplification, rel=1e-5)
    assert at.amplification == pytest.approx(length / math.log(2) + 0.5, rel=0.04)  # first terms of its series
    assert at.delta**length == pytest.approx(0.5)
    assert at.u_low**length == pytest.approx(0.5)
    assert at.u_high**length == pytest.approx(2.0)
    assert theory.line(length, s=3.0).bound == pytest.approx(6 * amplification, rel=1e-5)


def test_geometric_sum_is_what_adding_up_gives():
    at = theory.line(50)
    assert at.geometric_sum == pytest.approx(sum(at.delta**k for k in range(51)))
    assert at.geometric_sum < at.amplification


def test_a_sequence_has_at_least_one_step():
    with pytest.raises(ValueError, match="at least one step, not 0"):
        theory.line(0)


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ({"quantity": "delta", "lengths": [20, 5000], "constant": True}, "contradicted"),
        ({"quantity": "amplification", "lengths": [784, 5000], "constant": True}, "contradicted"),
        ({"quantity": "amplification", "lengths": [784], "constant": True}, "supported"),
        ({"quantity": "geometric sum", "lengths": [20, 784], "below": "amplification"}, "supported"),
        ({"quantity": "amplification", "lengths": [20, 784], "below": "geometric sum"}, "contradicted"),
        ({"quantity": "delta", "lengths": [20, 784], "below": 0.99}, "contradicted"),
        ({"quantity": "adding chance", "lengths": [100], "equal": 0.167}, "supported"),
        ({"quantity": "adding chance", "lengths": [100], "equal": 0.2}, "contradicted"),
    ],
)
def test_bounds_are_judged_by_computation(rule, word):
    verdict, found = theory.judge_bound(Bound(kind="bound", **rule))
    assert verdict.word == word
    assert list(found) == rule["lengths"]


@pytest.fixture(scope="module")
def fresh():
    return theory.subject("adding", "durnn", "adding-100", [], Place())


def test_an_untrained_network_says_so_and_keeps_to_the_bounds(fresh):
    assert fresh.origin == "freshly initialised, not trained"
    found = theory.gradients(fresh.network.model, fresh.x, [0, 1, 10, 99])
    assert [g.lag for g in found] == [0, 1, 10, 99]
    for g in found:
        assert 0 < g.long <= g.long_ceiling * (1 + 1e-5)
        assert 0 < g.short <= g.bound
    assert found[0].long == 1.0


def test_the_page_shows_formulas_and_measurements(fresh):
    found = theory.gradients(fresh.network.model, fresh.x, [1])
    text = theory.markdown(theory.formulas(), found, fresh.origin)
    assert "| 784 | 0.999116 | 1,131.6 |" in text
    assert "freshly initialised" in text
    assert text == theory.markdown(theory.formulas(), found, fresh.origin)


def test_measured_values_of_a_network(fresh):
    values = measurements.activation_values(fresh.network, fresh.x)
    assert set(values) == {
        f"1-{half}/{name}"
        for half in ("full", "independent")
        for name in ("share_active", "share_lasting", "roughness")
    }
    assert all(
        0 <= values[f"1-{half}/share_lasting"] <= values[f"1-{half}/share_active"] for half in ("full", "independent")
    )
    gradient = measurements.gradient_values(fresh.network.model, fresh.x)
    assert set(gradient) == {"gradient/long", "gradient/short-over-bound", "gradient/short-after-a-tenth"}
    assert 0 < gradient["gradient/short-over-bound"] < 1


@pytest.mark.parametrize("ablation", [{"selection": False}, {"short": "independent"}])
def test_an_ablation_that_the_bound_does_not_speak_of_has_its_long_gradient_alone(ablation):
    net = models.build("durnn", input_size=2, hidden_size=6, length=10, seed=0, **ablation)
    assert set(measurements.gradient_values(net, torch.rand(10, 1, 2))) == {"gradient/long"}


def test_a_network_without_a_bound_is_measured_all_the_same(fresh, monkeypatch):
    monkeypatch.setattr(fresh.network.model.cells[0], "delta", 1.0)  # the row that the paper warns of
    gradient = measurements.gradient_values(fresh.network.model, fresh.x)
    assert gradient["gradient/short-over-bound"] == 0
    assert gradient["gradient/long"] > 0


def test_weights_that_keep_half_of_a_value_last():
    low = 0.5 ** (1 / 100)  # ε^(1/L)
    net = models.build("indrnn", input_size=2, hidden_size=4, num_layers=2, length=100, seed=0)
    with torch.no_grad():
        for cell, weights in zip(net.cells, ([low, -1.0, low - 1e-4, 0.0], [1.0, low, 1.0, low]), strict=True):
            cell.U.copy_(torch.tensor(weights))
    assert measurements.weight_values(net, 100) == {"1/weights_lasting": 0.5, "2/weights_lasting": 1.0}
    durnn = models.build("durnn", input_size=2, hidden_size=4, length=100, seed=0)
    assert measurements.weight_values(durnn, 100) == {"1-independent/weights_lasting": 1.0}  # it is held there


def test_a_constant_unit_lasts_and_a_flickering_one_does_not():
    class Stub:
        input = None

        class model:  # noqa: N801
            @staticmethod
            def traces(x):
                steps = torch.arange(10.0)
                flicker, late = 1 + steps % 2, (steps > 6).float()
                return [{"output": torch.stack([torch.ones(10), flicker, late, torch.zeros(10)], 1)[:, None]}]

    values = measurements.activation_values(Stub(), torch.zeros(10, 1, 1))
    assert values["1/share_active"] == 0.5  # the constant and the flickering one
    assert values["1/share_lasting"] == 0.25


def test_a_single_step_has_no_values(fresh):
    assert measurements.activation_values(fresh.network, fresh.x[:1]) == {}


def test_measurements_are_written_and_read(tmp_path):
    one = Measurement(run="a" * 64, weights_sha256="b" * 64, sequences=3, values={"1/roughness": 0.5})
    path = measurements.write(one, tmp_path)
    assert path.name == "aaaaaaaaaaaa.json"
    assert measurements.read_all(tmp_path) == [one]
    assert measurements.read_all(tmp_path / "none") == []
    path.write_text('{"run": "x"}')
    with pytest.raises(ValueError, match="aaaaaaaaaaaa"):
        measurements.read_all(tmp_path)
