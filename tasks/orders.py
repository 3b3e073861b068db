"""The orders in which the 784 pixels of an image are read.

"Permuted MNIST" is not one task: the literature uses different orders, and one of them is not even a permutation.
"""

import hashlib

import numpy as np
import torch

PIXELS = 784

# sha256 of the order as little-endian int64: an order that comes out differently must not be called by its name
KNOWN = {
    "rowwise": "b608df37c700252ea49c332221bee218c64831224cf032c2b64703afbd789d0a",
    "exprnn": "96240fe27409981c3ed3e92c20d995f7103a94c2282307bc776923030113be74",
    "torch-5544": "88c77bc3e243c77bfa408d541c47529b0f18e4330833e084f860a8978f5465d7",
    "torch-12008": "f4113bc8ae78902146fba54feaff34c7de185249d3b85ce9584e3d76ca98b3bd",
    "bitreversal": "30d91dc29f161321971bfea6ba16c735e4b5fe678d607efb470896d9de75ef44",
    "resample-1": "e6ef6d149253f395e2b4905e181f741ed1690574affaeb4398fa8bd50e12e2d5",
}


def order(name: str) -> np.ndarray:
    """A pixel order by name, int64 (784,); step t reads pixel `order[t]` of the image in row-major order.

    rowwise      as stored: sequential MNIST
    exprnn       numpy seed 92916: scoRNN, expRNN and most later work on orthogonal networks
    torch-5544   torch seed 5544: UnICORNN
    torch-12008  torch seed 12008: coRNN and its successors
    bitreversal  indices below 784 in 10-bit reversed order: HiPPO, S4
    resample-1   drawn *with replacement*, numpy seed 1: the released zoneout code (about 63 % of the pixels are seen)
    seed-N       numpy seed N, any N from 0 to 2**32 - 1
    """
    kind, _, seed = name.partition("-")
    if name == "rowwise":
        indices = np.arange(PIXELS)
    elif name == "exprnn":
        indices = np.random.RandomState(92916).permutation(PIXELS)
    elif name in ("torch-5544", "torch-12008"):
        generator = torch.Generator().manual_seed(int(seed))
        indices = torch.randperm(PIXELS, generator=generator).numpy()
    elif name == "bitreversal":
        reversed_bits = (int(f"{number:010b}"[::-1], 2) for number in range(1024))
        indices = np.array([index for index in reversed_bits if index < PIXELS])
    elif name == "resample-1":
        indices = np.random.RandomState(1).randint(0, PIXELS, size=PIXELS)
    elif kind == "seed" and seed.isascii() and seed.isdigit() and int(seed) < 2**32:
        indices = np.random.RandomState(int(seed)).permutation(PIXELS)
    else:
        allowed = ", ".join([*KNOWN, "seed-N"])
        raise ValueError(f"permutation={name!r} is not a known pixel order; there are: {allowed}")
    indices = indices.astype("<i8")
    expected = KNOWN.get(name)
    if expected is not None and order_hash(indices) != expected:
        raise RuntimeError(f"this numpy or torch draws another pixel order {name!r} than the one known by that name")
    return indices


def order_hash(indices: np.ndarray) -> str:
    """sha256 (hex) of an order as little-endian int64."""
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()
