import pytest
import torch

import models
from models import eigen
from models.constraints import clip_singular_

SHAPES = [(1, 1), (7, 7), (128, 128), (130, 130), (20, 9), (9, 20)]


def svd_clip(W, bound):
    left, values, right = torch.linalg.svd(W.double(), full_matrices=False)
    return (left * values.clamp(max=bound)) @ right


def scaled_gaussian(shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype) / max(shape) ** 0.5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("bound", [0.2, 0.9])
def test_clip_equals_the_svd_and_meets_the_bound(shape, dtype, tolerance, bound):
    W = scaled_gaussian(shape, dtype) * 3
    expected = svd_clip(W, bound)
    clip_singular_(W, bound)
    torch.testing.assert_close(W.double(), expected, rtol=0, atol=tolerance)
    assert torch.linalg.matrix_norm(W.double(), 2) <= bound * (1 + 1e-5)


def test_clip_of_many_values_piled_up_at_the_bound():
    W = torch.linalg.qr(scaled_gaussian((128, 128), seed=1))[0] * 0.99
    W += 2e-4 * torch.randn(128, 128, generator=torch.Generator().manual_seed(2))
    expected = svd_clip(W, 0.99)
    clip_singular_(W, 0.99)
    torch.testing.assert_close(W.double(), expected, rtol=0, atol=2e-6)
    assert torch.linalg.matrix_norm(W.double(), 2) <= 0.99 * (1 + 1e-5)


def matrix_with(size, above, dtype=torch.float32):
    """Singular values spread over [0.3, 0.9], and the given ones above."""
    left, right = (torch.linalg.qr(scaled_gaussian((size, size), torch.float64, seed))[0] for seed in (3, 4))
    values = torch.linspace(0.3, 0.9, size, dtype=torch.float64)
    values[: len(above)] = torch.tensor(above, dtype=torch.float64)
    return ((left * values) @ right).to(dtype)


FEW = {
    "one": [1.0],
    "a few": [1.03, 1.0, 0.99, 0.96, 0.9501, 0.95, 0.95],
    "piled up at the bound": torch.linspace(0.949, 0.953, 20).tolist(),
}
FAR = {"some far": [2.2, 1.7, 1.2, 1.0, 0.99, 0.96, 0.9501, 0.95, 0.95]}
FAR |= {"one too far": [30.0, 1.0], "one that overflows": [3000.0, 1.0]}
MANY = {"many": torch.linspace(0.951, 1.3, 100).tolist()}


@pytest.mark.parametrize("above", FEW | FAR | MANY)
@pytest.mark.parametrize("size", [130, 560])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
def test_clip_of_a_few_values_needs_no_whole_decomposition(size, above, dtype, tolerance, monkeypatch):
    """A narrow matrix only if there are many, a wide one also if some are far above the bound."""
    values = (FEW | FAR | MANY)[above]
    W = matrix_with(size, values, dtype)
    expected = svd_clip(W, 0.95)
    whole, decompose = [], eigen.by_decomposition
    monkeypatch.setattr(eigen, "by_decomposition", lambda *given: whole.append(1) or decompose(*given))
    clip_singular_(W, 0.95)
    assert bool(whole) == (above in MANY or (above in FAR and size == 560))
    torch.testing.assert_close(W.double(), expected, rtol=0, atol=tolerance * max(1, values[0]))
    assert torch.linalg.matrix_norm(W.double(), 2) <= 0.95 * (1 + 1e-5)
    clipped = W.clone()
    assert torch.equal(clip_singular_(W, 0.95), clipped)


@pytest.mark.parametrize("shape", [(600, 300), (300, 600), (200, 100), (100, 200)])
def test_clip_of_a_rectangle(shape):
    W = matrix_with(600, [1.0, 0.96], torch.float64)[: shape[0], : shape[1]].float()
    bound = 0.99 * torch.linalg.matrix_norm(W, 2).item()
    expected = svd_clip(W, bound)
    assert not torch.allclose(W.double(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(clip_singular_(W, bound).double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_clip_is_idempotent_and_leaves_feasible_matrices_untouched(shape):
    feasible = scaled_gaussian(shape) * 0.1
    assert torch.equal(clip_singular_(feasible.clone(), 0.9), feasible)
    clipped = clip_singular_(scaled_gaussian(shape) * 5, 0.9).clone()
    assert torch.equal(clip_singular_(clipped.clone(), 0.9), clipped)


def test_clip_is_not_a_rescaling():
    W = torch.diag(torch.tensor([2.0, 0.5]))
    torch.testing.assert_close(clip_singular_(W, 1.0), torch.diag(torch.tensor([1.0, 0.5])))


@pytest.mark.parametrize("size", [4, 130, 300])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_clip_leaves_a_matrix_that_is_not_finite_alone(size, value):
    W = scaled_gaussian((size, size)) * 3
    W[1, 2] = value
    assert torch.equal(clip_singular_(W.clone(), 0.9).nan_to_num(7.0), W.nan_to_num(7.0))


@pytest.mark.parametrize(
    ("W", "bound", "method", "message"),
    [
        (torch.ones(3), 1.0, "auto", "takes a matrix"),
        (torch.eye(3), 0.0, "auto", "bound=0.0"),
        (torch.eye(3), 1.0, "qr", "method='qr'"),
    ],
)
def test_clip_refuses_bad_arguments(W, bound, method, message):
    with pytest.raises(ValueError, match=message):
        clip_singular_(W, bound, method)


def test_durnn_constrains_all_three_sets_and_only_them():
    L, net = 50, models.DuRNN(3, 16, num_layers=2, length=50, seed=0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 5)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    net.constrain_()
    for index, layer in enumerate(net.layers):
        assert torch.linalg.matrix_norm(layer.W_rec, 2) <= 0.5 ** (1 / L) * (1 + 1e-5)
        low = 0.0 if index == 0 else 0.5 ** (1 / L)
        assert layer.U.min().item() == pytest.approx(low)
        assert layer.U.max().item() == pytest.approx(2 ** (1 / L))
        assert 0 <= layer.b_thre <= 1
    for name, parameter in net.named_parameters():
        if name.rsplit(".", 1)[1] not in ("W_rec", "U", "b_thre"):
            assert torch.equal(parameter, before[name]), f"{name} is not constrained but changed"


def test_upper_bound_can_be_capped_per_layer():
    for name in ("durnn", "indrnn"):
        net = models.build(name, 3, 8, 2, length=10, u_max=[0.9, 1.0])
        with torch.no_grad():
            for layer in net.layers:
                layer.U.fill_(3.0)
        net.constrain_()
        assert [layer.U.max().item() for layer in net.layers] == pytest.approx([0.9, 1.0])


def test_indrnn_keeps_the_magnitude_of_u_below_gamma():
    net = models.IndRNN(3, 8, length=10)
    with torch.no_grad():
        net.layers[0].U.copy_(torch.linspace(-3, 3, 8))
    net.constrain_()
    assert net.layers[0].U.abs().max().item() == pytest.approx(2**0.1)
    assert net.layers[0].U.min() < 0
