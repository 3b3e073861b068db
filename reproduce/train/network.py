"""The network of a run: input part, recurrent model and readout as one module; and what a batch asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import models
from models import inputs, readouts
from models.base import Cell, Part
from models.states import State, detach
from reproduce.plan.parts import Clip, Settings

READOUTS = {"regression-last": "last", "classify-last": "last", "classify-every": "every"}
"""What a task is read out by where a recipe names nothing else."""


class Network(Part):
    """``outputs, state = network(x, state, mask)``: (B, out) for tasks scored once per sequence, else (T, B, out).

    The penalty "weights-l1" is the sum of the magnitudes of all entries of all weight matrices.
    """

    penalty_names = ("weights-l1",)

    def __init__(self, settings: Settings, task: Any, backend: str = "auto"):
        super().__init__()
        self.kind = task.kind
        self.input = self._input(settings, task)
        self.model = models.build(
            settings.model.name,
            input_size=self.input.size if self.input else task.input_size,
            hidden_size=settings.model.hidden_size,
            num_layers=settings.model.num_layers,
            length=task.length,
            backend=backend,
            **settings.model.options,
        )
        name, options = READOUTS[task.kind], {}
        if settings.readout:
            name, options = settings.readout.name, settings.readout.options
        self.readout = readouts.build(name, self.model.size, task.output_size, self.model.input_size, **options)
        for part in self.modules():
            if isinstance(part, Cell):
                part.backend = backend  # also those inside the input and the readout
        if self.readout.every_step != (task.kind == "classify-every"):
            raise ValueError(f"readout {name} does not fit task {task.name}, which is of the kind {task.kind}")

    def _input(self, settings: Settings, task: Any) -> Any:
        part = inputs.build(settings.input.name, task.input_size, **settings.input.options) if settings.input else None
        if (task.input_kind == "symbols") != bool(part and part.takes_symbols):
            chosen = settings.input.name if settings.input else "absent"
            raise ValueError(f"input {chosen} does not fit task {task.name}, whose inputs are {task.input_kind}")
        return part

    def forward(self, x: Tensor, state: State | None = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        seen = self.input(x, mask) if self.input else x  # (T, B, inputs)
        y, state = self.model(seen, state)  # (T, B, hidden)
        last = self.model.last_output(y, state)
        return self.readout(y, seen, self.input.mask(mask) if self.input else mask, last), state

    def penalties(self) -> dict[str, Tensor]:
        """Those that the parts collected, and the one that needs no forward."""
        matrices = [parameter.abs().sum() for parameter in self.parameters() if parameter.dim() > 1]
        return super().penalties() | {"weights-l1": torch.stack(matrices).sum()}

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        if self.kind == "regression-last":
            return F.mse_loss(outputs, y)
        loss = F.nll_loss if self.readout.log_probabilities else F.cross_entropy
        return loss(outputs.flatten(0, -2), y.flatten())


class Objective:
    """The loss of one batch as a function of the parameters; calling it leaves the clipped gradient in them.

    ``parameters``: those of the network that are trained, if they are known. ``outputs`` and ``state`` are those of the
    last call.
    """

    def __init__(
        self,
        network: Network,
        batch: tuple[Tensor, Tensor, Tensor | None],
        carry: State | None,
        weights: Mapping[str, float],
        clip: Clip | None,
        parameters: list[nn.Parameter] | None = None,
    ):
        self.network, self.carry, self.weights, self.clip = network, carry, weights, clip
        self.x, self.y, self.mask = batch
        self.parameters = parameters or [p for p in network.parameters() if p.requires_grad]
        self.outputs: Tensor | None = None
        self.state: State | None = None

    def __call__(self) -> Tensor:
        for parameter in self.parameters:
            parameter.grad = None
        loss = self.forward()
        loss.backward()
        if self.clip and self.clip.value:
            torch.nn.utils.clip_grad_value_(self.parameters, self.clip.value)
        if self.clip and self.clip.norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip.norm)
        return loss.detach()

    def forward(self) -> Tensor:
        """The loss with its graph: the task's, and each penalty times its weight."""
        self.outputs, state = self.network(self.x, self.carry, self.mask)
        self.state = detach(state)
        loss = self.network.loss(self.outputs, self.y)
        if self.weights:
            found = self.network.penalties()
            for name, weight in self.weights.items():
                loss = loss + weight * found[name]
        return loss


def observed_backend(outputs: Tensor) -> str:
    """Who computed the recurrences, by the operators that the graph of ``outputs`` is made of."""
    waiting: list[Any] = [outputs.grad_fn]
    seen: set[Any] = set()
    while waiting and len(seen) < 5000:  # the reference's graph has several nodes per time step
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if "_durnn_" in node.name():  # the namespace of the fused operators
            return "fused"
        waiting += [below for below, _ in node.next_functions]
    return "reference"


def count_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def all_finite(network: nn.Module) -> bool:
    with torch.no_grad():
        return bool(torch.stack([p.isfinite().all() for p in network.parameters()]).all())
