"""The other kernel tests are skipped where the compiled recurrences do not work; this one is not."""

from __future__ import annotations

import shutil

import pytest

from models.kernels import cpu


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")
def test_with_a_compiler_the_fused_recurrences_are_there_and_right() -> None:
    assert cpu.problem() is None
