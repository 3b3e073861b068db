import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models import readouts
from models.base import decayed_parameters

T, B, N, M, OUT = 6, 3, 5, 4, 2
LENGTHS = torch.tensor([6, 4, 1])
MASK = torch.arange(T).unsqueeze(-1) < LENGTHS  # (T, B)
VARIANTS = [(name, {}) for name in readouts.names()] + [
    ("masked-mean", {"padding": "release"}),
    ("attention-sum", {"uniform": True}),
]
every_readout = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[name + "-".join(["", *map(str, options)]) for name, options in VARIANTS]
)


def build(name, options=None, seed=0):
    torch.manual_seed(seed)
    return readouts.build(name, N, OUT, M, **options or {}).double()


def sequences(seed=1):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(T, B, width, generator=generator, dtype=torch.float64) for width in (N, M))


@every_readout
def test_shape_and_gradients(name, options):
    readout, (y, x) = build(name, options), sequences()
    y.requires_grad_()
    outputs = readout(y, x, MASK)
    assert outputs.shape == ((T, B, OUT) if readout.every_step else (B, OUT))
    outputs.square().sum().backward()
    used = [p for n, p in readout.named_parameters() if n.startswith("head") or not options.get("uniform")]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in used)
    assert not y.grad[~MASK].any(), "a padded step has a gradient"


@every_readout
@pytest.mark.parametrize("garbage", [1e3, float("nan")])
def test_what_stands_at_padded_steps_changes_nothing(name, options, garbage):
    readout, (y, x) = build(name, options), sequences()
    dirty_y, dirty_x = (s.masked_fill(~MASK.unsqueeze(-1), garbage) for s in (y, x))
    clean, dirty = readout(y, x, MASK), readout(dirty_y, dirty_x, MASK)
    assert torch.equal(clean, dirty)
    gradients = []
    for outputs in (clean, dirty):
        readout.zero_grad()
        outputs.square().sum().backward()
        gradients.append([p.grad for p in readout.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", readouts.names())
def test_more_padding_changes_nothing(name):
    readout, (y, x) = build(name), sequences()
    longer = [F.pad(s, (0, 0, 0, 0, 0, 3), value=7.0) for s in (y, x)]
    mask = F.pad(MASK, (0, 0, 0, 3))
    outputs, padded = readout(y, x, MASK), readout(*longer, mask)
    torch.testing.assert_close(padded[:T] if readout.every_step else padded, outputs, rtol=1e-12, atol=1e-12)


@every_readout
def test_a_mask_of_real_steps_is_no_mask(name, options):
    readout, (y, x) = build(name, options), sequences()
    torch.testing.assert_close(
        readout(y, x, torch.ones(T, B, dtype=torch.bool)), readout(y, x, None), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("name", readouts.names())
def test_each_sample_is_read_as_if_it_were_alone(name):
    readout, (y, x) = build(name), sequences()
    together = readout(y, x, MASK)
    for sample, length in enumerate(LENGTHS):
        alone = readout(y[:length, sample : sample + 1], x[:length, sample : sample + 1], None)
        got = together[:length, sample] if readout.every_step else together[sample]
        torch.testing.assert_close(got, alone.squeeze(-2), rtol=1e-12, atol=1e-12)


def test_what_each_readout_computes():
    y, x = sequences()
    logits = {name: build(name).head(y) for name in readouts.names()}
    last = LENGTHS - 1
    for name, expected in {
        "last": torch.stack([logits["last"][last[b], b] for b in range(B)]),
        "masked-mean": torch.stack([logits["masked-mean"][: LENGTHS[b], b].mean(0) for b in range(B)]),
        "mean-log-probabilities": torch.stack(
            [logits["mean-log-probabilities"][: LENGTHS[b], b].log_softmax(-1).mean(0) for b in range(B)]
        ),
    }.items():
        torch.testing.assert_close(build(name)(y, x, MASK), expected)
    every = build("every")(y, x, MASK)
    assert torch.equal(every[MASK], logits["every"][MASK])
    assert not every[~MASK].any()


def test_the_release_of_va_rnn_counts_the_last_step_for_its_padding():
    readout, (y, x) = build("masked-mean", {"padding": "release"}), sequences()
    logits = readout.head(y)
    expected = torch.stack(
        [(logits[:n, b].sum(0) + (T - n) * logits[n - 1, b]) / n for b, n in enumerate(LENGTHS.tolist())]
    )
    torch.testing.assert_close(readout(y, x, MASK), expected)
    ignoring = build("masked-mean")(y, x, MASK)
    assert torch.allclose(ignoring[0], expected[0])
    assert not torch.allclose(ignoring[1:], expected[1:])


def test_the_release_of_va_rnn_pads_every_clip_to_as_many_steps():
    readout, (y, x) = build("masked-mean", {"padding": "release", "steps": 300}), sequences()
    logits = readout.head(y)
    expected = torch.stack(
        [(logits[:n, b].sum(0) + (300 - n) * logits[n - 1, b]) / n for b, n in enumerate(LENGTHS.tolist())]
    )
    torch.testing.assert_close(readout(y, x, MASK), expected)
    longer, mask = F.pad(y, (0, 0, 0, 0, 0, 3), value=7.0), F.pad(MASK, (0, 0, 0, 3))
    torch.testing.assert_close(readout(longer, None, mask), expected)
    torch.testing.assert_close(readout(y[: LENGTHS[1], 1:2], None, None), expected[1:2])


def test_attention_weighs_each_step():
    readout, (y, x) = build("attention-sum", {"size": 7}), sequences()
    assert (readout.weights(x) == 1).all(), "attention must begin uniform and alive"
    nn.init.normal_(readout.beta.weight, std=0.3)
    beta = torch.relu(readout.attention(x)[0] @ readout.beta.weight.T + readout.beta.bias)  # (T, B, 1)
    assert beta.std() > 0.01
    expected = torch.stack([(beta * readout.head(y))[:n, b].sum(0) for b, n in enumerate(LENGTHS.tolist())])
    torch.testing.assert_close(readout(y, x, MASK), expected)
    level = torch.stack([beta[:n, b].mean() for b, n in enumerate(LENGTHS.tolist())]).mean()
    torch.testing.assert_close(readout.penalties(), {"temporal-attention": level})
    readout.uniform = True
    torch.testing.assert_close(
        readout(y, x, MASK), torch.stack([readout.head(y)[:n, b].sum(0) for b, n in enumerate(LENGTHS.tolist())])
    )


@every_readout
def test_the_head_is_drawn_as_nn_linear_and_only_weights_decay(name, options):
    torch.manual_seed(5)
    readout = readouts.build(name, N, OUT, M, **options)
    torch.manual_seed(5)
    head = nn.Linear(N, OUT)
    assert torch.equal(readout.head.weight, head.weight)
    assert torch.equal(readout.head.bias, head.bias)
    ids = set(map(id, decayed_parameters(readout)))
    decayed = {n for n, p in readout.named_parameters() if id(p) in ids}
    assert decayed == {"head.weight"} | (
        {"beta.weight", "attention.layers.0.W_in"} if name == "attention-sum" else set()
    )


def test_last_and_every_are_what_a_bare_head_gives():
    y, x = sequences()
    assert torch.equal(build("last")(y, x), build("last").head(y[-1]))
    assert torch.equal(build("every")(y, x), build("every").head(y))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readouts.build("mean", N, OUT), "no readout 'mean'"),
        (lambda: readouts.build("masked-mean", N, OUT, padding="zero"), "padding='zero' is not known"),
        (lambda: readouts.build("masked-mean", N, OUT, steps=300), "steps=300 is for padding='release' alone"),
        (lambda: readouts.build("last", N, OUT, padding="zero"), "Readout 'last' has no option 'padding'"),
        (lambda: readouts.build("attention-sum", N, OUT), "needs its width, input_size"),
        (lambda: build("attention-sum")(torch.zeros(T, B, N).double()), "needs x"),
        (lambda: build("last")(torch.zeros(T, B, N).double(), None, MASK.long()), "of torch.bool and got"),
        (lambda: build("last")(torch.zeros(T, B, N).double(), None, MASK[:3]), r"\(T, B\) = \(6, 3\)"),
        (lambda: build("last")(torch.zeros(T, B, N).double(), None, MASK & False), "at least one real step"),
    ],
)
def test_bad_readouts_get_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
