"""DuRNN learns the 100-step adding problem from its default initialisation (paper §V-A settings)."""

import pytest
import torch

import models


def adding_batch(T, B, generator):
    """Two marked numbers anywhere in the sequence; the target is their sum."""
    values = torch.rand(T, B, generator=generator)
    marks = torch.zeros(T, B)
    positions = torch.rand(T, B, generator=generator).topk(2, dim=0).indices
    marks.scatter_(0, positions, 1.0)
    return torch.stack([values, marks], dim=-1), (values * marks).sum(0)


def train(T, updates, units, lr, seed=0):
    """Mean squared error on 1000 fresh sequences every 100 updates."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net, head = models.DuRNN(2, units, length=T, seed=seed), torch.nn.Linear(units, 1)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=lr)
    test_x, test_y = adding_batch(T, 1000, torch.Generator().manual_seed(10_000 + seed))
    curve = []
    for update in range(1, updates + 1):
        x, y = adding_batch(T, 50, generator)
        optimizer.zero_grad()
        (head(net(x)[0][-1]).squeeze(-1) - y).square().mean().backward()
        optimizer.step()
        net.constrain_()
        if update % 100 == 0:
            with torch.no_grad():
                curve.append((head(net(test_x)[0][-1]).squeeze(-1) - test_y).square().mean().item())
    return curve


def test_durnn_learns_a_short_adding_problem():
    curve = train(T=50, updates=600, units=64, lr=1e-3)
    assert curve[0] > 0.03, "the problem is too easy to show learning"
    assert curve[-1] < 0.01


@pytest.mark.slow
def test_durnn_reaches_the_target_on_100_steps_at_the_papers_settings():
    curve = train(T=100, updates=3000, units=128, lr=2e-4)
    assert min(curve) < 0.01, f"lowest error {min(curve):.4f}"
