"""The tables and figures by name: which recipe, rows and cells each is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ADDING = ("adding-100", "adding-500", "adding-1000", "adding-5000")


@dataclass(frozen=True)
class Experiment:
    """``rows`` and ``cells`` empty: all of the recipe. ``weights``: the figure is drawn from trained weights."""

    name: str
    title: str
    recipe: str
    kind: Literal["table", "curves", "activations"]
    rows: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()

    @property
    def weights(self) -> bool:
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
            "figure4",
            "Figure 4: activations of 2-layer IndRNNs under three constraints, T = 100",
            "adding",
            "activations",
            ("indrnn-2", "indrnn-2-first-low", "indrnn-2-second-low"),
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
