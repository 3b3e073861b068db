"""A training step of a model on a shape: building the model, data, loss, optimiser and projection.

Nothing beyond torch, and no import of the suite: asv_bench loads this file beside commits without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from suite.shapes import Shape

TORCH_NN: dict[str, Callable[[int, int], nn.Module]] = {
    "nn.LSTM": nn.LSTM,
    "nn.GRU": nn.GRU,
    "nn.RNN": lambda inputs, N: nn.RNN(inputs, N, nonlinearity="relu"),
}


def build(zoo: Any, name: str, shape: Shape, **options: Any) -> nn.Module:
    """A model for a shape, with the same weights every time: with ``lacking``, all that knows what a model needs.

    zoo: the module ``models``, maybe of another commit. name: of its registry, or of ``TORCH_NN``.
    """
    torch.manual_seed(0)
    if name in TORCH_NN:
        return TORCH_NN[name](shape.input_size, shape.N)
    if "length" in _needs(zoo, name):
        options["length"] = shape.T
    return zoo.build(name, shape.input_size, _units(zoo, name, shape.N), num_layers=1, **options)


def lacking(zoo: Any, name: str, shape: Shape) -> set[str]:
    """What a model needs and the shape's task has not."""
    return set() if name in TORCH_NN else _needs(zoo, name) - {"length", *shape.has}


def _units(zoo: Any, name: str, N: int) -> int:
    """The ``hidden_size`` of a model of N units; one with ``parts`` counts the units of a part."""
    entries = getattr(getattr(zoo, "registry", None), "ZOO", None)
    return N // getattr(entries.entry(name).cls, "parts", 1) if entries else N


def _needs(zoo: Any, name: str) -> set[str]:
    return set(zoo.needs(name)) if hasattr(zoo, "needs") else {"length"}


def last_output(net: nn.Module, y: Tensor, state: Any) -> Tensor:
    """y of the last step, (B, N): by itself where the model gives it so, as torch.nn does in its state."""
    if type(net).__module__.startswith("torch.nn"):
        return (state[0] if isinstance(state, tuple) else state)[-1]
    return net.last_output(y, state) if hasattr(net, "last_output") else y[-1]  # type: ignore[operator]


def inputs(shape: Shape) -> tuple[Tensor, torch.Generator]:
    """The same sequence every time, (T, B, input_size), and the generator to go on with."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(shape.T, shape.B, shape.input_size, generator=generator), generator


class Training:
    """A built model with fixed data, a linear readout and Adam."""

    def __init__(self, net: nn.Module, shape: Shape, device: torch.device | str = "cpu") -> None:
        self.shape, self.device = shape, torch.device(device)
        width = getattr(net, "size", shape.N)  # of the output, which is not that of the units in every model
        self.readout = nn.Linear(width, shape.output_size).to(self.device)
        self.net = net.to(self.device)
        x, generator = inputs(shape)
        targets = (shape.T, shape.B) if shape.every_step else (shape.B,)
        if shape.output_size == 1:
            target = torch.rand(*targets, generator=generator)
        else:
            target = torch.randint(shape.output_size, targets, generator=generator)
        self.x, self.target = x.to(self.device), target.to(self.device)
        self.optimiser = torch.optim.Adam([*self.net.parameters(), *self.readout.parameters()], lr=1e-3)

    def loss(self) -> Tensor:
        y, state = self.net(self.x)  # (T, B, N)
        out = self.readout(y if self.shape.every_step else last_output(self.net, y, state))  # (…, outputs)
        if self.shape.output_size == 1:
            return F.mse_loss(out.squeeze(-1), self.target)
        return F.cross_entropy(out.flatten(0, -2), self.target.flatten())

    def train_step(self) -> Tensor:
        """Forward, backward, Adam and the model's projection; returns the loss before the update."""
        self.optimiser.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimiser.step()
        constrain = getattr(self.net, "constrain_", None)
        if constrain is not None:
            constrain()
        self.synchronise()
        return loss.detach()

    def inference(self) -> Tensor:
        with torch.no_grad():
            loss = self.loss()
        self.synchronise()
        return loss

    def synchronise(self) -> None:
        synchronise(self.device)


def synchronise(device: torch.device | str) -> None:
    """Wait until what was asked of a device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def bare_step(
    net: nn.Module, shape: Shape, last_step: bool = False, device: torch.device | str = "cpu"
) -> Callable[[], None]:
    """Forward and backward alone, of the sum of all outputs or of the last: what the recurrences answer for."""
    x = inputs(shape)[0].to(device)
    net.to(device)

    def step() -> None:
        net.zero_grad()
        y, state = net(x)
        (last_output(net, y, state) if last_step else y).sum().backward()
        synchronise(device)

    return step
