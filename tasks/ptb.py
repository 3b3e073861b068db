"""Character-level language modelling on the Penn Treebank, and its generated stand-in."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks import download, rng
from tasks.base import IGNORE, Batch, Task
from tasks.pictures import save_text
from tasks.registry import register
from tasks.sources import data_set
from tasks.standins import text as generated_text

if TYPE_CHECKING:
    import datasets

# The 50 symbols in the order of their ids. A newline is the symbol <eos>; the published character files write _ for
# a space.
SYMBOLS = "\n #$&'*-./0123456789<>N\\abcdefghijklmnopqrstuvwxyz"
EOS = 0
SEGMENTS = ("carried", "independent")

_ID_OF_BYTE = np.full(256, 255, dtype=np.uint8)
_ID_OF_BYTE[np.frombuffer(SYMBOLS.encode(), dtype=np.uint8)] = np.arange(len(SYMBOLS))


class CharacterText(Task):
    """Predict each character of a text from those before it; x is the text delayed by one, y the text.

    segments: "carried" cuts the text into `batch_size` parallel streams and each into stretches of `length` steps;
        batch k + 1 continues batch k, so the network's state is to be carried over (and detached).
        "independent" shuffles stretches of `length` characters; each starts from a fresh state.
    random_offset: each training epoch starts at a random character below 5 `length` (carried, as IndRNN) or below
        `length` (independent, as recurrent batch normalisation), so that cuts fall elsewhere every time.

    In "valid" and "test" every character is predicted exactly once. What does not fill the grid of streams and
    steps is padded, and labels there are IGNORE. The first character of the text is predicted from <eos>; the first
    of any other stream or stretch from the character before it, with a fresh state. Training drops what does not
    fill a batch.
    """

    kind = "classify-every"
    input_kind = "symbols"
    metric = "bits_per_character"
    input_size = output_size = len(SYMBOLS)

    def __init__(
        self, name: str, texts: dict[str, np.ndarray], length: int, segments: str, random_offset: bool
    ) -> None:
        if length < 1:
            raise ValueError(f"length={length} must be at least 1")
        if segments not in SEGMENTS:
            raise ValueError(f"segments={segments!r} must be one of: {', '.join(SEGMENTS)}")
        self.length, self.segments, self.random_offset = length, segments, random_offset
        self.carries_state = segments == "carried"
        shown = [str(length)]
        shown += [] if self.carries_state else [segments]
        shown += [] if random_offset else ["fixed start"]
        self.name = f"{name}[{', '.join(shown)}]"
        self._task, self._texts = name, texts  # split -> uint8 (characters,)

    def count(self, split: str) -> int:
        self._check_split(split)
        return len(self._texts[split])

    def batches_per_epoch(self, split: str, batch_size: int) -> int:
        count, T = self.count(split), self.length
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        if split == "train":
            # the same number whatever the offset of the epoch is
            batches = (count - self._offsets() + 1) // T // batch_size
            if batches < 1:
                raise ValueError(f"batch_size={batch_size} is too large: {self.name} has {count} training characters")
            return batches
        if self.carries_state:
            return _ceil(_ceil(count, batch_size), T)
        return _ceil(_ceil(count, T), batch_size)

    def _offsets(self) -> int:
        """How many different characters an epoch may start at."""
        if not self.random_offset:
            return 1
        return 5 * self.length if self.carries_state else self.length

    def _batches(self, split: str, batch_size: int, seed: int, epoch: int, start: int) -> Iterator[Batch]:
        batches = self.batches_per_epoch(split, batch_size)
        offset = 0
        if split == "train":
            offset = int(rng.below(rng.words(1, "ptb offset", seed, epoch), self._offsets())[0])
        if self.carries_state:
            per_stream = batches * self.length if split == "train" else _ceil(self.count(split), batch_size)
            firsts = offset + per_stream * np.arange(batch_size)  # where each stream begins
            for batch in range(start, batches):
                done = batch * self.length
                yield self._cut(split, firsts + done, min(self.length, per_stream - done))
        else:
            if split == "train":
                stretches = (self.count(split) - offset) // self.length
                order = rng.permutation(stretches, "ptb order", seed, epoch)
            else:
                order = np.arange(_ceil(self.count(split), self.length))
            for batch in range(start, batches):
                firsts = offset + self.length * order[batch * batch_size : (batch + 1) * batch_size]
                yield self._cut(split, firsts, self.length)

    def _cut(self, split: str, firsts: np.ndarray, steps: int) -> Batch:
        """Characters from `firsts` (B,) on, `steps` of each, as far as the text reaches."""
        text = self._texts[split]
        position = firsts + np.arange(steps)[:, None]  # (T, B)
        inside = position < len(text)
        if inside.all():
            x, y = text[position - 1].astype(np.int64), text[position].astype(np.int64)
        else:
            position = np.minimum(position, len(text) - 1)
            x = np.where(inside, text[position - 1], EOS).astype(np.int64)
            y = np.where(inside, text[position].astype(np.int64), IGNORE)
        x[position == 0] = EOS
        return torch.from_numpy(x), torch.from_numpy(y)

    def definition(self) -> dict[str, Any]:
        return {
            "task": self._task,
            "symbols": SYMBOLS,
            "length": self.length,
            "segments": self.segments,
            "random_offset": self.random_offset,
            **{f"{split}_sha256": rng.digest(self._texts[split]) for split in self.splits},
        }

    def text(self, split: str) -> str:
        """A split as text, one sentence per line."""
        return decode(self._texts[split])

    def to_dataset(self, split: str) -> "datasets.Dataset":
        """One row per line: `text` without its newline, and `ids` with <eos>. All `ids` in a row are the split."""
        import datasets

        self._check_split(split)
        lines = self.text(split).splitlines()
        ids = np.split(self._texts[split], np.flatnonzero(self._texts[split] == EOS) + 1)
        return datasets.Dataset.from_dict({"text": lines, "ids": [line for line in ids if len(line)]})

    def picture(self, path: str | Path) -> None:
        counts = np.bincount(self._texts["train"], minlength=len(SYMBOLS)).tolist()
        shown = {"\n": "eos", " ": "_"}
        named = {shown.get(symbol, symbol): number for symbol, number in zip(SYMBOLS, counts, strict=True)}
        excerpt = "\n".join(line[:130] for line in self.text("train").splitlines()[:12])
        save_text(path, self.name, {split: self.count(split) for split in self.splits}, excerpt, named)


def encode(text: bytes) -> np.ndarray:
    """Symbol ids, uint8, of a text whose lines are stripped and end in <eos>."""
    lines = text.splitlines()
    joined = b"".join(line.strip() + b"\n" for line in lines)
    ids = _ID_OF_BYTE[np.frombuffer(joined, dtype=np.uint8)]
    if ids.size and int(ids.max()) >= len(SYMBOLS):
        strange = joined[int(ids.argmax())]
        raise ValueError(f"the text has a character that is not among the {len(SYMBOLS)} symbols: {chr(strange)!r}")
    return ids


def decode(ids: np.ndarray) -> str:
    """The text of symbol ids."""
    return np.frombuffer(SYMBOLS.encode(), dtype=np.uint8)[ids].tobytes().decode()


@register("ptb-c")
def ptb_c(
    length: int = 50, segments: str = "carried", random_offset: bool = True, data_folder: str | None = None
) -> CharacterText:
    """Penn Treebank by characters; see `CharacterText` for the options."""
    return _text_task("ptb-c", lambda: _read(data_folder), length, segments, random_offset)


@register("ptb-c-synthetic", stands_in_for="ptb-c")
def ptb_c_synthetic(length: int = 50, segments: str = "carried", random_offset: bool = True) -> CharacterText:
    """Stand-in for ptb-c: sentences of a stochastic grammar in the same 50 symbols, a tenth of the size."""
    task = _text_task("ptb-c-synthetic", _generate, length, segments, random_offset)
    task.is_standin = True
    task.licence = "generated, no licence needed"
    return task


def _text_task(
    name: str, texts: Callable[[], dict[str, np.ndarray]], length: int, segments: str, random_offset: bool
) -> CharacterText:
    CharacterText(name, {}, length, segments, random_offset)  # a wrong option must not cost a download
    task = CharacterText(name, texts(), length, segments, random_offset)
    task.licence = data_set("ptb-c").licence
    return task


@lru_cache(maxsize=1)
def _read(data_folder: str | None) -> dict[str, np.ndarray]:
    contents = download.load("ptb-c", data_folder)
    return {split: encode(contents[f"ptb.{split}.txt"]) for split in Task.splits}


@lru_cache(maxsize=1)
def _generate() -> dict[str, np.ndarray]:
    return {split: encode(generated_text.write(split).encode()) for split in Task.splits}


def _ceil(count: int, size: int) -> int:
    return -(-count // size)
