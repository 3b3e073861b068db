"""Constructed records for the tests of statistics and reports."""

from reproduce.plan import recipe
from reproduce.plan.runs import identity
from reproduce.report.records import Environment, Machine, Point, Record, TaskFacts, Visit, sealed


def make_record(
    test=1.68, seed=0, row="durnn-1", cell="mnist", budget="paper", recipe_name="table1", status="completed",
    name="mnist", is_standin=False, partial="", fingerprint="f" * 64, metric="error_percent", higher=False, **changes,
):  # fmt: skip
    settings, sources = recipe.load(recipe_name).resolve(row, cell, budget)
    diverged_at = changes.pop("diverged_at", 1234 if status == "diverged" else None)
    fields = {
        "format": 2,
        "run": identity(settings, fingerprint, seed),
        "recipe": recipe_name,
        "row": row,
        "cell": cell,
        "task": TaskFacts(
            name=name, requested=cell, fingerprint=fingerprint, is_standin=is_standin, partial=partial, metric=metric,
            higher_is_better=higher, length=784, samples={"train": 57000, "valid": 3000, "test": 10000},
        ),
        "settings": settings,
        "sources": sources,
        "seed": seed,
        "budget": budget,
        "steps_done": settings.training.updates,
        "steps_planned": settings.training.updates,
        "status": status,
        "ended": "schedule",
        "diverged_at": diverged_at,
        "valid": 1.5,
        "valid_step": 100,
        "test": test if status == "completed" else None,
        "curve": [Point(step=s, train_loss=1.0 / s, valid=0.5 / s, lr=1e-3) for s in (100, 200, 300)],
        "wall_seconds": 10.0,
        "steps_per_second": 10.0,
        "peak_memory_mb": 100.0,
        "parameters": 1000,
        "weights_sha256": "a" * 64,
        "commit": "c" * 40,
        "dirty": False,
        "versions": {"python": "3.11", "torch": "2.13"},
        "machine": Machine(cpu="some & CPU_1", cores=2, threads=1, gpu=None, system="Linux"),
        "environment": Environment(threads=1, flushes_subnormals=True, keeps_freed_memory=True),
        "backend": "auto",
        "device": "cpu",
        "command": "python reproduce/table1.py --budget paper",
        "finished": "2026-01-01T00:00:00+00:00",
        "lineage": [
            Visit(from_step=0, to_step=300, started="", seconds=1.0, commit="c" * 40, machine=None, threads=1,
                  ended="schedule")
        ],
    }  # fmt: skip
    return sealed(Record(**(fields | changes)))


def seeds(*values, **options):
    return [make_record(test=value, seed=seed, **options) for seed, value in enumerate(values)]
