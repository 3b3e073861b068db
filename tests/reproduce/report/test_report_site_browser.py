"""The site in a real browser, from a file path: a reader's way through it, by mouse and keyboard, wide and narrow."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, executable
from site_samples import write_records

from reproduce.report.site.build import build

PHONE = (390, 844)
ONE_OF_EACH = (
    "index.html", "table1.html", "table3.html", "figure2.html", "figure4.html", "bounds.html", "speed.html",
    "claims/index.html", "claims/adding-smoothest.html", "models/index.html", "models/durnn.html",
    "source/models/durnn.html", "cells/table1/durnn-1/mnist/paper.html", "cells/table1/irnn/mnist/paper.html",
    "cells/adding/durnn/adding-100/paper.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("browsed")
    build(write_records(folder / "records"), folder / "site", with_dashboard=False)
    return folder / "site"


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Chromium]:
    if executable() is None:
        pytest.skip("there is no Chromium on this machine")
    opened = Chromium(tmp_path_factory.mktemp("chromium") / "profile")
    yield opened
    opened.close()


@pytest.fixture(params=[(1280, 900), PHONE], ids=["desk", "phone"])
def browser(request, shared: Chromium, site: Path) -> Iterator[Chromium]:
    """At the end: no complaint in the console, no request but for files of the site, no page that scrolls sideways."""
    shared.resize(*request.param)
    shared.errors.clear()
    shared.requests.clear()
    yield shared
    assert shared.errors == []
    assert [asked for asked in shared.requests if not asked.startswith((site.as_uri(), "about:", "data:,"))] == []
    assert len(shared.requests) > 2


def go(browser: Chromium, address: str) -> None:
    browser.open(address)
    arrive(browser, address)


def arrive(browser: Chromium, end: str) -> None:
    browser.wait_for(f"location.href.endsWith({end!r}) && document.readyState === 'complete'")
    assert not browser.evaluate("document.documentElement.scrollWidth > innerWidth"), f"{end} scrolls sideways"


def follow(browser: Chromium, selector: str, end: str) -> None:
    """Click on a link and wait for the page that it leads to."""
    browser.evaluate(f"document.querySelector({selector!r}).click()")
    arrive(browser, end)


def test_from_the_matrix_to_a_record(browser: Chromium, site: Path):
    go(browser, (site / "index.html").as_uri())
    square = 'a[href="cells/table1/durnn-1/mnist/paper.html"]'
    assert browser.evaluate(f"document.querySelector({square!r}).textContent") == "reproducedpaper budget"
    follow(browser, '.matrix a[href="table1.html"]', "table1.html")
    follow(browser, 'main a[href="cells/table1/durnn-1/mnist/paper.html"]', "cells/table1/durnn-1/mnist/paper.html")
    assert "Verdict: reproduced." in browser.evaluate("document.querySelector('.verdict').textContent")
    name = browser.evaluate("document.querySelector('a[href*=\"records/\"]').getAttribute('href').split('/').pop()")
    browser.evaluate("document.querySelector('a[href*=\"records/\"]').click()")
    browser.wait_for(f"location.href.endsWith({name!r})")
    assert browser.wait_for("JSON.parse(document.body.textContent).row") == "durnn-1"


def test_from_a_claim_to_its_figure_whose_curves_can_be_read(browser: Chromium, site: Path):
    go(browser, (site / "claims" / "index.html").as_uri())
    follow(browser, 'a[href="../claims/adding-smoothest.html"]', "claims/adding-smoothest.html")
    follow(browser, 'main a[href="../figure2.html"]', "figure2.html")
    figure = "document.querySelector('figure.chart')"
    browser.evaluate(f"{figure}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    left, top, width, height = browser.evaluate(
        f"(r => [r.left, r.top, r.width, r.height])({figure}.querySelector('svg.curves').getBoundingClientRect())"
    )
    shown = (
        f"Object.fromEntries([...{figure}.querySelectorAll('.legend li')]"
        ".map(one => ['.name', '.value'].map(part => one.querySelector(part).textContent)))"
    )
    for share, update, durnn, lstm in (
        (0.11, "update 100", "0.03 (0.02 to 0.04)", "0.02"),
        (0.66, "update 200", "0.003 (0.002 to 0.004)", "0.002"),
        (0.97, "update 300", "0.0003 (0.0002 to 0.0004)", "0.0002"),
    ):
        browser.hover(left + share * width, top + height / 2)
        browser.wait_for(f"{figure}.querySelector('output').textContent === {update!r}")
        assert browser.evaluate(shown) == {"DuRNN": durnn, "LSTM": lstm}
    assert browser.evaluate(f"getComputedStyle({figure}.querySelector('.cursor')).visibility") == "visible"


def test_curves_can_be_read_with_the_keyboard(browser: Chromium, site: Path):
    go(browser, (site / "figure2.html").as_uri())
    slider = "document.querySelector('figure.chart input[type=range]')"
    browser.evaluate(f"{slider}.focus()")
    browser.press("ArrowLeft")
    browser.wait_for("document.querySelector('figure.chart output').textContent === 'update 200'")
    assert "DuRNN: 0.003 (0.002 to 0.004)" in browser.evaluate(f"{slider}.getAttribute('aria-valuetext')")


def test_the_keyboard_reaches_the_content_and_shows_where_it_is(browser: Chromium, site: Path):
    go(browser, (site / "table1.html").as_uri())
    browser.press("Tab")
    assert browser.wait_for("document.activeElement.className") == "skip"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    links = browser.evaluate("[...document.querySelectorAll('main a[href]')].every(a => a.tabIndex === 0)")
    assert links


def test_no_page_scrolls_sideways_and_words_stand_out(browser: Chromium, site: Path):
    """In light and dark: at least 4.5 to 1 between words and what they stand on."""
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        for path in ONE_OF_EACH:
            go(browser, (site / path).as_uri())
            assert browser.evaluate(FAINT) == [], (scheme, path)
    browser.prefer("light")


FAINT = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parts(colour).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = new Set();
  for (const e of document.querySelectorAll("main *, header *, footer *")) {
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!says || e.closest("[hidden], .skip, svg")) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.add(`${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 30)}`);
  }
  return [...faint];
})()"""
