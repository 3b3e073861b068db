"""The Triton recurrences compiled for sm_80 and sm_90 without a GPU: that they compile, and what they take of one."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("kernels cannot be compiled with TRITON_INTERPRET=1", allow_module_level=True)

from models.kernels import triton_aot
from models.kernels.lstm import triton as lstm
from models.kernels.triton_aot import SHARED_LIMIT, Case, compile_case, resident_cases, step_cases

both_targets = pytest.mark.parametrize("capability", triton_aot.CAPABILITIES, ids=lambda c: f"sm_{c}")


LOADS_PER_STEP = {
    "rnn_forward_resident": 1,
    "rnn_backward_resident": 2,
    "select_forward_resident": 2,
    "gru_forward_resident": 3,
    "gru_backward_resident": 6,
    "lstm_forward_resident": 4,
    "lstm_backward_resident": 7,
}


def labelled(cases: Any) -> list[Any]:
    return [pytest.param(case, id=case.label) for case in cases]


def check_resident(case: Case, capability: int) -> None:
    used = compile_case(case, capability)
    assert used.spilled == 0
    assert 0 < used.registers <= 255
    op = case.kernel.__name__.split("_")[0]
    on_chip = triton_aot.kernels()[op].on_chip
    assert on_chip is not None
    bound = on_chip.shared_bytes(case.constants["BLOCK_N"], case.kind)
    assert 0 < used.shared <= bound <= SHARED_LIMIT[capability]
    assert used.cubin[:4] == b"\x7fELF"
    assert f".target sm_{capability}" in used.ptx
    assert ("tf32" in used.ptx) == (case.kind != "ieee")
    # Weights go from memory to shared memory before the time loop; inside it only the next step is loaded.
    loop = used.ttgir.split("scf.for", maxsplit=1)[1].splitlines()
    loads = LOADS_PER_STEP[case.kernel.__name__] + (case.constants.get("NOISE") == "drawn")
    assert sum("tt.load" in line for line in loop) == loads
    block_n = case.constants["BLOCK_N"]
    rows = 16 if case.kind == "ieee" and block_n >= 64 else block_n
    if block_n > 16:  # a state has the shape of a weight otherwise
        assert not any("local_alloc" in line and f"<{rows}x{block_n}x" in line for line in loop)


@both_targets
@pytest.mark.parametrize(
    "case",
    labelled(c for c in resident_cases(kinds=("tf32", "ieee")) if c.constants.get("NOISE") != "expected"),
)
def test_largest_resident_kernels_do_not_spill(case: Case, capability: int) -> None:
    check_resident(case, capability)


@pytest.mark.slow
@both_targets
@pytest.mark.parametrize(
    "case", labelled(case for units in (None, 1, 16, 20, 32, 50, 100) for case in resident_cases(units))
)
def test_no_resident_kernel_spills(case: Case, capability: int) -> None:
    check_resident(case, capability)


def test_spills_are_seen_where_they_are_known() -> None:
    """TF32x3 products of an LSTM of 50 units are beyond ``ON_CHIP`` for a reason."""
    case = triton_aot.resident_case(lstm.lstm_backward_resident, lstm.ON_CHIP, "tf32x3", units=50, NOISE="none")
    assert compile_case(case, 80).spilled > 0


def small_kernels() -> list[Any]:
    return labelled([*step_cases(2000), *step_cases(1), *step_cases(100, "fp64")])


@pytest.mark.parametrize("case", small_kernels())
def test_elementwise_kernels_compile(case: Case) -> None:
    used = compile_case(case, 80)
    assert used.spilled == 0
    assert used.shared <= SHARED_LIMIT[80]
    if case.kernel.__name__ in ("indrnn_forward_elements", "relu_reverse_scan"):
        assert "cp.async" in used.ptx  # steps to come are fetched ahead


@pytest.mark.slow
@pytest.mark.parametrize("case", small_kernels())
def test_elementwise_kernels_compile_for_sm_90(case: Case) -> None:
    used = compile_case(case, 90)
    assert used.spilled == 0
    assert used.shared <= SHARED_LIMIT[90]
