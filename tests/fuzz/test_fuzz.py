"""Thousands of damaged files: each is read as it was, or refused in one sentence, in bounded time.

``DURNN_FUZZ_SCALE`` multiplies the number of cases (default 1), ``DURNN_FUZZ_SEED`` chooses others (default 0). A case
that fails names its number, which with the seed makes it again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import damaged, edited
from recipe_samples import MINIMAL
from record_samples import make_record
from rich.console import Console
from run_samples import make_place, make_run
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from reproduce.plan import recipe
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.parts import Settings
from reproduce.plan.runs import identity
from reproduce.report import estimates, latex, publish, records, tables
from reproduce.report.selection import blocks
from reproduce.train import checkpoint
from reproduce.train.loop import train
from suite.files import sha256
from tasks.download import DataError
from tasks.ntu.clip import FARTHEST, MAX_FRAMES, Clip, SkeletonError
from tasks.ntu.names import ClipName
from tasks.ntu.packing import pack
from tasks.ntu.readers import official_npy, text
from tasks.ntu.readers.clip_sets import ClipArchive, ClipFolder
from tasks.ntu.standin.clip_set import GeneratedClips
from tasks.ntu.standin.sensor import film

pytestmark = pytest.mark.slow

SCALE = float(os.environ.get("DURNN_FUZZ_SCALE", "1"))
SEED = int(os.environ.get("DURNN_FUZZ_SEED", "0"))
SECONDS = 60.0  # for one case: a bound on a hang, not a measurement


class HangError(BaseException):
    """Not an Exception, so that no reader mistakes it for a damaged file."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fuzz(kind: str, count: int, attempt: Callable[[random.Random], bool]) -> None:
    """Do cases; ``attempt`` says whether what it damaged was still read."""
    total, accepted = max(1, round(count * SCALE)), 0
    for number in range(total):
        try:
            with bounded():
                accepted += attempt(random.Random(f"{kind} {SEED} {number}"))
        except BaseException as error:
            raise AssertionError(f"{kind}, case {number} of seed {SEED}: {type(error).__name__}: {error}") from error
    print(f"{kind}: {total} cases, {accepted} read, {total - accepted} refused")


def one_sentence(error: BaseException, start: str = "") -> None:
    said = str(error)
    assert said, "nothing was said"
    assert said.startswith(start), said
    assert "\n" not in said, said
    assert "Traceback" not in said


def same(a: Clip, b: Clip) -> bool:
    return a.length == b.length and all(
        np.array_equal(x, y) for x, y in ((a.frame, b.frame), (a.body, b.body), (a.joints, b.joints))
    )


def small_clip(seed: int) -> Clip:
    generator = np.random.default_rng(seed)
    frame = np.array([0, 0, 1, 3, 3], np.int64)
    body = np.array([7, 2**64 - 1, 7, 2**64 - 1, 7], np.uint64)
    return Clip(4, frame, body, generator.normal(0.0, 2.0, (5, 25, 3)).astype(np.float32))


TEXTS = tuple(text.dump(small_clip(seed), newline, digits) for seed, newline, digits in ((0, "\n", 9), (1, "\r\n", 7)))


def outcome(read: Callable[[bytes, str], Clip], data: bytes) -> tuple[Clip | None, str]:
    try:
        return read(data, "clip"), ""
    except SkeletonError as error:
        one_sentence(error)
        return None, str(error)


def test_texts() -> None:
    def attempt(rng: random.Random) -> bool:
        data = damaged(rng.choice(TEXTS), rng, TEXTS)
        clip, message = outcome(text.parse, data)
        expected, same_message = outcome(text.parse_by_line, data)
        assert message == same_message
        assert (clip is None) == (expected is None)
        assert clip is None or expected is None or same(clip, expected)
        return clip is not None

    fuzz("NTU texts", 4000, attempt)


def npy(bodies: int) -> bytes:
    content: dict[str, Any] = {"file_name": "S001C001P001R001A001", "nbodys": [1, 1], "njoints": np.int64(25)}
    for slot in range(bodies):
        content[f"skel_body{slot}"] = np.random.default_rng(slot).normal(0.0, 2.0, (4, 25, 3))
    stream = io.BytesIO()
    np.save(stream, np.array(content, dtype=object), allow_pickle=True)
    return stream.getvalue()


def test_npy() -> None:
    whole = tuple(map(npy, (1, 2, 3)))

    def attempt(rng: random.Random) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy on headers of other times
            clip, _ = outcome(official_npy.parse, damaged(rng.choice(whole), rng, whole))
        if clip is not None:
            assert clip.length <= MAX_FRAMES
            assert (np.abs(clip.joints) <= FARTHEST).all()
        return clip is not None

    fuzz("NTU npy", 3000, attempt)


def test_zips(tmp_path: Path) -> None:
    names = ("S001C001P001R001A001", "S001C002P003R002A055")
    clips = {name: text.parse(data, name) for name, data in zip(names, TEXTS, strict=True)}
    wholes = []
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", compression) as archive:
            for name, data in zip(names, TEXTS, strict=True):
                archive.writestr(f"all/{name}.skeleton", data)
        wholes.append(stream.getvalue())

    def attempt(rng: random.Random) -> bool:
        path = tmp_path / "all.zip"
        path.write_bytes(damaged(rng.choice(wholes), rng, tuple(wholes)))
        read = 0
        with warnings.catch_warnings(), contextlib.suppress(DataError):
            warnings.simplefilter("ignore")  # zipfile on names that stand twice
            archive = ClipArchive(path)
            for name in archive.names:
                with contextlib.suppress(SkeletonError):
                    clip = archive.read(name)
                    assert any(same(clip, known) for known in clips.values())
                    read += 1
        return read > 0

    fuzz("NTU zips", 3000, attempt)


def read_record(path: Path) -> records.Record | None:
    try:
        return records.read(path)
    except ValueError as error:
        one_sentence(error, f"{path.name}: ")
        return None


def test_damaged_records(tmp_path: Path) -> None:
    made = make_record()
    whole, path = records.to_json(made).encode(), tmp_path / "record.json"

    def attempt(rng: random.Random) -> bool:
        path.write_bytes(damaged(whole, rng))
        record = read_record(path)
        assert record in (None, made), "a record was changed and believed"
        return record is not None

    fuzz("damaged records", 500, attempt)


def test_edited_and_resealed_records(tmp_path: Path) -> None:
    """Whoever seals anew is believed; what they wrote may be nonsense but must not end a report."""
    whole = json.loads(records.to_json(make_record()))
    good = [make_record(seed=seed) for seed in (1, 2)]
    experiment, path = EXPERIMENTS["table1"], tmp_path / "record.json"

    def attempt(rng: random.Random) -> bool:
        data = edited(whole, rng)
        with contextlib.suppress(Exception):
            data["run"] = identity(Settings(**data["settings"]), data["task"]["fingerprint"], data["seed"])
        with contextlib.suppress(Exception):
            data["seal"] = records.seal(data)
        path.write_text(json.dumps(data))
        record = read_record(path)
        if record is None:
            return False
        estimates.time_left("table1", "durnn-1", record.settings, 0, [record])
        estimates.time_left("table1", "durnn-1", good[0].settings, 0, [record])
        shown = blocks(experiment, good, [record], ())
        publish.show(experiment, shown, True, Console(file=io.StringIO(), width=100))
        for written in (tables.markdown(experiment, shown, True), latex.latex(experiment, shown, True)):
            written.encode()
        return True

    fuzz("resealed records", 500, attempt)


def test_recipes(tmp_path: Path) -> None:
    """Damaged text, and values of every kind in every place."""
    whole = (recipe.RECIPES / "adding.toml").read_bytes(), MINIMAL.encode()
    parsed = recipe.tomllib.loads(MINIMAL)

    def attempt(rng: random.Random) -> bool:
        try:
            if rng.random() < 0.5:
                (tmp_path / "r.toml").write_bytes(damaged(whole[rng.random() < 0.9], rng, whole))
                recipe.load.cache_clear()
                recipe.load("r", tmp_path)
            else:
                recipe.check(edited(parsed, rng) | {"name": "r"}, "r.toml")
        except ValueError as error:
            one_sentence(error)
            return False
        return True

    fuzz("recipes", 1000, attempt)


def broken(meta: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Meta data of a checkpoint with a value lost or of a kind that it cannot be."""
    key = rng.choice([key for key in meta if key not in ("run", "shapes")])
    if rng.random() < 0.3:
        return {name: value for name, value in meta.items() if name != key}
    values: list[Any] = ["x", [[]], {"a": 1}, [1], True]
    return meta | {key: rng.choice([*values, -1, 10**40] if key in ("step", "epoch", "position") else values)}


def rewrite(path: Path, rng: random.Random) -> None:
    """Put wrong content under a name that fits it."""
    tensors, meta = load_tensors(path.read_bytes()), checkpoint._meta(path.read_bytes())
    name = rng.choice(sorted(tensors))
    match rng.randrange(3):
        case 0:
            tensors[name] = tensors[name].reshape(-1)[:0]
        case 1:
            del tensors[name]
        case _:
            meta = broken(meta, rng)
    data = save_tensors(tensors, {"meta": json.dumps(meta)})
    path.unlink()
    path.with_name(f"{path.name[:14]}-{sha256(data)}.safetensors").write_bytes(data)


def test_checkpoints(tmp_path: Path) -> None:
    """A run continues to the same bits over whatever its folder holds."""
    run = make_run(training={"updates": 24}, evaluation={"every": 6})
    expected = train(run, make_place(tmp_path / "whole"))
    assert expected.record is not None
    saved = make_place(tmp_path / "saved", checkpoint_updates=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "clear", lambda folder: None)
        train(run, saved)
    shutil.rmtree(saved.records)
    place = make_place(tmp_path / "damaged")

    def attempt(rng: random.Random) -> bool:
        shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
        shutil.copytree(saved.runs, place.runs)
        folder = run.folder(place.runs)
        files = sorted(folder.glob("step-*"))
        for path in rng.sample(files, rng.choice((1, len(files)))):
            if rng.random() < 0.6:
                path.write_bytes(damaged(path.read_bytes(), rng))
            else:
                rewrite(path, rng)
        (folder / checkpoint.WEIGHTS).write_bytes(damaged((folder / checkpoint.WEIGHTS).read_bytes(), rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = train(run, place)
        assert done.record is not None
        for field in ("test", "valid", "valid_step", "weights_sha256", "curve", "steps_done"):
            assert getattr(done.record, field) == getattr(expected.record, field), field
        return done.record.lineage[-1].from_step > 0

    fuzz("checkpoints", 250, attempt)


def test_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed clips are what the files say, whatever stands in the cache."""
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "cache"))
    files = tmp_path / "files"
    files.mkdir()
    for name in sorted(GeneratedClips(2, 0).names)[::90]:
        (files / f"{name}.skeleton").write_bytes(text.dump(film(ClipName.parse(name), 0)))
    expected = {
        convention: sha256(pack(ClipFolder(files), "x").frames(convention).tobytes())
        for convention in ("raw", "s-trans")
    }
    (home,) = (tmp_path / "cache" / "data" / "ntu").glob("x-*")
    shutil.copytree(home, tmp_path / "saved")

    def attempt(rng: random.Random) -> bool:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(tmp_path / "saved", home)  # with the times of the files
        paths = sorted(path for path in home.iterdir() if path.is_file() and not path.name.startswith("."))
        before = {path: path.stat().st_ino for path in paths}
        for path in rng.sample(paths, rng.choice((1, 2))):
            path.write_bytes(damaged(path.read_bytes(), rng))
        packed = pack(ClipFolder(files), "x")
        for convention, digest in expected.items():
            assert sha256(packed.frames(convention).tobytes()) == digest
        return all(path.exists() and path.stat().st_ino == inode for path, inode in before.items())

    fuzz("caches", 250, attempt)
