"""Turns run records of format 1, whose settings were one flat table, into the present format, once.

``python -m reproduce.report.migrate FOLDER`` rewrites every record of format 1 in a folder and leaves all others alone.
A migrated record keeps its id and its file name, and holds what it was made of (``migrated``), so that the id can
still be recomputed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from reproduce.plan.parts import canonical
from reproduce.report.records import Record, seal, to_json
from suite.files import sha256, write_atomic

ENDED = {
    "schedule": "schedule",
    "learning rate below its minimum": "minimum-rate",
    "divergence": "diverged",
    "the time limit": "time-limit",
    "Ctrl-C": "interrupted",
    "SIGTERM": "interrupted",
    "killed": "killed",
    "the process that started the run is gone": "orphaned",
}


def migrate(old: dict[str, Any]) -> dict[str, Any]:
    """The content of a record of format 1 in the present format; ValueError if it does not match its seal or id."""
    if old.get("seal") != seal(old):
        raise ValueError("does not match its seal, so it was edited after it was written")
    if old["run"] != identity_of_format_1(old):
        raise ValueError("its id is not that of its content")
    new = {key: value for key, value in old.items() if key not in ("recipe", "recipe_file", "ended_by", "seal")}
    new["format"] = 2
    new["recipe"] = old["recipe_file"]
    new["settings"] = parts_of(old["recipe"])
    new["sources"] = {place_of(key): source for key, source in old["sources"].items() if place_of(key)}
    name = old["task"]["name"]
    partial = name.split("[", 1)[1].rstrip("]") if " of " in name else ""
    new["task"] = old["task"] | {"partial": partial}
    new["ended"] = ended_word(old["ended_by"])
    new["lineage"] = [
        {key: value for key, value in visit.items() if key != "ended_by"}
        | {"ended": ended_word(visit["ended_by"]), "machine": None}
        for visit in old["lineage"]
    ]
    new["environment"] = None
    new["migrated"] = {"format": 1, "settings": old["recipe"], "ended_by": old["ended_by"], "seal": old["seal"]}
    return new


def identity_of_format_1(old: dict[str, Any]) -> str:
    content = {
        "settings": old["recipe"],
        "budget": old["budget"],
        "task": old["task"]["fingerprint"],
        "seed": old["seed"],
    }
    return sha256(canonical(content))


def ended_word(sentence: str) -> str:
    return "time-cap" if sentence.startswith("time cap") else ENDED[sentence]


def parts_of(flat: dict[str, Any]) -> dict[str, Any]:
    """The parts that a flat table of settings stood for; what was switched off is absent."""
    model = {"name": flat["model"], "hidden_size": flat["hidden_size"], "num_layers": flat["num_layers"]}
    model |= {} if flat["norm"] == "none" else {"norm": flat["norm"]}
    model |= {} if flat["dropout"] == 0 else {"dropout": flat["dropout"]}
    parts: dict[str, Any] = {
        "model": model | flat["options"],
        "training": {"updates": flat["updates"], "batch_size": flat["batch_size"]},
        "optimiser": _optimiser(flat),
        "evaluation": {"every": flat["evaluate_every"]} | _positive(flat, EVALUATION),
        "input": _input(flat),
        "schedule": _schedule(flat),
        "clip": _positive(flat, {"clip_value": "value", "clip_norm": "norm"}),
        "data": flat["task_options"],
    }
    return {key: part for key, part in parts.items() if part}


EVALUATION = {
    "valid_samples": "valid_samples",
    "test_samples": "test_samples",
    "statistics_batches": "statistics_batches",
}


def _positive(flat: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {new: flat[old] for old, new in names.items() if flat[old]}


def _optimiser(flat: dict[str, Any]) -> dict[str, Any]:
    own = {"betas": [0.9, 0.999]} if flat["optimiser"] == "adam" else {"alpha": 0.9}
    return {"name": flat["optimiser"], "lr": flat["lr"]} | own | _positive(flat, {"weight_decay": "weight_decay"})


def _input(flat: dict[str, Any]) -> dict[str, Any]:
    if flat["encoding"] == "embedding":
        return {"name": "embedding", "size": flat["embedding_size"], "range": 0.04}
    return {} if flat["encoding"] == "dense" else {"name": flat["encoding"]}


def _schedule(flat: dict[str, Any]) -> dict[str, Any]:
    name = flat["schedule"]
    if name == "step" and flat["decay_every"]:
        return {"name": name, "factor": flat["decay_factor"], "every": flat["decay_every"]}
    if name == "cosine":
        return {"name": name} | _positive(flat, {"min_lr": "min_lr"})
    if name == "plateau":
        own = {"patience": flat["patience"], "reload": True, "halve_patience": True}
        return {"name": name, "factor": flat["decay_factor"], "min_lr": flat["min_lr"]} | own
    return {}


PLACES = {
    "model": "model.name",
    "hidden_size": "model.hidden_size",
    "num_layers": "model.num_layers",
    "norm": "model.norm",
    "dropout": "model.dropout",
    "encoding": "input.name",
    "embedding_size": "input.size",
    "batch_size": "training.batch_size",
    "updates": "training.updates",
    "optimiser": "optimiser.name",
    "lr": "optimiser.lr",
    "weight_decay": "optimiser.weight_decay",
    "clip_value": "clip.value",
    "clip_norm": "clip.norm",
    "schedule": "schedule.name",
    "decay_factor": "schedule.factor",
    "decay_every": "schedule.every",
    "patience": "schedule.patience",
    "min_lr": "schedule.min_lr",
    "evaluate_every": "evaluation.every",
    "valid_samples": "evaluation.valid_samples",
    "test_samples": "evaluation.test_samples",
    "statistics_batches": "evaluation.statistics_batches",
}


def place_of(flat_name: str) -> str:
    """Where a value of the flat table stands now; empty if nowhere (the wall-clock cap)."""
    table, _, option = flat_name.partition(".")
    if option:
        return f"{'model' if table == 'options' else 'data'}.{option}"
    return PLACES.get(flat_name, "")


def main(folder: Path) -> int:
    """Migrate a folder; returns how many records could not be."""
    failed = 0
    for path in sorted(folder.glob("*.json")):
        old = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(old, dict) or old.get("format") != 1:
            continue
        try:
            write_atomic(path, to_json(Record.model_validate(migrate(old))).encode())
        except (ValueError, KeyError) as error:
            print(f"{path.name}: not migrated, {error}")
            failed += 1
    return failed


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m reproduce.report.migrate FOLDER")
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
