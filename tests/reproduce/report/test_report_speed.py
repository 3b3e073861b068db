"""Publishing a measurement of speed: what is written where, with times that nobody measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from models.kernels import report
from models.kernels.rows import CLIPS, ROWS
from models.kernels.session import Session
from models.kernels.tables import Speed
from models.kernels.timing import Times
from reproduce.report import readme, speed
from reproduce.train import overhead
from reproduce.train.overhead import Overhead


def times(first: str, second: str, yardstick: str) -> Times:
    return Times({first: [0.5] * 3, second: [1.0] * 3, yardstick: [0.1] * 3}, settled=True, others=0.0, stolen=0.0)


FAKE = Session(
    "AVX512", True, dict.fromkeys(ROWS, 1e-7), sgemm=1e12, stream=1e9,
    times={key: times("ours", row.against, "stream" if row.is_elementwise else "sgemm") for key, row in ROWS.items()}
    | {key: times("constrain_", "step", "other") for key in CLIPS},
)  # fmt: skip
UPDATE = Overhead(
    "durnn on a task",
    Times({name: [0.1] * 3 for name in ("update", "model", *overhead.SMALL, "projection")}, settled=True),
    evaluation=1.0,
    every=10,
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "in_new_process", lambda request, env=None: FAKE)
    monkeypatch.setattr(overhead, "in_new_process", lambda name, threads: UPDATE)


@pytest.mark.usefixtures("measured")
def test_one_command_writes_the_measurement_and_the_readme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, page = tmp_path / "speed", tmp_path / "README.md"
    page.write_text("before\n<!-- generated: speed -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(speed, "FOLDER", folder)
    monkeypatch.setattr(speed.published, "__defaults__", (folder,))
    monkeypatch.setattr(readme, "README", page)
    speed.main(threads=1)
    (saved,) = folder.iterdir()
    found = Speed.load(saved)
    assert [session.instructions for session in found.sessions] == ["AVX512", "AVX512"]
    assert set(found.updates) == set(overhead.MEASURED)
    text = page.read_text()
    assert text == f"before\n<!-- generated: speed -->\n{speed.readme_part([found])}\n<!-- end -->\nafter\n"
    assert "| DuRNN | 784, 32, 128 | nn.LSTM | 500.0 |" in text
    assert "- durnn on a task: an update takes 100.0 ms." in text


@pytest.mark.usefixtures("measured")
def test_a_trial_leaves_the_published_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(readme, "main", lambda: pytest.fail("wrote the README"))
    speed.main(threads=1, save=tmp_path / "trial.json")
    assert Speed.load(tmp_path / "trial.json").updates == {name: asdict(UPDATE) for name in overhead.MEASURED}


def test_red_numerics_publish_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    red = replace(FAKE, numerics={"durnn-mnist": 1.0}, times={})
    monkeypatch.setattr(report, "in_new_process", lambda request, env=None: red)
    monkeypatch.setattr(overhead, "measure", lambda threads: pytest.fail("measured although numerics are red"))
    with pytest.raises(SystemExit):
        speed.main(save=tmp_path / "red.json")
    assert not list(tmp_path.iterdir())


def test_a_readme_without_measurements_says_so() -> None:
    assert speed.readme_part([]) == "No measurement is published yet."
