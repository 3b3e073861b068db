import pytest
import torch

import models

a, b, c = (torch.full((2,), float(value), requires_grad=True) for value in (1, 2, 3))
STATES = {"none": None, "bare": a, "pair": (a, b), "widths": ((a, b), c), "single-widths": (a, b, c)}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_a_state_survives_being_taken_apart(state):
    named = models.state_tensors(state)
    assert all(isinstance(tensor, torch.Tensor) for tensor in named.values())
    restored = models.state_from_tensors(dict(sorted(named.items())))
    assert repr(restored) == repr(state)


def test_names_are_those_of_existing_checkpoints():
    assert list(models.state_tensors(a)) == ["only"]
    assert list(models.state_tensors((a, b))) == ["0", "1"]
    assert list(models.state_tensors(((a, b), c))) == ["0.0", "0.1", "1"]


def test_more_than_ten_parts_keep_their_order():
    state = tuple(torch.full((1,), float(n)) for n in range(12))
    restored = models.state_from_tensors(dict(sorted(models.state_tensors(state).items())))
    assert [part.item() for part in restored] == list(range(12))


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_detach_cuts_every_tensor(state):
    cut = models.detach(state)
    assert not any(tensor.requires_grad for tensor in models.state_tensors(cut).values())
    assert len(models.state_tensors(cut)) == len(models.state_tensors(state))
