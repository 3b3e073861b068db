"""View adaptation: rotations, the identity at the start, absent bodies, padding and gradients."""

import math

import pytest
import torch
from torch import nn

import models
from models import inputs, readouts
from models.view_adaptation import rotation_matrices

LENGTHS = torch.tensor([9, 4, 1, 7])
T, B = 9, len(LENGTHS)
MASK = torch.arange(T)[:, None] < LENGTHS  # (T, B)


def clips(seed=0):
    """Padded clips; the second body comes and goes, the third clip has one frame."""
    x = torch.randn(T, B, 2, 75, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[:, 0, 1] = 0.0
    x[2:5, 3, 1] = 0.0
    x[4, 3, 0] = 0.0
    x[~MASK] = 0.0
    return x.flatten(-2)


def build(seed=0, awake=False, **options):
    torch.manual_seed(seed)
    part = inputs.build("view-adaptation", 150, **{"size": 8} | options).double()
    if awake:
        with torch.no_grad():
            for dense in (part.angles, part.shift):
                dense.weight.normal_(std=2.0)
                dense.bias.normal_()
    return part


def classifier(part, seed=1):
    torch.manual_seed(seed)
    net = models.build("lstm", 150, 6, 3, dtype=torch.float64)
    readout = readouts.build("masked-mean", 6, 5).double()

    def scores(x, mask=None):
        seen = part(x, mask) if part else x
        return readout(net(seen)[0], seen, mask)

    return scores


def test_matrices_are_rotations_about_x_then_y_then_z():
    angles = torch.randn(7, 5, 3, dtype=torch.float64) * 3
    R = rotation_matrices(angles)
    assert R.shape == (7, 5, 3, 3)
    torch.testing.assert_close(R.mT @ R, torch.eye(3, dtype=R.dtype).expand_as(R), rtol=0, atol=1e-15)
    torch.testing.assert_close(torch.linalg.det(R), torch.ones(7, 5, dtype=R.dtype), rtol=0, atol=1e-14)
    quarter = math.pi / 2 * torch.eye(3, dtype=torch.float64)
    about_y, about_x, about_z = (rotation_matrices(angle) for angle in quarter)
    e_x, e_y, e_z = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(about_y @ e_z, e_x)
    torch.testing.assert_close(about_x @ e_y, e_z)
    torch.testing.assert_close(about_z @ e_x, e_y)
    a, b, c = (torch.tensor(v, dtype=torch.float64) for v in ([0.1, 0, 0], [0, 0.2, 0], [0, 0, 0.3]))
    composed = rotation_matrices(c) @ rotation_matrices(a) @ rotation_matrices(b)
    torch.testing.assert_close(rotation_matrices(a + b + c), composed, rtol=1e-14, atol=1e-15)


def test_zero_dense_weights_give_the_plain_network():
    x = clips()
    for part in (build(), build().eval()):
        assert torch.equal(part(x, MASK), x)
        assert torch.equal(classifier(part)(x, MASK), classifier(None)(x, MASK))


def test_each_joint_is_moved_and_turned_and_absent_bodies_stay_absent():
    part, x = build(awake=True).eval(), clips()
    seen = part(x, MASK)
    R, d = part.views(x)
    assert d.abs().mean() > 0.3
    for t in range(T):
        for b in range(B):
            for body in (0, 1):
                joints = x[t, b].view(2, 25, 3)[body]
                expected = torch.stack([R[t, b] @ (v - d[t, b]) for v in joints]) if joints.any() else joints
                torch.testing.assert_close(seen[t, b].view(2, 25, 3)[body], expected, rtol=1e-12, atol=1e-12)
    assert not seen[~MASK].any()


def test_distances_between_joints_are_kept():
    part, x = build(awake=True).eval(), clips()
    before, after = (torch.cdist(*[v.view(T, B, 2, 25, 3)] * 2) for v in (x, part(x)))
    torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-6)


def test_padding_and_company_change_nothing():
    part = build(awake=True).eval()
    scores, x = classifier(part), clips()
    together = scores(x, MASK)
    for b, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(scores(x[:length, b : b + 1]), together[b : b + 1], rtol=1e-12, atol=1e-12)
    longer = nn.functional.pad(x, (0, 0, 0, 0, 0, 5)), nn.functional.pad(MASK, (0, 0, 0, 5))
    torch.testing.assert_close(scores(*longer), together, rtol=1e-12, atol=1e-12)


def test_a_view_depends_on_no_later_frame():
    part, x = build(awake=True).eval(), clips()
    changed = x.clone()
    changed[5:] *= 2.0
    assert torch.equal(part(x)[:5], part(changed)[:5])
    assert not torch.equal(part(x)[5:], part(changed)[5:])


def test_gradients_are_those_of_the_equations():
    part = build(awake=True, size=2).eval()
    x = clips()[:3, :2].clone()
    parameters = [part.angles.weight, part.shift.bias, part.turning.layers[0].W_in, part.moving.layers[0].W_rec]
    y = part(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    grads = torch.autograd.grad((y * weights).sum(), parameters)
    step = 1e-6
    for parameter, grad in zip(parameters, grads, strict=True):
        direction = torch.randn(parameter.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(4))
        with torch.no_grad():
            parameter.add_(step * direction)
            above = (part(x) * weights).sum()
            parameter.sub_(2 * step * direction)
            below = (part(x) * weights).sum()
            parameter.add_(step * direction)
        torch.testing.assert_close((above - below) / (2 * step), (grad * direction).sum(), rtol=1e-6, atol=1e-7)


def test_noise_is_on_what_the_networks_read_and_not_on_what_they_turn():
    torch.manual_seed(0)
    part, x = build(awake=True, dropout=0.0, noise=0.5), clips()
    assert not torch.equal(part.views(x)[0], part.views(x)[0])
    lengths = [v.view(T, B, 50, 3)[:, :, :2].diff(dim=2).norm(dim=-1) for v in (x, part(x))]
    torch.testing.assert_close(lengths[0], lengths[1])  # a bone keeps its length
    assert torch.equal(part.eval().views(x)[0], part.views(x)[0])


@pytest.mark.parametrize("awake", [False, True])
def test_everything_learns(awake):
    part, x = build(awake=awake), clips()
    classifier(part)(x, MASK).square().sum().backward()
    reached = {name for name, p in part.named_parameters() if p.grad.any()}
    dense = {"angles.weight", "angles.bias", "shift.weight", "shift.bias"}
    assert reached >= dense if awake else reached == dense
    assert len(reached) == (10 if awake else 4)
    assert all(p.grad.isfinite().all() for p in part.parameters())


def test_it_reads_two_bodies_and_decays_only_weights():
    with pytest.raises(ValueError, match=r"^ViewAdaptation reads the 25 joints of two bodies, input_size=150, and got"):
        inputs.build("view-adaptation", 75)
    part = build()
    decayed = set(map(id, models.decayed_parameters(part)))
    assert {name for name, p in part.named_parameters() if id(p) in decayed} == {
        "angles.weight", "shift.weight", "turning.layers.0.W_in", "moving.layers.0.W_in",
    }  # fmt: skip
    assert part.turning.layers[0].W_rec.norm().item() == pytest.approx(0.001 * math.sqrt(8))
