"""LSTM with gates in torch's order i, f, g, o and one bias, and its forms with noise and normalisation inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.base import Cell, Slot
from models.kernels import lstm_scan, normed_lstm_scan, projected_lstm_scan
from models.nets import Stack
from models.noise import PER, StepNoise, UpdateDropout, Zoneout, check_probability
from models.norms import FrameNorm
from models.registry import register
from models.states import LayerState

RECURRENT_NORMS = (None, "batch")


class LSTMCell(Cell):
    """``[i f g o] = N_x(W_in x_t) + N_h(W_rec h_{t-1}) + b``, ``c~_t = σ(f) c_{t-1} + m_t σ(i) tanh(g)``,
    ``h~_t = σ(o) tanh(N_c(c~_t))``, ``c_t = d_c c_{t-1} + (1 − d_c) c~_t``, ``h_t = d_h h_{t-1} + (1 − d_h) h~_t``;
    without options N is the identity, m = 1 and d = 0.

    Options, with the reason for each default:

    W_in_init: "glorot", as the LSTM behind Table I (Arjovsky et al. 2016).
    W_rec_init: "orthogonal" per gate, as Cooijmans et al. 2017.
    forget_bias: 1, without which 784 steps are not learned.
    chrono: 0; a number of steps from 3 up spreads the memories over it instead, b_f = log U(1, chrono − 1), b_i = −b_f
        (Tallec and Ollivier 2018).
    zoneout: probabilities (cell, hidden) of d_c = 1 and d_h = 1 for each unit, step and sample; evaluation puts them in
        the place of d (Krueger et al. 2017).
    recurrent_dropout: probability of m_t = 0 for each unit and sample; evaluation puts 1 − p in the place of m_t
        (Semeniuta et al. 2016, whose code does not scale in training).
    recurrent_dropout_per: "step", a fresh m_t at each step, or "sequence", one that holds over time.
    recurrent_norm: None, or "batch" for N_x, N_h and N_c with statistics per time step (Cooijmans et al. 2017); N_c
        alone has a shift. Needs ``length``, past which evaluation reuses the last statistics.
    recurrent_norm_scale: 0.1, where the scales start; at 1 the gradient of tanh vanishes.
    recurrent_norm_momentum: 0.01, the weight of a batch in the running statistics, as Cooijmans' release on MNIST.

    recurrent_norm has a kernel on a CPU alone; elsewhere it runs in the readable loop, whatever the backend.
    """

    decayed = ("W_in",)
    scans_to_h = True

    def __init__(
        self,
        slot: Slot,
        *,
        W_in_init: str = "glorot",
        W_rec_init: str = "orthogonal",
        forget_bias: float = 1.0,
        chrono: int = 0,
        zoneout: Sequence[float] = (0.0, 0.0),
        recurrent_dropout: float = 0.0,
        recurrent_dropout_per: str = "step",
        recurrent_norm: str | None = None,
        recurrent_norm_scale: float = 0.1,
        recurrent_norm_momentum: float = 0.01,
    ) -> None:
        N = slot.hidden_size
        super().__init__(slot, states={"h": N, "c": N}, projected=4 * N)
        self.W_in = slot.matrix(4 * N, slot.input_size, W_in_init, "W_in_init")
        self.W_rec = slot.matrix(4 * N, N, W_rec_init, "W_rec_init")
        self.b = nn.Parameter(torch.zeros(4 * N))
        with torch.no_grad():
            self.b[N : 2 * N] = slot.memories(N, chrono) if chrono else forget_bias
            self.b[:N] = -self.b[N : 2 * N] if chrono else 0.0

        if not isinstance(zoneout, tuple | list) or len(zoneout) != 2:
            raise ValueError(f"zoneout={zoneout!r} is not a pair (cell, hidden) of probabilities.")
        if recurrent_dropout_per not in PER:
            raise ValueError(
                f"recurrent_dropout_per={recurrent_dropout_per!r} is not known; allowed are 'step' and 'sequence'."
            )
        z_c, z_h = (check_probability("zoneout", z, one=True) for z in zoneout)
        p = check_probability("recurrent_dropout", recurrent_dropout)
        self.zone_c, self.zone_h = Zoneout(z_c, N), Zoneout(z_h, N)
        self.drop_update = UpdateDropout(p, N, recurrent_dropout_per)
        self.recurrent_norm = recurrent_norm
        self.norm_c: nn.Module = nn.Identity()
        if recurrent_norm not in RECURRENT_NORMS:
            raise ValueError(f"recurrent_norm={recurrent_norm!r} is not known; allowed are None and 'batch'.")
        if recurrent_norm == "batch":
            if not isinstance(self.before, nn.Identity):
                raise ValueError(f"recurrent_norm normalises W_in x itself and does not go with norm={slot.norm!r}.")
            if slot.length is None:
                raise ValueError("recurrent_norm='batch' keeps statistics per time step and needs length.")
            momentum = check_probability("recurrent_norm_momentum", recurrent_norm_momentum, one=True)
            norm = partial(FrameNorm, length=slot.length, scale=recurrent_norm_scale, momentum=momentum)
            self.norm_x, self.norm_h = norm(4 * N, shift=False), norm(4 * N, shift=False)  # b is the shift of both
            self.norm_c = norm(N)

    def project(self, x: Tensor) -> Tensor:
        if self.recurrent_norm:
            return F.linear(x, self.W_in)  # normalised in the step, which takes less memory and time
        return self.affine(x, self.W_in, self.b)

    def begin(self, T: int, B: int) -> None:
        for noise in self._noises():
            noise.begin(T, B, self.W_rec.device, self.backend)
        for norm in self._norms():
            norm.begin(T, B)

    def step(self, u_t: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        h, c = state  # each (B, N)
        v_t = h @ self.W_rec.T  # (B, 4N)
        if self.recurrent_norm:
            u_t, v_t = self.norm_x(u_t) + self.b, self.norm_h(v_t)
        i, f, g, o = (u_t + v_t).chunk(4, dim=-1)  # each (B, N)
        c_new = torch.sigmoid(f) * c + self.drop_update(torch.sigmoid(i) * torch.tanh(g))
        h_new = torch.sigmoid(o) * torch.tanh(self.norm_c(c_new))
        c, h = self.zone_c(c, c_new), self.zone_h(h, h_new)
        return h, (h, c)

    def scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if not self._has_kernel():
            return super().scan(u, state)
        if self.recurrent_norm:
            return self._normed_scan(u, state)
        (h0, c0), (noise, rates) = state, self._noise_for(u)
        h, h_last, c_last = lstm_scan(u, self.W_rec, h0, c0, noise, rates, backend=self.backend)
        return h, (h_last, c_last)

    def _normed_scan(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        (h0, c0), (noise, rates), (T, B, _) = state, self._noise_for(u), u.shape
        norms = self._norms()
        scales = torch.cat([norm.weight for norm in norms])  # (9N,)
        given = None if norms[-1].training else torch.cat([norm.statistics(T) for norm in norms], dim=2)  # (T, 2, 9N)
        weights = (self.W_rec, self.b, scales, norms[-1].bias)
        h, h_last, c_last, seen = normed_lstm_scan(u, *weights, h0, c0, noise, rates, given, backend=self.backend)
        if given is None:
            for norm, part in zip(norms, seen.split([norm.units for norm in norms], dim=2), strict=True):
                norm.learn(part, B)
        return h, (h_last, c_last)

    def run(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        if self.recurrent_norm or not self.projects_inside or not self._has_kernel():
            return super().run(x, state)
        (h0, c0), (noise, rates) = state, self._noise_for(x)
        weights = (self.W_in, self.b, self.W_rec)
        h, h_last, c_last = projected_lstm_scan(x, *weights, h0, c0, noise, rates, backend=self.backend)
        return h, (h_last, c_last)

    def _has_kernel(self) -> bool:
        noises = {noise.training for noise in self._noises() if noise.p > 0}
        norms = {norm.training for norm in self._norms()}
        if norms and (self.backend == "reference" or self.W_rec.device.type != "cpu"):
            return False  # where the loop takes torch's own batch normalisation
        return len(noises) <= 1 and len(norms) <= 1

    def _noise_for(self, sequence: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """``noise``, drawn for the steps and samples of a sequence, and ``rates``, as ``lstm_scan`` takes them."""
        noises = self._noises()
        self.begin(sequence.shape[0], sequence.shape[1])
        drawn = [noise.mask.view(torch.uint8) << bit for bit, noise in enumerate(noises) if noise.mask is not None]
        if drawn:
            return reduce(torch.bitwise_or, drawn), None
        expected = any(noise.p > 0 for noise in noises)
        return None, sequence.new_tensor([noise.p for noise in noises]) if expected else None

    def _noises(self) -> tuple[StepNoise, ...]:
        """In the order in which ``lstm_scan`` takes them."""
        return self.zone_c, self.zone_h, self.drop_update

    def _norms(self) -> tuple[FrameNorm, ...]:
        """In the order in which ``normed_lstm_scan`` takes their scales and statistics."""
        return (self.norm_x, self.norm_h, self.norm_c) if isinstance(self.norm_c, FrameNorm) else ()


@register("lstm", paper="Hochreiter, Schmidhuber 1997")
class LSTM(Stack):
    """LSTM with a forget gate; ``state = (h, c)``."""

    cell = LSTMCell
