"""What stands before models of skeletons: attention on joints, walks over joints, the convolutional pose stream."""

import pytest
import torch

from models import inputs, readouts
from models.base import decayed_parameters
from models.lstm import LSTM
from models.skeleton import WALK_OVER_16, walk

T, B = 7, 5
LENGTHS = torch.tensor([7, 1, 4, 7, 3])
MASK = torch.arange(T).unsqueeze(1) < LENGTHS


def clips():
    """A whole clip, one frame, one person, two who take turns, one who is gone for a while; zeros where nobody is."""
    x = torch.randn(T, B, 2, 75, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:, 2, 1] = 0
    x[:3, 3, 1] = 0
    x[3:, 3, 0] = 0
    x[1:2, 4] = 0
    return x.view(T, B, 150) * MASK.unsqueeze(-1)


def attention(moved=True, **options):
    torch.manual_seed(1)
    part = inputs.build("joint-attention", 150, **{"size": 6} | options).double()
    if moved:
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return part


# --- joint attention ------------------------------------------------------------------------------------------------


def test_attention_begins_uniform_and_then_gives_x_back():
    x = clips()
    assert torch.equal(attention(uniform=True)(x, MASK), x)
    fresh = attention(moved=False)
    torch.testing.assert_close(fresh(x, MASK), x, rtol=1e-13, atol=1e-13)
    fresh(x, MASK).sum().backward()
    assert fresh.U_s.weight.grad.abs().max() > 1e-3, "it must be able to leave where it begins"


def test_attention_and_every_gradient_by_hand():
    part, x = attention(), clips().requires_grad_()
    cell, found = part.attention.layers[0], []
    h = c = torch.zeros(B, 6, dtype=torch.float64)
    for t in range(T):
        s = torch.tanh(x[t] @ part.W_x.weight.T + part.W_x.bias + h @ part.W_h.weight.T)
        s = torch.exp(s @ part.U_s.weight.T + part.U_s.bias)
        alpha = 50 * s / s.sum(1, keepdim=True)  # (B, 50)
        found.append(torch.stack([alpha[:, k // 3] * x[t, :, k] for k in range(150)], 1))
        i, f, g, o = (x[t] @ cell.W_in.T + h @ cell.W_rec.T + cell.b).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    results = []
    for y in (part(x), torch.stack(found)):
        loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
        results.append([y, *torch.autograd.grad(loss, [x, *part.parameters()])])
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-11)


def test_attention_weighs_joints_and_leaves_absent_bodies_absent():
    part, x = attention(), clips()
    alpha, y = part.weights(x), part(x, MASK)
    torch.testing.assert_close(alpha.sum(-1), torch.full((T, B), 50.0, dtype=torch.float64))
    assert not y[x == 0].any()
    changed = x.clone()
    changed[4:] = 9.0
    assert torch.equal(part.weights(changed)[:4], alpha[:4]), "the attention of a frame looks at no later one"


def test_the_spatial_penalty_by_hand():
    part, x = attention(), clips()
    part(x, MASK)
    alpha, total = part.weights(x).tolist(), 0.0
    for b, steps in enumerate(LENGTHS.tolist()):
        for k in range(50):
            total += (1 - sum(alpha[t][b][k] for t in range(steps)) / steps) ** 2
    assert part.penalties()["spatial-attention"].item() == pytest.approx(total / B, rel=1e-12)
    whole = attention()
    whole(x)
    expected = (1 - whole.weights(x).mean(0)).square().sum(-1).mean()
    torch.testing.assert_close(whole.penalties()["spatial-attention"], expected)
    fresh = attention(moved=False)
    fresh(x, MASK)
    assert fresh.penalties()["spatial-attention"].item() < 1e-20
    silent = attention().eval()
    silent(x, MASK)
    assert silent.penalties() == {}


def test_attention_of_both_kinds_begins_as_the_plain_stack():
    """α = 1 and β = 1: logits of a stack of LSTM layers, summed over the real steps."""
    x = clips()
    torch.manual_seed(2)
    stack = LSTM(150, 8, 3, dtype=torch.float64)
    readout = readouts.build("attention-sum", 8, 10, 150, size=6).double()
    plain = readout.head(stack(x)[0])
    expected = torch.stack([plain[:n, b].sum(0) for b, n in enumerate(LENGTHS.tolist())])
    seen = attention(moved=False)(x, MASK)
    torch.testing.assert_close(readout(stack(seen)[0], seen, MASK), expected, rtol=1e-12, atol=1e-12)
    assert readout.penalties()["temporal-attention"].item() == 1
    readout.uniform = True
    torch.testing.assert_close(readout(stack(x)[0], x, MASK), expected, rtol=1e-12, atol=1e-12)


# --- walks ----------------------------------------------------------------------------------------------------------


def test_each_step_of_a_walk_is_one_joint_of_both_bodies_in_three_frames():
    part, x = inputs.build("joint-walk", 150), clips()
    y = part(x)
    assert y.shape == (3 * 31, B, 18)
    padded = torch.cat([x, torch.zeros(2, B, 150, dtype=x.dtype)])
    for window in range(3):
        for visit, joint in enumerate(WALK_OVER_16):
            expected = [
                padded[3 * window + frame, :, 75 * body + 3 * (joint - 1) + axis]
                for body in range(2)
                for frame in range(3)
                for axis in range(3)
            ]
            assert torch.equal(y[31 * window + visit], torch.stack(expected, 1))


def test_a_walk_is_real_where_its_window_has_a_real_frame():
    mask = inputs.build("joint-walk", 150).mask(MASK)
    assert mask.shape == (93, B)
    assert (mask.sum(0) == 31 * ((LENGTHS + 2) // 3)).all()
    assert inputs.build("joint-walk", 150).mask(None) is None


# --- the pose stream ------------------------------------------------------------------------------------------------


def test_positions_velocities_and_accelerations_by_hand():
    """One body that moves by 1, 3 and -2 along x, and a second that is not there in frame 2."""
    x = torch.zeros(5, 1, 2, 25, 3)
    for frame, place in enumerate([10.0, 11.0, 14.0, 12.0, 12.0]):
        x[frame, 0, 0, :, 0] = place + torch.arange(25.0)
        x[frame, 0, 1, :, 1] = 0.0 if frame == 2 else 5.0 + frame
    image = inputs.build("pose-stream", 150, frames=5, channels=[2]).image(x.view(5, 1, 150))
    assert image.shape == (1, 1, 9, 5, 98)
    first, second = image[0, 0, :, :, :49], image[0, 0, :, :, 49:]
    joints = torch.tensor(walk()) - 1
    assert torch.equal(first[0], torch.tensor([10.0, 11.0, 14.0, 12.0, 12.0]).unsqueeze(1) + joints)
    assert first[3, :, 0].tolist() == [0, 1, 3, -2, 0]
    assert first[6, :, 0].tolist() == [0, 0, 2, -5, 2]
    assert second[1, :, 0].tolist() == [5, 6, 0, 8, 9]
    assert second[4, :, 0].tolist() == [0, 1, 0, 0, 1]
    assert not second[7].any()
    assert not image[0, 0, [2, 5, 8]].any()


def test_a_convolution_by_hand():
    """One that looks at the velocity along x alone, on a clip in which everything moves by the same."""
    part = inputs.build("pose-stream", 150, frames=4, channels=[1])
    with torch.no_grad():
        part.convolutions[0].weight.zero_()
        part.convolutions[0].weight[0, 3] = 1.0  # sums a 3 x 3 neighbourhood
        part.convolutions[0].bias.fill_(-5.0)
    x = torch.ones(4, 1, 50, 3)
    x[..., 0] = torch.tensor([1.0, 2.0, 4.0, 8.0]).view(4, 1, 1)
    y = part(x.view(4, 1, 150)).view(2, 49)  # velocities 0, 1, 2, 4 in the rows
    assert y[0].tolist() == [max(0, 3 * (0 + 1 + 2) - 5)] * 49
    assert y[1].tolist() == [3 * (1 + 2 + 4) - 5] * 49


def test_shapes_and_parameters_of_the_pose_stream():
    part = inputs.build("pose-stream", 150)
    assert part(torch.randn(20, 3, 150)).shape == (1, 3, part.size)
    assert part(torch.randn(41, 3, 150)).shape == (3, 3, part.size)
    assert part.size == 128 * 2 * 12
    assert sum(p.numel() for p in part.parameters()) == 9 * (9 * 32 + 32 * 64 + 64 * 128) + 32 + 64 + 128
    assert len(decayed_parameters(part)) == 3
    mask = torch.arange(41).unsqueeze(1) < torch.tensor([41, 20, 21])
    assert part.mask(mask).sum(0).tolist() == [3, 1, 2]
    assert part.mask(None) is None


def test_no_window_sees_another():
    part = inputs.build("pose-stream", 150, frames=8, channels=[2, 3]).double()
    x = torch.randn(16, 2, 150, dtype=torch.float64)
    torch.testing.assert_close(torch.cat([part(x[:8]), part(x[8:])]), part(x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inputs.build("joint-walk", 75), "JointWalk reads 150 coordinates of two bodies, not 75"),
        (lambda: inputs.build("joint-walk", 150, frames=0), "frames=0"),
        (lambda: inputs.build("pose-stream", 149), "PoseStream reads 150"),
        (lambda: inputs.build("pose-stream", 150, frames=4, channels=[2, 2, 2]), "halve the 4 frames"),
        (lambda: inputs.build("pose-stream", 150, channels=[]), "halve the 20 frames"),
        (lambda: inputs.build("joint-attention", 100), "100 numbers are no whole joints"),
    ],
)
def test_bad_inputs_get_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
