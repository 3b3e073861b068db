"""Images read one pixel per step: sequential and permuted MNIST, and their drawn stand-ins."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks import download, rng
from tasks.base import Batch, SampledTask
from tasks.orders import PIXELS, order, order_hash
from tasks.pictures import save_digits
from tasks.registry import register
from tasks.sources import data_set
from tasks.standins import digits

if TYPE_CHECKING:
    import datasets

# pixel p (0 to 255) becomes p * scale + shift; both forms are exact in float32 up to one rounding
SCALINGS = {
    "minus-one-one": (1 / 128, -1.0),  # 2 (p / 256 - 0.5), as IndRNN: the background is -1
    "zero-one": (1 / 255, 0.0),
}
VALIDATIONS = ("random-5%", "last-10000")

Images = dict[str, tuple[np.ndarray, np.ndarray]]  # "train", "test" -> uint8 (count, 784), uint8 (count,)


class PixelSequences(SampledTask):
    """Ten classes of 28 x 28 images as 784 steps of one pixel."""

    kind = "classify-last"
    metric = "error_percent"
    input_size = 1
    output_size = 10
    length = PIXELS

    def __init__(self, name: str, images: Images, permutation: str, scaling: str, validation: str) -> None:
        check_options(permutation, scaling, validation)
        self.order = order(permutation)
        self.permutation, self.scaling, self.validation = permutation, scaling, validation
        self._task, self._images = name, images
        shown = [] if permutation == "rowwise" else [permutation]
        shown += [] if scaling == "minus-one-one" else [scaling]
        shown += [] if validation == "random-5%" else [f"validation {validation}"]
        self.name = f"{name}[{', '.join(shown)}]" if shown else name

        count = len(images["train"][1])
        if validation == "last-10000":
            if count <= 10_000:
                raise ValueError(
                    f"validation='last-10000' leaves nothing to train on: {name} has {count} training images"
                )
            train, valid = np.arange(count - 10_000), np.arange(count - 10_000, count)
        else:
            shuffled = rng.permutation(count, "mnist", "validation")
            valid, train = np.sort(shuffled[: count // 20]), np.sort(shuffled[count // 20 :])
        # split -> where its images are in the source
        self.source_index = {"train": train, "valid": valid, "test": np.arange(len(images["test"][1]))}

    def count(self, split: str) -> int:
        self._check_split(split)
        return len(self.source_index[split])

    def fetch(self, split: str, indices: np.ndarray, generator: Callable[[], np.random.Generator]) -> Batch:
        pixels, labels = self._rows(split, indices)
        scale, shift = SCALINGS[self.scaling]
        x = torch.from_numpy(pixels).t().to(torch.float32, memory_format=torch.contiguous_format)  # (784, B)
        return x.mul_(scale).add_(shift).unsqueeze(2), torch.from_numpy(labels.astype(np.int64))

    def _rows(self, split: str, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels in reading order, uint8 (B, 784), and labels, uint8 (B,)."""
        images, labels = self._images["test" if split == "test" else "train"]
        source = self.source_index[split][indices]
        return images[source].take(self.order, axis=1), labels[source]

    def definition(self) -> dict[str, Any]:
        return {
            "task": self._task,
            "permutation": self.permutation,
            "order_sha256": order_hash(self.order),
            "distinct_pixels": len(np.unique(self.order)),
            "scaling": self.scaling,
            "validation": self.validation,
            "split_sha256": rng.digest(*(self.source_index[split] for split in self.splits)),
            "train_sha256": rng.digest(*self._images["train"]),
            "test_sha256": rng.digest(*self._images["test"]),
        }

    def info(self) -> dict[str, Any]:
        labels = {split: self._rows(split, np.arange(self.count(split)))[1] for split in self.splits}
        return super().info() | {
            "labels": {split: np.bincount(of, minlength=10).tolist() for split, of in labels.items()}
        }

    def to_dataset(self, split: str) -> "datasets.Dataset":
        """Columns `pixels` (784 uint8 in reading order, unscaled), `label`, and `index` in the source's file."""
        import datasets
        import pyarrow as pa

        pixels, labels = self._rows(split, np.arange(self.count(split)))
        columns = {
            "pixels": pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), PIXELS),
            "label": pa.array(labels.astype(np.int64)),
            "index": pa.array(self.source_index[split].astype(np.int64)),
        }
        features = {
            "pixels": datasets.Sequence(datasets.Value("uint8"), length=PIXELS),
            "label": datasets.ClassLabel(num_classes=10),
            "index": datasets.Value("int64"),
        }
        return datasets.Dataset(pa.table(columns)).cast(datasets.Features(features))

    def picture(self, path: str | Path) -> None:
        source = self.source_index["train"][:30]
        images, labels = self._images["train"]
        save_digits(path, self.name, images[source], labels[source], self.order)


@register("mnist", summary="Sequential MNIST, pixels row by row.", task="mnist", permutation="rowwise")
@register("pmnist", task="pmnist")
def real_digits(
    task: str,
    permutation: str = "exprnn",
    scaling: str = "minus-one-one",
    validation: str = "random-5%",
    data_folder: str | None = None,
) -> PixelSequences:
    """Permuted MNIST; `tasks.orders.order` lists the permutations."""
    check_options(permutation, scaling, validation)  # a wrong option must not cost a download
    built = PixelSequences(task, _read(data_folder), permutation, scaling, validation)
    built.licence = data_set("mnist").licence
    return built


@register(
    "mnist-synthetic",
    summary="Stand-in for mnist: drawn digits, 12,000 to learn from and 2,000 to test on.",
    stands_in_for="mnist",
    task="mnist-synthetic",
    permutation="rowwise",
)
@register("pmnist-synthetic", stands_in_for="pmnist", task="pmnist-synthetic")
def drawn_digits(task: str, permutation: str = "exprnn", scaling: str = "minus-one-one") -> PixelSequences:
    """Stand-in for pmnist."""
    check_options(permutation, scaling, "random-5%")
    built = PixelSequences(task, digits.draw_all(), permutation, scaling, "random-5%")
    built.is_standin = True
    built.licence = "generated, no licence needed"
    return built


def check_options(permutation: str, scaling: str, validation: str) -> None:
    """Raise ValueError for a value that no task of pixels takes."""
    order(permutation)
    if scaling not in SCALINGS:
        raise ValueError(f"scaling={scaling!r} must be one of: {', '.join(SCALINGS)}")
    if validation not in VALIDATIONS:
        raise ValueError(f"validation={validation!r} must be one of: {', '.join(VALIDATIONS)}")


@lru_cache(maxsize=1)
def _read(data_folder: str | None) -> Images:
    contents = download.load("mnist", data_folder)
    images: Images = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        # headers of 16 and 8 bytes; that they are what they should be follows from the hash of the whole file
        pixels = np.frombuffer(contents[f"{prefix}-images-idx3-ubyte"], dtype=np.uint8, offset=16)
        labels = np.frombuffer(contents[f"{prefix}-labels-idx1-ubyte"], dtype=np.uint8, offset=8)
        images[split] = pixels.reshape(-1, PIXELS), labels
    return images
