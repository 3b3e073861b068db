"""What every rung of the ladder uses: random arguments per operator, all outputs and gradients, and their error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models import kernels
from models.kernels.bernoulli import reference as bernoulli
from models.kernels.recurrence import RECURRENCES

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
"""Largest deviation from the float64 reference, relative to the largest entry of the tensor in question."""

SIZES = [(1, 1, 1), (1, 33, 7), (6, 1, 128), (5, 33, 130), (12, 4, 100), (7, 16, 128), (9, 2, 1), (3, 25, 33)]
"""T, B, N"""

Arguments = dict[str, Tensor]


def uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def recurrent_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return {"u": normal(g, T, B, N), "W_rec": normal(g, N, N) / N**0.5, "h0": normal(g, B, N)}


def independent_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return {"u": normal(g, T, B, N), "U": 0.5 + uniform(g, N), "h0": uniform(g, B, N)}


def projected(arguments: Arguments, g: torch.Generator) -> Arguments:
    """With the projection in the place of u, few columns or many, depending on the sizes."""
    T, B, N = arguments.pop("u").shape
    columns = (1, 2, 37, 4, 5)[(T + B + N) % 5]
    return {
        "x": normal(g, T, B, columns),
        "W_in": normal(g, N, columns) / (2 * columns**0.5),
        "b": normal(g, N) / 4,
    } | arguments


def projected_recurrent_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return projected(recurrent_arguments(T, B, N, g), g)


def projected_independent_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return projected(independent_arguments(T, B, N, g), g)


def selective_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return {
        "h_short": normal(g, T, B, N),
        "W_ss": normal(g, N, N) / N**0.5,
        "b_s": normal(g, N),
        "W_ls": normal(g, N, N) / N**0.5,
        "W_s": normal(g, N, N) / N**0.5,
        "U": 0.3 + 0.6 * uniform(g, N),
        "b_thre": 0.2 + 0.2 * uniform(g),
        "b_long": 0.5 * normal(g, N),
        "h0": uniform(g, B, N),
    }


def lstm_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return {
        "u": 2 * normal(g, T, B, 4 * N),
        "W_rec": normal(g, 4 * N, N) / N**0.5,
        "h0": normal(g, B, N),
        "c0": normal(g, B, N),
    }


def projected_lstm_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return projected(lstm_arguments(T, B, N, g), g)


def gru_arguments(T: int, B: int, N: int, g: torch.Generator) -> Arguments:
    return {
        "u": normal(g, T, B, 3 * N) / 2,
        "W_rec": normal(g, 3 * N, N) / N**0.5,
        "b_new": normal(g, N) / 2,
        "h0": normal(g, B, N),
    }


def nothing(arguments: Arguments) -> dict[str, Any]:
    return {}


def relu(arguments: Arguments) -> dict[str, Any]:
    return {"activation": "relu"}


def tanh(arguments: Arguments) -> dict[str, Any]:
    return {"activation": "tanh"}


def drawn_noise(arguments: Arguments) -> dict[str, Any]:
    """All combinations of the three bits, fixed for ever by their number."""
    u = arguments["u"]
    if not isinstance(u, Tensor) or u.dim() != 3:
        return {}  # refused for that
    T, B, N = u.shape[0], u.shape[1], u.shape[2] // 4
    bits = bernoulli.words(torch.tensor(0, device="cpu"), T * B * N) & 7
    return {"noise": bits.to(torch.uint8).view(T, B, N)}


def expected_noise(arguments: Arguments) -> dict[str, Any]:
    u = arguments["u"]
    dtype = u.dtype if isinstance(u, Tensor) else None
    return {"rates": torch.tensor([0.3, 0.15, 0.4], dtype=dtype, device="cpu")}


@dataclass(frozen=True)
class Operator:
    """A form of a recurrence: how to draw arguments for it, and what it takes besides."""

    name: str
    recurrence: str
    draw: Callable[..., Arguments]
    options: Callable[[Arguments], dict[str, Any]] = nothing

    def arguments(self, T: int, B: int, N: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Arguments:
        drawn = self.draw(T, B, N, torch.Generator().manual_seed(seed))
        return {name: tensor.to(dtype) for name, tensor in drawn.items()}

    def scan(self, **arguments: Any) -> Any:
        """The public function, with ``backend`` among the arguments or not."""
        return getattr(kernels, f"{self.recurrence}_scan")(**{**self.options(arguments), **arguments})

    def fused(self, **arguments: Any) -> Any:
        return self.scan(**arguments, backend="fused")

    def plain(self, **arguments: Any) -> Any:
        return RECURRENCES[self.recurrence].reference(**self.options(arguments), **arguments)

    def positional(self, arguments: Arguments) -> list[Any]:
        """What the raw forward operator takes."""
        declared, known = RECURRENCES[self.recurrence], self.options(arguments) | arguments
        return [known.get(name) for name in (*declared.tensors, *declared.words)]


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("rnn_relu", "rnn", recurrent_arguments, relu),
        Operator("rnn_tanh", "rnn", recurrent_arguments, tanh),
        Operator(
            "projected_rnn_relu", "projected_rnn", projected_recurrent_arguments, lambda _: {"activation": "relu"}
        ),
        Operator(
            "projected_rnn_tanh", "projected_rnn", projected_recurrent_arguments, lambda _: {"activation": "tanh"}
        ),
        Operator("indrnn", "indrnn", independent_arguments),
        Operator("projected_indrnn", "projected_indrnn", projected_independent_arguments),
        Operator("select", "select", selective_arguments),
        Operator("gru", "gru", gru_arguments),
        Operator("lstm", "lstm", lstm_arguments),
        Operator("projected_lstm", "projected_lstm", projected_lstm_arguments),
        Operator("lstm_noise", "lstm", lstm_arguments, drawn_noise),
        Operator("lstm_rates", "lstm", lstm_arguments, expected_noise),
    )
}


GRADED = {"everything": slice(None), "the sequence": slice(0, 1), "the last states": slice(1, None)}
"""Outputs that have a gradient, out of y, its last step, and for an LSTM the last c."""


def everything(
    function: Callable[..., Any], arguments: Arguments, seed: int = 1, graded: str = "everything"
) -> dict[str, Tensor]:
    """Outputs and the gradient of every argument, for a random weight on every element of the ``GRADED`` outputs.

    Weights are positive: a gradient that is a sum of terms of both signs is not known to its last digits in float32.
    """
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in arguments.items()}
    outputs = function(**leaves)
    g = torch.Generator().manual_seed(seed)
    weights = [(0.5 + uniform(g, *output.shape)).to(output.dtype) for output in outputs]
    part = GRADED[graded]
    gradients = torch.autograd.grad(outputs[part], list(leaves.values()), weights[part], allow_unused=True)
    found = {f"output {k}": output.detach() for k, output in enumerate(outputs)}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return found


def errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Largest deviation of each tensor, relative to its largest expected entry; NaN counts as infinite."""
    result = {}
    for name, tensor in expected.items():
        deviation = (found[name].double() - tensor.double()).abs().max().item()
        scale = tensor.abs().max().item()
        relative = deviation / scale if scale > 0 else deviation
        result[name] = relative if relative == relative else float("inf")
    return result


def check(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    wrong = {name: error for name, error in errors(found, expected).items() if not error <= tolerance}
    assert not wrong, f"beyond {tolerance}: {wrong}"
