"""Recipes: complete, sourced, buildable; and clear about what is wrong with a bad one."""

import math
from types import SimpleNamespace

import pytest
from recipe_samples import MINIMAL

import models
import tasks
from reproduce.plan import paper, recipe
from reproduce.plan.recipe import BUDGETS, SOURCES
from reproduce.plan.runs import plan
from reproduce.train.network import Network, count_parameters

FILES = sorted(path.stem for path in recipe.RECIPES.glob("*.toml"))
CASES = [(name, row, cell) for name in FILES for row in recipe.load(name).rows for cell in recipe.load(name).cells]


def load(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    return recipe.load("x", tmp_path)


@pytest.mark.parametrize(("name", "row", "cell"), CASES)
def test_every_value_of_every_run_has_a_source(name, row, cell):
    for budget in BUDGETS:
        settings, sources = recipe.load(name).resolve(row, cell, budget)
        parts = settings.explicit()
        stages = {"stages"} if parts.pop("stages", None) else set()  # a list with one source
        assert set(sources) == {f"{key}.{option}" for key, part in parts.items() for option in part} | stages
        assert all(source.startswith(SOURCES) for source in sources.values())


@pytest.mark.parametrize(("name", "row", "cell"), CASES)
def test_every_recipe_builds_with_every_option_known(name, row, cell):
    recipes = recipe.load(name)
    settings, _ = recipes.resolve(row, cell, "paper")
    assert settings.model.name in models.names()
    assert set(settings.model.options) <= set(models.options(settings.model.name))
    assert set(settings.data) <= set(tasks.options(recipes.cells[cell].task))
    smoke, _ = recipes.resolve(row, cell, "smoke")
    models.registry.example(
        smoke.model.name, 3, smoke.model.hidden_size, smoke.model.num_layers, length=20, **smoke.model.options
    )


def test_parameter_counts_of_the_paper_settings():
    counts = {"rnn-tanh": 16_897, "irnn": 16_897, "lstm": 67_201, "indrnn-2": 17_281, "durnn": 66_434}
    for row, expected in counts.items():
        settings, _ = recipe.load("adding").resolve(row, "adding-100", "paper")
        network = Network(settings, tasks.build("adding", **settings.data))
        assert count_parameters(network) == expected, row


def test_the_paper_settings_of_the_adding_problem():
    settings, sources = recipe.load("adding").resolve("durnn", "adding-500", "paper")
    assert (settings.optimiser.lr, settings.training.batch_size, settings.model.hidden_size) == (2e-4, 50, 128)
    assert settings.explicit()["schedule"] == {"name": "step", "every": 20_000, "factor": 0.1}
    assert settings.data["length"] == 500
    assert sources["optimiser.lr"].startswith("paper:")


def test_figure_4_bounds_are_the_general_ones_where_they_are_not_reduced():
    for row, general in (("indrnn-2-first-low", 1), ("indrnn-2-second-low", 0)):
        settings, _ = recipe.load("adding").resolve(row, "adding-100", "paper")
        bounds = settings.model.options["u_max"]
        assert math.isclose(bounds[general], 2 ** (1 / 100), rel_tol=1e-12)
        assert bounds[1 - general] == 0.9


TODAY = {
    ("table1", "gru"): 51_338,
    ("table1", "mingru"): 268_298,
    ("table1", "lru"): 229_834,
    ("table2", "hyperlstm-ln"): 4_922_642,
    ("table2", "hm-lstm-ln"): 8_434_100 + 9_216,
    ("table2", "gru"): 3_204_050,
    ("table2", "mingru"): 4_162_050,
    ("table2", "lru"): 4_207_250,
}


@pytest.mark.parametrize(("name", "row"), TODAY)
def test_parameter_counts_of_hyperlstm_hm_lstm_and_rows_of_today(name, row):
    pixels = SimpleNamespace(
        name="pixels", kind="classify-last", input_kind="dense", input_size=1, output_size=10, length=784
    )
    text = SimpleNamespace(
        name="text", kind="classify-every", input_kind="symbols", input_size=50, output_size=50, length=100
    )
    recipes = recipe.load(name)
    settings, sources = recipes.resolve(row, next(iter(recipes.cells)), "paper")
    network = Network(settings, pixels if name == "table1" else text)
    assert count_parameters(network) == TODAY[name, row]
    said = [f"{TODAY[name, row]:,}" in source for source in sources.values()]
    assert any(said) == (row in ("mingru", "lru"))


def test_rows_of_recipes_are_rows_of_the_paper_or_say_that_they_are_not():
    for name, table in paper.load().tables.items():
        recipes = recipe.load(name)
        for row, spec in recipes.rows.items():
            assert row in table.rows or spec.label.endswith((", not in the paper", ", ours")), row
        assert list(recipes.cells) == table.cells


def test_minimal_recipe_loads_and_later_blocks_win(tmp_path):
    more = (
        '\n[[settings]]\nsource = "paper: §1"\nbudgets = ["quick"]\noptimiser = { lr = 0.5 }\nmodel = { gamma = 3.0 }\n'
    )
    recipes = load(tmp_path, MINIMAL + more)
    assert recipes.resolve("r", "a", "paper")[0].optimiser.lr == 1e-3
    quick, sources = recipes.resolve("r", "a", "quick")
    assert (quick.optimiser.lr, quick.model.options) == (0.5, {"gamma": 3.0})
    assert sources["optimiser.lr"] == sources["model.gamma"] == "paper: §1"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("training =", "trainig =", "unknown key 'trainig'; did you mean 'training'"),
        ("batch_size = 2", "batchsize = 2", "batchsize"),
        ("[rows]", "[row]", "did you mean 'rows'"),
        ('label = "R"', 'lable = "R"', "did you mean 'label'"),
        ("lr = 1e-3", "eps = 1e-3", "nothing sets optimiser.lr"),
        ("lr = 1e-3", "lr = -1.0", "lr: Input should be greater than 0"),
        ('name = "durnn"', 'name = "durnn", gamma = nan', "not a finite number"),
        ("num_layers = 1", "num_layers = 100000", "num_layers: Input should be less than"),
        ("hidden_size = 4", "hidden_size = 0", "a layer has 1 to 1,000,000 units"),
        ("lr = 1e-3", "lr = inf", "not a finite number"),
        ("lr = 1e-3", "lr = 1e-3, betta = 1", "adam has no option 'betta'; did you mean 'betas'"),
        ('name = "adam"', 'name = "adamm"', "there is no 'adamm'; did you mean 'adam'"),
        ('name = "durnn"', 'name = "durn"', "did you mean 'durnn'"),
        ('name = "durnn"', 'name = "durnn", dropout = 5.0', "dropout=5.0"),
        ('name = "durnn"', 'name = "durnn", gama = 3.0', "did you mean 'gamma'"),
        ("held_out = 4", "held = 4", "task adding has no option 'held'"),
        ("training = {", 'schedule = { name = "cosin" }\ntraining = {', "did you mean 'cosine'"),
        ("training = {", 'schedule = { name = "step" }\ntraining = {', "step needs factor"),
        ("training = {", "penalties = { activity = 1.0 }\ntraining = {", "collects 'activity'"),
        ("training = {", "stages = [{ updates = 9 }]\ntraining = {", "more than the 4 updates"),
        ("training = {", "stages = [{}, { updates = 1 }]\ntraining = {", "only the last stage"),
        ("data = { held_out = 4 }", 'data = "x"', "must be a table of options"),
        ("data = { held_out = 4 }", "data = 2026-01-01", "must be a table of options"),
        ('source = "ours: because it is small"', 'source = "somewhere"', "must start with"),
        ('source = "ours: because it is small"', 'source = "ours:"', "must start with"),
        ("model = {", 'rows = ["q*"]\nmodel = {', "pattern 'q*' fits none"),
        ("model = {", "rows = 5\nmodel = {", "must be a list"),
        ("[cells]", 'name = "x"\n[cells]', "unknown key 'name'"),
        ("[cells]", "[cells", "not valid TOML"),
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


def test_the_open_division_is_for_rows_with_a_recipe_of_our_own(tmp_path):
    own = """
[[settings]]
source = "ours: a test"
rows = ["durnn"]
cells = ["adding-500"]
budgets = ["open"]
average = { decay = 0.99 }
"""
    text = (recipe.RECIPES / "adding.toml").read_text(encoding="utf-8") + own
    found = load(tmp_path, text)
    offered = [(row, cell) for row in found.rows for cell in found.cells if found.offers(row, cell, "open")]
    assert offered == [("durnn", "adding-500")]
    assert all(found.offers("lstm", "adding-100", budget) for budget in BUDGETS if budget != "open")
    assert found.resolve("durnn", "adding-500", "open")[0].average.decay == 0.99
    assert found.resolve("durnn", "adding-500", "paper")[0].average is None
    runs, _ = plan(found, ["lstm", "durnn"], ["adding-100", "adding-500"], [0, 1], "open")
    assert [(run.row, run.cell, run.seed) for run in runs] == [("durnn", "adding-500", 0), ("durnn", "adding-500", 1)]
