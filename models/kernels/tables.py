"""A saved measurement of the recurrences as Markdown: the report's tables and the README's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.kernels.rows import CLIPS, ROWS, Row
from models.kernels.session import Session
from models.kernels.timing import Times
from suite.files import write_atomic

FORMAT = 1
NAMES = {"AVX512": "AVX-512"}


@dataclass(frozen=True)
class Speed:
    """A measurement of a machine. sessions: the machine's own instruction set first.

    raw: the first session with subnormal numbers left as they are; kept: with freed memory kept for the next step; None
    on a GPU. updates: of whole training runs, see
    ``reproduce.train.overhead``.
    """

    machine: dict[str, Any]
    sessions: list[Session]
    raw: Session | None = None
    kept: Session | None = None
    updates: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Speed:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format") != FORMAT:
            raise ValueError(f"{path} is of format {data.get('format')!r}, not {FORMAT}; measure it again.")
        data["sessions"] = [Session.from_dict(session) for session in data["sessions"]]
        for name in ("raw", "kept"):
            data[name] = Session.from_dict(data[name]) if data[name] else None
        if unknown := {key for session in data["sessions"] for key in session.times} - {*ROWS, *CLIPS}:
            raise ValueError(f"{path} has rows that models/kernels/rows.py does not: {', '.join(sorted(unknown))}.")
        return cls(**data)


@dataclass(frozen=True)
class Figures:
    """What a row says: share of the peak, or of bandwidth, and the other's time over ours."""

    row: Row
    times: Times
    share: float | None
    ratio: float

    @classmethod
    def of(cls, key: str, session: Session) -> Figures:
        row, times = ROWS[key], session.times[key]
        most = session.stream if row.is_elementwise else session.sgemm
        return cls(
            row, times, row.work / times.of("ours") / most if most else None, times.of(row.against) / times.of("ours")
        )

    @property
    def missed(self) -> list[str]:
        """The aims that this row is below."""
        row, said = self.row, []
        if row.share and self.share is not None and self.share < row.share:
            said.append(f"{self.share:.0%} of {'bandwidth' if row.is_elementwise else 'peak'} for {row.share:.0%}")
        if row.ratio and self.ratio < row.ratio:
            said.append(f"{self.ratio:.2f}× for {row.ratio:g}×")
        if row.slower and 1 / self.ratio > row.slower:
            said.append(f"{1 / self.ratio:.2f}× slower for {row.slower:g}×")
        return said


def name_of(session: Session) -> str:
    return NAMES.get(session.instructions, session.instructions)


def report_lines(speed: Speed) -> Iterator[str]:
    """Everything, for a terminal."""
    yield _machine_line(speed.machine)
    for session in speed.sessions:
        yield ""
        yield from _session_lines(session, (speed.raw, speed.kept) if session is speed.sessions[0] else (None, None))
    yield ""
    yield from notes()


def _machine_line(machine: dict[str, Any]) -> str:
    changed = " with changes" if machine["changed"] else ""
    return (
        f"{machine['processor']}, {machine['threads']} threads, Python {machine['python']}, torch {machine['torch']}, "
        f"commit {machine['commit'][:12]}{changed}, {machine['date']}, load before the run {machine['load']:.1f}"
    )


def _session_lines(session: Session, others: tuple[Session | None, Session | None]) -> Iterator[str]:
    worst = max(session.numerics.values())
    yield f"**{name_of(session)}.** Largest deviation from the float64 reference {worst:.1e}."
    if session.is_red:
        yield "Numerics are red; no speed is reported."
        return
    rates = [f"sgemm peak {session.sgemm / 1e9:.0f} GFLOP/s"] if session.sgemm else []
    rates += [f"memory bandwidth (triad) {session.stream / 1e9:.1f} GB/s"] if session.stream else []
    yield f"Measured {' and '.join(rates)}."
    yield ""
    yield "| model | T, B, N | ms | share | aim | against | its ms | ratio | aim | raw | kept | spread | remark |"
    yield "|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---|"
    for key in (key for key in ROWS if key in session.times):
        yield _row_line(key, session, others)
    yield ""
    for key in (key for key in CLIPS if key in session.times):
        yield f"- {_clip_sentence(key, session)}"
    missed = [f"{f.row.label} at {f.row.shape} ({', '.join(f.missed)})" for f in figures(session) if f.missed]
    yield f"- Below its aim: {'; '.join(missed) or 'none'}."
    yield f"- {losses(session)}"


def figures(session: Session) -> list[Figures]:
    return [Figures.of(key, session) for key in ROWS if key in session.times]


def _row_line(key: str, session: Session, others: tuple[Session | None, Session | None]) -> str:
    found = Figures.of(key, session)
    row, times = found.row, found.times
    share = "–" if found.share is None or row.slower else f"{found.share:.0%}{' of bandwidth' * row.is_elementwise}"
    aims = [f"≥ {row.share:.0%}" if row.share else "–", f"≥ {row.ratio:g}×" if row.ratio else "–"]
    if row.slower:
        aims[1] = f"≥ {1 / row.slower:.2f}×"
    cells = [
        row.label, str(row.shape), f"{1e3 * times.of('ours'):.1f}", share, aims[0], row.against,
        f"{1e3 * times.of(row.against):.1f}", f"{found.ratio:.2f}×", aims[1],
        *(ratio_of(key, other) for other in others), f"{times.spread():.0%}",
        "; ".join(times.disturbances()) or "quiet",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def ratio_of(key: str, session: Session | None) -> str:
    return f"{Figures.of(key, session).ratio:.1f}×" if session and key in session.times else "–"


def _clip_sentence(key: str, session: Session) -> str:
    clip, times = CLIPS[key], session.times[key]
    part = times.of("constrain_") / times.of("step")
    said = "; ".join(times.disturbances())
    return (
        f"{clip.label}, N = {clip.shape.N}: {1e3 * times.of('constrain_'):.2f} ms, {part:.1%} of a train step at "
        f"{clip.shape} (aim ≤ {clip.most:.0%}, spread {times.spread():.0%}){f'; {said}' if said else ''}."
    )


def losses(session: Session) -> str:
    """Where torch.nn is the faster one, in one sentence."""
    lost = [f for f in figures(session) if f.row.compares_torch and f.ratio < 1]
    named = "; ".join(f"{f.row.label} at {f.row.shape} ({f.ratio:.2f}× {f.row.against})" for f in lost)
    return f"Slower than torch.nn on {name_of(session)}: {named or 'none of these'}."


def notes() -> Iterator[str]:
    yield (
        "A train step is forward and backward, without optimiser; the loss looks at the last step (PTB-c's 50, 128, "
        "2000: at every step). Times are medians of three repetitions in a row, each the best of its rounds, in which "
        "the contenders take turns in one process; spread is (largest − smallest) / median of the three, of time or "
        "ratio, whichever is larger. Subnormal numbers are flushed on both sides, except in the raw ratio. "
        "Kept: the ratio where malloc keeps freed memory on both sides, as in a training of this suite. Share: of the "
        "fastest sgemm (2048³; 8192³ on a GPU) seen in the process; for IndRNN of the fastest triad over arrays of 268 "
        "MB in any of the processes, counting 8·T·B·N bytes (output written and read)."
    )


def readme_lines(speed: Speed) -> Iterator[str]:
    """One machine in the README: the sessions beside each other."""
    machine, first = speed.machine, speed.sessions[0]
    rates = ", ".join(f"sgemm {s.sgemm / 1e9:.0f} GFLOP/s with {name_of(s)}" for s in speed.sessions if s.sgemm)
    yield f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}; {rates}:"
    yield ""
    heads = [f"{name_of(s)}: share of peak | ratio" for s in speed.sessions]
    yield f"| model | T, B, N | against | ms | {' | '.join(heads)} | raw ratio | memory kept |"
    yield f"|---|---|---|---:|{'---:|' * (2 * len(heads) + 2)}"
    for key, row in ROWS.items():
        if key in first.times:
            cells = [f"{1e3 * first.times[key].of('ours'):.1f}"]
            cells += [cell for session in speed.sessions for cell in _readme_cells(key, session)]
            against = row.against if row.compares_torch else "our LSTM"
            cells += [ratio_of(key, other) for other in (speed.raw, speed.kept)]
            yield f"| {row.label} | {row.shape} | {against} | {' | '.join(cells)} |"
    yield ""
    for key in (key for key in CLIPS if key in first.times):
        yield f"- {_clip_sentence(key, first)}"
    for session in speed.sessions:
        yield f"- {losses(session)}"
    if any(t.disturbances() for s in speed.sessions for t in s.times.values()):
        yield "- \\*: other work disturbed this row."


def _readme_cells(key: str, session: Session) -> list[str]:
    if key not in session.times:
        return ["–"] * 2
    found = Figures.of(key, session)
    mark = "\\*" if found.times.disturbances() else ""
    share = "–" if found.share is None or found.row.slower else f"{found.share:.0%}"
    return [share + " of bandwidth" * found.row.is_elementwise, f"{found.ratio:.2f}×{mark}"]
