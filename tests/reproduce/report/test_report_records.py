"""Records go out and come in whole, or are reported and left alone."""

import contextlib
import io
import json
import os

import jsonschema
import pytest
from record_samples import make_record
from rich.console import Console
from run_samples import make_place

from reproduce.plan import recipe
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.runs import ROOT
from reproduce.report import estimates, publish, records


def damage(path, how):
    data = json.loads(path.read_text())
    if how == "edited":
        data["test"] = 0.96
    elif how == "other version":
        data["format"] = 3
    elif how == "unknown key":
        data["best_test_epoch"] = 3
    elif how == "missing key":
        del data["seed"]
    elif how == "wrong type":
        data["seed"] = "zero"
    path.write_text(json.dumps(data)[: -20 if how == "half-written" else None])
    if how == "empty":
        path.write_text("")
    elif how == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    elif how == "no record":
        path.write_text("[1, 2]")


def test_round_trip(tmp_path):
    made = make_record()
    path = records.write(made, tmp_path)
    assert records.read(path) == made
    jsonschema.validate(json.loads(path.read_text()), json.loads(records.SCHEMA.read_text()))


def test_committed_schema_is_that_of_the_code():
    assert records.SCHEMA.read_text() == records.schema()


@pytest.mark.parametrize(
    "how",
    [
        "edited",
        "other version",
        "unknown key",
        "missing key",
        "wrong type",
        "half-written",
        "empty",
        "binary",
        "no record",
    ],
)
def test_bad_records_are_reported_and_kept(tmp_path, how):
    good = records.write(make_record(seed=1), tmp_path)
    bad = records.write(make_record(seed=2), tmp_path)
    damage(bad, how)
    before = bad.read_bytes()
    found = records.read_all(tmp_path)
    assert [r.seed for r in found.good] == [1]
    (problem,) = found.problems
    assert bad.name in problem
    assert "\n" not in problem
    assert bad.read_bytes() == before
    assert good.exists()


def nested(levels):
    inner = {}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


HOSTILE = {
    "length of 0": lambda data: data["task"].update(length=0),
    "nested": lambda data: data["settings"].update(data=nested(300)),
    "nested in what was migrated": lambda data: data.update(
        migrated={"format": 1, "settings": nested(300), "ended_by": "", "seal": ""}
    ),
    "no number": lambda data: data.update(test=float("nan")),
    "endless number": lambda data: data.update(steps_done=10**400),
    "negative rate": lambda data: data.update(steps_per_second=-1.0),
    "no units": lambda data: data["settings"]["model"].update(hidden_size=0),
    "no versions": lambda data: data.update(versions={}),
    "half a character": lambda data: data.update(command="\ud800"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_records_are_named_and_the_others_are_read(tmp_path, how):
    """Sealed anew where a seal can be made, so that nothing but the content speaks against them."""
    records.write(make_record(seed=1), tmp_path)
    bad = records.write(make_record(seed=2), tmp_path)
    data = json.loads(bad.read_text())
    HOSTILE[how](data)
    with contextlib.suppress(ValueError):
        data["seal"] = records.seal(data)
    bad.write_text(json.dumps(data))
    found = records.read_all(tmp_path)
    assert [r.seed for r in found.good] == [1]
    (problem,) = found.problems
    assert problem.startswith(f"{bad.name}: ")
    assert "\n" not in problem
    assert len(problem) < 400


def test_a_smoke_run_cannot_be_sealed_as_one_of_the_paper(tmp_path):
    path = records.write(make_record(budget="smoke"), tmp_path)
    data = json.loads(path.read_text()) | {"budget": "paper"}
    path.write_text(json.dumps(data | {"seal": records.seal(data)}))
    assert not records.is_current(records.read(path), recipe.load("table1")), "it would decide something"
    data["settings"] = make_record(budget="paper").settings.explicit()
    path.write_text(json.dumps(data | {"seal": records.seal(data)}))
    with pytest.raises(ValueError, match="its id is not that of its content"):
        records.read(path)


def test_markup_in_records_is_text(tmp_path):
    place, console = make_place(tmp_path), Console(file=io.StringIO(), width=100)
    records.write(make_record(partial="[/b]", command="[/b]", commit="[/b]"), place.records)
    (place.records / "newer.json").write_text('{"format": "[/b]"}')
    publish.report(EXPERIMENTS["table1"], place, console)
    said = console.file.getvalue()
    assert "skipped record: newer.json: has format '[/b]'" in said
    assert said.count("[/b]") > 1, "what part of the data it is stands nowhere"


def test_endless_nesting_and_a_pipe_are_named(tmp_path):
    (tmp_path / "deep.json").write_text('{"format":' * 100_000)
    os.mkfifo(tmp_path / "pipe.json")
    found = records.read_all(tmp_path)
    assert found.good == []
    assert [problem.partition(":")[0] for problem in found.problems] == ["deep.json", "pipe.json"]


def test_reports_go_on_over_records_without_speed_or_length():
    settings = make_record().settings
    slow = make_record(steps_per_second=0.0)
    empty = slow.model_copy(
        update={"steps_per_second": 1.0, "settings": settings.model_copy(update={"data": {"length": 0}})}
    )
    assert estimates.time_left("table1", "durnn-1", settings, 0, [slow, empty]) is None
    assert estimates.time_left("table1", "durnn-1", settings, 0, [slow, empty, make_record()]) > 0


def test_estimates_come_from_the_latest_records():
    def took(days: int, speed: float) -> records.Record:
        return make_record(seed=days, finished=f"2026-11-0{days}T00:00:00+00:00", steps_per_second=speed)

    known = [took(4, 20.0), took(1, 1.0), took(2, 1.0), took(3, 10.0), took(5, 40.0)]
    settings = known[0].settings
    assert estimates.time_left("table1", "durnn-1", settings, 0, known) == pytest.approx(settings.training.updates / 20)


def test_copy_of_a_record_counts_once(tmp_path):
    path = records.write(make_record(), tmp_path)
    (tmp_path / "copy.json").write_bytes(path.read_bytes())
    found = records.read_all(tmp_path)
    assert len(found.good) == 1
    assert "second record" in found.problems[0]


def test_no_records_is_no_problem(tmp_path):
    assert records.read_all(tmp_path / "nowhere") == records.Records([], [])


def test_committed_records_can_all_be_read():
    found = records.read_all(ROOT / "results" / "records")
    assert found.problems == []


@pytest.mark.parametrize("how", ["half-written", "other version", "edited"])
def test_what_cannot_be_read_is_kept_when_the_run_is_done_again(tmp_path, how):
    path = records.write(make_record(), tmp_path)
    damage(path, how)
    before = path.read_bytes()
    with pytest.warns(UserWarning, match=r"it is kept as .*\.aside"):
        records.write(make_record(), tmp_path)
    (aside,) = tmp_path.glob("*.aside")
    assert aside.read_bytes() == before
    assert records.read(path) == make_record()
