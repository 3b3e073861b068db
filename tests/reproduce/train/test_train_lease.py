"""One attempt at a time writes into a run's folder, whatever stops, dies or sleeps."""

import json
import multiprocessing as mp
import os
import signal
import time
from dataclasses import replace

import pytest
from run_samples import make_place, make_run

from reproduce.report import records
from reproduce.train import checkpoint, lease
from reproduce.train.lease import LeaseLostError, Observer, look, take
from reproduce.train.loop import Training, train
from reproduce.train.outcome import Progress, Stop


@pytest.fixture(autouse=True)
def short_lease(monkeypatch):
    monkeypatch.setenv("DURNN_LEASE_SECONDS", "1")


def nothing_saved(_):
    return 0


def elsewhere(held):
    """As if the owner were on another machine: no lock here says anything about it."""
    held.state = replace(held.state, kernel="another", host="elsewhere")
    held.beat()
    held._unlock()
    return held


def test_a_lease_says_who_works_on_what_and_how_far(tmp_path):
    with take(tmp_path / "run", nothing_saved) as held:
        held.tell(Progress(7, 20, 0.5, None, 1.0, 13.0))
        held.beat()
        said = json.loads((tmp_path / "run" / "lease-0001" / "state.json").read_text())
        assert (said["process"], said["host"], said["attempt"], said["ended"]) == (
            os.getpid(),
            os.uname().nodename,
            1,
            "",
        )
        assert said["progress"]["step"] == 7
        held.end("schedule")
    assert look(tmp_path / "run").state.ended == "schedule"
    assert take(tmp_path / "run", nothing_saved).state.attempt == 2


def test_a_held_lease_is_not_given_away(tmp_path):
    with take(tmp_path, nothing_saved) as held:
        assert take(tmp_path, nothing_saved) is None
        assert take(tmp_path, nothing_saved, abandoned="1:somebody:3") is None
        held.beat()


def test_a_lease_elsewhere_is_abandoned_only_after_its_heartbeat_stood_still(tmp_path):
    """The observer's clock alone counts; what the owner's clock says stands nowhere."""
    held, now = elsewhere(take(tmp_path, nothing_saved)), [1000.0]
    observer = Observer(lambda: now[0])
    assert take(tmp_path, nothing_saved) is None, "a free lock says nothing about another kernel's processes"
    assert not observer.is_abandoned(tmp_path, look(tmp_path))
    now[0] += 0.9
    held.beat()
    assert not observer.is_abandoned(tmp_path, look(tmp_path))
    now[0] += 0.9
    assert not observer.is_abandoned(tmp_path, look(tmp_path)), "the heartbeat changed 0.9 s ago"
    assert take(tmp_path, nothing_saved) is None
    now[0] += 0.2
    seen = look(tmp_path)
    assert observer.is_abandoned(tmp_path, seen)
    held.beat()
    assert take(tmp_path, nothing_saved, seen.mark) is None, "it was renewed after it had been seen"
    successor = take(tmp_path, nothing_saved, look(tmp_path).mark)
    assert successor.state.attempt == 2


def test_who_lost_a_lease_writes_nothing(tmp_path):
    first = elsewhere(take(tmp_path, nothing_saved))
    first.write(tmp_path / "before", b"1")
    second = take(tmp_path, nothing_saved, look(tmp_path).mark)
    for action in (first.beat, lambda: first.write(tmp_path / "after", b"1")):
        with pytest.raises(LeaseLostError, match=rf"went to {os.uname().nodename}, process {os.getpid()}"):
            action()
    with first:
        first.end("schedule")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before", "lease-0002", "lock"]
    assert look(tmp_path).state == second.state


@pytest.mark.parametrize("moment", ["open", "fsync", "replace"])
def test_a_lease_lost_in_the_middle_of_a_write_stops_that_write(tmp_path, monkeypatch, moment):
    """Between two steps of a write the owner stands still, and another takes over."""
    first = elsewhere(take(tmp_path, nothing_saved))

    def taken_over(original):
        def act(*arguments):
            if look(tmp_path).number == 1 and "file.part" in os.listdir(tmp_path / "lease-0001"):
                assert take(tmp_path, nothing_saved, look(tmp_path).mark)
            return original(*arguments)

        return act

    if moment == "open":
        first.beat = lambda: take(tmp_path, nothing_saved, look(tmp_path).mark)
    else:
        monkeypatch.setattr(os, moment, taken_over(getattr(os, moment)))
    with pytest.raises(LeaseLostError):
        first.write(tmp_path / "file", b"late")
    assert look(tmp_path).number == 2
    assert not (tmp_path / "file").exists()


def test_a_record_on_another_disk_is_written_by_the_owner_alone(tmp_path, monkeypatch):
    first = elsewhere(take(tmp_path / "run", nothing_saved))
    real = os.replace

    def replaced(source, target):
        if "lease-" in str(source) and "lease-" not in str(target):
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    first.write(tmp_path / "record", b"1")
    assert (tmp_path / "record").read_bytes() == b"1"
    assert not list((tmp_path / "run" / "lease-0001").glob("*.part"))

    def taken_over(source, target):
        if str(source).endswith("record.part") and look(tmp_path / "run").number == 1:
            take(tmp_path / "run", nothing_saved, look(tmp_path / "run").mark)
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", taken_over)
    with pytest.raises(LeaseLostError):
        first.write(tmp_path / "record", b"2")
    assert (tmp_path / "record").read_bytes() == b"1"


def test_a_client_that_still_sees_the_old_name_of_a_lease_writes_nothing(tmp_path):
    """As over NFS, where a folder that was renamed elsewhere may be found under its old name for a while."""
    first = elsewhere(take(tmp_path, nothing_saved))
    take(tmp_path, nothing_saved, look(tmp_path).mark)
    (tmp_path / "lease-0001").mkdir()
    with pytest.raises(LeaseLostError):
        first.write(tmp_path / "late", b"1")
    assert not (tmp_path / "late").exists()


def contend(folder, number, start, won):
    start.wait()
    held = take(folder, nothing_saved, "" if number == 0 else f"{number}:")
    won.put(held is not None)
    time.sleep(0.3)


@pytest.mark.parametrize("number", [0, 3])
def test_of_many_takers_one_wins(tmp_path, number):
    context = mp.get_context("fork")
    start, won = context.Event(), context.Queue()
    if number:  # a lease that nobody can read is watched like any other, and taken when it has not changed
        (tmp_path / f"lease-{number:04d}").mkdir()
    takers = [context.Process(target=contend, args=(tmp_path, number, start, won)) for _ in range(8)]
    for taker in takers:
        taker.start()
    start.set()
    assert sorted(won.get(timeout=60) for _ in takers) == [False] * 7 + [True]
    for taker in takers:
        taker.join()
    assert [path.name for path in tmp_path.glob("*lease-*")] == [f"lease-{number + 1:04d}"]


def test_a_taker_that_comes_second_goes_away(tmp_path, monkeypatch):
    """Both saw the lease free; the other was quicker."""
    with take(tmp_path, nothing_saved) as held:
        held.end("interrupted")
    seen = look(tmp_path)
    winner = take(tmp_path, nothing_saved)
    with monkeypatch.context() as patch:
        patch.setattr(lease, "look", lambda _: seen)
        assert take(tmp_path, nothing_saved) is None
    assert look(tmp_path).state == winner.state


def test_a_latecomer_does_not_found_a_second_lease(tmp_path, monkeypatch):
    """It saw an empty folder, slept, and meanwhile two others had the run."""
    with monkeypatch.context() as patch:
        patch.setattr(lease, "look", lambda _: lease.Look(0, None))
        (tmp_path / "lease-0002").mkdir()
        assert take(tmp_path, nothing_saved) is None
    assert [path.name for path in tmp_path.glob("*lease-*")] == ["lease-0002"]


def die(folder, step, stopping=False, ended=""):
    """One attempt that begins at a checkpoint and ends in some way."""
    held = take(folder, lambda _: step)
    held.is_stopping = lambda: stopping
    if ended:
        held.end(ended)
    held.beat()
    held._unlock()
    return held.state.deaths


def test_deaths_count_until_a_later_checkpoint(tmp_path):
    assert [die(tmp_path, step) for step in (0, 0, 0, 10, 10, 10, 20)] == [0, 1, 2, 1, 2, 3, 1]


def test_a_preemption_is_no_death(tmp_path):
    assert [die(tmp_path, 0, stopping=True) for _ in range(5)] == [0] * 5
    assert [die(tmp_path, 0, ended="interrupted") for _ in range(5)] == [0] * 5
    assert [die(tmp_path, 0) for _ in range(2)] == [0, 1]
    assert die(tmp_path, 0, ended="interrupted") == 2, "an orderly end in between forgets no death"
    assert die(tmp_path, 0) == 2


def test_a_failed_run_starts_anew_when_it_is_asked_for_again(tmp_path):
    assert [die(tmp_path, 5) for _ in range(3)] == [0, 1, 2]
    assert die(tmp_path, 5, ended="failed") == 3
    assert die(tmp_path, 5) == 0


def test_the_third_death_without_a_later_checkpoint_is_a_failure(tmp_path):
    run, place = make_run(training={"updates": 20}), make_place(tmp_path)
    folder = run.folder(place.runs)
    for _ in range(3):
        die(folder, 0)
    failed = train(run, place)
    assert (failed.status, failed.record) == ("failed", None)
    assert failed.message == "its process died 3 times without getting past update 0"
    assert look(folder).state.ended == "failed"
    assert train(run, place).status == "completed", "asked for again, it is tried again"


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan"])
def test_a_lease_of_no_length_is_refused(monkeypatch, given):
    monkeypatch.setenv("DURNN_LEASE_SECONDS", given)
    with pytest.raises(ValueError, match="DURNN_LEASE_SECONDS"):
        lease.lease_seconds()


@pytest.mark.parametrize(
    ("owner", "after", "step", "left"),
    [(Training, "tensors", 20, {10}), (Training, "test", 60, {50, 60}), (checkpoint, "save_weights", 60, {50, 60})],
    ids=["checkpoint", "weights", "record"],
)
def test_a_training_whose_lease_is_taken_writes_nothing_more(tmp_path, monkeypatch, owner, after, step, left):
    """The takeover falls between the last look at the lease and the write."""
    run, place = make_run(training={"updates": 60}), make_place(tmp_path, checkpoint_updates=10)
    folder, original = run.folder(place.runs), getattr(owner, after)

    def then_taken_over(first, *arguments):
        made = original(first, *arguments)
        while getattr(first, "step", step) == step and look(folder).number == 1:
            take(folder, nothing_saved, look(folder).mark)
        return made

    monkeypatch.setattr(owner, after, then_taken_over)
    monkeypatch.setattr(lease.Lease, "raise_if_lost", lambda self: None)
    stopped = train(run, place)
    assert (stopped.status, "its lease went to" in stopped.message) == ("busy", True)
    assert {int(path.name.split("-")[1]) for path in folder.glob("step-*")} == left
    assert (folder / checkpoint.WEIGHTS).exists() == (after == "save_weights")
    assert not list(place.records.glob("*.json"))


def train_and_tell(run, place, told):
    outcome = train(run, place)
    told.put((outcome.status, outcome.message))


def files_of(*folders):
    """All that is there, with contents and times."""
    paths = (path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_an_owner_that_was_stopped_past_its_lease_writes_nothing_and_says_so(tmp_path):
    """SIGSTOP the owner, let another process finish the run, SIGCONT."""
    run = make_run(training={"updates": 100}, evaluation={"every": 50, "statistics_batches": None})
    whole = train(run, make_place(tmp_path / "whole"))
    place = make_place(tmp_path / "stopped", checkpoint_updates=10)
    folder = run.folder(place.runs)
    context = mp.get_context("fork")
    told = context.Queue()
    owner = context.Process(target=train_and_tell, args=(run, place, told), daemon=True)
    owner.start()
    while checkpoint.latest_step(folder) < 20:
        assert owner.is_alive()
        time.sleep(0.01)
    os.kill(owner.pid, signal.SIGSTOP)
    observer = Observer()
    while not observer.is_abandoned(folder, look(folder)):
        assert train(run, place).status == "busy", "the lease was not over yet"
        time.sleep(0.1)
    second = train(run, place, stop=Stop(), abandoned=look(folder).mark)
    assert second.status == "completed"
    assert second.record.weights_sha256 == whole.record.weights_sha256
    assert [visit.attempt for visit in second.record.lineage] == [1, 2]
    before = files_of(folder, place.records)
    os.kill(owner.pid, signal.SIGCONT)
    status, message = told.get(timeout=60)
    owner.join()
    assert status == "busy"
    assert message == (
        f"its lease went to {os.uname().nodename}, process {os.getpid()}, while this process stood still; "
        "it wrote nothing after that"
    )
    assert files_of(folder, place.records) == before
    assert len(records.read_all(place.records).good) == 1
