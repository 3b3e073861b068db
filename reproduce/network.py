"""The network of a run: input encoding, recurrent model and linear head as one module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import models
from reproduce.recipe import Settings


class Network(nn.Module):
    """``outputs, state = network(x, state)``: (B, out) for tasks scored at the last step, else (T, B, out)."""

    def __init__(self, settings: Settings, task: Any, backend: str = "auto"):
        super().__init__()
        self.kind = task.kind
        self.symbols = task.input_kind == "symbols"
        if self.symbols != (settings.encoding != "dense"):
            raise ValueError(
                f"encoding {settings.encoding!r} does not fit task {task.name}, whose inputs are {task.input_kind}"
            )
        self.encoding = settings.encoding
        self.vocabulary = task.input_size
        size = task.input_size
        if settings.encoding == "embedding":
            size = settings.embedding_size
            self.embedding = nn.Embedding(task.input_size, size)
            nn.init.uniform_(self.embedding.weight, -0.04, 0.04)
        extra: dict[str, Any] = dict(settings.options)
        if settings.norm != "none":
            extra["norm"] = settings.norm
        if settings.dropout != 0:
            extra["dropout"] = settings.dropout
        self.model: Any = models.build(
            settings.model,
            input_size=size,
            hidden_size=settings.hidden_size,
            num_layers=settings.num_layers,
            length=task.length,
            backend=backend,
            **extra,
        )
        self.head = nn.Linear(settings.hidden_size, task.output_size)

    def encode(self, x: Tensor) -> Tensor:
        if self.encoding == "embedding":
            return self.embedding(x)  # (T, B) -> (T, B, embedding)
        if self.encoding == "one-hot":
            return F.one_hot(x, self.vocabulary).float()  # (T, B) -> (T, B, vocabulary)
        return x

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.model(self.encode(x), state)  # (T, B, hidden)
        return self.head(y if self.kind == "classify-every" else y[-1]), state

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        if self.kind == "regression-last":
            return F.mse_loss(outputs, y)
        return F.cross_entropy(outputs.flatten(0, -2), y.flatten())

    def constrain_(self) -> None:
        self.model.constrain_()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Decay on matrices only; the model itself exempts its recurrent weights, biases and norms."""
        groups = list(self.model.parameter_groups(weight_decay))
        own = [p for name, p in self.named_parameters() if not name.startswith("model.")]
        groups.append({"params": [p for p in own if p.dim() > 1], "weight_decay": weight_decay})
        groups.append({"params": [p for p in own if p.dim() <= 1], "weight_decay": 0.0})
        return groups


State = Tensor | tuple[Tensor, ...] | None


def detach(state: State) -> State:
    """The same state, cut from its graph, for truncated back-propagation."""
    if state is None or isinstance(state, Tensor):
        return state if state is None else state.detach()
    return tuple(part.detach() for part in state)


def state_to_tensors(state: State) -> dict[str, Tensor]:
    """A carried state under names, for a checkpoint; ``state_from_tensors`` is the inverse."""
    if state is None:
        return {}
    if isinstance(state, Tensor):
        return {"only": state}
    return {str(index): part for index, part in enumerate(state)}


def state_from_tensors(named: dict[str, Tensor]) -> State:
    if not named:
        return None
    return named["only"] if "only" in named else tuple(named[str(index)] for index in range(len(named)))


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
