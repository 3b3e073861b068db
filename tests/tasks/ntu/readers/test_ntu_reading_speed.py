"""Speed of the readers on one core, in MB/s of text: run this file with `pytest --benchmark-only`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tasks.ntu.readers import text
from tasks.ntu.standin.clip_set import GeneratedClips


def straightforward(data: bytes) -> list[dict[int, np.ndarray]]:
    """What one would write first: line by line, every field a float."""
    lines = iter(data.decode().splitlines())
    frames = []
    for _ in range(int(next(lines))):
        bodies = {}
        for _ in range(int(next(lines))):
            about = next(lines).split()
            joints = [[float(field) for field in next(lines).split()] for _ in range(int(next(lines)))]
            bodies[int(about[0])] = np.array(joints)[:, :3].astype(np.float32)
        frames.append(bodies)
    return frames


READERS: dict[str, Callable[[bytes], Any]] = {
    "straightforward": straightforward,
    "line by line, all checks": lambda data: text.parse_by_line(data, "clip"),
    "compiled": lambda data: text.parse(data, "clip"),
}


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    generated = GeneratedClips(27, 0)
    return [generated.write(name) for name in generated.names[::40]]


@pytest.mark.benchmark(group="reading .skeleton text")
@pytest.mark.parametrize("reader", READERS)
def test_reading(benchmark: Any, files: list[bytes], reader: str) -> None:
    def read_all() -> list[Any]:
        return [READERS[reader](data) for data in files]

    read = benchmark(read_all)
    assert len(read) == len(files)
    benchmark.extra_info["MB/s"] = sum(map(len, files)) / 1e6 / benchmark.stats.stats.min


def test_the_yardstick_reads_the_same(files: list[bytes]) -> None:
    clip = text.parse(files[0], "clip")
    frames = straightforward(files[0])
    assert len(frames) == clip.length
    for t, body, joints in zip(clip.frame, clip.body, clip.joints, strict=True):
        np.testing.assert_array_equal(frames[t][int(body)], joints)
