"""DuRNN: Zhang, Li, Ye, Zhu, Li, "Learning Various Length Dependence by Dual Recurrent Neural Networks".

A layer is two recurrences and a selection between them (paper §III):

    (1)  h~_t = relu(W_in x_t + C_δ(W_rec) h~_{t-1} + b_short)              short-term memory
    (2)  i_t  = S_t ∘ h~_t                                                  what is passed on
    (3)  h_t  = relu(W_s i_t + U ∘ h_{t-1} + b_long)                        long-term memory
    (4)  S_t  = relu(mm(W_ss h~_t + W_ls h_{t-1} + b_s) − b_thre)           selection
    (5)  mm(v) = (v − min v) / (max v − min v)                              over the channels of one sample

In the gradients (§IV-A) ∂S_t/∂h_{t-1} and ∂S_t/∂h~_t are zero; W_ss, W_ls, b_s and b_thre learn through S_t.
h~ never reads h, so the short half runs over the whole sequence first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.base import Cell, Slot
from models.constraints import clip_singular_, per_layer, recurrent_interval
from models.kernels import indrnn_scan, projected_indrnn_scan, projected_rnn_scan, rnn_scan, select_scan
from models.kernels.select.reference import min_max
from models.nets import Stack
from models.noise import dropout_between
from models.norms import FrameNorm, norm_after, norm_before
from models.registry import register
from models.states import LayerState


class DuRNNCell(Cell):
    """Options, with the reason for each default:

    delta: 0.5^(1/L), the paper's value.
    epsilon, gamma: 0.5 and 2, the paper's values; U stays in [ε^(1/L), γ^(1/L)].
    ease_epsilon: True, lower bound 0 for U in all but the last layer ("usually eased to 0").
    u_max: replaces γ^(1/L), one number or one per layer; 1 where state is carried between segments, because above 1
        the state grows without bound.
    selection: False is the ablation RNN-relu + IndRNN.
    short: "full", or "independent" for the ablation IndRNN + selection, "a two-layer IndRNN with the selection part
        before the second layer" (§V-A1): both halves then have IndRNN's bounds, |U| <= γ^(1/L).
    exact_minmax: False, since the paper multiplies by mm' element by element, holding min and max constant.
    cut_gradient: True, the paper's choice (§IV-A). False lets gradients through S_t into h~_t and h_{t-1}; the long
        half then runs in the readable loop.
    second_norm: "short": where norm has a place before the long half, it stands on h~, before the selection. "product"
        puts it on W_s i_t, as "BN before recurrent neurons" (§V-C2) asks. i_t reads h_{t-1}, so this norm stands inside
        the loop: it needs norm "frame" or "frame+after", whose statistics are those of one frame, since statistics over
        the sequence would let h_t depend on later inputs. The long half then runs in the readable loop.
    W_in_init: "uniform-fan-in"; IndRNN's N(0, 0.001²), passed through two halves, starts too small to learn fast.
    W_rec_init: "orthogonal-0.9", all singular values equal and below δ: short memory, nothing to clip at step 0.
    W_ss_init, W_ls_init: "glorot" and "glorot-0.1"; mm ignores scale, so only their ratio matters, and a small W_ls
        keeps the unbounded h from dominating the selection. b_s starts in U(−0.1, 0.1), so that max > min at t = 1.
    W_s_init: "kaiming", which keeps the scale of the signal through relu; "kaiming/L" where no norm follows, since h_L
        is a sum over L steps.
    b_thre_init: 0.1, a nearly open gate that passes gradient to all channels.

    W_ss and W_ls take no weight decay: mm ignores the scale of its argument, so decay would only let b_s take over.
    Of the shared options, dropout may be a pair (short half, long half); norm "after" normalises h~ and h, "frame" and
    "sequence" normalise W_in x and what ``second_norm`` says, and "+after" adds a norm on h.
    """

    decayed = ("W_in", "W_s")
    scans_to_h = True

    def __init__(
        self,
        slot: Slot,
        *,
        delta: float | None = None,
        epsilon: float = 0.5,
        gamma: float = 2.0,
        ease_epsilon: bool = True,
        u_max: float | list[float] | None = None,
        selection: bool = True,
        short: str = "full",
        exact_minmax: bool = False,
        cut_gradient: bool = True,
        second_norm: str = "short",
        W_in_init: str = "uniform-fan-in",
        W_rec_init: str = "orthogonal-0.9",
        W_ss_init: str = "glorot",
        W_ls_init: str = "glorot-0.1",
        W_s_init: str = "kaiming",
        b_thre_init: float = 0.1,
    ) -> None:
        N = slot.hidden_size
        super().__init__(slot, states={"h_short": N, "h": N})
        if short not in ("full", "independent"):
            raise ValueError(f"short={short!r} is not known; allowed are 'full' and 'independent'.")
        if second_norm not in ("short", "product"):
            raise ValueError(f"second_norm={second_norm!r} is not known; allowed are 'short' and 'product'.")
        if second_norm == "product" and slot.norm not in ("frame", "frame+after"):
            raise ValueError(f"second_norm='product' needs norm 'frame' or 'frame+after', not {slot.norm!r}.")
        if delta is not None and not 0 < delta <= 1:
            raise ValueError(f"delta={delta!r} is not in (0, 1].")
        if not 0 <= b_thre_init <= 1:
            raise ValueError(f"b_thre_init={b_thre_init!r} is not in [0, 1].")
        length = slot.needed_length(self)
        low, high = recurrent_interval(length, epsilon, gamma)
        self.delta = delta if delta is not None else 0.5 ** (1 / length)
        self.u_max = per_layer("u_max", u_max, high, slot.index, slot.count)
        self.u_min = min(low, self.u_max) if slot.is_last or not ease_epsilon else 0.0
        self.selection, self.short, self.exact_minmax = selection, short, exact_minmax
        self.cut_gradient = cut_gradient

        self.W_in = slot.matrix(N, slot.input_size, W_in_init, "W_in_init")
        if short == "full":
            self.W_rec = slot.matrix(N, N, W_rec_init, "W_rec_init")
        else:
            self.U_short = slot.uniform(N, 0.0, self.u_max)
        self.b_short = nn.Parameter(torch.zeros(N))
        if selection:
            self.W_ss = slot.matrix(N, N, W_ss_init, "W_ss_init")
            self.W_ls = slot.matrix(N, N, W_ls_init, "W_ls_init")
            self.b_s = slot.uniform(N, -0.1, 0.1)
            self.b_thre = nn.Parameter(torch.tensor(float(b_thre_init)))
        self.W_s = slot.matrix(N, N, W_s_init, "W_s_init")
        self.U = slot.uniform(N, self.u_min, self.u_max)
        self.b_long = nn.Parameter(torch.zeros(N))

        self.between: nn.Module = nn.Identity()
        self.norm_product: nn.Module = nn.Identity()
        before_long = norm_before(slot.norm, N, slot.length)
        if second_norm == "product":
            self.norm_product = before_long
        else:
            # After the short activation is also before the long recurrence, so every kind of norm has one place there.
            self.between = norm_after(slot.norm, N) if isinstance(before_long, nn.Identity) else before_long
        self.dropout_short = dropout_between(slot.dropout[0], slot.dropout_per)

    def project(self, x: Tensor) -> Tensor:
        return self.affine(x, self.W_in, self.b_short)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """One step, the equations in their order; u_t is W_in x_t + b_short. Of normalisation and dropout it has only
        what stands inside the recurrence, the norm of W_s i_t."""
        h_short, h = state  # each (B, N)
        recurrent = h_short @ self.W_rec.T if self.short == "full" else self.U_short * h_short
        h_short = torch.relu(u_t + recurrent)  # (1)
        h = self.step_long(h_short, h)
        return h, (h_short, h)

    def step_long(self, h_short: Tensor, h: Tensor) -> Tensor:
        """h_t from h~_t and h_{t-1}, each (B, N)."""
        i = self.select(h_short, h) * h_short if self.selection else h_short  # (2)
        return torch.relu(self.norm_product(i @ self.W_s.T) + self.U * h + self.b_long)  # (3)

    def select(self, h_short: Tensor, h: Tensor) -> Tensor:
        """``S_t`` from the new short-term and the previous long-term memory, each (B, N)."""
        if self.cut_gradient:
            h_short, h = h_short.detach(), h.detach()
        v = h_short @ self.W_ss.T + h @ self.W_ls.T + self.b_s
        return torch.relu(min_max(v, self.exact_minmax) - self.b_thre)  # (4), (5)

    def begin(self, T: int, B: int) -> None:
        if isinstance(self.norm_product, FrameNorm):
            self.norm_product.begin(T, B)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h_short, last_short = self.scan_short(u, state[0])
        h, last = self.scan_long(h_short, state[1])
        return h, (last_short, last)

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h_short, last_short = self.run_short(x, state[0])
        h, last = self.scan_long(h_short, state[1])
        return h, (last_short, last)

    def run_short(self, x: Tensor, h_short: Tensor) -> tuple[Tensor, Tensor]:
        """``project`` and ``scan_short``: (T, B, input_size) and (B, N) -> (T, B, N) and the last step (B, N)."""
        if not self.projects_inside:
            return self.scan_short(self.project(x), h_short)
        if self.short == "full":
            return projected_rnn_scan(x, self.W_in, self.b_short, self.W_rec, h_short, "relu", backend=self.backend)
        return projected_indrnn_scan(x, self.W_in, self.b_short, self.U_short, h_short, backend=self.backend)

    def scan_short(self, u: Tensor, h_short: Tensor) -> tuple[Tensor, Tensor]:
        """All h~ from (1): (T, B, N) and (B, N) -> (T, B, N) and the last step (B, N)."""
        if self.short == "full":
            return rnn_scan(u, self.W_rec, h_short, "relu", backend=self.backend)
        return indrnn_scan(u, self.U_short, h_short, backend=self.backend)

    def scan_long(self, h_short: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """All h from (4), (5), (2), (3): (T, B, N) and (B, N) -> (T, B, N) and the last step (B, N)."""
        passed = self.dropout_short(self.between(h_short))  # (T, B, N)
        if not self.selection:
            if isinstance(self.norm_product, FrameNorm):
                u = self.norm_product(F.linear(passed, self.W_s)) + self.b_long
                return indrnn_scan(u, self.U, h, backend=self.backend)
            return projected_indrnn_scan(passed, self.W_s, self.b_long, self.U, h, backend=self.backend)
        if isinstance(self.norm_product, FrameNorm) or not self.cut_gradient:
            self.begin(passed.shape[0], passed.shape[1])
            outputs = []
            for passed_t in passed:
                h = self.step_long(passed_t, h)
                outputs.append(h)
            return torch.stack(outputs), h
        return select_scan(
            passed, self.W_ss, self.b_s, self.W_ls, self.W_s, self.U, self.b_thre, self.b_long, h,
            exact_minmax=self.exact_minmax, backend=self.backend,
        )  # fmt: skip

    def traces(self, x: Tensor, state: LayerState | None = None) -> dict[str, Tensor]:
        """h~ as the short half leaves it, and the output of the layer."""
        first_short, first_long = self.initial(x.shape[1], x) if state is None else state
        h_short, _ = self.run_short(x, first_short)
        h = self.finish(self.scan_long(h_short, first_long)[0])
        return {"full half" if self.short == "full" else "short half": h_short, "independent half": h}

    @torch.no_grad()
    def constrain_(self) -> None:
        """``C_δ`` on W_rec, U to its interval, b_thre to [0, 1]."""
        if self.short == "full":
            clip_singular_(self.W_rec, self.delta)
            self.U.clamp_(self.u_min, self.u_max)
        else:
            for U in (self.U_short, self.U):
                U.clamp_(-self.u_max, self.u_max)
        if self.selection:
            self.b_thre.clamp_(0.0, 1.0)


@register("durnn", needs=["length"], paper="Zhang, Li, Ye, Zhu, Li: Learning Various Length Dependence by DuRNN")
class DuRNN(Stack):
    """Dual recurrent network; ``state = (h_short, h)``, the output is h."""

    cell = DuRNNCell
