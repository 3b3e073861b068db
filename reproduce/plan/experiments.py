"""The tables and figures by name: which recipe, rows and cells each is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from reproduce.plan import paper, recipe
from reproduce.plan.recipe import Recipe

ADDING = ("adding-100", "adding-500", "adding-1000", "adding-5000")


@dataclass(frozen=True)
class Experiment:
    """``rows`` and ``cells`` empty: all of the recipe. ``extended``: the recipe with rows of the user's own."""

    name: str
    title: str
    recipe: str
    kind: Literal["table", "curves", "activations"]
    rows: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    extended: Recipe | None = None

    def load_recipe(self) -> Recipe:
        return self.extended or recipe.load(self.recipe)

    def with_recipe(self, extended: Recipe) -> Experiment:
        """The same experiment with the rows that a recipe has more than the committed one."""
        new = tuple(row for row in extended.rows if row not in recipe.load(self.recipe).rows)
        return replace(self, extended=extended, rows=(*self.rows, *new) if self.rows else ())

    @property
    def runnable_rows(self) -> tuple[str, ...]:
        return self.rows or tuple(self.load_recipe().rows)

    @property
    def all_cells(self) -> tuple[str, ...]:
        return self.cells or tuple(self.load_recipe().cells)

    @property
    def shown_rows(self) -> dict[str, str]:
        """Row -> label in the order of the paper's table, rows without a recipe included, one's own at the end."""
        table = paper.load().tables.get(self.name)
        shown = {row: line.label for row, line in table.rows.items()} if table else {}
        specs = self.load_recipe().rows
        return shown | {row: specs[row].label for row in self.runnable_rows if row not in shown}

    @property
    def weights(self) -> bool:
        """Whether it is drawn from trained weights."""
        return self.kind == "activations"


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", "Table I: sequential and permuted MNIST, error rate (%)", "table1", "table"),
        Experiment("table2", "Table II: character-level Penn Treebank, bits per character", "table2", "table"),
        Experiment("table3", "Table III: skeleton action recognition (NTU RGB+D), accuracy (%)", "table3", "table"),
        Experiment(
            "figure2",
            "Figure 2: the adding problem",
            "adding",
            "curves",
            ("rnn-tanh", "lstm", "irnn", "indrnn-2", "durnn"),
            ADDING,
        ),
        Experiment(
            "figure3",
            "Figure 3: ablations of DuRNN on the adding problem",
            "adding",
            "curves",
            ("indrnn-2", "durnn", "durnn-no-selection", "durnn-independent-short"),
            ADDING,
        ),
        Experiment(
            "ablations",
            "Ablations: δ = 1, the selection's gradients kept, and either half alone, on the adding problem",
            "adding",
            "curves",
            ("durnn", "durnn-delta-1", "durnn-uncut", "rnn-relu", "indrnn-1"),
            ADDING,
        ),
        Experiment(
            "rates",
            "Rates: the paper's and ten times it on the adding problem, T = 100",
            "adding",
            "curves",
            ("rnn-tanh", "rnn-tanh-rate-10", "irnn", "irnn-rate-10", "durnn", "durnn-rate-10"),
            ("adding-100",),
        ),
        Experiment(
            "noise",
            "Noise: the adding problem with and without noise on its unmarked numbers, T = 100",
            "adding",
            "curves",
            ("rnn-tanh", "lstm", "irnn", "indrnn-2", "durnn"),
            ("adding-100", "adding-100-noise"),
        ),
        Experiment(
            "figure4",
            "Figure 4: activations of 2-layer IndRNNs under three constraints, T = 100",
            "adding",
            "activations",
            ("indrnn-2", "indrnn-2-first-low", "indrnn-2-second-low"),
            ("adding-100",),
        ),
        Experiment(
            "layer_law",
            "The law of layers: activations of IndRNNs whose last layer is held to short memory, T = 100",
            "adding",
            "activations",
            ("indrnn-2-second-low", "indrnn-3-third-low"),
            ("adding-100",),
        ),
        Experiment(
            "figure5", "Figure 5: activations of DuRNN, T = 100", "adding", "activations", ("durnn",), ("adding-100",)
        ),
        Experiment(
            "figure6",
            "Figure 6: activations of IndRNN and DuRNN, T = 5000",
            "adding",
            "activations",
            ("indrnn-2", "durnn"),
            ("adding-5000",),
        ),
    )
}
