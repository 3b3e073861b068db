"""Random numbers that are a pure function of a key.

A key is a tuple such as ("adding", "train", seed, batch). Any batch can therefore be drawn without drawing
the ones before it, and in any process. Where numbers define data, only the raw words of the Philox bit
generator are used: numpy promises never to change those, but makes no such promise for `Generator.random`
or `permutation`.
"""

import hashlib

import numpy as np

Key = str | int


def bits(*key: Key) -> np.random.Philox:
    """A bit generator of its own for each key."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little"))


def generator(*key: Key) -> np.random.Generator:
    """A numpy generator of its own for each key."""
    return np.random.Generator(bits(*key))


def words(count: int, *key: Key) -> np.ndarray:
    """`count` random uint32."""
    return bits(*key).random_raw(-(-count // 2)).astype("<u8", copy=False).view("<u4")[:count]


def uniform(words: np.ndarray) -> np.ndarray:
    """uint32 words to float32 in [0, 1), multiples of 2**-24."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def fractions(count: int, generator: np.random.Generator) -> np.ndarray:
    """`count` random float64 in [0, 1), multiples of 2**-53, from the raw words of a generator."""
    return (generator.bit_generator.random_raw(count) >> np.uint64(11)) * 2.0**-53


def below(words: np.ndarray, bound: int) -> np.ndarray:
    """uint32 words to int64 in [0, bound)."""
    return ((words.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def permutation(count: int, *key: Key) -> np.ndarray:
    """A random order of range(count), int64."""
    return np.argsort(bits(*key).random_raw(count), kind="stable")


def digest(*arrays: np.ndarray) -> str:
    """sha256 (hex) over type, shape and little-endian content of arrays."""
    result = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        result.update(f"{array.dtype.str}{array.shape}".encode())
        result.update(array.data)
    return result.hexdigest()
