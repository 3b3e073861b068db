"""The normalised LSTM's fused form against its reference. Batches are large enough that a norm's gradient, a difference
of like numbers, keeps its digits; the equations themselves are tested in tests/models/test_lstm_variants.py."""

import pytest
import torch
from kernels_ladder import Arguments, check, drawn_noise, everything, lstm_arguments, normal, uniform

import models
from models import kernels
from models.base import Cell
from models.kernels.recurrence import RECURRENCES

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4}
SIZES = [(1, 8, 7), (5, 33, 33), (12, 10, 100), (3, 100, 128), (4, 16, 3)]
FORMS = ["plain", "noise", "rates", "given"]


def arguments(T: int, B: int, N: int, dtype: torch.dtype = torch.float64) -> Arguments:
    g = torch.Generator().manual_seed(0)
    drawn = lstm_arguments(T, B, N, g)
    drawn |= {"b": normal(g, 4 * N) / 2, "scales": 0.2 + uniform(g, 9 * N), "shift": normal(g, N) / 2}
    order = ("u", "W_rec", "b", "scales", "shift", "h0", "c0")
    return {name: drawn[name].to(dtype) for name in order}


def options(form: str, given: Arguments) -> dict[str, torch.Tensor]:
    if form == "noise":
        return drawn_noise(given)
    if form == "rates":
        return {"rates": torch.tensor([0.3, 0.15, 0.4], dtype=given["u"].dtype)}
    if form == "given":
        T, N = given["u"].shape[0], given["h0"].shape[1]
        g = torch.Generator().manual_seed(1)
        return {"given": torch.stack([normal(g, T, 9 * N), 0.3 + uniform(g, T, 9 * N)], dim=1).to(given["u"].dtype)}
    return {}


def outputs(backend: str, extra: dict[str, torch.Tensor]):
    """Without the statistics, which have no gradient."""
    return lambda **leaves: kernels.normed_lstm_scan(**leaves, **extra, backend=backend)[:3]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_fused_equals_reference(size, form):
    exact = arguments(*size)
    expected = everything(outputs("reference", options(form, exact)), exact)
    for dtype, tolerance in TOLERANCE.items():
        given = arguments(*size, dtype)
        check(everything(outputs("fused", options(form, given)), given), expected, tolerance)
        seen = kernels.normed_lstm_scan(**given, **options(form, given), backend="fused")[3]
        right = kernels.normed_lstm_scan(**exact, **options(form, exact), backend="reference")[3]
        check({"statistics": seen}, {"statistics": right}, tolerance)
        assert not seen.requires_grad


@pytest.mark.parametrize("graded", ["the sequence", "the last states"])
def test_a_gradient_may_come_by_some_outputs_alone(graded):
    given = arguments(5, 9, 20)
    wanted = everything(outputs("reference", {}), given, graded=graded)
    check(everything(outputs("fused", {}), given, graded=graded), wanted, 1e-10)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, inside opcheck
def test_opcheck():
    given = {name: tensor.requires_grad_() for name, tensor in arguments(3, 8, 5, torch.float32).items()}
    torch.library.opcheck(torch.ops.durnn.normed_lstm_forward.default, (*given.values(), None, None, None))


def test_a_missing_form_is_named(monkeypatch):
    monkeypatch.setattr(RECURRENCES["normed_lstm"], "devices", ())
    with pytest.raises(RuntimeError, match="lacks a form of normed_lstm_scan for cpu"):
        kernels.normed_lstm_scan(**arguments(2, 8, 3), backend="fused")


@pytest.mark.parametrize("options", [{}, {"zoneout": (0.3, 0.2), "recurrent_dropout": 0.4}])
def test_a_model_learns_and_evaluates_as_in_the_loop(monkeypatch, options):
    """Outputs, and the running statistics of two batches, of which the second is shorter."""
    found = []
    for loop in (False, True):
        net = models.LSTM(3, 5, length=7, recurrent_norm="batch", dtype=torch.float64, seed=0, **options)
        with monkeypatch.context() as patched:
            if loop:
                patched.setattr(type(net.layers[0]), "scan", Cell.scan)
            torch.manual_seed(1)
            x = torch.randn(7, 9, 3, dtype=torch.float64)
            learned = [net(x)[0], net(x[:4])[0]]
            with torch.no_grad():
                evaluated = net.eval()(torch.cat([x, x]))[0]
        found.append([*learned, evaluated, *net.buffers()])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
