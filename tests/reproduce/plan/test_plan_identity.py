"""Identity: what a run is called depends on what was set and on nothing that may be added later."""

import inspect
import json
from pathlib import Path

import pytest
from pydantic import Field
from run_samples import make_run

import models
import tasks
from models import inputs, readouts
from reproduce.plan import parts, runs
from reproduce.plan.parts import Part, Settings
from reproduce.plan.runs import ROOT
from reproduce.report import records
from reproduce.train import optimisers, schedules

FROZEN = Path(__file__).with_name("frozen_defaults.json")


class Averaging(Part):
    """A part that the suite does not have."""

    decay: float = Field(gt=0)
    start: int = 0


class LaterSettings(Settings):
    averaging: Averaging | None = None


def committed():
    return sorted((ROOT / "results" / "records").glob("*.json"))


def test_a_new_optional_part_changes_no_id_and_breaks_no_record(monkeypatch):
    before = {path: records.read(path) for path in committed()}
    assert len(before) >= 69

    class LaterRecord(records.Record):
        settings: LaterSettings

    monkeypatch.setattr(records, "Record", LaterRecord)
    for path, record in before.items():
        later = records.read(path)
        assert isinstance(later.settings, LaterSettings)
        assert (later.run, later.identity) == (record.run, record.identity)
    run = make_run()
    absent = LaterSettings(**run.settings.explicit())
    assert runs.identity(absent, run.fingerprint, run.seed) == run.id
    present = LaterSettings(**run.settings.explicit(), averaging={"decay": 0.9})
    assert runs.identity(present, run.fingerprint, run.seed) != run.id


def test_ids_of_committed_records_follow_from_their_content():
    for path in committed():
        record = records.read(path)
        if record.migrated is None:
            assert record.run == record.identity


def test_a_default_that_is_written_out_is_another_identity_than_one_that_is_not():
    """Only what is explicit is hashed, so that a recipe and not the code decides what a run is called."""
    assert make_run(optimiser={"betas": [0.9, 0.999]}).id != make_run().id


def defaults():
    """Every default that a run may rest on without its recipe saying so."""
    found = {
        "parts": {
            name: {key: field.default for key, field in part.model_fields.items() if not field.is_required()}
            for name, part in inspect.getmembers(parts, inspect.isclass)
            if issubclass(part, parts.Part)
        },
        "models": {name: models.options(name) for name in models.names()},
        "inputs": {name: inputs.options(name) for name in inputs.names()},
        "readouts": {name: readouts.options(name) for name in readouts.names()},
        "optimisers": {name: optimisers.options(name) for name in optimisers.names()},
        "schedules": {name: schedules.options(name) for name in schedules.SCHEDULES},
        "tasks": {name: tasks.options(name) for name in tasks.names()},
    }
    return json.loads(json.dumps(found, default=lambda value: f"<{getattr(value, '__name__', value)}>"))


def test_defaults_are_frozen():
    """To change one on purpose: raise parts.SCHEMA and write this file anew (run this module as a script)."""
    frozen = json.loads(FROZEN.read_text())
    assert frozen.pop("schema") == parts.SCHEMA
    now = defaults()
    for kind, entries in frozen.items():
        for name, options in entries.items():
            assert now[kind].get(name) is not None, f"{kind}: {name} is gone"
            for option, default in options.items():
                assert now[kind][name].get(option, "gone") == default, f"{kind}: {name}.{option}"
    assert now == frozen, "something new has defaults that are not frozen yet; run this module as a script"


def test_frozen_defaults_notice_a_change(monkeypatch):
    monkeypatch.setattr(optimisers.rmsprop, "__kwdefaults__", {"alpha": 0.9, "eps": 1e-8, "momentum": 0.0})
    with pytest.raises(AssertionError, match=r"optimisers: rmsprop\.alpha"):
        test_defaults_are_frozen()


if __name__ == "__main__":
    FROZEN.write_text(json.dumps({"schema": parts.SCHEMA} | defaults(), indent=1, sort_keys=True) + "\n")
