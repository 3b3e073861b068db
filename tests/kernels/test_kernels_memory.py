"""Memory that the fused recurrences keep from step to step."""

from __future__ import annotations

import gc
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from models.kernels import memory
from models.kernels.memory import large_tensor

SHAPE = (3, 5, 7)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    memory.release_kept_memory()
    yield
    memory.release_kept_memory()


def test_freed_memory_is_used_again_and_living_memory_is_not() -> None:
    first = large_tensor(SHAPE, torch.float64)
    first.fill_(1.0)
    second = large_tensor(SHAPE, torch.float64)
    second.fill_(2.0)
    assert first.eq(1).all()
    address = first.data_ptr()
    view = first[1:]
    del first
    third = large_tensor(SHAPE, torch.float64)  # the view keeps the first one's memory in use
    third.fill_(3.0)
    assert view.eq(1).all()
    del view
    assert large_tensor(SHAPE, torch.float64).data_ptr() == address
    assert large_tensor((1, 1), torch.float64).data_ptr() != address  # of another size


def test_kept_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_KEPT", 1000)
    tensors = [large_tensor((100 + k,), torch.float32) for k in range(4)]
    addresses = [tensor.data_ptr() for tensor in tensors]
    while tensors:
        del tensors[0]
    assert [len(block) for block in memory._kept] == [408, 412]  # the longest unused are gone
    assert large_tensor((103,), torch.float32).data_ptr() == addresses[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_its_own() -> None:
    tensor = large_tensor(SHAPE, torch.float32).fill_(1.0)
    child = os.fork()
    if child == 0:
        tensor.fill_(2.0)
        os._exit(0)
    os.waitpid(child, 0)
    assert tensor.eq(1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_another_thread_holds_the_lock_does_not_block() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with memory._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends a child that waits for the lock
        large_tensor(SHAPE, torch.float32)
        os._exit(0)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_threads_share_it_safely() -> None:
    wrong = []

    def work(value: float) -> None:
        for _ in range(300):
            tensors = [large_tensor(SHAPE, torch.float32).fill_(value) for _ in range(3)]
            wrong.extend(tensor for tensor in tensors if not tensor.eq(value).all())

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not wrong
    assert len(memory._kept) <= 24  # each thread has at most three old and three new ones at a time


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_malloc_keeps_memory_if_asked() -> None:
    """In a process of its own, because the setting cannot be taken back."""
    program = """
import resource, torch
from models.kernels.memory import keep_freed_memory
def faults_of_a_tensor():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(50_000_000 // 4).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults_of_a_tensor()
default = faults_of_a_tensor()
assert keep_freed_memory()
for _ in range(20):  # until the heap has grown to what is needed
    faults_of_a_tensor()
print(default, faults_of_a_tensor())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    default, kept = map(int, done.stdout.split())
    assert kept < default / 10
