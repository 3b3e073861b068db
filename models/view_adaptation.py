"""View adaptation: two small networks choose, in each frame, from where the skeleton is looked at."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.inputs import Input, register
from models.lstm import LSTM
from models.noise import check_deviation, nonzero_noise
from models.registry import SKELETON_SIZE


def rotation_matrices(angles: Tensor) -> Tensor:
    """R_z(γ) R_y(α) R_x(β) of angles (…, 3) = (α about y, β about x, γ about z): (…, 3, 3)."""
    (cy, cx, cz), (sy, sx, sz) = angles.cos().unbind(-1), angles.sin().unbind(-1)
    entries = (
        (cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx),
        (sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx),
        (-sy, cy * sx, cy * cx),
    )
    return torch.stack([torch.stack(row, dim=-1) for row in entries], dim=-2)


@register("view-adaptation", needs=["skeleton"], paper="Zhang, Lan, Xing, Zeng, Xue, Zheng 2019")
class ViewAdaptation(Input):
    """``v'_{t,j} = R_t (v_{t,j} − d_t)`` for every joint j of a body that is there; R_t and d_t are chosen by one LSTM
    each, which reads the frames up to t. An absent body, all zeros, stays absent.

    size: 100, the units of each LSTM, as the release.
    dropout: 0.5, of what the LSTMs put out, a fresh mask at each step, as the release.
    noise: 0.075, standard deviation of the noise on what the LSTMs read in training, on values that are not 0; what
        is turned and moved is the skeleton without noise, as in the release.
    W_rec_init: "orthogonal-whole-0.001", as the release.

    The weights behind the LSTMs start at 0, so that the first view is the camera's.
    """

    decayed = ("angles.weight", "shift.weight")

    def __init__(
        self,
        input_size: int,
        *,
        size: int = 100,
        dropout: float = 0.5,
        noise: float = 0.075,
        W_rec_init: str = "orthogonal-whole-0.001",
    ) -> None:
        if input_size != SKELETON_SIZE:
            raise ValueError(
                f"ViewAdaptation reads the 25 joints of two bodies, input_size={SKELETON_SIZE}, and got {input_size}."
            )
        super().__init__(input_size, input_size)
        self.noise = check_deviation("noise", noise)
        self.turning, self.moving = (
            LSTM(input_size, size, dropout=dropout, dropout_per="step", W_rec_init=W_rec_init) for _ in range(2)
        )
        self.angles, self.shift = nn.Linear(size, 3), nn.Linear(size, 3)
        for dense in (self.angles, self.shift):
            nn.init.zeros_(dense.weight)
            nn.init.zeros_(dense.bias)

    def views(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """R_t (T, B, 3, 3) and d_t (T, B, 3) for frames x (T, B, 150)."""
        seen = nonzero_noise(x, self.noise) if self.training else x
        angles = self.angles(self.turning(seen)[0])  # (T, B, 3)
        return rotation_matrices(angles), self.shift(self.moving(seen)[0])

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        R, d = self.views(x)
        bodies = x.unflatten(-1, (2, -1, 3))  # (T, B, 2, 25, 3)
        there = bodies.flatten(-2).any(-1)[..., None, None]  # (T, B, 2, 1, 1)
        moved = torch.where(there, bodies - d[..., None, None, :], 0.0)
        turned = moved.flatten(2, 3) @ R.transpose(-1, -2)  # (T, B, 50, 3): R v for each joint
        return turned.flatten(-2)
