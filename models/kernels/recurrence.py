"""A recurrence is declared once, in its folder's ``op.py``, and everything that torch wants is made from that.

The declaration is the public function itself: ``@Recurrence(...)`` above a signature whose tensors carry their shapes,
``u: Annotated[Tensor, "T B N"]``, whose words carry what they may be, ``activation: Annotated[str, "relu", "tanh"]``,
and whose last parameter is ``backend``. A tensor that may be None, and whose dtype may be its own, has no gradient and
stands after those that have one: ``noise: Annotated[Tensor | None, "T B N", torch.uint8] = None``. The function has no
body but its docstring: calling it checks the arguments, chooses who computes, and does so.

``backend="auto"`` takes the fused form where it is the faster one, has been tried and works, else the reference, with
one warning per process if it does not work; ``"fused"`` forces it and raises RuntimeError where there is none;
``"reference"`` is plain torch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

import torch
from torch import Tensor

from models.kernels.availability import available, in_transform, problem
from models.kernels.checks import Shapes, check_shapes, check_word
from models.kernels.operators import DTYPES, IMPLEMENTATIONS, Operator, in_forward_mode

BACKENDS = ("auto", "reference", "fused")

RECURRENCES: dict[str, Recurrence] = {}
"""Everything declared, by name: ``rnn``, ``indrnn``, …"""

WIDE = 256
"""Units from which it takes time to lay out the weights for the fused loops on a CPU."""

Scan = TypeVar("Scan", bound=Callable[..., Any])


def fused_is_faster(T: int, B: int, N: int) -> bool:
    """Whether the fused loops with products are the faster form on a CPU; ``crossover.py`` measures it.

    They lay out the weights anew in each call, which takes a few steps to pay, more if a step has few samples.
    """
    return N < WIDE or T * min(B, 8) >= 64


@dataclass(eq=False)
class Recurrence:
    """The decorator that makes a recurrence of a declared function, and then that recurrence.

    reference: the same function in plain torch. outputs: what it returns, with shapes: y, then y_last
    and other last states; each may have a gradient or not, and a loss on the last step alone should be one of y_last,
    since that of ``y[-1]`` is a sequence of zeros but for one step. constant: what it returns after these, without a
    gradient. residuals: what the fused forward computes besides, for the backward alone. saved: what the backward
    reads, in order, out of tensors, outputs and residuals; without it there is no fused form. products: of a sample's
    units with an (N, N) matrix per step, in forward and backward; 0 if elementwise. constants: numbers that the C++
    forward takes. reference_only: options of which the fused forms know only the default. devices: that have one.
    """

    reference: Callable[..., Any]
    outputs: Mapping[str, str]
    constant: Mapping[str, str] = field(default_factory=dict)
    residuals: Mapping[str, str] = field(default_factory=dict)
    saved: tuple[str, ...] = ()
    products: tuple[int, int] = (0, 0)
    constants: tuple[float, ...] = ()
    reference_only: tuple[str, ...] = ()
    devices: tuple[str, ...] = tuple(IMPLEMENTATIONS)
    forward: Operator | None = field(default=None, init=False)
    backward: Operator | None = field(default=None, init=False)

    def __call__(self, declared: Scan) -> Scan:
        self.label = declared.__name__
        self.name = self.label.removesuffix("_scan")
        self.folder = declared.__module__.split(".")[-2]
        self.signature = inspect.signature(declared)
        hints = get_type_hints(declared, include_extras=True)
        notes = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
        kinds = {name: note for name, note in notes.items() if note.__origin__ in (Tensor, Tensor | None)}
        self.tensors = _shapes({name: note.__metadata__[0] for name, note in kinds.items()})
        self.differentiable = [name for name, note in kinds.items() if note.__origin__ is Tensor]
        self.optional: dict[str, torch.dtype | None] = {
            name: (*note.__metadata__, None)[1] for name, note in kinds.items() if note.__origin__ is not Tensor
        }
        self.projects = "x" in self.tensors  # W_in x + b
        self.words = {name: note.__metadata__ for name, note in notes.items() if note.__origin__ is str}
        self.parameters = list(self.signature.parameters)
        defaults = {name: parameter.default for name, parameter in self.signature.parameters.items()}
        self.defaults = {name: default for name, default in defaults.items() if default is not inspect.Parameter.empty}
        if self.saved:
            self._make_operators()
        RECURRENCES[self.name] = self

        @functools.wraps(declared)
        def scan(*given: Any, **named: Any) -> Any:
            return self.scan(*given, **named)

        return cast(Scan, scan)

    def _make_operators(self) -> None:
        made = _shapes({**self.outputs, **self.constant, **self.residuals})
        known = {**self.tensors, **made}
        incoming = {f"grad_{name}": known[name] for name in self.outputs}
        outgoing = {f"grad_{name}": self.tensors[name] for name in self.differentiable}
        saved = {name: known[name] for name in self.saved}
        forward = Operator(
            self.folder, self.name, "forward", self.label, self.tensors, made, self.optional, self.words,
            self.products[0], self.constants,
        )  # fmt: skip
        self.backward = Operator(
            self.folder, self.name, "backward", f"{self.name}_backward", incoming | saved, outgoing,
            {**self.optional, **dict.fromkeys(incoming), **({"W_in": None} if self.projects else {})}, self.words,
            self.products[1],
        )  # fmt: skip
        forward.call.register_autograd(self._differentiate, setup_context=self._remember)
        self.forward = forward

    def _remember(self, ctx: Any, inputs: tuple, output: Any) -> None:
        assert self.forward is not None
        results = output if isinstance(output, tuple) else (output,)
        named = dict(zip(self.tensors, inputs, strict=False)) | dict(zip(self.forward.outputs, results, strict=True))
        if self.projects and not ctx.needs_input_grad[0]:
            named["W_in"] = None  # of which backward makes the gradient of x, and nothing else
        ctx.words = inputs[len(self.tensors) :]
        ctx.mark_non_differentiable(*(named[name] for name in (*self.constant, *self.residuals)))
        ctx.set_materialize_grads(False)  # no sequence of zeros where only the last step has a gradient
        ctx.save_for_backward(*(named[name] for name in self.saved))

    def _differentiate(self, ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        assert self.backward is not None
        nothing = (None,) * (len(self.optional) + len(ctx.words))
        grads = incoming[: len(self.outputs)]
        return (*self.backward.call(*grads, *ctx.saved_tensors, *ctx.words), *nothing)

    def scan(self, *positional: Any, **named: Any) -> Any:
        """What the public function does."""
        arguments = self._bound(positional, named)
        check_word(self.label, "backend", arguments["backend"], BACKENDS)
        for option, allowed in self.words.items():
            check_word(self.label, option, arguments[option], allowed)
        given = {
            name: arguments[name] for name in self.tensors if arguments[name] is not None or name not in self.optional
        }
        if self._use_fused(given, arguments):
            assert self.forward is not None
            tensors = [arguments[name] for name in self.tensors]
            results = self.forward.call(*tensors, *(arguments[option] for option in self.words))
            return tuple(results[: len(self.outputs) + len(self.constant)])
        check_shapes(self.label, self.tensors, given)
        return self.reference(**{name: value for name, value in arguments.items() if name != "backend"})

    def _bound(self, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name; in plain dictionaries, which torch.compile can follow."""
        by_position = dict(zip(self.parameters, given, strict=False))
        arguments = {**self.defaults, **by_position, **named}
        fitting = len(given) <= len(self.parameters) == len(arguments)
        if not fitting or any(name in by_position for name in named):
            self.signature.bind(*given, **named)  # raises TypeError in Python's own words
        return {name: arguments[name] for name in self.parameters}

    def _use_fused(self, tensors: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
        backend = arguments["backend"]
        if backend == "reference":
            return False
        first = next(iter(tensors.values()))
        lacking = self._lacking(arguments, first)
        if backend == "auto":
            possible = lacking is None and self._have_one_fused_kind(tensors) and not in_transform()
            return possible and self._pays(tensors) and available(first.device.type)
        if lacking is not None:
            raise RuntimeError(f"{self.label}: the fused backend lacks {lacking}; use backend='auto' or 'reference'.")
        if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            return False  # where all arguments are checked; those of a fused form are checked by its operator
        found = problem(first.device.type)
        if found is not None:
            raise RuntimeError(f"{self.label}: backend='fused' was asked for, but {found}")
        return True

    def _have_one_fused_kind(self, tensors: Mapping[str, Any]) -> bool:
        first = next(iter(tensors.values()))
        return (
            all(isinstance(tensor, Tensor) and tensor.device == first.device for tensor in tensors.values())
            and all(tensor.dtype == (self.optional.get(name) or first.dtype) for name, tensor in tensors.items())
            and first.dtype in DTYPES
            and first.device.type in self.devices
        )

    def _pays(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether the fused form is the faster one; shapes that are wrong are for others to complain about."""
        sequence, h0 = next(iter(tensors.values())), tensors["h0"]
        if sequence.device.type != "cpu" or not any(self.products) or sequence.dim() != 3 or h0.dim() != 2:
            return True
        return fused_is_faster(sequence.shape[0], *h0.shape)

    def _lacking(self, arguments: Mapping[str, Any], first: Any) -> str | None:
        """What is asked for and only the reference can do."""
        if self.forward is None:
            return f"a form of {self.label}"
        if isinstance(first, Tensor) and first.device.type in set(IMPLEMENTATIONS) - set(self.devices):
            return f"a form of {self.label} for {first.device.type}"
        for option in self.reference_only:
            if arguments[option] != self.defaults[option]:
                return f"a form with {option}={arguments[option]}"
        return "forward-mode derivatives" if in_forward_mode() else None


def _shapes(texts: Mapping[str, str]) -> Shapes:
    return {name: tuple(text.split()) for name, text in texts.items()}
