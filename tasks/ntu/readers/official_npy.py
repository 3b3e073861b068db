"""The official converter's `.skeleton.npy`: a pickled dict of arrays inside a 0-dimensional object array.

A pickle is a program. This one is run by an unpickler that knows only the instructions which build containers,
numbers, strings and arrays; every array it makes is a view of bytes that are in the file, whatever shape it claims.
"""

import io
import pickle
import re
from typing import Any

import numpy as np

from tasks.ntu.clip import FARTHEST, JOINTS, MAX_FRAMES, Clip, SkeletonError
from tasks.ntu.readers.text import MAX_BODIES, MAX_BYTES

_OPCODES = tuple(
    getattr(pickle, name)[0]
    for name in (
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "SHORT_BINSTRING",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_LIST",
        "APPEND",
        "APPENDS",
        "EMPTY_DICT",
        "SETITEM",
        "SETITEMS",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "BINGET",
        "LONG_BINGET",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
    )
)
_NEAR = 1.0  # metres; a body farther than this from all that were seen is a new one
_DTYPE = re.compile(r"[<|=]?([fiu][1248]|b1|O8?)")


class _Array:
    """Stands in for ndarray while the pickle is read."""

    array: np.ndarray
    items: list[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
            raise ValueError("an array has no proper type or shape")
        if dtype.code.startswith("O"):
            self.items = list(raw)
            return
        flat = np.frombuffer(raw, dtype="<" + dtype.code)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Stands in for dtype."""

    def __init__(self, code: str, *_: Any) -> None:
        match = _DTYPE.fullmatch(code)
        if match is None:
            raise ValueError(f"arrays of type {code!r} are not expected")
        self.code = match[1]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", "|", "="):
            raise ValueError("big-endian arrays are not expected")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, raw: bytes) -> Any:
    return np.frombuffer(raw, dtype="<" + dtype.code, count=1)[0].item()


_ADMITTED = {
    ("multiarray", "_reconstruct"): _reconstruct,
    ("multiarray", "scalar"): _scalar,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class RestrictedUnpickler(pickle._Unpickler):
    """The pure Python unpickler with its instruction table cut down, so that nothing else can be reached."""

    dispatch = {  # noqa: RUF012
        code: method for code, method in pickle._Unpickler.dispatch.items() if code in _OPCODES
    }

    def load_build(self) -> None:
        state = self.stack.pop()  # type: ignore[attr-defined]
        target = self.stack[-1]  # type: ignore[attr-defined]
        if not isinstance(target, (_Array, _Dtype)):
            raise pickle.UnpicklingError("it sets the state of something that is no array")
        target.__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        last = module.removeprefix("numpy.core.").removeprefix("numpy._core.")
        if (last, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ADMITTED[last, name]


def parse(data: bytes, name: str) -> Clip:
    """Read the bytes of a `.skeleton.npy` file; `name` stands for the file in error messages.

    Its slots follow the order of the bodies in each frame, so identities are recovered from positions.
    """
    if len(data) > MAX_BYTES:
        raise SkeletonError(f"{name}: {len(data)} bytes are more than the {MAX_BYTES} that a clip may have")
    try:
        present, slots = _slots(_unpickle(data), len(data))
    except Exception as error:  # a damaged pickle can fail in any way
        reason = str(error) if isinstance(error, (ValueError, pickle.UnpicklingError)) else type(error).__name__
        raise SkeletonError(f"{name}: this is no official .skeleton.npy file: {reason}") from error
    frame, slot = np.nonzero(present)
    joints = slots[slot, frame].astype(np.float64)  # before abs: the smallest int64 has none
    if not (np.abs(joints) <= FARTHEST).all():
        raise SkeletonError(f"{name}: a coordinate is not a number or too large")
    joints = joints.astype(np.float32)
    return Clip(len(present), frame, _track(frame, joints), joints)


def _unpickle(data: bytes) -> dict[str, Any]:
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("its header is of an unknown version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if shape != () or not dtype.hasobject:
        raise ValueError("it does not hold one pickled dict")
    outer = RestrictedUnpickler(stream).load()
    items = outer.items if isinstance(outer, _Array) else None
    if not items or not isinstance(items[0], dict):
        raise ValueError("it does not hold one pickled dict")
    return items[0]


def _slots(content: dict[str, Any], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which slot is filled in which frame, (T, S) bool, and the slots, (S, T, 25, 3), of a file of `size` bytes.

    An absent body is all zeros. The file's own `nbodys` is of no help: it leaves out the frames without a body.
    """
    arrays: list[np.ndarray] = []
    while f"skel_body{len(arrays)}" in content and len(arrays) < MAX_BODIES:
        held = content[f"skel_body{len(arrays)}"]
        if not isinstance(held, _Array) or held.items is not None or held.array.shape[1:] != (JOINTS, 3):
            raise ValueError(f"skel_body{len(arrays)} is not of shape (frames, {JOINTS}, 3)")
        arrays.append(held.array)
    if not arrays or len({len(array) for array in arrays}) != 1:
        raise ValueError("it has no skel_body0, or bodies of different length")
    if len(arrays[0]) > MAX_FRAMES:
        raise ValueError(f"{len(arrays[0])} frames are more than the {MAX_FRAMES} that a clip may have")
    if sum(array.nbytes for array in arrays) > size:
        raise ValueError("its bodies are larger than the file, so they share one array")
    slots = np.stack(arrays)
    return np.any(slots != 0, axis=(2, 3)).T, slots


def _track(frame: np.ndarray, joints: np.ndarray) -> np.ndarray:
    """Identities (K,) uint64 by nearness: each body continues the nearest body of those last seen."""
    identity = np.zeros(len(frame), dtype=np.uint64)
    if len(np.unique(frame)) == len(frame):
        return identity  # never more than one body
    from scipy.optimize import linear_sum_assignment  # slow to import and rarely needed

    last: dict[int, np.ndarray] = {}  # identity -> its joints when last seen
    for rows in np.split(np.arange(len(frame)), np.flatnonzero(np.diff(frame)) + 1):
        known = list(last)
        free = set(range(len(rows)))
        if known:
            before = np.stack([last[i] for i in known])  # (known, 25, 3)
            apart = np.linalg.norm(joints[rows][:, None] - before, axis=-1).mean(axis=-1)  # (rows, known)
            for r, k in zip(*linear_sum_assignment(apart), strict=True):
                if apart[r, k] < _NEAR:
                    identity[rows[r]] = known[k]
                    free.remove(int(r))
        for new, r in enumerate(sorted(free), start=len(last)):
            identity[rows[r]] = new
        for row in rows:
            last[int(identity[row])] = joints[row]
    return identity
