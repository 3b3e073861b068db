"""The fused CPU recurrences as a guest in a process: compiler, cache, threads, fork, memory."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kernels_ladder import OPERATORS, SIZES, TOLERANCE, check, everything
from torch.utils.data import DataLoader, Dataset

from models import kernels
from models.kernels import cpu
from models.kernels.checks import letter_sizes
from models.kernels.recurrence import RECURRENCES

pytestmark = pytest.mark.skipif(not cpu.available(), reason="no compiler for the fused recurrences")

PROGRAM = """
import warnings, torch
from models import kernels
from models.kernels.rnn import reference
torch.manual_seed(0)
u, W, h0 = torch.randn(3, 2, 4), torch.randn(4, 4), torch.randn(2, 4)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        y, _ = kernels.rnn_scan(u, W, h0)
        kernels.indrnn_scan(u, W[0], h0)
assert torch.allclose(y, reference.rnn_scan(u, W, h0)[0], atol=1e-6)
print(len(caught), *(f"{w.category.__name__}: {w.message}" for w in caught))
try:
    kernels.rnn_scan(u, W, h0, backend="fused")
    print("fused")
except RuntimeError as error:
    print("refused:", error)
"""


def run_program(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    everything_else = {name: value for name, value in os.environ.items() if name != "CXX"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=everything_else | {"DURNN_CACHE": str(cache)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("broken", ["/bin/false", "sh -c 'echo 1.0; exit 0' --"])
def test_broken_compiler_gives_one_warning_and_right_numbers(tmp_path: Path, broken: str) -> None:
    """It fails, or claims to succeed and writes nothing of use."""
    lines = run_program(tmp_path, CXX=broken).stdout.splitlines()
    assert lines[0].startswith("1 RuntimeWarning: using the slow reference recurrences: the fused recurrences")
    assert lines[1].startswith("refused: rnn_scan: backend='fused' was asked for, but the fused recurrences")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_without_a_cache_the_loops_are_compiled_for_the_process(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    assert run_program(blocked).stdout.splitlines() == ["0", "fused"]
    assert list(tmp_path.iterdir()) == [blocked]


def test_compiles_once_and_says_so(tmp_path: Path) -> None:
    first = run_program(tmp_path)
    assert first.stdout.splitlines() == ["0", "fused"]
    assert first.stderr.count("compiling the fused recurrences") == 1
    second = run_program(tmp_path)
    assert second.stdout.splitlines() == ["0", "fused"]
    assert second.stderr == ""


@pytest.mark.slow
def test_damaged_library_is_compiled_again(tmp_path: Path) -> None:
    run_program(tmp_path)
    (library,) = tmp_path.rglob("*.so")
    library.write_bytes(library.read_bytes()[:10_000])  # mapped as it is, it would kill the process
    again = run_program(tmp_path)
    assert again.stdout.splitlines() == ["0", "fused"]
    assert "compiling" in again.stderr


@pytest.mark.slow
def test_two_processes_compile_at_once(tmp_path: Path) -> None:
    outputs: list[list[str]] = []

    def start() -> None:
        outputs.append(run_program(tmp_path).stdout.splitlines())

    in_threads(start, 2)
    assert outputs == [["0", "fused"]] * 2
    assert sorted(path.suffix for path in tmp_path.rglob("*.*")) == [".sha256", ".so"]


@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_wrong_machine_code_is_refused(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check compares with the reference before anything is trusted, and keeps nothing that fails it."""

    def disagreeing(u: torch.Tensor, U: torch.Tensor, h0: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, y_last = right(u, U, h0)
        return 2 * y if wrong == "forward" else y + (u - u.detach()), y_last

    right = RECURRENCES["indrnn"].reference
    monkeypatch.setattr(RECURRENCES["indrnn"], "reference", disagreeing)
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path))
    monkeypatch.setattr(cpu, "FLAG_SETS", (("-std=c++17", "-O0", "-shared", "-fPIC", "-pthread"),))
    monkeypatch.setattr(cpu, "_library", cpu._Library())
    assert not cpu.available()
    assert "disagree with the reference" in str(cpu.problem())
    assert not list(tmp_path.rglob("*.so"))


def test_a_declaration_that_does_not_fit_its_loop_is_refused() -> None:
    operator = RECURRENCES["indrnn"].forward
    assert operator is not None
    tensors = list(OPERATORS["indrnn"].arguments(3, 2, 4).values())
    constants, operator.constants = operator.constants, (1.0,)
    try:
        with pytest.raises(TypeError, match=r"indrnn_forward: cpu\.h takes other arguments than op\.py declares"):
            cpu.compute(operator, tensors, (), letter_sizes(3, 2, 4))
    finally:
        operator.constants = constants


def in_threads(target: Callable[[], None], count: int) -> None:
    """Run a function in several threads at once and raise what any of them raised."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def exercise(repeats: int = 5) -> None:
    for operator in OPERATORS.values():
        arguments = operator.arguments(6, 8, 20)
        expected = everything(operator.plain, arguments)
        for _ in range(repeats):
            check(everything(operator.fused, arguments), expected, 1e-10)


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split even the smallest work over two threads."""
    monkeypatch.setattr(cpu, "SMALL", 0)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
def test_several_python_threads() -> None:
    in_threads(exercise, 4)


def in_child(function: Callable[[], None], seconds: float = 60) -> int:
    """Exit code of a forked child that runs a function; a child that hangs is killed and counts as −9."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons: fork in a process with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.usefixtures("two_threads")
def test_after_fork() -> None:
    """The parent's threads do not exist in a child; its loops run on threads of their own.

    Forward only: torch's matrix products, of which backward makes use, hang in such a child by themselves unless
    it calls ``torch.set_num_threads(1)``, as DataLoader workers do.
    """
    exercise(1)
    operator = OPERATORS["select"]
    arguments = operator.arguments(6, 8, 20)
    expected, _ = operator.fused(**arguments)

    def child() -> None:
        for _ in range(20):
            assert torch.equal(operator.fused(**arguments)[0], expected)

    assert in_child(child) == 0
    exercise(1)  # and the parent's still work


class Samples(Dataset):
    """Computes fused gradients inside a DataLoader worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        operator = OPERATORS["select"]
        return everything(operator.fused, operator.arguments(5, 4, 20, seed=index))["gradient of W_s"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_in_data_loader_workers() -> None:
    exercise(1)
    samples = Samples()
    loader = DataLoader(samples, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    for index, found in enumerate(loader):
        torch.testing.assert_close(found, samples[index], rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_no_leak_over_a_thousand_steps() -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    samples = {operator: operator.arguments(30, 8, 16, torch.float32) for operator in OPERATORS.values()}

    def steps(count: int) -> None:
        for _ in range(count):
            for operator, arguments in samples.items():
                everything(operator.fused, arguments)

    steps(200)
    before = resident_bytes()
    steps(1000)
    one_sequence = 30 * 8 * 16 * 4  # the smallest tensor worth leaking, 15 MB after 1000 steps
    assert resident_bytes() - before < 400 * one_sequence


INSTRUCTION_SETS = [(), ("-mavx2", "-mfma"), ("-march=x86-64-v4",)] if platform.machine() == "x86_64" else [()]


@pytest.mark.slow
@pytest.mark.parametrize("extra", INSTRUCTION_SETS, ids=str)
def test_other_vector_widths(extra: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder on the widths that this machine's native flags do not choose."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if ("-mavx2" in extra and "avx2" not in flags) or ("-march=x86-64-v4" in extra and "avx512vl" not in flags):
        pytest.skip("this CPU cannot run it")
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path))
    monkeypatch.setattr(cpu, "FLAG_SETS", ((*cpu.FLAGS, *extra),))
    monkeypatch.setattr(cpu, "_library", cpu._Library())
    for operator in OPERATORS.values():
        for size in SIZES:
            for dtype, tolerance in TOLERANCE.items():
                expected = everything(operator.plain, operator.arguments(*size))
                check(everything(operator.fused, operator.arguments(*size, dtype)), expected, tolerance)


def test_subnormal_numbers_are_flushed_inside_the_loops_only() -> None:
    tiny = torch.full((1, 1, 1), 1e-40)
    assert kernels.indrnn_scan(tiny, torch.ones(1), torch.zeros(1, 1), backend="fused")[0].item() == 0.0
    assert (tiny * 0.5).item() > 0.0, "the caller's arithmetic was changed"
