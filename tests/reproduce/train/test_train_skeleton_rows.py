"""The cited skeleton networks of Table III as their recipes build them, on odd clips: against torch.nn clip by clip."""

import numpy as np
import pytest
import torch
from run_samples import make_run
from torch import nn
from torch.nn import functional as F

from reproduce.plan import recipe
from reproduce.report.sizes import Shape
from reproduce.train.loop import Training
from reproduce.train.network import Network
from tasks.ntu.features import FEATURES, joint_line_distances
from tasks.ntu.sampling import one_of_each_window, whole_clips

CLASSES = 5
ODD = {  # who is there in each frame
    "one frame": [(0,)],
    "empty frames": [(), (0,), (), (), (0,), (0,), ()],
    "two bodies that swap": [(0,), (1,)] * 6,
    "the main actor is away": [(0, 1)] * 5 + [(1,)] * 3 + [()] + [(0,)] * 5,
    "long": [(0,)] * 20,
}


@pytest.fixture(scope="module")
def clips():
    """Frames (T, 150) of each odd clip."""
    generator, made = np.random.default_rng(0), []
    for people in ODD.values():
        frames = generator.normal(size=(len(people), 2, 75)).astype(np.float32)
        for t, there in enumerate(people):
            frames[t, [body for body in (0, 1) if body not in there]] = 0.0
        made.append(frames.reshape(-1, 150))
    return made


def packed(clips):
    lengths = np.array([len(clip) for clip in clips])
    return np.concatenate(clips), np.cumsum(lengths) - lengths, lengths


def build(row, backend="auto", **changes):
    """The network of a row's paper settings with 6 units, in double precision, and without its noise."""
    settings, _ = recipe.load("table3").resolve(row, "ntu-cs", "paper")
    parts = settings.explicit()
    parts["model"]["hidden_size"] = 6
    if row.startswith("va-"):
        parts["input"]["size"] = 4
    parts |= changes
    width = FEATURES[settings.data.get("features", "coordinates")].width
    torch.manual_seed(1)
    shape = Shape("odd clips", "classify-last", "dense", width, CLASSES, settings.data["length"])
    network = Network(type(settings)(**parts), shape, backend).double().eval()
    with torch.no_grad():
        for parameter in network.model.parameters():  # recurrent weights that start near 0 hide mistakes
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network


def torch_lstm(model):
    theirs = nn.LSTM(model.input_size, model.hidden_size, model.num_layers, dtype=torch.float64)
    ours = [value for cell in model.cells for value in (cell.W_in, cell.W_rec, cell.b, 0 * cell.b)]
    with torch.no_grad():
        for parameter, value in zip(theirs.parameters(), ours, strict=True):
            parameter.copy_(value)
    return theirs


def compared(network, theirs, scores, expected):
    """Scores and the gradients of all weights, ours and torch's."""
    weights = torch.linspace(-1, 1, scores.numel(), dtype=scores.dtype).view_as(scores)
    cells, head = network.model.cells, network.readout.head
    ours = torch.autograd.grad(
        (scores * weights).sum(), [*head.parameters(), *(w for c in cells for w in (c.W_in, c.W_rec, c.b))]
    )
    wanted = torch.autograd.grad(
        (expected * weights).sum(),
        [*head.parameters(), *(w for name, w in theirs.named_parameters() if "bias_hh" not in name)],
    )
    torch.testing.assert_close([scores, *ours], [expected, *wanted], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("padding", ["ignore", "release"])
@pytest.mark.parametrize(("row", "layers"), [("s-trans-rnn", 3), ("s-trans-s-rota-rnn", 3), ("s-trans-lstm-6", 6)])
def test_whole_clips_are_read_as_by_torch_one_after_another(clips, row, layers, padding, backend):
    readout = {"name": "masked-mean"} | ({"padding": "release", "steps": 300} if padding == "release" else {})
    network = build(row, backend, readout=readout)
    assert network.model.num_layers == layers
    x, mask = (torch.from_numpy(a) for a in whole_clips(*packed(clips), 300))
    theirs, expected = torch_lstm(network.model), []
    for clip in clips:
        shown = torch.from_numpy(clip[clip.any(axis=1)]).double()
        logits = network.readout.head(theirs(shown)[0])  # (T, classes)
        padded = (300 - len(shown)) * logits[-1] if padding == "release" else 0.0
        expected.append((logits.sum(0) + padded) / len(shown))
    compared(network, theirs, network(x.double(), None, mask)[0], torch.stack(expected))


def test_joint_line_distances_are_read_at_the_last_window_of_each_clip(clips):
    network = build("jl-d-rnn")
    actors = [clip[:, :75] for clip in clips]
    x, mask = one_of_each_window(*packed(actors), 38, 8, None)
    x, mask = torch.from_numpy(FEATURES["joint-line-distances"].of(x, mask)), torch.from_numpy(mask)
    theirs, expected = torch_lstm(network.model), []
    for actor in actors:
        shown = actor[actor.any(axis=1)]
        middles = [(k + min(k + 7, len(shown) - 1)) // 2 for k in range(0, len(shown), 8)]
        h = theirs(torch.from_numpy(joint_line_distances(shown[middles])).double())[0]
        expected.append(network.readout.head(h[-1]))
    compared(network, theirs, network(x.double(), None, mask)[0], torch.stack(expected))


@pytest.mark.parametrize("row", ["s-trans-rnn", "s-trans-lstm-6", "va-rnn", "jl-d-rnn"])
def test_padding_changes_neither_scores_nor_gradients(clips, row):
    network = build(row)
    if row == "va-rnn":
        nn.init.normal_(network.input.angles.weight)
        nn.init.normal_(network.input.shift.weight)
    actors = [clip[:, : 75 if row == "jl-d-rnn" else 150] for clip in clips]
    x, mask = whole_clips(*packed(actors), 300)
    x = torch.from_numpy(FEATURES["joint-line-distances"].of(x, mask) if row == "jl-d-rnn" else x).double()
    mask, found = torch.from_numpy(mask), []
    for more in (0, 7):
        scores, _ = network(F.pad(x, (0, 0, 0, 0, 0, more)), None, F.pad(mask, (0, 0, 0, more)))
        loss = F.cross_entropy(scores, torch.arange(len(clips)))
        found.append([scores, *torch.autograd.grad(loss, list(network.parameters()))])
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


def test_views_that_have_not_learned_give_the_network_without_them(clips):
    plain, adaptive = build("s-trans-rnn"), build("va-rnn")
    rest = {k: v for k, v in adaptive.state_dict().items() if not k.startswith("input.")}
    plain.load_state_dict(rest)
    x, mask = (torch.from_numpy(a) for a in whole_clips(*packed(clips), 300))
    assert torch.equal(adaptive(x.double(), None, mask)[0], plain(x.double(), None, mask)[0])


def test_the_backend_of_a_network_is_that_of_all_its_parts():
    for backend in ("reference", "auto"):
        network = build("va-rnn", backend)
        cells = [m for m in network.modules() if hasattr(m, "scan")]
        assert len(cells) == 5
        assert {cell.backend for cell in cells} == {backend}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DURNN_CACHE", str(tmp_path / "cache"))


def test_a_training_with_noise_and_turned_clips_goes_on_where_it_was_saved(own_cache):
    settings, _ = recipe.load("table3").resolve("va-rnn-aug", "ntu-cs", "smoke")
    parts = settings.explicit()
    parts["data"] |= {"performances": 2, "length": 20, "held_out": None}
    parts["training"]["updates"] = 6
    assert parts["data"]["rotation"] == 0.3
    run = make_run(task="ntu-cs-synthetic", **parts)
    straight = Training(run)
    for _ in range(4):
        straight.update()
    before = Training(run)
    for _ in range(2):
        before.update()
    saved = {name: tensor.clone() for name, tensor in before.tensors().items()}, before.meta() | {"lineage": []}
    torch.manual_seed(99)
    after = Training(run)
    after.restore(*saved)
    for _ in range(2):
        after.update()
    assert all(torch.equal(a, b) for a, b in zip(straight.tensors().values(), after.tensors().values(), strict=True))
