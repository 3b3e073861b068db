"""What stands before a model that reads skeletons: attention on joints, a walk over joints, a convolutional stream.

A frame holds the joints of two bodies, x y z of each: (T, B, 2 · 25 · 3). An absent body is zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.inputs import Input, register
from models.lstm import LSTM
from models.registry import SKELETON_SIZE

BODIES, JOINTS = 2, 25
BEYOND = {
    2: (21, 1),
    21: (3, 9, 5), 3: (4,),
    9: (10,), 10: (11,), 11: (12,), 12: (24, 25),
    5: (6,), 6: (7,), 7: (8,), 8: (22, 23),
    1: (17, 13),
    17: (18,), 18: (19,), 19: (20,),
    13: (14,), 14: (15,), 15: (16,),
}  # fmt: skip
"""The joints that hang on each joint, seen from SpineMid, in NTU's numbers from 1."""
WALK_OVER_16 = (2, 21, 4, 21, 9, 10, 24, 10, 9, 21, 5, 6, 22, 6, 5, 21, 2, 1, 17, 18, 19, 18, 17, 1, 13, 14, 15, 14, 13,
                1, 2)  # fmt: skip
"""The walk of ST-LSTM's released code: 31 visits to 16 joints, NTU's numbers from 1."""


def walk(joint: int = 2) -> list[int]:
    """From a joint through all that hang on it and back, each bone walked twice: 49 visits from SpineMid."""
    visits = [joint]
    for further in BEYOND.get(joint, ()):
        visits += [*walk(further), joint]
    return visits


class _Windows(Input):
    """Cuts a clip into windows of ``frames`` frames; zeros fill the last one."""

    def __init__(self, input_size: int, size: int, frames: int) -> None:
        super().__init__(input_size, size)
        if input_size != SKELETON_SIZE:
            raise ValueError(
                f"{type(self).__name__} reads {SKELETON_SIZE} coordinates of two bodies, not {input_size}."
            )
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
            raise ValueError(f"frames={frames!r} is not a positive whole number.")
        self.frames = frames

    def windows(self, x: Tensor) -> Tensor:
        """(T, B, 150) -> (windows, frames, B, bodies, joints, 3)."""
        x = F.pad(x, (0, 0, 0, 0, 0, -len(x) % self.frames))
        return x.reshape(-1, self.frames, x.shape[1], BODIES, JOINTS, 3)

    def window_mask(self, mask: Tensor) -> Tensor:
        """(T, B) -> (windows, B), True where a window has a real frame."""
        return F.pad(mask, (0, 0, 0, -len(mask) % self.frames)).view(-1, self.frames, mask.shape[1]).any(1)


@register("joint-walk", paper="Liu, Shahroudy, Xu, Wang 2016", needs=("skeleton",))
class JointWalk(_Windows):
    """A walk over 16 joints for each window of frames, 31 steps, each with one joint of both bodies in all its frames.

    frames: 3, as the released code of ST-LSTM: 18 frames of a clip are 6 windows, 186 steps of 18 numbers.
    """

    visits: Tensor

    def __init__(self, input_size: int, *, frames: int = 3) -> None:
        super().__init__(input_size, BODIES * frames * 3, frames)
        self.register_buffer("visits", torch.tensor(WALK_OVER_16) - 1, persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        seen = self.windows(x).index_select(4, self.visits)  # (windows, frames, B, bodies, visits, 3)
        return seen.permute(0, 4, 2, 3, 1, 5).reshape(-1, x.shape[1], self.size)

    def mask(self, mask: Tensor | None) -> Tensor | None:
        return None if mask is None else self.window_mask(mask).repeat_interleave(len(WALK_OVER_16), 0)


@register("joint-attention", paper="Song, Lan, Xing, Zeng, Liu 2017", needs=("skeleton",))
class JointAttention(Input):
    """STA-LSTM's spatial attention: ``x'_{t,k} = α_{t,k} x_{t,k}`` for each of K joints,
    ``α_t = K softmax(U_s tanh(W_x x_t + W_h h_{t-1} + b_s) + b_u)``, h_t of an LSTM over x.

    size: 100, the units of that LSTM and of the layer behind it, as STA-LSTM.
    uniform: True sets α ≡ 1 and leaves the attention unused.

    The factor K makes α one on average, so that uniform attention leaves x as it is; U_s and b_u start at zero, which
    is that. The penalty "spatial-attention" is Σ_k (1 − mean of α_k over the real steps)², averaged over samples.
    """

    decayed = ("W_x.weight", "U_s.weight")
    penalty_names = ("spatial-attention",)

    def __init__(self, input_size: int, *, size: int = 100, uniform: bool = False) -> None:
        super().__init__(input_size, input_size)
        if input_size % 3:
            raise ValueError(f"JointAttention reads x y z of joints, and {input_size} numbers are no whole joints.")
        self.joints, self.uniform = input_size // 3, uniform
        self.attention = LSTM(input_size, size)
        self.W_x, self.W_h = nn.Linear(input_size, size), nn.Linear(size, size, bias=False)
        self.U_s = nn.Linear(size, self.joints)
        nn.init.zeros_(self.U_s.weight)
        nn.init.zeros_(self.U_s.bias)

    def weights(self, x: Tensor) -> Tensor:
        """α, (T, B, joints)."""
        h = self.attention(x)[0]
        before = torch.cat([torch.zeros_like(h[:1]), h[:-1]])  # h_{t-1}, (T, B, size)
        s = self.U_s(torch.tanh(self.W_x(x) + self.W_h(before)))
        return self.joints * s.softmax(-1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.uniform:
            return x
        alpha = self.weights(x)
        if self.training:
            real = alpha if mask is None else alpha.masked_fill(~mask.unsqueeze(-1), 0.0)
            steps = len(alpha) if mask is None else mask.sum(0).unsqueeze(-1)
            self.collect("spatial-attention", (1 - real.sum(0) / steps).square().sum(-1).mean())
        return x * alpha.repeat_interleave(3, -1)


@register("pose-stream", paper="Baradel, Wolf, Mille 2017", needs=("skeleton",))
class PoseStream(_Windows):
    """The convolutional pose stream of pose-conditioned attention: each window of frames becomes one step.

    A window is an image of ``frames`` rows and 2 · 49 columns, the joints of both bodies in the order of a walk over
    all of them, with nine channels: position, velocity and acceleration. 3 x 3 convolutions, each with ReLU and 2 x 2
    max-pooling, turn it into the features of the step; no recurrence is in it.

    frames: 20, as the paper.
    channels: (32, 64, 128), of each convolution; the paper's widths are not known to us.
    """

    visits: Tensor

    def __init__(self, input_size: int, *, frames: int = 20, channels: Sequence[int] = (32, 64, 128)) -> None:
        columns = BODIES * len(walk())
        halved = 2 ** len(channels)
        if not channels or frames < halved:
            raise ValueError(f"channels={channels!r} halve the {frames} frames of a window more often than can be.")
        super().__init__(input_size, channels[-1] * (frames // halved) * (columns // halved), frames)
        self.register_buffer("visits", torch.tensor(walk()) - 1, persistent=False)
        widths = zip((9, *channels), channels, strict=False)
        self.convolutions = nn.ModuleList(nn.Conv2d(below, width, 3, padding=1) for below, width in widths)
        self.decayed = tuple(f"convolutions.{number}.weight" for number in range(len(channels)))

    def image(self, x: Tensor) -> Tensor:
        """(T, B, 150) -> (windows, B, 9, frames, columns).

        Differences to the frame before; zero where that frame, or the body in either, is not there.
        """
        x = self.windows(x)
        there = (x != 0).flatten(-2).any(-1)[..., None, None]  # (windows, frames, B, bodies, 1, 1)
        moved, has_moved = _difference(x, there)
        turned, _ = _difference(moved, has_moved)
        channels = torch.cat([x, moved, turned], dim=-1).index_select(
            4, self.visits
        )  # (windows, f, B, bodies, visits, 9)
        return channels.permute(0, 2, 5, 1, 3, 4).flatten(-2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        image = self.image(x)
        features = image.flatten(0, 1)
        for convolution in self.convolutions:
            features = F.max_pool2d(torch.relu(convolution(features)), 2)
        return features.reshape(*image.shape[:2], self.size)

    def mask(self, mask: Tensor | None) -> Tensor | None:
        return None if mask is None else self.window_mask(mask)


def _difference(x: Tensor, defined: Tensor) -> tuple[Tensor, Tensor]:
    """x_t − x_{t−1} along dimension 1 where both are defined, else 0; and where that is."""
    both = torch.cat([torch.zeros_like(defined[:, :1]), defined[:, 1:] & defined[:, :-1]], dim=1)
    return torch.where(both, x - x.roll(1, 1), 0.0), both
