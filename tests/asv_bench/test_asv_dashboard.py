"""The dashboard of the committed results, published and opened in a real browser that may ask this machine only."""

import itertools
import json
import math
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import publish
import pytest
from asv_repository import ROOT, Repository
from chromium import Chromium, executable

RESULTS = ROOT / "asv_bench" / "results"
TRAIN_STEP = "zoo.Steps.time_train_step"

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def committed_results() -> list[Path]:
    """Oldest first."""
    paths = [path for path in RESULTS.glob("*/*.json") if path.name != "machine.json"]
    return sorted(paths, key=lambda path: json.loads(path.read_text())["date"])


def measured_points(figure: str) -> Counter[tuple[str, ...]]:
    """Machine, model and shape of every curve, and how many commits it has a value for."""
    points: Counter[tuple[str, ...]] = Counter()
    for path in committed_results():
        record = json.loads(path.read_text())
        values, params = (
            record["results"][figure][record["result_columns"].index(key)] for key in ("result", "params")
        )
        for case, value in zip(itertools.product(*params), values, strict=True):
            points[path.parent.name, *case] += value is not None and not math.isnan(value)
    return +points


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The committed results, filed under commits of a repository of our own: works without the suite's history."""
    made = Repository(tmp_path_factory.mktemp("published"), "suite", "asv_bench")
    for path in committed_results():
        record = json.loads(path.read_text())
        commit = made.commit(f"Stands for {record['commit_hash'][:8]}")
        record["commit_hash"] = commit
        target = made.folder / "asv_bench" / "results" / path.parent.name
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.parent / "machine.json", target)
        (target / path.name.replace(path.name.split("-")[0], commit[:8], 1)).write_text(json.dumps(record))
    shutil.copy(RESULTS / "benchmarks.json", made.folder / "asv_bench" / "results")
    return made


@pytest.fixture(scope="module")
def dashboard(repository: Repository) -> Path:
    done = repository.run("publish")
    if "npm was not found" in done.stderr or "npm could not fetch" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return repository.folder / "asv_bench" / "html"


@pytest.fixture
def address(dashboard: Path) -> Iterator[str]:
    with publish.server(dashboard, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    if executable() is None:
        pytest.skip("there is no Chromium on this machine")
    opened = Chromium(tmp_path / "profile")
    yield opened
    opened.close()


def test_at_least_five_commits_are_measured():
    commits = {json.loads(path.read_text())["commit_hash"] for path in committed_results()}
    assert len(commits) >= 5
    for path in RESULTS.rglob("*.json"):
        assert '"/' not in path.read_text()  # no paths of the machine that measured


@needs_git
def test_the_published_page_names_no_other_host(dashboard: Path):
    page = (dashboard / "index.html").read_text()
    assert not publish.ELSEWHERE.search(page)
    for name in publish.SCRIPTS:
        assert f'"vendor/{name}"' in page
        assert (dashboard / "vendor" / name).stat().st_size > 0


@needs_git
def test_the_dashboard_works_in_a_browser_without_other_hosts(address: str, browser: Chromium, tmp_path: Path):
    figures = json.loads((RESULTS / "benchmarks.json").read_text())
    browser.open(address)
    shown = "document.querySelectorAll('#summarygrid-display a.benchmark-container').length"
    assert browser.wait_for(shown) == len([name for name in figures if name != "version"])
    browser.screenshot(tmp_path / "grid.png")

    browser.evaluate(f"document.querySelector('a.benchmark-container[href=\"#{TRAIN_STEP}\"]').click()")
    points = (
        "(() => { const plot = window.$ && $('#main-graph').data('plot'); return plot &&"
        " plot.getData().map(s => [s.label, s.data.filter(p => p && p[1] > 0).length]).filter(([_, n]) => n) })()"
    )
    curves = dict(browser.wait_for(f"({points} || []).length && {points}"))
    # asv shows the first few curves; each must have a point for every commit that has a value.
    measured = {
        f"machine-{machine}; model-{model}; shape-{shape}".replace("'", ""): count
        for (machine, model, shape), count in measured_points(TRAIN_STEP).items()
    }
    assert len(curves) > 1
    assert curves.items() <= measured.items()
    browser.screenshot(tmp_path / "graph.png")

    browser.evaluate("location.hash = '#/summarylist'")
    browser.wait_for("document.querySelectorAll('#summarylist-body table tbody tr').length")
    if kept := os.environ.get("DURNN_BENCH_SCREENSHOTS"):
        for name in ("grid.png", "graph.png"):
            shutil.copy(tmp_path / name, kept)

    elsewhere = [asked for asked in browser.requests if not asked.startswith((address, "about:", "data:"))]
    assert elsewhere == []
    assert len(browser.requests) > len(publish.SCRIPTS)


@needs_git
def test_a_request_to_another_host_would_be_seen(address: str, browser: Chromium, dashboard: Path):
    (dashboard / "calls-out.html").write_text('<script src="http://other.invalid/script.js"></script>')
    browser.open(address + "calls-out.html")
    browser.wait_for("document.readyState == 'complete'")
    assert "http://other.invalid/script.js" in browser.requests


def test_a_script_that_is_not_the_expected_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path))
    monkeypatch.setattr(publish, "_from_npm", lambda script: b"alert(1)")
    with pytest.raises(publish.PublishError, match="not the expected file"):
        publish.fetch_script("jquery.js")
    assert not list(tmp_path.rglob("*.js"))


def test_offline_takes_scripts_from_the_cache_and_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path))
    monkeypatch.setattr(publish, "_from_npm", lambda script: pytest.fail("npm was asked"))
    with pytest.raises(publish.PublishError, match=r"jquery\.js is not in the cache"):
        publish.fetch_script("jquery.js", offline=True)


def test_an_unknown_script_of_a_later_asv_is_named(tmp_path: Path):
    (tmp_path / "index.html").write_text('<script src="https://other.invalid/new-library-2.0.min.js"></script>')
    with pytest.raises(publish.PublishError, match=r"new-library-2\.0\.min\.js"):
        publish.make_self_contained(tmp_path)


def test_without_npm_and_cache_the_message_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(publish.PublishError, match="npm was not found"):
        publish.fetch_script("jquery.js")


@needs_git
def test_publishing_leaves_out_commits_that_are_not_in_the_history(repository: Repository):
    head = repository.git("rev-parse", "HEAD")
    assert publish.known_commits(repository.folder, {head, "0" * 40}) == [head]
    with pytest.raises(publish.PublishError, match="no git history"):
        publish.known_commits(repository.folder.parent, {head})
