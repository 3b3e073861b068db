"""The serial half of ST-LSTM's recurrence over the visits of one frame, with a backward of its own.

Autograd would keep and walk a dozen small nodes per visit. Here everything of the gradient that does not depend on the
visits after is computed for all visits at once, and the loop backwards is left with one product and five short lines.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def walk_scan(s: Tensor, W_S: Tensor, h: Tensor, c: Tensor, c_T: Tensor, spread: float) -> tuple[Tensor, Tensor]:
    """h and c of every visit, each (n, B, N).

    s: (n, B, 6N), what each visit adds up beside W_S h_S: gates o, i, f_S, f_T, then u and p. W_S: (6N, N).
    h, c: (B, N), those of the visit before the first. c_T: (n, B, N), of the same joints one frame before.
    """
    return _WalkScan.apply(s, W_S.to(s.dtype), h, c, c_T, spread)


class _WalkScan(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(
        ctx: Any, s: Tensor, W_S: Tensor, h: Tensor, c: Tensor, c_T: Tensor, spread: float
    ) -> tuple[Tensor, Tensor]:
        N = c.shape[1]
        z, W = torch.empty_like(s), W_S.T.contiguous()
        hs, cs = torch.empty_like(c_T), torch.empty_like(c_T)
        first = (h, c)
        for s_t, z_t, c_T_t, h_t, c_t in zip(s, z, c_T, hs, cs, strict=True):
            torch.addmm(s_t, h, W, out=z_t)
            z_t[:, : 4 * N].sigmoid_()
            z_t[:, 4 * N :].tanh_()
            o, i, f_S, f_T, u, p = z_t.split(N, dim=1)
            kept = torch.mul(f_S, c).addcmul_(f_T, c_T_t)
            trust = (u - p).square_().mul_(-spread).exp_()
            torch.mul(i, u, out=c_t).sub_(kept).mul_(trust).add_(kept)
            torch.tanh(c_t, out=h_t).mul_(o)
            h, c = h_t, c_t
        ctx.save_for_backward(z, W_S, *first, c_T, hs, cs)
        ctx.spread = spread
        return hs, cs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_hs: Tensor, d_cs: Tensor) -> tuple[Tensor | None, ...]:
        z, W_S, h, c, c_T, hs, cs = ctx.saved_tensors
        n, B, N = c_T.shape
        o, i, f_S, f_T, u, p = z.split(N, dim=2)  # each (n, B, N)
        h_S, c_S = torch.cat([h[None], hs[:-1]]), torch.cat([c[None], cs[:-1]])
        trust = torch.exp(-ctx.spread * (u - p) ** 2)
        doubt = 1 - trust
        tanh_c = torch.tanh(cs)
        surprise = 2 * ctx.spread * (u - p) * trust * (i * u - f_S * c_S - f_T * c_T)  # −∂c/∂u through τ
        # ∂c/∂ of each pre-activation but o's, and ∂h/∂ of o's
        d_z = torch.empty_like(z)
        d_z[..., :N] = tanh_c * o * (1 - o)
        d_z[..., N : 2 * N] = trust * u * i * (1 - i)
        d_z[..., 2 * N : 3 * N] = doubt * c_S * f_S * (1 - f_S)
        d_z[..., 3 * N : 4 * N] = doubt * c_T * f_T * (1 - f_T)
        d_z[..., 4 * N : 5 * N] = (trust * i - surprise) * (1 - u * u)
        d_z[..., 5 * N :] = surprise * (1 - p * p)
        through_h, through_c = o * (1 - tanh_c * tanh_c), doubt * f_S  # ∂h/∂c, ∂c/∂c_S
        d_c_all = torch.empty_like(cs)
        d_h, d_c = torch.zeros_like(h), torch.zeros_like(c)
        steps = zip(d_hs, d_cs, d_z, through_h, through_c, d_c_all, strict=True)
        for d_hs_t, d_cs_t, d_z_t, by_h, by_c, d_c_t in reversed(list(steps)):
            d_h = d_h + d_hs_t
            torch.addcmul(d_c, d_h, by_h, out=d_c_t).add_(d_cs_t)
            d_z_t[:, :N].mul_(d_h)
            d_z_t[:, N:].view(B, 5, N).mul_(d_c_t.unsqueeze(1))
            d_h = d_z_t @ W_S
            d_c = d_c_t * by_c
        d_W = d_z.view(n * B, 6 * N).T @ h_S.reshape(n * B, N)
        return d_z, d_W, d_h, d_c, d_c_all * doubt * f_T, None
