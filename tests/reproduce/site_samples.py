"""A site of constructed records, and what a page is made of."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from record_samples import make_record, seeds

from reproduce.report import records
from reproduce.report.records import Machine, Point, Record, Visit

NASTY = """<script>alert("1")</script> & 'it'"""
CURVES = {0: (0.02, 0.002, 0.0002), 1: (0.04, 0.004, 0.0004)}  # validation at updates 100, 200, 300
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def adding(seed: int, row: str = "durnn", **changes) -> Record:
    curve = [Point(step=100 * n, train_loss=1.0, valid=v, lr=1e-3) for n, v in enumerate(CURVES[seed], 1)]
    options = {"recipe_name": "adding", "cell": "adding-100", "metric": "mse", "name": "adding", "test": 3e-4}
    return make_record(**({"seed": seed, "row": row, "curve": curve} | options | changes))


def sample_records() -> list[Record]:
    """A reproduced number, a reduced budget, parts and stand-ins, divergence, text that wants escaping, two curves."""
    visits = [
        Visit(from_step=0, to_step=1, started="", seconds=1.0, commit=c * 40, machine=None, threads=1, ended="schedule")
        for c in "ab"
    ]
    machine = Machine(cpu=NASTY, cores=2, threads=1, gpu=None, system="Linux")
    accuracy = {"recipe_name": "table3", "metric": "accuracy_percent", "higher": True}
    return [
        *seeds(1.65, 1.66, 1.68, 1.70, 1.71),
        make_record(4.2, budget="cpu", lineage=visits, command=f"python {NASTY}"),
        make_record(None, row="lstm", status="diverged", machine=machine),
        make_record(
            90.0,
            cell="ntu-cs",
            row="durnn-1",
            name="ntu-cs-synthetic",
            is_standin=True,
            fingerprint="e" * 64,
            **accuracy,
        ),
        make_record(80.0, cell="ntu-cs", row="durnn-1", name="ntu-cs", partial=NASTY, **accuracy),
        *(adding(seed) for seed in CURVES),
        adding(0, "lstm", test=0.01),
    ]


def write_records(folder: Path, made: list[Record] | None = None) -> Path:
    for r in sample_records() if made is None else made:
        records.write(r, folder)
    return folder


class Page(HTMLParser):
    """What the tests ask of a page; ``problems`` say where its tags do not fit together."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []  # href of <a>
        self.loaded: list[str] = []  # what the browser fetches by itself
        self.headings: list[int] = []
        self.headers: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        if len(given) != len(attrs):
            self.problems.append(f"<{tag}> has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        elif tag in ("link", "script", "img", "iframe", "source", "use", "image"):
            self.loaded += [given[name] for name in ("src", "href", "srcset") if name in given]
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag == "th":
            self.headers.append(given)
        if tag == "img" and not given.get("alt"):
            self.problems.append("an image without words")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self.open[-1:] or 'nothing'} in line {self.getpos()[0]}")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def target(page: str, link: str) -> tuple[str, str]:
    """The file and the fragment that a relative link of a page leads to."""
    parts = urlsplit(link)
    if not parts.path:
        return page, parts.fragment
    found: list[str] = page.split("/")[:-1]
    for step in unquote(parts.path).split("/"):
        if step == "..":
            found.pop()
        else:
            found.append(step)
    return "/".join(found), parts.fragment
