"""Records of format 1 become records of the present format, once, and keep the ids they had."""

import json
import shutil
from pathlib import Path

import pytest

from reproduce.report import migrate, records

OLD = Path(__file__).with_name("records_format_1")


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(OLD, tmp_path / "records")
    return tmp_path / "records"


def test_old_records_are_refused_with_what_to_do(folder):
    found = records.read_all(folder)
    assert found.good == []
    assert all("reproduce.report.migrate" in problem for problem in found.problems)


def test_migrated_records_keep_name_id_and_numbers(folder):
    before = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    assert migrate.main(folder) == 0
    found = records.read_all(folder)
    assert found.problems == []
    assert {r.file_name for r in found.good} == set(before)
    for r in found.good:
        old = before[r.file_name]
        assert r.run == old["run"] == migrate.identity_of_format_1(old)
        for name in ("test", "valid", "steps_done", "commit", "weights_sha256", "parameters", "finished"):
            assert getattr(r, name) == old[name]
        assert [p.model_dump() for p in r.curve] == old["curve"]
        assert r.migrated.settings == old["recipe"]


def test_flat_settings_become_parts(folder):
    migrate.main(folder)
    (lstm,) = [r for r in records.read_all(folder).good if r.row == "lstm"]
    assert lstm.settings.explicit() == {
        "model": {"name": "lstm", "hidden_size": 128, "num_layers": 1},
        "training": {"updates": 8905, "batch_size": 32},
        "optimiser": {"name": "adam", "lr": 1e-3, "betas": [0.9, 0.999]},
        "schedule": {"name": "cosine"},
        "clip": {"value": 1.0},
        "evaluation": {"every": 1781, "statistics_batches": 50},
        "data": {"scaling": "minus-one-one", "validation": "random-5%"},
    }
    assert lstm.sources["optimiser.lr"].startswith("ours: five epochs")
    (durnn,) = [r for r in records.read_all(folder).good if r.cell == "ptb-c"]
    assert durnn.settings.explicit()["input"] == {"name": "embedding", "size": 256, "range": 0.04}
    assert durnn.settings.model.options["norm"] == "frame"


def test_partial_data_becomes_a_field(folder):
    migrate.main(folder)
    partial = {r.task.name: r.task.partial for r in records.read_all(folder).good}
    assert partial["ntu-cs[10 of 60 classes]"] == "10 of 60 classes"
    assert partial["ntu-cs-synthetic"] == ""
    assert partial["adding[1000]"] == ""


def test_ends_become_words():
    assert migrate.ended_word("time cap of 50 s") == "time-cap"
    assert migrate.ended_word("SIGTERM") == "interrupted"
    assert set(migrate.ENDED.values()) <= set(records.Ended.__args__)


def test_second_migration_changes_nothing(folder):
    migrate.main(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert migrate.main(folder) == 0
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("how", ["test", "run"])
def test_edited_records_are_left_alone_and_named(folder, how, capsys):
    path = sorted(folder.iterdir())[0]
    data = json.loads(path.read_text())
    if how == "test":
        data["test"] = 0.0
    else:
        data["budget"] = "paper"
        data["seal"] = records.seal(data)
    path.write_text(json.dumps(data))
    before = path.read_bytes()
    assert migrate.main(folder) == 1
    assert path.read_bytes() == before
    assert path.name in capsys.readouterr().out
