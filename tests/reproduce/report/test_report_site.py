"""The static site: every link leads somewhere, nothing is loaded from elsewhere, nothing is typed by hand."""

import json
import re
import threading
import urllib.request
from pathlib import Path

import pytest
from record_samples import make_record
from site_samples import NASTY, Page, sample_records, target, write_records

from reproduce.plan import paper
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.report import records
from reproduce.report.publish import PUBLISHED
from reproduce.report.site import build as site_build
from reproduce.report.site import prose
from reproduce.report.site.__main__ import main, server
from reproduce.report.site.addresses import Spot, slug
from reproduce.report.site.build import MANIFEST, build, render
from reproduce.report.site.content import gather
from reproduce.report.site.curves import chart, series
from reproduce.report.site.zoo import newest_speed
from suite.files import sha256


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_records(tmp_path_factory.mktemp("constructed") / "records")


@pytest.fixture(scope="module")
def constructed(folder) -> dict[str, bytes]:
    return render(gather(folder))


@pytest.fixture(scope="module")
def committed() -> dict[str, bytes]:
    return render(gather(PUBLISHED / "records"))


@pytest.fixture(params=["constructed", "committed"])
def files(request) -> dict[str, bytes]:
    return request.getfixturevalue(request.param)


def pages_of(files: dict[str, bytes]) -> dict[str, Page]:
    return {path: Page(data.decode()) for path, data in files.items() if path.endswith(".html")}


def page(files: dict[str, bytes], path: str) -> Page:
    return Page(files[path].decode())


def test_every_link_leads_to_a_file_and_a_place_in_it(files):
    pages = pages_of(files)
    dead = []
    for path, found in pages.items():
        for link in [*found.links, *found.loaded]:
            if re.match(r"https?:|data:", link):
                continue
            file, fragment = target(path, link)
            if file not in files or (fragment and fragment not in pages[file].ids):
                dead.append((path, link))
    assert not dead


def test_every_page_can_be_reached_from_the_first(files):
    pages, seen, todo = pages_of(files), set(), ["index.html"]
    while todo:
        path = todo.pop()
        if path not in seen:
            seen.add(path)
            todo += [t for link in pages[path].links if (t := target(path, link)[0]) in pages]
    assert seen == set(pages)


def test_pages_are_well_formed_and_ordered_for_a_screen_reader(files):
    for path, found in pages_of(files).items():
        assert not found.problems, path
        assert len(found.ids) == len(set(found.ids)), path
        assert found.headings[0] == 1, path
        assert found.headings.count(1) == 1, path
        steps = zip(found.headings, found.headings[1:], strict=False)
        assert all(after <= before + 1 for before, after in steps), path
        assert all(header.get("scope") in ("row", "col") for header in found.headers), path
        assert {"main", "nav", "title"} <= set(found.tags), path
        assert files[path].startswith(b"<!DOCTYPE html>\n<html lang="), path


def test_nothing_is_loaded_from_another_host(files):
    for path, found in pages_of(files).items():
        assert [link for link in found.loaded if ":" in link and link != "data:,"] == [], path
    assert not re.search(rb"url\(|@import|https?:", files["site.css"])
    assert not re.search(rb"fetch\(|XMLHttpRequest|import\s*\(|https?:", files["curves.js"])


def test_the_same_records_give_the_same_bytes(folder, constructed):
    assert render(gather(folder)) == constructed


def test_text_from_records_is_escaped(constructed):
    for path, data in constructed.items():
        if path.endswith(".html"):
            assert b"<script>alert" not in data, path
    spot = Spot("table1", "durnn-1", "mnist", "cpu", "")
    assert f"python {NASTY}" in page(constructed, spot.page).text
    part = Spot("table3", "durnn-1", "ntu-cs", "paper", NASTY)
    assert NASTY in page(constructed, part.page).text
    assert re.fullmatch(r"cells/[a-z0-9/-]+\.html", part.page)


def test_names_of_files_are_safe_and_of_one_text_only():
    texts = ["10 of 60 classes", "10-of-60 classes", "10 OF 60 classes", "../../etc/passwd", "<b>", "", "stand-in"]
    assert len({slug(text) for text in texts}) == len(texts)
    assert all(re.fullmatch(r"[a-z0-9-]*", slug(text)) for text in texts)


def test_the_matrix_has_a_verdict_for_every_printed_number(constructed):
    links = [link for link in page(constructed, "index.html").links if link.startswith("cells/")]
    tables = paper.load().tables
    assert len(links) == sum(v != "-" for table in tables.values() for row in table.rows.values() for v in row.values)
    text = page(constructed, "index.html").text
    assert "1 reproduced" in text
    assert "1 diverged" in text
    assert "Table I: sequential and permuted MNIST, error rate (%) 11 11 2" in text  # rows, can run, have runs


def test_a_cell_tells_where_its_number_comes_from(constructed):
    spot = Spot("table1", "durnn-1", "mnist", "paper", "")
    found = page(constructed, spot.page)
    made = [r for r in sample_records() if (r.row, r.cell, r.budget) == ("durnn-1", "mnist", "paper")]
    for r in made:
        assert f"../../../../records/{r.file_name}" in found.links
        assert records.Record.model_validate(json.loads(constructed[f"records/{r.file_name}"])) == r
    assert "reproduced DuRNN (1 layer) on MNIST" in found.text
    assert "1.68 (5) ± 0.03" in found.text
    assert "+0.00; 90 % interval −0.02 to +0.02" in found.text
    assert "± 0.26: twice the sampling error of 1.68 % on 10,000 samples" in found.text
    assert "optimiser.lr 0.0002 paper: §V-C1" in found.text
    assert "some & CPU_1, 2 cores" in found.text
    assert "python reproduce/table1.py --rows durnn-1 --cells mnist --budget paper --seeds 5" in found.text
    beside = page(constructed, Spot("table1", "durnn-1", "mnist", "cpu", "").page)
    assert "seed 0 continued under other code" in beside.text
    assert "aaaaaaaaaa , bbbbbbbbbb" in beside.text


def test_a_changed_record_changes_the_pages(tmp_path, constructed):
    made = [r if r.test != 1.71 else make_record(5.0, seed=4) for r in sample_records()]
    changed = render(gather(write_records(tmp_path / "records", made)))
    spot = Spot("table1", "durnn-1", "mnist", "paper", "")
    assert "reproduced" in page(constructed, spot.page).text
    assert "? inconclusive" not in page(changed, spot.page).text  # signs are of the style sheet
    assert "inconclusive mean outside the margin" in page(changed, spot.page).text
    assert "1 reproduced" not in page(changed, "index.html").text


def test_a_stand_in_never_stands_beside_the_paper(constructed):
    html = constructed["table3.html"].decode()
    after = html[html.index("On generated stand-ins") :]
    section = after[: after.index("<h2>")]
    assert "90.00" in section
    assert ">paper<" not in section
    assert "72.91" not in section
    alone = page(constructed, Spot("table3", "durnn-1", "ntu-cs", "paper", "stand-in").page).text
    assert "72.91" not in alone
    assert "compare with nothing but each other" in alone


def test_footnotes_are_linked_both_ways_by_number(constructed):
    found = page(constructed, "table1.html")
    marks = {link for link in found.links if link.startswith("#note-")}
    assert marks == {f"#{name}" for name in found.ids if name.startswith("note-")}
    assert "seed 0 continued under other code" in found.text


def test_a_claim_links_to_its_figure_and_its_runs(constructed):
    judged = {path: page(constructed, path) for path in constructed if re.fullmatch(r"claims/(?!index).*", path)}
    assert len(judged) == len(paper.load().claims)
    for name, claim in paper.load().claims.items():
        found = judged[f"claims/{name}.html"]
        assert claim.text in found.text
        assert {f"../{figure}.html" for figure in claim.figures} <= set(found.links)
    assert any("../records/" in link for found in judged.values() for link in found.links)


def test_every_model_of_the_zoo_has_its_page(constructed):
    import models

    for name in models.names():
        found = page(constructed, f"models/{name}.html")
        for option, default in models.options(name).items():
            assert f"{option} {default!r}" in found.text
    text = page(constructed, "models/durnn.html").text
    assert "h~_t = relu(W_in x_t + C_δ(W_rec) h~_{t-1} + b_short)" in text
    assert "0.5^(1/L), the paper's value." in text
    assert "DuRNN (1 layer) MNIST 67,979 1.68 (5)" in text
    assert "source/models/durnn.html" in "".join(page(constructed, "models/durnn.html").links)


def test_the_newest_measurement_of_speed_is_taken(tmp_path):
    def measured(name, date, seconds):
        params = [["'durnn'"], ["'adding-100'", "'mnist-784'"]]
        data = {"commit_hash": name, "date": date, "params": {"machine": "m"}, "result_columns": ["result", "params"]}
        data["results"] = {"zoo.Steps.time_train_step": [seconds, params]}
        (tmp_path / "m").mkdir(exist_ok=True)
        (tmp_path / "m" / f"{name}.json").write_text(json.dumps(data))

    assert newest_speed(tmp_path) is None
    measured("new", 2, [0.5, None])
    measured("old", 1, [0.1, 0.2])
    speed = newest_speed(tmp_path)
    assert speed is not None
    assert (speed.commit, speed.of("durnn")) == ("new", [("adding-100", "T = 100, B = 50, N = 128", 500.0)])


def test_curves_show_the_mean_and_every_seed():
    made = [r for r in sample_records() if (r.recipe, r.row) == ("adding", "durnn")]
    drawn = chart("c", "title", "mse", [series("DuRNN", 0, made)], chance=1 / 6)
    assert drawn is not None
    assert drawn.is_log
    assert [(step, cell.text) for step, (cell,) in drawn.table] == [
        (100, "0.03 (0.02 to 0.04)"), (200, "0.003 (0.002 to 0.004)"), (300, "0.0003 (0.0002 to 0.0004)"),
    ]  # fmt: skip
    assert len(drawn.paths[0].seeds) == 2
    assert [tick.label for tick in drawn.y_ticks] == ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1"]
    assert chart("c", "title", "mse", []) is None


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.3, 0.3), (88.65, 88.65), (0, 1_200_000), (-2, 3), (0, 0), (1e-9, 2e-9)]
)
def test_an_axis_holds_its_values_between_round_ends(low, high):
    from reproduce.report.site.curves import _axis

    (first, last), steps = _axis(low, high)
    slack = 1e-9 * max(abs(low), abs(high))
    assert first <= low + slack
    assert high <= last + slack
    assert 2 <= len(steps) <= 9


def test_docstrings_become_prose():
    text = "First ``x < 1`` and *so*.\n\n    (1)  a & b\n\n1. one\n   more\n2. two"
    assert prose.html(text) == (
        "<p>First <code>x &lt; 1</code> and <em>so</em>.</p>\n"
        '<pre class="equations" tabindex="0">(1)  a &amp; b</pre>\n<ol><li>one more</li><li>two</li></ol>'
    )
    reasons = prose.option_reasons("Options:\n\na, b: why\n    at all.\nnot one\nc: too")
    assert reasons == {"a": "why at all.", "b": "why at all.", "c": "too"}


def test_build_writes_a_manifest_and_removes_only_its_own_files(tmp_path, folder, capsys):
    out = tmp_path / "site"
    assert main(["build", "--records", str(folder), "--out", str(out), "--without-asv"]) == 0
    assert "index.html" in capsys.readouterr().out
    listed = dict(reversed(line.split("  ")) for line in (out / MANIFEST).read_text().splitlines())
    assert {path: sha256((out / path).read_bytes()) for path in listed} == listed
    (out / "notes.txt").write_text("mine")
    few = write_records(tmp_path / "few" / "records", [make_record()])
    build(few, out, with_dashboard=False)
    assert not (out / Spot("table1", "durnn-1", "mnist", "cpu", "").page).exists()
    assert (out / "notes.txt").read_text() == "mine"
    assert len(list((out / "records").iterdir())) == 1


def test_build_refuses_folders_in_one_sentence(tmp_path, folder, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["build", "--records", str(folder), "--out", str(tmp_path), "--without-asv"]) == 2
    assert "holds other things" in capsys.readouterr().err
    assert main(["build", "--records", str(tmp_path / "none"), "--out", str(tmp_path / "site")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_manifest_cannot_reach_outside_its_folder(tmp_path, folder):
    out, outside = tmp_path / "site", tmp_path / "mine.txt"
    out.mkdir()
    outside.write_text("mine")
    (out / MANIFEST).write_text(f"{'0' * 64}  ../mine.txt\n")
    build(folder, out, with_dashboard=False)
    assert outside.read_text() == "mine"


def test_records_that_are_not_shown_are_named(tmp_path):
    folder = write_records(tmp_path / "records", [make_record()])
    (folder / "broken.json").write_text("{")
    text = page(render(gather(folder)), "index.html").text
    assert "broken.json: cannot be read as JSON" in text


def test_without_records_every_page_is_there(tmp_path):
    (tmp_path / "records").mkdir()
    files = render(gather(tmp_path / "records"))
    assert {f"{name}.html" for name in EXPERIMENTS} <= set(files)
    assert "not run" in page(files, "index.html").text


def test_the_pages_are_served_to_this_machine_only(tmp_path, constructed):
    (tmp_path / "index.html").write_bytes(constructed["index.html"])
    with server(tmp_path, 0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        assert serving.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{serving.server_port}/") as answer:
            assert answer.read() == constructed["index.html"]
        serving.shutdown()


def test_the_dashboard_stands_beside_the_pages_or_they_say_how_to_get_it(tmp_path, folder, monkeypatch):
    made = tmp_path / "asv_bench"
    (made / "html").mkdir(parents=True)
    (made / "html" / "index.html").write_text("asv's own")
    (made / "run.py").write_text("import sys; assert sys.argv[1:] == ['publish', '--offline']")
    monkeypatch.setattr(site_build, "ASV", made)
    out = tmp_path / "site"
    assert build(folder, out)[1] == ""
    assert (out / "asv" / "index.html").read_text() == "asv's own"
    assert "asv/index.html" in Page((out / "speed.html").read_text()).links
    (made / "run.py").write_text("import sys; sys.exit('jquery.js is not in the cache')")
    assert build(folder, out)[1] == "jquery.js is not in the cache"
    assert not (out / "asv").exists()
    assert "python asv_bench/run.py serve" in Page((out / "speed.html").read_text()).text
