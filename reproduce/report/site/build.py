"""Renders the pages and writes them; a manifest says what belongs to the site, so that nothing else is ever removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jinja2

from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.runs import ROOT
from reproduce.report.records import to_json
from reproduce.report.selection import number
from reproduce.report.site import pages, prose, zoo
from reproduce.report.site.addresses import claim_page, experiment_page, model_page, record_file, up
from reproduce.report.site.content import Content, gather
from reproduce.report.site.pages import Page
from suite.files import sha256, write_atomic

HERE = Path(__file__).parent
OUT = ROOT / "site"
MANIFEST = "manifest.sha256"
DASHBOARD = "asv"
ASV = ROOT / "asv_bench"


def build(folder: Path, out: Path = OUT, with_dashboard: bool = True) -> tuple[int, str]:
    """Write the site of the records in a folder. Returns how many files it has, and why it has no dashboard, if so."""
    content = gather(folder)
    _check_place(out)
    shutil.rmtree(out / DASHBOARD, ignore_errors=True)
    lacking = _dashboard(out) if with_dashboard else "it was not asked for"
    files = render(content, has_dashboard=not lacking)
    _write(files, out)
    return len(files), lacking


def render(content: Content, has_dashboard: bool = False) -> dict[str, bytes]:
    """Every file of the site but the dashboard; the same content gives the same bytes."""
    found: dict[str, bytes] = {}

    def add(path: str, data: bytes) -> None:
        if path in found and found[path] != data:
            raise ValueError(f"two different pages would be called {path}")
        found[path] = data

    environment = _environment()
    for page in _pages(content, has_dashboard):
        add(page.path, _html(environment, page, content))
    for r in content.records.good:
        add(record_file(r), to_json(r).encode())
    for path in sorted((HERE / "static").iterdir()):
        add(path.name, path.read_bytes())
    for name in EXPERIMENTS:
        drawing = content.folder.parent / "figures" / f"{name}.svg"
        if EXPERIMENTS[name].kind == "activations" and drawing.exists():
            add(f"figures/{name}.svg", drawing.read_bytes())
    clip = content.folder.parent / "figures" / f"{pages.CLIP}.svg"
    if pages.CLIP_PAGE in found:
        add(f"figures/{clip.name}", clip.read_bytes())
    return dict(sorted(found.items()))


def _pages(content: Content, has_dashboard: bool) -> Iterator[Page]:
    yield pages.overview(content, has_dashboard)
    yield from pages.experiments(content)
    yield from pages.clip_pages(content)
    yield from pages.cells(content)
    yield from pages.claim_pages(content)
    yield pages.bounds(content)
    yield from zoo.model_pages(content)
    yield from zoo.source_pages()
    yield zoo.speed_page(has_dashboard)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"slug_word": lambda word: word.replace(" ", "-"), "prose": prose.inline}
    environment.globals |= {
        "experiments": EXPERIMENTS, "number": number, "claim_page": claim_page, "model_page": model_page,
        "experiment_page": experiment_page,
    }  # fmt: skip
    return environment


def _html(environment: jinja2.Environment, page: Page, content: Content) -> bytes:
    shared = {
        "page": page, "content": content, "to": partial(_relative, page.path), "whose": content.whose,
        "version": content.version,
    }  # fmt: skip
    return environment.get_template(page.template).render(shared | page.given).encode()


def _relative(page: str, target: str) -> str:
    return up(page) + target


# Files


def _check_place(out: Path) -> None:
    if out.exists() and not (out / MANIFEST).exists() and any(out.iterdir()):
        raise ValueError(f"{out} holds other things than a site; --out names an empty or new folder")


def _write(files: dict[str, bytes], out: Path) -> None:
    """Write what has changed, and remove what an earlier site left."""
    known = _listed(out)
    listed = {path: sha256(data) for path, data in files.items()}
    for path in sorted(known.keys() - files.keys()):
        (out / path).unlink(missing_ok=True)
    for path, data in files.items():
        target = out / path
        if known.get(path) != listed[path] or not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    lines = "".join(f"{digest}  {path}\n" for path, digest in listed.items())
    write_atomic(out / MANIFEST, lines.encode())


def _listed(out: Path) -> dict[str, str]:
    """Path -> digest of an earlier site in this folder; only paths inside of it."""
    manifest = out / MANIFEST
    if not manifest.exists():
        return {}
    entries = [line.partition("  ") for line in manifest.read_text(encoding="utf-8").splitlines()]
    return {path: digest for digest, _, path in entries if (out / path).resolve().is_relative_to(out.resolve())}


# The dashboard beside it


def _dashboard(out: Path) -> str:
    """asv's pages of the committed results, without any network; the reason in words where that cannot be.

    They are asv's own, with the time of their making in them, and are not in the manifest.
    """
    if not (ASV / "run.py").exists():
        return "this is not a checkout"
    command = [sys.executable, str(ASV / "run.py"), "publish", "--offline"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["asv failed"])[-1]
    shutil.copytree(ASV / "html", out / DASHBOARD)
    return ""
