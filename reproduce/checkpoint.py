"""Checkpoints that survive a kill at any moment: one safetensors file each, its sha256 in its name, two kept.

A file appears under its final name only when all of its bytes are on disk, so a kill leaves either the old newest
or the new newest. A file that no longer matches its name is reported and passed over for the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

_NAME = re.compile(r"step-(\d+)-([0-9a-f]{64})\.safetensors$")
KEEP = 2


def write_atomic(path: Path, data: bytes) -> None:
    """Write so that ``path`` is either untouched or complete; a partial file is removed on error."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save(folder: Path, step: int, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Path:
    """Add a checkpoint and drop all but the two newest."""
    data = save_tensors({k: v.detach().contiguous() for k, v in tensors.items()}, {"meta": json.dumps(meta)})
    path = folder / f"step-{step:09d}-{hashlib.sha256(data).hexdigest()}.safetensors"
    write_atomic(path, data)
    for old in _files(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    for part in folder.glob(".step-*.part"):  # left by a kill in the middle of a write
        part.unlink(missing_ok=True)
    return path


def load(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint that is whole, or None. Damaged ones are reported, not deleted."""
    for path in _files(folder):
        match = _NAME.search(path.name)
        assert match is not None
        try:
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != match[2]:
                raise ValueError("its content does not match the sha256 in its name")
            return load_tensors(data), _meta(data)
        except (OSError, ValueError, SafetensorError) as error:
            warnings.warn(f"checkpoint {path.name} is damaged ({error}); using the one before", stacklevel=2)
    return None


def latest_step(folder: Path) -> int:
    """The step of the newest checkpoint by name, 0 if there is none."""
    files = _files(folder)
    match = _NAME.search(files[0].name) if files else None
    return int(match[1]) if match else 0


def clear(folder: Path) -> None:
    """Remove the checkpoints of a finished run."""
    for path in _files(folder):
        path.unlink(missing_ok=True)


def weights_hash(state: dict[str, Tensor]) -> str:
    """sha256 over names, shapes and bytes of the weights, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    """Newest first. The owner of the run may remove files while another process looks."""
    found = []
    for path in folder.glob("step-*.safetensors"):
        match = _NAME.search(path.name)
        with contextlib.suppress(FileNotFoundError):
            if match:
                found.append((int(match[1]), path.stat().st_mtime_ns, path))
    return [path for *_, path in sorted(found, reverse=True)]


def _meta(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["meta"])
