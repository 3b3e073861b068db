"""Publishes the dashboard so that it needs no other host: asv's page with its scripts beside it.

The scripts come from npm at publish time, are checked against the digests below and kept in a cache folder; the second
publication needs no network at all. Folder: ``$DURNN_CACHE``, else ``~/.cache/durnn-suite``, there ``dashboard``.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from asv.commands.publish import Publish
from asv.config import Config
from asv.results import iter_results

from suite.files import cache_folder, sha256, write_atomic

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Script:
    """A file of an npm package that stands in for one that asv's page asks another host for."""

    package: str
    member: str
    sha256: str


# Keys: last part of the address in asv's page, without ".min".
SCRIPTS = {
    "jquery.js": Script(
        "jquery@3.3.1", "dist/jquery.min.js", "160a426ff2894252cd7cebbdd6d6b7da8fcd319c65b70468f10b6690c45d02ef"
    ),
    "jquery.flot.js": Script(
        "flot@0.8.3", "jquery.flot.js", "b7b931f273c38b1277b9c6c1f4e05c4ec09885a487bddaf3279e2d7e49a38e12"
    ),
    "jquery.flot.time.js": Script(
        "flot@0.8.3", "jquery.flot.time.js", "a582c832adc7138a6b05aaf61f16ebac274701f1be4afea77e739a1c34b9c41a"
    ),
    "jquery.flot.selection.js": Script(
        "flot@0.8.3", "jquery.flot.selection.js", "e6c85f6c1ebe4b4da29d8ae238c7c5060283f05f7ef054f6b91817d02c092918"
    ),
    "jquery.flot.categories.js": Script(
        "flot@0.8.3", "jquery.flot.categories.js", "6e81664b28ea795c734906f4aa15614640a75ac7fbd399a7fb9084040698351a"
    ),
    "jquery.flot.orderBars.js": Script(
        "flot-orderbars@1.0.0",
        "js/jquery.flot.orderBars.js",
        "39735b4f46f96ff4e082572401f47c55a2767b366fd1d1e821e44a8d830a12bf",
    ),
    "stupidtable.js": Script(
        "stupid-table-plugin@1.1.3",
        "stupidtable.min.js",
        "4642380f28ebe9ed7cac251793b281ef8620c4386205d92788f9b12f5cceb4e0",
    ),
    "md5.js": Script(
        "blueimp-md5@2.19.0", "js/md5.min.js", "64d7ded388c562e4bde9e58ce205e5fa01b9734fcd434d496eb7b4fbfe9b927d"
    ),
    "bootstrap.js": Script(
        "bootstrap@3.1.1",
        "dist/js/bootstrap.min.js",
        "898d05a17f2cfc5120ddcdba47a885c378c0b466f30f0700e502757e24b403a1",
    ),
    "bootstrap.css": Script(
        "bootstrap@3.1.1",
        "dist/css/bootstrap.min.css",
        "e9503448692b738dd260fbd7f7cabf2e11f09b600fa97e6eb3a56eba5b1a7e9b",
    ),
}
ELSEWHERE = re.compile(r'(?P<attribute>src|href)="https?://[^"]*/(?P<file>[^"/]+\.(?:js|css))"[^>]*?(?=>)')


class PublishError(RuntimeError):
    """The dashboard cannot be published; the message says why in one sentence."""


def script_name(file: str) -> str:
    return re.sub(r"-[\d.]+(?=\.min\.|\.js|\.css)", "", file).replace(".min.", ".")


def fetch_script(name: str, offline: bool = False) -> Path:
    """The vendored file, from the cache or from npm; PublishError if it cannot be had or is not the expected one."""
    script = SCRIPTS[name]
    kept = cache_folder() / "dashboard" / f"{script.sha256[:16]}-{name}"
    if kept.exists() and sha256(kept.read_bytes()) == script.sha256:
        return kept
    if offline:
        raise PublishError(
            f"{name} is not in the cache; `python asv_bench/run.py publish` fetches it once, through npm."
        )
    content = _from_npm(script)
    if sha256(content) != script.sha256:
        raise PublishError(f"{script.member} of npm's {script.package} is not the expected file: its sha256 differs.")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(kept, content)
    return kept


def _from_npm(script: Script) -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise PublishError(f"npm was not found; it is needed once, to fetch {script.package} for the dashboard.")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "pack", "--silent", script.package], cwd=folder, capture_output=True, text=True, timeout=300
        )
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or not archives:
            raise PublishError(
                f"npm could not fetch {script.package}; connect to a package registry once, later runs use the cache."
            )
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile(f"package/{script.member}")
            if member is None:
                raise PublishError(f"npm's {script.package} has no file {script.member}.")
            return member.read()


def make_self_contained(html: Path, offline: bool = False) -> list[str]:
    """Put the scripts beside the page and point the page at them; returns their names."""
    page = html / "index.html"
    text = page.read_text()
    used: list[str] = []

    def local(found: re.Match[str]) -> str:
        name = script_name(found["file"])
        if name not in SCRIPTS:
            raise PublishError(
                f"asv's page asks for {found['file']}, which publish.py does not know; add it to SCRIPTS."
            )
        used.append(name)
        return f'{found["attribute"]}="vendor/{name}"'

    text = ELSEWHERE.sub(local, text)
    (html / "vendor").mkdir(exist_ok=True)
    for name in used:
        shutil.copyfile(fetch_script(name, offline), html / "vendor" / name)
    page.write_text(text)
    return used


def known_commits(repository: Path, commits: set[str]) -> list[str]:
    """Those of the measured commits that this repository's history has."""
    listed = subprocess.run(
        ["git", "-C", str(repository), "rev-list", "HEAD"], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        raise PublishError(f"{repository} has no git history; the dashboard's time axis is made of it.")
    return sorted(commits.intersection(listed.stdout.split()))


def publish(config: Path = HERE / "asv.conf.json", offline: bool = False) -> Path:
    """Write the dashboard to the configured folder and return it; ``offline`` takes its scripts from the cache only."""
    os.chdir(config.parent)  # asv's paths are relative to its configuration
    conf = Config.load(str(config))
    measured = {result.commit_hash for result in iter_results(conf.results_dir)}
    if not measured:
        raise PublishError("Nothing has been measured yet; run `python asv_bench/run.py measure` first.")
    known = known_commits(Path(conf.repo), measured)
    if not known:
        raise PublishError("None of the measured commits is in the history of HEAD; measure one of its commits first.")
    if len(known) < len(measured):
        print(f"Left out: {len(measured) - len(known)} measured commits that are not in the history of HEAD.")
    status = Publish.run(conf=conf, range_spec=known, pull=False)
    if status:
        raise PublishError(f"asv publish ended with status {status}.")
    html = Path(conf.html_dir).resolve()
    make_self_contained(html, offline)
    return html


def server(html: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of the dashboard on this machine only; port 0 takes a free one."""
    handler = functools.partial(_QuietHandler, directory=str(html))
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass
