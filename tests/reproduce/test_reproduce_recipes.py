"""Recipes: complete, sourced, buildable; and clear about what is wrong with a bad one."""

import math

import pytest

import models
import tasks
from reproduce import paper, recipe
from reproduce.network import Network, count_parameters
from reproduce.recipe import BUDGETS, SOURCES, Settings

FILES = sorted(path.stem for path in recipe.RECIPES.glob("*.toml"))
CASES = [(name, row, cell) for name in FILES for row in recipe.load(name).rows for cell in recipe.load(name).cells]

MINIMAL = """
title = "t"
[cells]
a = { label = "A", task = "adding" }
[rows]
r = { label = "R" }
[[settings]]
source = "ours: because it is small"
model = "durnn"
hidden_size = 4
num_layers = 1
norm = "none"
dropout = 0.0
encoding = "dense"
embedding_size = 0
batch_size = 2
optimiser = "adam"
lr = 1e-3
weight_decay = 0.0
clip_value = 0.0
clip_norm = 0.0
schedule = "constant"
decay_factor = 1.0
decay_every = 0
patience = 0
min_lr = 0.0
updates = 4
evaluate_every = 2
valid_samples = 4
test_samples = 4
statistics_batches = 0
max_seconds = 0.0
"""


def load(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    return recipe.load("x", tmp_path)


@pytest.mark.parametrize(("name", "row", "cell"), CASES)
def test_every_value_of_every_run_has_a_source(name, row, cell):
    for budget in BUDGETS:
        settings, sources = recipe.load(name).resolve(row, cell, budget)
        plain = set(Settings.model_fields) - {"options", "task_options"}
        nested = {f"{k}.{o}" for k in ("options", "task_options") for o in getattr(settings, k)}
        assert set(sources) == plain | nested
        assert all(source.startswith(SOURCES) for source in sources.values())


@pytest.mark.parametrize(("name", "row", "cell"), CASES)
def test_every_recipe_builds_with_every_option_known(name, row, cell):
    recipes = recipe.load(name)
    settings, _ = recipes.resolve(row, cell, "paper")
    assert settings.model in models.names()
    assert set(settings.options) <= set(models.options(settings.model))
    assert set(settings.task_options) <= set(tasks.options(recipes.cells[cell].task))
    smoke, _ = recipes.resolve(row, cell, "smoke")
    models.build(
        smoke.model, input_size=3, hidden_size=smoke.hidden_size, num_layers=smoke.num_layers, length=20,
        **smoke.options,
    )  # fmt: skip


def test_parameter_counts_of_the_paper_settings():
    counts = {"rnn-tanh": 16_897, "irnn": 16_897, "lstm": 67_201, "indrnn-2": 17_281, "durnn": 66_434}
    for row, expected in counts.items():
        settings, _ = recipe.load("adding").resolve(row, "adding-100", "paper")
        network = Network(settings, tasks.build("adding", **settings.task_options))
        assert count_parameters(network) == expected, row


def test_the_paper_settings_of_the_adding_problem():
    settings, sources = recipe.load("adding").resolve("durnn", "adding-500", "paper")
    assert (settings.lr, settings.batch_size, settings.hidden_size) == (2e-4, 50, 128)
    assert (settings.schedule, settings.decay_every, settings.decay_factor) == ("step", 20_000, 0.1)
    assert settings.task_options["length"] == 500
    assert sources["lr"].startswith("paper:")


def test_figure_4_bounds_are_the_general_ones_where_they_are_not_reduced():
    for row, general in (("indrnn-2-first-low", 1), ("indrnn-2-second-low", 0)):
        settings, _ = recipe.load("adding").resolve(row, "adding-100", "paper")
        bounds = settings.options["u_max"]
        assert math.isclose(bounds[general], 2 ** (1 / 100), rel_tol=1e-12)
        assert bounds[1 - general] == 0.9


def test_rows_of_recipes_are_the_implemented_rows_of_the_paper():
    for name, table in paper.load().tables.items():
        recipes = recipe.load(name)
        assert set(recipes.rows) == {row for row, line in table.rows.items() if line.implemented}
        assert list(recipes.cells) == table.cells


def test_claims_refer_to_what_exists():
    everything = {name: recipe.load(name) for name in FILES}
    for name, claim in paper.load().claims.items():
        for row in claim.rows:
            assert any(row in recipes.rows for recipes in everything.values()), (name, row)
        for cell in claim.cells:
            assert any(cell in recipes.cells for recipes in everything.values()), (name, cell)


def test_minimal_recipe_loads_and_later_blocks_win(tmp_path):
    more = '\n[[settings]]\nsource = "paper: §1"\nbudgets = ["quick"]\nlr = 0.5\noptions = { gamma = 3.0 }\n'
    recipes = load(tmp_path, MINIMAL + more)
    assert recipes.resolve("r", "a", "paper")[0].lr == 1e-3
    quick, sources = recipes.resolve("r", "a", "quick")
    assert (quick.lr, quick.options) == (0.5, {"gamma": 3.0})
    assert sources["lr"] == sources["options.gamma"] == "paper: §1"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size = 2", "batchsize = 2", "unknown key 'batchsize'; did you mean 'batch_size'"),
        ("title =", "titel =", "did you mean 'title'"),
        ('label = "R"', 'lable = "R"', "did you mean 'label'"),
        ("lr = 1e-3\n", "", "sets no lr"),
        ("lr = 1e-3", "lr = -1.0", "lr: Input should be greater than 0"),
        ('source = "ours: because it is small"', 'source = "somewhere"', "must start with"),
        ('source = "ours: because it is small"', 'source = "ours:"', "must start with"),
        ('model = "durnn"', 'model = "durnn"\nrows = ["q*"]', "pattern 'q*' fits none"),
        ('title = "t"', "title = ", "not valid TOML"),
    ],
)
def test_bad_recipes_get_one_clear_sentence(tmp_path, old, new, message):
    assert old in MINIMAL
    with pytest.raises(ValueError, match=r".") as caught:
        load(tmp_path, MINIMAL.replace(old, new))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_unknown_names_name_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'table1'"):
        recipe.load("tabel1")
    with pytest.raises(ValueError, match="did you mean 'durnn-1'"):
        recipe.load("table1").resolve("durn-1", "mnist", "paper")
