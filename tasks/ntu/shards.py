"""Reads clips in several processes.

Each process is a fresh interpreter that gets its share of names as JSON on its standard input, writes the frames of its
clips one after another to a shard file, and reports on its standard output, one JSON object per line. Fresh
interpreters, because a fork of a process with threads may hang, and multiprocessing's spawn would run the user's script
again.
"""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import suite
from tasks.download import ExplicitSourceError
from tasks.ntu.bodies import select_people
from tasks.ntu.clip import SkeletonError
from tasks.ntu.readers import native
from tasks.ntu.readers.clip_sets import ClipArchive, ClipFolder, ClipSet

_WORTH_A_PROCESS = 256  # clips; fewer are read before an interpreter has started
_REPORT_EVERY = 32

# Starts a process without running the packages' own __init__.py: those import torch, which takes longer than the work.
_PACKAGES = {
    "suite": suite.__path__[0],
    "tasks": str(Path(__file__).parents[1]),
    "tasks.ntu": str(Path(__file__).parent),
}
_START = """
import json, sys, types
for name, folder in json.loads(sys.argv[1]).items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from tasks.ntu.shards import main
main()
"""


@dataclass
class Shard:
    """Consecutive clips in one file of raw float32 frames of 150 numbers."""

    file: str
    names: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    without_bodies: list[str] = field(default_factory=list)  # these are in `names` no more

    @property
    def path(self) -> Path:
        return Path(self.file)


def write_shards(clips: ClipSet, folder: Path, processes: int, report: Callable[[int], None]) -> list[Shard]:
    """Read all clips of a set into shards in `folder`, in order; `report` hears how many clips were done."""
    count = len(clips.names)
    processes = max(1, min(processes, count // _WORTH_A_PROCESS))
    bounds = [count * k // processes for k in range(processes + 1)]
    shares = [clips.names[a:b] for a, b in itertools.pairwise(bounds)]
    if processes == 1:
        return [write_shard(clips, shares[0], str(folder / "shard-0"), report)]
    native.reader()  # build it once, before all processes want it
    return _run(
        [{"clips": clips.spec, "names": share, "file": str(folder / f"shard-{k}")} for k, share in enumerate(shares)],
        report,
    )


def write_shard(clips: ClipSet, names: list[str], file: str, report: Callable[[int], None]) -> Shard:
    """Read the named clips into one shard."""
    shard = Shard(file)
    with open(file, "wb") as stream:
        for done, name in enumerate(names, start=1):
            clip = clips.read(name)
            frames = select_people(clip) if len(clip.body) else None
            if frames is None or not frames.any():  # a body that is all zeros is none
                shard.without_bodies.append(name)
            else:
                stream.write(frames.astype("<f4", copy=False).tobytes())
                shard.names.append(name)
                shard.lengths.append(len(frames))
            if done % _REPORT_EVERY == 0:
                report(_REPORT_EVERY)
        report(len(names) % _REPORT_EVERY)
    return shard


def _run(jobs: list[dict[str, Any]], report: Callable[[int], None]) -> list[Shard]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _START, json.dumps(_PACKAGES)]
    messages: queue.SimpleQueue[tuple[int, dict[str, Any] | None]] = queue.SimpleQueue()
    children: list[subprocess.Popen[str]] = []
    threads: list[threading.Thread] = []

    def listen(number: int, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            messages.put((number, json.loads(line)))
        messages.put((number, None))

    try:
        for number, job in enumerate(jobs):
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            children.append(child)
            threads.append(threading.Thread(target=listen, args=(number, child), daemon=True))
            threads[-1].start()
            assert child.stdin is not None
            with suppress(BrokenPipeError):  # it died at once: `_collect` will say so
                child.stdin.write(json.dumps(job))
                child.stdin.close()
        return _collect(messages, children, report)
    finally:
        for child in children:
            child.kill()
            child.wait()
        for thread in threads:
            thread.join()
        for child in children:
            assert child.stdout is not None
            child.stdout.close()


def _collect(
    messages: "queue.SimpleQueue[tuple[int, dict[str, Any] | None]]",
    children: list["subprocess.Popen[str]"],
    report: Callable[[int], None],
) -> list[Shard]:
    shards: dict[int, Shard] = {}
    running = set(range(len(children)))
    while running:
        number, message = messages.get()
        if message is None:
            running.remove(number)
            if number not in shards:
                code = children[number].wait()
                raise ExplicitSourceError(f"a process that reads NTU clips ended unexpectedly (exit code {code})")
        elif "done" in message:
            report(message["done"])
        elif "shard" in message:
            shards[number] = Shard(**message["shard"])
        elif "skeleton_error" in message:
            raise SkeletonError(message["skeleton_error"])
        else:
            raise OSError(message["errno"], message["strerror"])
    return [shards[number] for number in range(len(children))]


def clip_set_from(spec: dict[str, Any]) -> ClipSet:
    """The set that `ClipSet.spec` describes."""
    if "folder" in spec:
        return ClipFolder(spec["folder"])
    if "zip" in spec:
        return ClipArchive(spec["zip"])
    from tasks.ntu.standin.clip_set import GeneratedClips

    return GeneratedClips(**spec)


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    """The body of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends this process
    job = json.loads(sys.stdin.read())
    try:
        shard = write_shard(clip_set_from(job["clips"]), job["names"], job["file"], lambda count: _say({"done": count}))
        _say({"shard": asdict(shard)})
    except SkeletonError as error:
        _say({"skeleton_error": str(error)})
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more
    except OSError as error:
        _say({"errno": error.errno, "strerror": error.strerror})
