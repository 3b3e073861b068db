"""Compiles the Triton recurrences ahead of time, without a GPU, and reads what they need of one.

``python -m models.kernels.triton_aot`` prints a table of registers, spills and shared memory of every kernel for
sm_80 and sm_90. Numbers come from the cubin that Triton's own ptxas builds; nothing here runs on hardware.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.kernels.recurrence import RECURRENCES
from models.kernels.triton_common import (
    BLOCK_B,
    ELEMENTS,
    INTERPRETED,
    Kernels,
    OnChip,
    padded,
    row_warps,
    warps,
)

CAPABILITIES = (80, 90)

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024}
"""Largest shared memory of one program in bytes, by compute capability (CUDA C programming guide)."""

INTEGERS, BYTES = ("T", "B", "N", "elements"), ("noise", "noise_t")
"""Arguments that are not pointers to floating-point numbers, by name."""


@dataclass(frozen=True)
class Case:
    """One kernel with the constants that a call would compile it for.

    kind: ``fp64`` or the precision of float32 products. units: N, of which Triton makes a constant if it is 1 and
    wide loads if it is a multiple of 16.
    """

    kernel: Any
    kind: str
    constants: dict[str, Any]
    num_warps: int
    units: int

    @property
    def label(self) -> str:
        block = self.constants.get("BLOCK_N", self.constants.get("ELEMENTS"))
        option = self.constants.get("ACTIVATION", self.constants.get("NOISE", ""))
        return f"{self.kernel.__name__}{'-' * bool(option)}{option}-{self.kind}-{block}-N{self.units}"


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes: registers per thread, bytes per thread spilled to the stack, shared bytes."""

    registers: int
    spilled: int
    shared: int
    ttgir: str
    ptx: str
    cubin: bytes


def kernels() -> dict[str, Kernels]:
    """The kernels of every folder of recurrences that has any, by its name."""
    found = {}
    for folder in dict.fromkeys(recurrence.folder for recurrence in RECURRENCES.values()):
        if find_spec(f"models.kernels.{folder}.triton"):
            found[folder] = importlib.import_module(f"models.kernels.{folder}.triton").KERNELS
    return found


def resident_case(kernel: Any, on_chip: OnChip, kind: str, units: int | None = None, **constants: Any) -> Case:
    """A resident kernel for N units; by default the most that ``on_chip`` allows."""
    units = units or on_chip.units[kind]
    block_n = padded(units)
    blocks = {"BLOCK_B": BLOCK_B, "BLOCK_N": block_n, "PRECISION": kind}
    return Case(kernel, kind, constants | blocks, warps(block_n), units)


def resident_cases(units: int | None = None, kinds: tuple[str, ...] | None = None) -> Iterator[Case]:
    """Every resident kernel for every kind of product, at its largest size or at ``units`` where that is smaller."""
    for found in kernels().values():
        if found.on_chip is None:
            continue
        for kind, limit in found.on_chip.units.items():
            if (kinds and kind not in kinds) or (units and units > limit):
                continue
            for kernel, constants in _variants(found.resident, found):
                yield resident_case(kernel, found.on_chip, kind, units, **constants)


def step_cases(units: int, kind: str = "ieee") -> Iterator[Case]:
    """Every kernel without a product inside: elementwise scans and the pointwise part of single steps."""
    for found in kernels().values():
        for kernel, constants in _variants(found.elements, found):
            yield Case(kernel, kind, constants | {"ELEMENTS": ELEMENTS}, 4, units)
        for kernel in found.rows:
            yield Case(kernel, kind, {"BLOCK_N": padded(units)}, row_warps(padded(units)), units)


def _variants(chosen: tuple[Any, ...], of: Kernels) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each kernel with each set of constants that it takes."""
    for kernel in chosen:
        seen = []
        for variant in of.variants:
            constants = {name: value for name, value in variant.items() if name in kernel.arg_names}
            if constants not in seen:
                seen.append(constants)
                yield kernel, constants


def compile_case(case: Case, capability: int) -> Resources:
    """Compiles a kernel to PTX and cubin for one compute capability and reads its resources."""
    if INTERPRETED:
        raise RuntimeError("kernels cannot be compiled with TRITON_INTERPRET=1; unset it and start again.")
    constants, signature, attributes = dict(case.constants), {}, {}
    for position, name in enumerate(case.kernel.arg_names):
        if name == "N" and case.units == 1:
            constants[name] = 1
        if name in constants:
            signature[name] = "constexpr"
        elif name in INTEGERS:
            signature[name] = "i32"
        elif name in BYTES:
            signature[name] = "*u8"
        else:
            signature[name] = "*fp64" if case.kind == "fp64" else "*fp32"
        if signature[name].startswith("*") or (name == "N" and case.units % 16 == 0):
            attributes[(position,)] = [["tt.divisibility", 16]]
    source = ASTSource(case.kernel, signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": case.num_warps, "num_stages": 1 if "BLOCK_B" in constants else 3}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    asm = compiled.asm
    return Resources(*read_usage(asm["cubin"]), compiled.metadata.shared, asm["ttgir"], asm["ptx"], asm["cubin"])


def read_usage(cubin: bytes) -> tuple[int, int]:
    """Registers per thread and bytes per thread of stack, where spilled registers go, of a cubin's one kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    if usage is None:
        raise RuntimeError(f"cuobjdump printed no resource usage, but: {text.strip()!r}")
    return int(usage[1]), int(usage[2]) + int(usage[3])


def main() -> None:
    print(f"triton {triton.__version__}, compiled without a GPU, not run on hardware\n")
    print("| kernel | arch | warps | registers | spilled bytes | shared bytes |")
    print("|---|---|---|---|---|---|")
    for case in (*resident_cases(), *step_cases(128)):
        for capability in CAPABILITIES:
            used = compile_case(case, capability)
            cells = (case.label, f"sm_{capability}", case.num_warps, used.registers, used.spilled, used.shared)
            print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
