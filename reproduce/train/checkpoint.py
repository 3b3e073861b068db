"""The folder of a run: checkpoints that survive a kill at any moment, and final weights.

A checkpoint is one safetensors file with its sha256 in its name; two are kept. A file appears under its final name only
when all of its bytes are on disk, so a kill leaves either the old newest or the new newest. One that no longer matches
its name, or whose content does not fit the run, is set aside and the one before it is used.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from suite.files import sha256, write_atomic

KEEP = 2
WEIGHTS = "weights.safetensors"
FAILURE = "error.txt"
Write = Callable[[Path, bytes], None]
_NAME = re.compile(r"step-(\d+)-([0-9a-f]{64})\.safetensors$")


class Checkpoint(NamedTuple):
    path: Path
    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class FullDiskError(Exception):
    """The disk has no room for what is named."""

    def __init__(self, what: str):
        super().__init__(f"the disk is full, so {what} could not be written")


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn a full disk into a FullDiskError that names what could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FullDiskError(what) from error


def what_is_safe(folder: Path) -> str:
    """What a run that could not write would continue from."""
    step = latest_step(folder)
    return f"its state at update {step} is safe" if step else "no state of it had been saved before"


def save(
    folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any], write: Write = write_atomic
) -> Path:
    """Add a checkpoint and drop all but the two newest."""
    about = json.dumps(meta | {"shapes": _shapes(tensors)})
    data = save_tensors({k: v.detach().contiguous() for k, v in tensors.items()}, {"meta": about})
    path = folder / f"step-{step:09d}-{sha256(data)}.safetensors"
    write(path, data)
    for old in _files(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def newest_first(folder: Path) -> Iterator[Checkpoint]:
    """The checkpoints that are whole; damaged ones are set aside on the way."""
    for path in _files(folder):
        match = _NAME.search(path.name)
        assert match is not None
        try:
            data = path.read_bytes()
            if sha256(data) != match[2]:
                raise ValueError("its content does not match the sha256 in its name")
            found = Checkpoint(path, load_tensors(data), _meta(data))
            if found.meta.get("shapes", _shapes(found.tensors)) != _shapes(found.tensors):
                raise ValueError("its tensors are not those that it lists")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            set_aside(path, error)
            continue
        yield found


def set_aside(path: Path, why: object) -> None:
    """Keep a file that cannot be used under a name that nobody looks for."""
    warnings.warn(f"checkpoint {path.name} is damaged ({why}); using the one before", stacklevel=2)
    with contextlib.suppress(OSError):
        path.rename(path.with_name(f"damaged-{path.name}"))


def latest_step(folder: Path) -> int:
    """The step of the newest checkpoint by name, 0 if there is none."""
    files = _files(folder)
    match = _NAME.search(files[0].name) if files else None
    return int(match[1]) if match else 0


def clear(folder: Path) -> None:
    """Remove the checkpoints of a finished run."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def save_weights(folder: Path, weights: dict[str, Tensor], write: Write = write_atomic) -> None:
    write(folder / WEIGHTS, save_tensors(weights))


def load_weights(folder: Path, expected: str | None) -> dict[str, Tensor] | None:
    """The final weights of a run, if they are there, whole, and those whose hash its record names."""
    try:
        weights = load_tensors((folder / WEIGHTS).read_bytes())
    except (OSError, ValueError, SafetensorError):
        return None
    return weights if weights_hash(weights) == expected else None


def weights_hash(state: dict[str, Tensor]) -> str:
    """sha256 over names, shapes and bytes of the weights, in the order of their names."""
    parts: list[bytes | str] = []
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        parts += [
            f"{name}{tuple(tensor.shape)}{tensor.dtype}",
            tensor.reshape(-1).view(torch.uint8).numpy().tobytes(),
        ]
    return sha256(*parts)


def note_failure(folder: Path, text: str) -> str:
    """Leave a traceback in the run's folder; returns where it is, in words."""
    path = folder / FAILURE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode(errors="replace"))
    except OSError as error:
        return f"details could not be written to {path}: {error.strerror or error}"
    return f"details in {path}"


def _files(folder: Path) -> list[Path]:
    """Newest first. The owner of the run may remove files while another process looks."""
    found = []
    for path in folder.glob("step-*.safetensors"):
        match = _NAME.match(path.name)
        with contextlib.suppress(FileNotFoundError):
            if match:
                found.append((int(match[1]), path.stat().st_mtime_ns, path))
    return [path for *_, path in sorted(found, reverse=True)]


def _shapes(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _meta(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["meta"])
