"""``run.py compare`` on a repository with an unchanged, a slowed and a hungrier commit."""

import shutil

import pytest
from asv_repository import Repository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

CASE = ("--models", "indrnn", "--shapes", "adding-100")

VARIANTS = {
    "unchanged": "pass",
    "slowed": "__import__('time').sleep(0.02)",
    "hungrier": "projected_indrnn_scan.held = x.new_ones(2**23)",
    "other-results": "x = x * 1.01",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = Repository(tmp_path_factory.mktemp("compared"), "suite", "models", "asv_bench")
    made.commit("Base")
    made.git("tag", "base")
    for tag, line in VARIANTS.items():
        made.edit_kernel(line)
        made.commit(tag)
        made.git("tag", tag)
    return made


def compare(repository: Repository, commit: str, *options: str) -> tuple[int, str]:
    done = repository.run("compare", "base", commit, *CASE, *options)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_slowed_commit_is_flagged_and_an_unchanged_one_is_not(repository: Repository):
    status, output = compare(repository, "slowed", "--launches", "2")
    assert status == 1, output
    assert "SLOWER" in output
    status, output = compare(repository, "unchanged", "--launches", "2")
    assert status == 0, output
    assert "0 of 1 cases regressed" in output
    assert "results changed" not in output


@pytest.mark.slow
@pytest.mark.parametrize("time", range(1, 6))
@pytest.mark.parametrize(("commit", "status"), [("slowed", 1), ("unchanged", 0)])
def test_five_times_out_of_five(repository: Repository, commit: str, status: int, time: int):
    found, output = compare(repository, commit)
    assert found == status, output


@pytest.mark.slow
def test_memory_and_results_are_compared_too(repository: Repository):
    status, output = compare(repository, "hungrier", "--launches", "2")
    assert status == 1, output
    assert "MORE MEMORY" in output
    status, output = compare(repository, "other-results", "--launches", "2")
    assert status == 0, output
    assert "results changed" in output


def test_a_commit_that_does_not_exist_is_named(repository: Repository):
    status, output = compare(repository, "no-such-commit")
    assert status == 2
    assert "'no-such-commit' is not a commit" in output
    assert "Traceback" not in output


def test_too_few_pairs_are_refused_before_anything_is_measured(repository: Repository):
    status, output = compare(repository, "unchanged", "--launches", "1", "--rounds", "2")
    assert status == 2
    assert "at least 10" in output
