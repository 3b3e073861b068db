"""What a training run does per update besides the forward and backward of its network's model.

``python -m reproduce.train.overhead`` measures it for DuRNN on the adding problem and on MNIST at the paper's settings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import tyro
from torch import Tensor

from models.kernels.timing import Times, repeated
from reproduce.plan import runs
from reproduce.plan.experiments import EXPERIMENTS
from reproduce.train import provenance
from reproduce.train.loop import Training
from reproduce.train.network import Objective

MEASURED = {
    "adding-100": ("figure2", "adding-100", "durnn"),
    "mnist": ("table1", "mnist", "durnn-1"),
}
"""Name -> experiment, cell and row."""

MOST = 0.05
"""Of the model's time: what the rest of an update should stay below."""

SMALL = ("batch", "readout and loss", "clipping", "optimiser")
"""The parts of an update that are the trainer's."""

BEFORE = 100  # updates, after which the projection has something to clip


@dataclass(frozen=True)
class Overhead:
    """times: an ``update``, the ``model``'s forward and backward on its batch, and each other part by itself.

    evaluation: seconds of one, which follows every ``every`` updates.
    """

    label: str
    times: Times
    evaluation: float
    every: int

    def relative(self, name: str) -> float:
        """A part's time over the model's."""
        return self.times.of(name) / self.times.of("model")

    @property
    def share(self) -> float:
        """What an update takes beyond its model and the projection, over the model; ``MOST`` is aimed at."""
        return self.relative("update") - 1 - self.relative("projection")

    @property
    def evaluation_share(self) -> float:
        """Of the time of a run."""
        return self.evaluation / (self.evaluation + self.every * self.times.of("update"))

    def sentence(self) -> str:
        """All of it, in words."""
        listed = ", ".join(f"{name} {self.relative(name):.1%}" for name in self.times.seconds if name in SMALL)
        said = "; ".join(self.times.disturbances())
        return (
            f"{self.label}: an update takes {1e3 * self.times.of('update'):.1f} ms. Over the model's forward and "
            f"backward, {1e3 * self.times.of('model'):.1f} ms, the trainer adds {self.share:.1%} (aim ≤ {MOST:.0%}; by "
            f"themselves: {listed}) and the projection {self.relative('projection'):.1%}. An evaluation every "
            f"{self.every:,} updates takes {self.evaluation_share:.1%} of a run{f' ({said})' if said else ''}."
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Overhead:
        return cls(**(data | {"times": Times(**data["times"])}))


def parts_of(training: Training) -> dict[str, Callable[[], object]]:
    """An update, and its parts to be timed by themselves."""
    network, settings = training.network, training.settings
    x, y, mask = training._next_batch()
    seen = network.input(x, mask) if network.input else x
    with torch.no_grad():
        states = network.model(seen)[0]  # (T, B, N)
        if not network.readout.every_step:
            states = states[-1:]  # the gradient of all steps is part of the model's backward
    objective = Objective(network, (x, y, mask), None, training.penalties, settings.clip)
    inner = list(network.model.parameters())
    head = [parameter for parameter in network.parameters() if all(parameter is not other for other in inner)]

    def model() -> None:
        for parameter in inner:
            parameter.grad = None
        out, state = network.model(seen)
        (out if network.readout.every_step else network.model.last_output(out, state)).sum().backward()

    def read_out() -> None:
        above = states.detach().requires_grad_()
        torch.autograd.grad(network.loss(network.readout(above, seen, mask), y), [above, *head])

    def clip() -> None:
        if settings.clip and settings.clip.value:
            torch.nn.utils.clip_grad_value_(objective.parameters, settings.clip.value)
        if settings.clip and settings.clip.norm:
            torch.nn.utils.clip_grad_norm_(objective.parameters, settings.clip.norm)

    return {
        "update": training.update,
        "model": model,
        "batch": training._next_batch,
        "readout and loss": read_out,
        "clipping": clip,
        "optimiser": training.optimiser.step,
        "projection": training._constrain,
    }


def before_projection(training: Training) -> Callable[[], None]:
    """Sets the weights to what an update leaves to the projection, so that it has as much to do as in a run."""
    parameters = list(training.network.parameters())
    kept: list[Tensor] = []
    project = training._constrain

    def keep() -> None:
        kept.extend(parameter.detach().clone() for parameter in parameters)
        project()

    training._constrain = keep  # type: ignore[method-assign]
    training.update()
    training._constrain = project  # type: ignore[method-assign]

    def restore() -> None:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)

    return restore


def measure_run(name: str, threads: int, before: int = BEFORE, limit: float = 20.0) -> Overhead:
    """In this process."""
    experiment, cell, row = MEASURED[name]
    (run,), _notes = runs.plan(EXPERIMENTS[experiment].load_recipe(), [row], [cell], [0], "paper")
    with provenance.prepared_process(threads):
        training = Training(run)
        for _ in range(before):
            training.update()
        times = repeated(parts_of(training), before_projection(training), repetition=1.0, limit=limit)
        training.network.zero_grad()
        started = time.perf_counter()
        training.evaluate()
        evaluation = time.perf_counter() - started
    label = f"{run.settings.model.name} on {training.task.name}"
    return Overhead(label, times, evaluation, run.settings.evaluation.every)


def in_new_process(name: str, threads: int) -> Overhead:
    """As a training has it: its process flushes subnormals from the first number on."""
    program = (
        "import json, sys; from dataclasses import asdict; from reproduce.train import overhead; "
        "print(json.dumps(asdict(overhead.measure_run(sys.argv[1], int(sys.argv[2])))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, name, str(threads)], stdout=subprocess.PIPE, text=True, check=True
    )
    return Overhead.from_dict(json.loads(done.stdout.splitlines()[-1]))


def measure(threads: int = 2) -> dict[str, dict[str, Any]]:
    """As it is saved beside the measurement of the kernels."""
    return {name: asdict(in_new_process(name, threads)) for name in MEASURED}


def sentences(saved: dict[str, Any]) -> list[str]:
    return [Overhead.from_dict(data).sentence() for data in saved.values()]


def main(threads: int = 2) -> None:
    """Print what an update takes besides its model.

    Args:
        threads: of torch.
    """
    for name in MEASURED:
        print(in_new_process(name, threads).sentence(), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
