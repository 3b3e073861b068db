"""``--add``: a row of one's own, with a model that is not in this repository."""

import io
import sys

import pytest
from rich.console import Console

import models
from reproduce.cli import Arguments, execute
from reproduce.execute.local import Inline, LocalProcesses
from reproduce.execute.slots import Slot
from reproduce.plan import recipe
from reproduce.plan.added import add
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.plan.runs import ROOT
from reproduce.report import records

EXAMPLE = ROOT / "reproduce" / "examples" / "my_row.toml"
MODULE = EXAMPLE.with_name("my_model.py").read_text()


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Whatever a test imports and registers is forgotten after it."""
    monkeypatch.setattr(models.registry.ZOO, "entries", dict(models.registry.ZOO.entries))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith("my_"):
            del sys.modules[name]


def perform(name, tmp_path, file, workers=None, **options):
    console = Console(record=True, width=200, file=io.StringIO())
    arguments = Arguments(
        results=tmp_path / "results", runs=tmp_path / "runs", budget="smoke", backend="reference", add=file, **options
    )
    code = execute(EXPERIMENTS[name], arguments, console, workers or Inline())
    return code, console.export_text()


ADDING = """
import = "my_model"
[rows]
my-leaky = { label = "Leaky integrator (mine)" }
[[settings]]
source = "ours: an example"
model = { name = "my-leaky" }
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "my_model.py").write_text(MODULE)
    path = tmp_path / "my_row.toml"
    path.write_text(ADDING)
    return path


def test_the_documented_example_fits_the_table_it_is_written_for():
    recipes, imports = add(recipe.load("table1"), EXAMPLE)
    settings, sources = recipes.resolve("my-leaky", "mnist", "quick")
    assert settings.model.options == {"norm": "after", "leak": 0.05}
    assert (settings.model.hidden_size, settings.model.num_layers) == (128, 2)
    assert settings.optimiser.lr == 5e-3
    assert sources["model.leak"] == "ours: an example"
    assert set(settings.code) == {"my_model"}
    assert [one.module for one in imports] == ["my_model"]
    assert "my-leaky" not in recipe.load("table1").rows


@pytest.mark.parametrize("workers", [None, LocalProcesses([Slot("cpu")])], ids=["inline", "worker process"])
def test_added_row_is_trained_recorded_resumed_and_shown(tmp_path, mine, workers):
    chosen = {"rows": "my-leaky", "cells": "adding-100", "workers": workers}
    code, text = perform("figure2", tmp_path, mine, **chosen)
    assert code == 0, text
    assert "Leaky integrator (mine)" in text
    (record,) = records.read_all(tmp_path / "results" / "records").good
    assert (record.row, record.settings.model.name) == ("my-leaky", "my-leaky")
    assert "Leaky integrator (mine)" in (tmp_path / "results" / "figure2.md").read_text()
    again, text = perform("figure2", tmp_path, mine, **chosen)
    assert (again, text.count("done before")) == (0, 1)


def test_changed_code_is_another_run(tmp_path, mine):
    first = add(recipe.load("adding"), mine)[0].resolve("my-leaky", "adding-100", "smoke")[0]
    (tmp_path / "my_model.py").write_text(MODULE.replace("leak: float = 0.1", "leak: float = 0.2"))
    second = add(recipe.load("adding"), mine)[0].resolve("my-leaky", "adding-100", "smoke")[0]
    assert first.code != second.code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('import = "my_model"', 'import = "my_modle"', "module 'my_modle' cannot be imported"),
        ('import = "my_model"', 'imports = "my_model"', "unknown key 'imports'"),
        ('import = "my_model"\n', "", "no model 'my-leaky'"),
        ('{ name = "my-leaky" }', '{ name = "my-leakey" }', "did you mean 'my-leaky'"),
        ('{ name = "my-leaky" }', '{ name = "my-leaky", leek = 1 }', "did you mean 'leak'"),
        ('{ name = "my-leaky" }', '{ name = "my-leaky", norm = "afer" }', "norm"),
        ('my-leaky = { label = "Leaky integrator (mine)" }', "my-leaky = {}", "has no label"),
        ("my-leaky = { label", "lstm = { label", "a row 'lstm' in recipe adding already"),
        ("my-leaky = { label", "'../leaky' = { label", "'../leaky' is no name for a row"),
        ("my-leaky = { label", "'[/b]' = { label", "'[/b]' is no name for a row"),
        ('(mine)"', '(mine)", like = "durn"', "did you mean 'durnn'"),
        ('source = "ours: an example"', 'source = "me"', "must start with"),
        ("[[settings]]", '[[settings]]\nrows = ["lstm"]', "only name the file's own rows"),
        ("[rows]", "[row]", "row"),
        ("[[settings]]", "[[settings]", "not valid TOML"),
    ],
)
def test_every_way_to_be_wrong_gets_one_sentence(tmp_path, mine, old, new, message):
    assert old in ADDING
    mine.write_text(ADDING.replace(old, new))
    with pytest.raises(ValueError, match=r".") as caught:
        perform("figure2", tmp_path, mine, rows="my-leaky", cells="adding-100")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_missing_file_and_failing_module(tmp_path, mine):
    with pytest.raises(ValueError, match=r"nowhere\.toml cannot be read"):
        perform("figure2", tmp_path, tmp_path / "nowhere.toml")
    (tmp_path / "my_model.py").write_text("1 / 0")
    with pytest.raises(ValueError, match="'my_model' cannot be imported: ZeroDivisionError"):
        perform("figure2", tmp_path, mine)
