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

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from models.base import RecurrentLayer, RecurrentNet, SharedOptions
from models.constraints import clip_singular_, per_layer, recurrent_interval
from models.kernels import indrnn_scan, rnn_scan, select_scan
from models.kernels.select.reference import min_max
from models.parts import TimeSharedDropout, norm_after, norm_before
from models.registry import register


class DuRNNLayer(RecurrentLayer):
    states = ("h_short", "h")

    def __init__(self, input_size: int, hidden_size: int, net: DuRNN, index: int, generator: Generator | None) -> None:
        super().__init__(input_size, hidden_size, net)
        assert net.length is not None
        last, N = index == net.num_layers - 1, hidden_size
        low, high = recurrent_interval(net.length, net.epsilon, net.gamma)
        self.delta = net.delta if net.delta is not None else 0.5 ** (1 / net.length)
        self.u_max = per_layer(net.u_max, high, index, net.num_layers)
        self.u_min = min(low, self.u_max) if last or not net.ease_epsilon else 0.0
        self.selection, self.short, self.exact_minmax = net.selection, net.short, net.exact_minmax

        self.W_in = self.matrix(N, input_size, net.W_in_init, generator, "W_in_init")
        if net.short == "full":
            self.W_rec = self.matrix(N, N, net.W_rec_init, generator, "W_rec_init")
        else:
            self.U_short = nn.Parameter(torch.empty(N).uniform_(0.0, self.u_max, generator=generator))
        self.b_short = nn.Parameter(torch.zeros(N))
        if net.selection:
            self.W_ss = self.matrix(N, N, net.W_ss_init, generator, "W_ss_init")
            self.W_ls = self.matrix(N, N, net.W_ls_init, generator, "W_ls_init")
            self.b_s = nn.Parameter(torch.empty(N).uniform_(-0.1, 0.1, generator=generator))
            self.b_thre = nn.Parameter(torch.tensor(float(net.b_thre_init)))
        self.W_s = self.matrix(N, N, net.W_s_init, generator, "W_s_init")
        self.U = nn.Parameter(torch.empty(N).uniform_(self.u_min, self.u_max, generator=generator))
        self.b_long = nn.Parameter(torch.zeros(N))

        # After the short activation is also before the long recurrence, so every kind of norm has one place there.
        between = norm_before(net.norm, N, net.length)
        self.between = norm_after(net.norm, N) if isinstance(between, nn.Identity) else between
        self.dropout_short = TimeSharedDropout(net.dropout_pair[0])

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        u = self.project(x, self.W_in, self.b_short)  # (T, B, N)
        if self.short == "full":
            h_short = rnn_scan(u, self.W_rec, state[0], "relu", backend=self.backend)  # (1)
        else:
            h_short = indrnn_scan(u, self.U_short, state[0], backend=self.backend)
        passed = self.dropout_short(self.between(h_short))  # (T, B, N)
        if self.selection:
            h = select_scan(  # (4), (5), (2), (3)
                passed, self.W_ss, self.b_s, self.W_ls, self.W_s, self.U, self.b_thre, self.b_long, state[1],
                exact_minmax=self.exact_minmax, backend=self.backend,
            )  # fmt: skip
        else:
            h = indrnn_scan(F.linear(passed, self.W_s, self.b_long), self.U, state[1], backend=self.backend)
        return self.finish(h), (h_short[-1], h[-1])

    def step(self, x_t: Tensor, h_short: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the full model without normalisation, the equations in their order.

        x_t: (B, M), h_short, h: (B, N) -> the next h_short, h
        """
        h_short = torch.relu(x_t @ self.W_in.T + h_short @ self.W_rec.T + self.b_short)  # (1)
        i = self.select(h_short, h) * h_short  # (2)
        h = torch.relu(i @ self.W_s.T + self.U * h + self.b_long)  # (3)
        return h_short, h

    def select(self, h_short: Tensor, h: Tensor) -> Tensor:
        """``S_t`` from the new short-term and the previous long-term memory, each (B, N)."""
        v = h_short.detach() @ self.W_ss.T + h.detach() @ self.W_ls.T + self.b_s
        return torch.relu(min_max(v, self.exact_minmax) - self.b_thre)  # (4), (5)

    @torch.no_grad()
    def constrain_(self) -> None:
        """``C_δ`` on W_rec, U to its interval, b_thre to [0, 1]."""
        if self.short == "full":
            clip_singular_(self.W_rec, self.delta)
        else:
            self.U_short.clamp_(0.0, self.u_max)
        self.U.clamp_(self.u_min, self.u_max)
        if self.selection:
            self.b_thre.clamp_(0.0, 1.0)


@register("durnn")
class DuRNN(RecurrentNet):
    """Dual recurrent network; ``state = (h_short, h)``, the output is h. Options, with the reason for each default:

    delta: 0.5^(1/L), the paper's value.
    epsilon, gamma: 0.5 and 2, the paper's values; U stays in [ε^(1/L), γ^(1/L)].
    ease_epsilon: True, lower bound 0 for U in all but the last layer ("usually eased to 0").
    u_max: replaces γ^(1/L), one number or one per layer; 1 where state is carried between segments, because above 1
        the state grows without bound.
    selection: False is the ablation RNN-relu + IndRNN.
    short: "full", or "independent" for the ablation IndRNN + selection.
    exact_minmax: False, since the paper multiplies by mm' element by element, holding min and max constant.
    W_in_init: "uniform-fan-in"; IndRNN's N(0, 0.001²), passed through two halves, starts too small to learn fast.
    W_rec_init: "orthogonal-0.9", all singular values equal and below δ: short memory, nothing to clip at step 0.
    W_ss_init, W_ls_init: "glorot" and "glorot-0.1"; mm ignores scale, so only their ratio matters, and a small W_ls
        keeps the unbounded h from dominating the selection. b_s starts in U(−0.1, 0.1), so that max > min at t = 1.
    W_s_init: "kaiming", which keeps the scale of the signal through relu.
    b_thre_init: 0.1, a nearly open gate that passes gradient to all channels.
    dropout: one probability, or a pair (short half, long half).
    norm: "after" normalises h~ and h; "frame" and "sequence" normalise W_in x and h~ (statistics of W_s i_t would
        make the selection depend on the future); "sequence+after" adds a norm on h.
    """

    needs_length = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        delta: float | None = None,
        epsilon: float = 0.5,
        gamma: float = 2.0,
        ease_epsilon: bool = True,
        u_max: float | list[float] | None = None,
        selection: bool = True,
        short: str = "full",
        exact_minmax: bool = False,
        W_in_init: str = "uniform-fan-in",
        W_rec_init: str = "orthogonal-0.9",
        W_ss_init: str = "glorot",
        W_ls_init: str = "glorot-0.1",
        W_s_init: str = "kaiming",
        b_thre_init: float = 0.1,
        **shared: Unpack[SharedOptions],
    ) -> None:
        if short not in ("full", "independent"):
            raise ValueError(f"short={short!r} is not known; allowed are 'full' and 'independent'.")
        if delta is not None and not 0 < delta <= 1:
            raise ValueError(f"delta={delta!r} is not in (0, 1].")
        if not 0 <= b_thre_init <= 1:
            raise ValueError(f"b_thre_init={b_thre_init!r} is not in [0, 1].")
        self.delta, self.epsilon, self.gamma, self.ease_epsilon, self.u_max = (
            delta,
            epsilon,
            gamma,
            ease_epsilon,
            u_max,
        )
        self.selection, self.short, self.exact_minmax = selection, short, exact_minmax
        self.W_in_init, self.W_rec_init, self.W_s_init = W_in_init, W_rec_init, W_s_init
        self.W_ss_init, self.W_ls_init, self.b_thre_init = W_ss_init, W_ls_init, b_thre_init
        super().__init__(input_size, hidden_size, num_layers, **shared)

    def make_layer(self, input_size: int, index: int, generator: Generator | None) -> DuRNNLayer:
        return DuRNNLayer(input_size, self.hidden_size, self, index, generator)
