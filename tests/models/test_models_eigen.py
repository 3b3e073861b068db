import pytest
import torch

from models import eigen
from models.kernels import availability, cpu

WAYS = {"compiled": cpu.largest, "filter": eigen.by_filter, "decomposition": eigen.by_decomposition}
TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-12}


def symmetric(values, dtype=torch.float64, seed=0):
    """A matrix of these eigenvalues, and its vectors in their order."""
    values = torch.as_tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    V = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64)).Q
    A = (V * values) @ V.T
    return ((A + A.T) / 2).to(dtype), V


def lowered(A, values, V, bound):
    return A.double() - (V * (values - bound)).double() @ V.T.double()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [40, 101, 256, 300])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_way_finds_the_same(way, n, dtype):
    spread = torch.linspace(0, 0.8, n - 5, dtype=torch.float64)
    A, V = symmetric([*spread, 0.99, 1.002, 1.003, 1.003, 1.05], dtype)
    values, vectors = WAYS[way](A, 1.0, 1.00001)
    expected = torch.tensor([1.002, 1.003, 1.003, 1.05], dtype=torch.float64)
    torch.testing.assert_close(values.sort().values.double(), expected, rtol=0, atol=TOLERANCE[dtype])
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(4, dtype=dtype), rtol=0, atol=TOLERANCE[dtype])
    right = lowered(A, expected, V[:, -4:], 1.0)
    torch.testing.assert_close(lowered(A, values, vectors, 1.0), right, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_found_between_bound_and_limit(way):
    A, _ = symmetric([*torch.linspace(0, 0.9, 60), 1.000004])
    assert [len(values) for values in (WAYS[way](A, 1.0, limit)[0] for limit in (1.00001, 1.000001))] == [0, 1]


@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_compiled_loops_take_any_size(n):
    A, V = symmetric(torch.linspace(0.1, 1.1, n) if n > 1 else [1.1])
    values, vectors = cpu.largest(A, 1.09, 1.095)
    torch.testing.assert_close(values, torch.full((1,), 1.1, dtype=torch.float64))
    torch.testing.assert_close((vectors * V[:, -1:]).sum().abs().item(), 1.0)


@pytest.mark.parametrize("values", [[0.2, 2.0, 0.3, 2.0, 0.1, 0.1, 0.1, 0.4], [0.0] * 7 + [3.0]], ids=["twice", "once"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_compiled_loops_take_a_diagonal_matrix(values, dtype):
    A = torch.diag(torch.tensor(values, dtype=dtype))
    found, vectors = cpu.largest(A, 1.0, 1.0)
    right = A.double().clamp(max=1.0)
    torch.testing.assert_close(lowered(A, found, vectors, 1.0), right, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_compiled_loops_take_an_eigenvalue_that_is_also_the_first_entry(dtype):
    """The first pivot vanishes."""
    A = torch.diag(torch.tensor([2.0, 1.0, 2.0, *[0.1] * 9], dtype=dtype))
    A[0, 1] = A[1, 0] = A[1, 2] = A[2, 1] = 0.5
    values, vectors = cpu.largest(A, 1.5, 1.5)
    torch.testing.assert_close(values[1].item(), 2.0)
    expected = torch.tensor([1.0, 0.0, -1.0, *[0.0] * 9], dtype=dtype) / 2**0.5
    torch.testing.assert_close(vectors[:, 1] * vectors[0, 1].sign(), expected, rtol=0, atol=TOLERANCE[dtype])


def test_a_matrix_that_is_clearly_feasible_asks_for_no_compiled_loops(monkeypatch):
    monkeypatch.setattr(eigen.availability, "problem", lambda device: pytest.fail("asked for"))
    assert not len(eigen.largest(0.8 * torch.eye(5), 0.9, 0.90001)[0])


def test_compiled_loops_tell_pairs_apart_that_agree_to_the_last_digits():
    """Wilkinson's matrix."""
    A = torch.diag((torch.arange(21) - 10).abs().double()) + sum(torch.ones(20).double().diag(k) for k in (-1, 1))
    expected, V = torch.linalg.eigh(A)
    values, vectors = cpu.largest(A, 9.0, 9.0)
    torch.testing.assert_close(values.flip(0), expected[-4:])
    torch.testing.assert_close(vectors @ vectors.T, V[:, -4:] @ V[:, -4:].T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-18, 1e12])
def test_compiled_loops_take_any_scale(scale):
    A, _ = symmetric([*torch.linspace(0, 0.9, 60), 1.1], torch.float32)
    values, _ = cpu.largest(A * scale, scale, scale)
    torch.testing.assert_close(values / scale, torch.tensor([1.1]))


def test_compiled_loops_leave_many_values_and_numbers_that_are_not_finite_to_others():
    A, _ = symmetric(torch.linspace(0, 2, 40))
    assert cpu.largest(A, 1.0, 1.0) is None
    for value in (float("nan"), float("inf")):
        A[3, 3] = value
        assert cpu.largest(A, 1.9, 1.9) is None
        assert [len(part) for part in eigen.largest(A, 1.9, 1.9)] == [0, 40]


def test_without_compiled_loops_there_is_the_whole_decomposition(monkeypatch):
    A, _ = symmetric([*torch.linspace(0, 0.9, 60), 1.1])
    expected = eigen.largest(A, 1.0, 1.0)
    monkeypatch.setattr(availability, "problem", lambda device_type: "no compiler")
    monkeypatch.setattr(cpu, "largest", None)
    torch.testing.assert_close(eigen.largest(A, 1.0, 1.0)[0], expected[0])


def test_a_filter_that_misses_a_value_is_not_trusted(monkeypatch):
    A, V = symmetric([*torch.linspace(0, 0.8, 297), 1.001, 1.002, 1.05])
    assert eigen.by_filter(A, 1.0, 1.00001) is not None
    amplify, missed = eigen._amplify, V[:, -3:-2]
    monkeypatch.setattr(eigen, "_amplify", lambda *given: (X := amplify(*given)) - missed @ (missed.T @ X))
    assert eigen.by_filter(A, 1.0, 1.00001) is None
    assert len(eigen.largest(A, 1.0, 1.00001)[0]) == 3


@pytest.mark.parametrize("above", [[1.5], [1.1] * 15], ids=["far", "many"])
def test_a_filter_gives_up_at_once_where_it_cannot_succeed(above, monkeypatch):
    A, _ = symmetric([*torch.linspace(0, 0.8, 300 - len(above)), *above])
    calls, amplify = [], eigen._amplify
    monkeypatch.setattr(eigen, "_amplify", lambda *given: calls.append(1) or amplify(*given))
    assert eigen.by_filter(A, 1.0, 1.00001) is None
    assert len(calls) == 1


def test_a_filter_that_has_not_settled_is_not_trusted(monkeypatch):
    A, _ = symmetric([*torch.linspace(0, 0.8, 298), 1.1, 1.19])
    monkeypatch.setattr(eigen, "DEGREE", 4)
    monkeypatch.setattr(eigen, "_all_below", lambda *given: True)
    assert eigen.by_filter(A, 1.0, 1.00001) is None


def test_amplified_vectors_are_a_chebyshev_polynomial_of_the_matrix():
    squares = torch.linspace(0, 1.1, 300, dtype=torch.float64)
    found = eigen._amplify(torch.diag(squares), torch.ones(300, 1, dtype=torch.float64), damped=0.9)
    x = 2 * squares / 0.9 - 1
    expected = torch.where(x <= 1, torch.cos(24 * torch.arccos(x.clamp(max=1))), torch.cosh(24 * torch.arccosh(x)))
    torch.testing.assert_close(found[:, 0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(100, 50), (530, 300), (300, 530)])
def test_gram_of_any_size_is_the_product(shape):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.float64, 1e-9)):
        found = eigen.gram(rows.to(dtype))
        torch.testing.assert_close(found.double(), rows @ rows.T, rtol=0, atol=tolerance)
