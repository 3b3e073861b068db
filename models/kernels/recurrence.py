"""A recurrence is declared once, in its folder's ``op.py``, and everything that torch wants is made from that.

The declaration is the public function itself: ``@recurrence(...)`` above a signature whose tensors carry their shapes,
``u: Annotated[Tensor, "T B N"]``, whose words carry what they may be, ``activation: Annotated[str, "relu", "tanh"]``,
and whose last parameter is ``backend``. The function has no body but its docstring: calling it checks the arguments,
chooses who computes, and does so.

``backend="auto"`` takes the fused form where it has been tried and works, else the reference with one warning per
process; ``"fused"`` forces it and raises RuntimeError where there is none; ``"reference"`` is plain torch.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

from torch import Tensor

from models.kernels.availability import available, in_transform, problem
from models.kernels.checks import Letters, Shapes, check_shapes, check_word, shape_of, sizes_of
from models.kernels.operators import DTYPES, IMPLEMENTATIONS, Operator, in_forward_mode

BACKENDS = ("auto", "reference", "fused")

RECURRENCES: dict[str, Recurrence] = {}
"""Everything declared, by name: ``rnn``, ``indrnn``, …"""

Scan = TypeVar("Scan", bound=Callable[..., Any])


class Recurrence:
    """A declared recurrence. ``forward`` and ``backward`` are its operators; None while it has no fused form."""

    def __init__(
        self,
        declared: Callable[..., Any],
        reference: Callable[..., Any],
        outputs: Mapping[str, str],
        residuals: Mapping[str, str],
        saved: tuple[str, ...],
        products: tuple[int, int],
        constants: tuple[float, ...],
        by_blas: Mapping[str, str],
        reference_only: tuple[str, ...],
    ) -> None:
        self.label, self.reference, self.saved = declared.__name__, reference, saved
        self.name = self.label.removesuffix("_scan")
        self.signature = inspect.signature(declared)
        hints = get_type_hints(declared, include_extras=True)
        notes = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
        self.tensors: Shapes = {
            name: _letters(note.__metadata__[0]) for name, note in notes.items() if note.__origin__ is Tensor
        }
        self.words: Mapping[str, Letters] = {
            name: note.__metadata__ for name, note in notes.items() if note.__origin__ is str
        }
        self.defaults = {
            name: parameter.default
            for name, parameter in self.signature.parameters.items()
            if parameter.default is not inspect.Parameter.empty
        }
        self.reference_only = {option: self.defaults[option] for option in reference_only}
        self.outputs = {name: _letters(text) for name, text in outputs.items()}
        self.residuals = {name: _letters(text) for name, text in residuals.items()}
        self.forward: Operator | None = None
        self.backward: Operator | None = None
        if saved:
            self._make_operators(products, constants, by_blas)

    def _make_operators(
        self, products: tuple[int, int], constants: tuple[float, ...], by_blas: Mapping[str, str]
    ) -> None:
        made = self.outputs | self.residuals
        known = {**self.tensors, **made}
        self.forward = Operator(
            self.name, "forward", self.label, self.tensors, made, self.words, products[0], constants
        )
        incoming = {f"grad_{name}": letters for name, letters in self.outputs.items()}
        self.backward = Operator(
            self.name,
            "backward",
            f"{self.name}_backward",
            incoming | {name: known[name] for name in self.saved},
            {f"grad_{name}": letters for name, letters in self.tensors.items()},
            self.words,
            products[1],
            by_blas={f"grad_{weight}": f"grad_{sequence}" for weight, sequence in by_blas.items()},
        )
        self.forward.call.register_autograd(self._differentiate, setup_context=self._remember)

    def _remember(self, ctx: Any, inputs: tuple, output: Any) -> None:
        assert self.forward is not None
        results = output if isinstance(output, tuple) else (output,)
        named = dict(zip(self.tensors, inputs, strict=False)) | dict(zip(self.forward.outputs, results, strict=True))
        ctx.words = inputs[len(self.tensors) :]
        ctx.mark_non_differentiable(*(named[name] for name in self.residuals))
        ctx.set_materialize_grads(False)  # no sequences of zeros for outputs that have no gradient
        ctx.save_for_backward(*(named[name] for name in self.saved))

    def _differentiate(self, ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        assert self.backward is not None
        saved = dict(zip(self.saved, ctx.saved_tensors, strict=True))
        sizes = sizes_of({name: self.backward.inputs[name] for name in self.saved}, saved)
        grads = [
            saved["h0"].new_zeros(shape_of(letters, sizes)) if grad is None else grad
            for letters, grad in zip(self.outputs.values(), incoming, strict=False)
        ]
        return (*self.backward.call(*grads, *saved.values(), *ctx.words), *(None for _ in ctx.words))

    def scan(self, *given: Any, **named: Any) -> Any:
        """What the public function does."""
        arguments = self._bound(given, named)
        check_word(self.label, "backend", arguments["backend"], BACKENDS)
        for option, allowed in self.words.items():
            check_word(self.label, option, arguments[option], allowed)
        tensors = {name: arguments[name] for name in self.tensors}
        if self._use_fused(tensors, arguments):
            assert self.forward is not None
            results = self.forward.call(*tensors.values(), *(arguments[option] for option in self.words))
            if isinstance(results, Tensor):
                return results
            return results[0] if len(self.outputs) == 1 else tuple(results[: len(self.outputs)])
        check_shapes(self.label, self.tensors, tensors)
        return self.reference(**{name: value for name, value in arguments.items() if name != "backend"})

    def _bound(self, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name; in plain dictionaries, which torch.compile can follow."""
        names = list(self.signature.parameters)
        by_position = dict(zip(names, given, strict=False))
        arguments = {**self.defaults, **by_position, **named}
        if len(given) > len(names) or len(arguments) != len(names) or any(name in by_position for name in named):
            self.signature.bind(*given, **named)  # raises TypeError in Python's own words
        return {name: arguments[name] for name in names}

    def _use_fused(self, tensors: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
        backend = arguments["backend"]
        if backend == "reference":
            return False
        lacking = self._lacking(arguments)
        first = next(iter(tensors.values()))
        if backend == "auto":
            possible = lacking is None and _have_one_fused_kind(tensors) and not in_transform()
            return possible and available(first.device.type)
        if lacking is not None:
            raise RuntimeError(f"{self.label}: the fused backend lacks {lacking}; use backend='auto' or 'reference'.")
        if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            return False  # where all arguments are checked; those of a fused form are checked by its operator
        found = problem(first.device.type)
        if found is not None:
            raise RuntimeError(f"{self.label}: backend='fused' was asked for, but {found}")
        return True

    def _lacking(self, arguments: Mapping[str, Any]) -> str | None:
        """What is asked for and only the reference can do."""
        if self.forward is None:
            return f"a form of {self.label}"
        for option, default in self.reference_only.items():
            if arguments[option] != default:
                return f"a form with {option}={arguments[option]}"
        return "forward-mode derivatives" if in_forward_mode() else None


def _have_one_fused_kind(tensors: Mapping[str, Any]) -> bool:
    first = next(iter(tensors.values()))
    return (
        all(isinstance(t, Tensor) and t.dtype == first.dtype and t.device == first.device for t in tensors.values())
        and first.dtype in DTYPES
        and first.device.type in IMPLEMENTATIONS
    )


def _letters(text: str) -> Letters:
    return tuple(text.split())


def recurrence(
    reference: Callable[..., Any],
    outputs: Mapping[str, str],
    residuals: Mapping[str, str] | None = None,
    saved: tuple[str, ...] = (),
    products: tuple[int, int] = (0, 0),
    constants: tuple[float, ...] = (),
    by_blas: Mapping[str, str] | None = None,
    reference_only: tuple[str, ...] = (),
) -> Callable[[Scan], Scan]:
    """Declare the recurrence that the decorated function describes; see the top of this file.

    reference: the same function in plain torch. outputs: what it returns, with shapes; all have a gradient. residuals:
    what the fused forward computes besides, for the backward alone. saved: what the backward reads, in order, out of
    tensors, outputs and residuals; without it there is no fused form. products: of a sample's units with an (N, N)
    matrix per step, in forward and backward; 0 if elementwise. constants: numbers that the C++ forward takes. by_blas:
    weight -> sequence, where the C++ backward leaves ``grad_weight = Σ grad_sequence_t y_{t-1}ᵀ`` to BLAS.
    reference_only: options of which the fused forms know only the default.
    """

    def declare(declared: Scan) -> Scan:
        made = Recurrence(
            declared, reference, outputs, residuals or {}, saved, products, constants, by_blas or {}, reference_only
        )
        RECURRENCES[made.name] = made

        @functools.wraps(declared)
        def scan(*given: Any, **named: Any) -> Any:
            return made.scan(*given, **named)

        return cast(Scan, scan)

    return declare
