"""Parameter counts, initial weights, bad input."""

import pytest
import torch

import models


def count(net, head):
    return sum(p.numel() for p in net.parameters()) + (net.hidden_size + 1) * head


@pytest.mark.parametrize(
    ("name", "sizes", "options", "head", "expected"),
    [
        ("indrnn", (1, 128, 6), {"length": 784, "norm": "after"}, 10, 86_410),
        ("durnn", (1, 128, 1), {"length": 784, "norm": "after"}, 10, 67_979),
        ("durnn", (1, 128, 3), {"length": 784, "norm": "after"}, 10, 233_869),
        ("lstm", (1, 128, 1), {}, 10, 67_850),
        ("irnn", (1, 100, 1), {}, 10, 11_210),
        ("rnn-tanh", (2, 128, 1), {}, 1, 16_897),
        ("irnn", (2, 128, 1), {}, 1, 16_897),
        ("lstm", (2, 128, 1), {}, 1, 67_201),
        ("indrnn", (2, 128, 2), {"length": 100}, 1, 17_281),
        ("durnn", (2, 128, 1), {"length": 100}, 1, 66_434),
        ("indrnn", (150, 512, 4), {"length": 20, "norm": "after"}, 60, 902_204),
        ("indrnn", (150, 512, 6), {"length": 20, "norm": "after"}, 60, 1_430_588),
    ],
)
def test_parameter_counts_with_head(name, sizes, options, head, expected):
    assert count(models.build(name, *sizes, **options), head) == expected


def test_durnn_parameters_have_the_names_of_the_equations():
    names = {name.rsplit(".", 1)[1] for name, _ in models.DuRNN(2, 4, length=5).named_parameters()}
    assert names == {"W_in", "W_rec", "b_short", "W_ss", "W_ls", "b_s", "b_thre", "W_s", "U", "b_long"}


def test_irnn_starts_as_the_identity():
    layer = models.IRNN(2, 16, seed=0).layers[0]
    assert torch.equal(layer.W_rec, torch.eye(16))
    assert not layer.b.any()
    assert layer.W_in.std() < 0.003


def test_recurrent_weights_start_in_the_intervals_of_the_layers():
    for name in ("durnn", "indrnn"):
        first, last = models.build(
            name, 2, 2000, 2, length=100, seed=0, **({"W_rec_init": "identity"} if name == "durnn" else {})
        ).layers
        assert first.U.min() < 0.01
        assert last.U.min() >= 0.5**0.01
        assert max(first.U.max(), last.U.max()) <= 2**0.01


def test_lstm_forget_gate_starts_open():
    b = models.LSTM(2, 4).layers[0].b
    assert b.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8


def test_orthogonal_initialiser_treats_each_gate_alike():
    W = models.LSTM(2, 8, seed=0).layers[0].W_rec
    for gate in W.split(8):
        torch.testing.assert_close(gate @ gate.T, torch.eye(8), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("dulstm", 2, 4), r"no model 'dulstm' \(did you mean 'lstm'"),
        (lambda: models.build("durnn", 2, 4, lenght=5), r"no option 'lenght' \(did you mean 'length'"),
        (lambda: models.build("irnn", 2, 4, gamma=5.0), "no option 'gamma'"),
        (lambda: models.build("rnn-tanh", 2, 4, nonlinearity="relu"), "no option 'nonlinearity'"),
        (lambda: models.DuRNN(2, 4), "DuRNN needs length"),
        (lambda: models.DuRNN(2, 4, length=0), "length=0 is not a positive"),
        (lambda: models.DuRNN(2, 4, length=-3), "length=-3 is not a positive"),
        (lambda: models.DuRNN(2, 4, length=2.5), "length=2.5 is not a positive"),
        (lambda: models.RNN(0, 4), "input_size=0"),
        (lambda: models.RNN(2, -4), "hidden_size=-4"),
        (lambda: models.RNN(2, 4, 0), "num_layers=0"),
        (lambda: models.RNN(2, 4, nonlinearity="gelu"), "nonlinearity='gelu'"),
        (lambda: models.RNN(2, 4, norm="layer"), "norm='layer'"),
        (lambda: models.RNN(2, 4, norm="frame"), "needs length"),
        (lambda: models.RNN(2, 4, backend="cuda"), "backend='cuda'"),
        (lambda: models.RNN(2, 4, dropout=1.0), "dropout=1.0"),
        (lambda: models.RNN(2, 4, dropout=(0.1, 0.2, 0.3)), "dropout="),
        (lambda: models.RNN(2, 4, dtype=torch.int64), "not a floating-point type"),
        (lambda: models.RNN(2, 4, W_in_init="xavier"), "W_in_init='xavier' is not an initialiser"),
        (lambda: models.DuRNN(2, 4, length=5, short="dense"), "short='dense'"),
        (lambda: models.DuRNN(2, 4, length=5, delta=1.5), "delta=1.5"),
        (lambda: models.DuRNN(2, 4, length=5, epsilon=1.5), "epsilon=1.5"),
        (lambda: models.DuRNN(2, 4, length=5, b_thre_init=2), "b_thre_init=2"),
        (lambda: models.DuRNN(2, 4, 2, length=5, u_max=[1.0]), "one per layer"),
        (lambda: models.register("lstm")(models.LSTM), "registered already"),
    ],
)
def test_bad_construction_gets_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("x", "state", "message"),
    [
        (torch.zeros(5, 3), None, r"shape \(T, B, input_size\) and got \(5, 3\)"),
        ([1.0], None, "got list"),
        (torch.zeros(5, 3, 7), None, "input_size=2 and got x of shape"),
        (torch.zeros(0, 3, 2), None, "at least one step"),
        (torch.zeros(5, 0, 2), None, "at least one step and one sample"),
        (torch.zeros(5, 3, 2, dtype=torch.float64), None, "torch.float32 parameters"),
        (torch.zeros(5, 3, 2, dtype=torch.int64), None, "torch.int64"),
        (torch.zeros(5, 3, 2), torch.zeros(1, 3, 4), "takes state"),
        (torch.zeros(5, 3, 2), (torch.zeros(1, 9, 4), torch.zeros(1, 9, 4)), "takes state"),
    ],
)
def test_bad_input_gets_one_clear_sentence(x, state, message):
    with pytest.raises(ValueError, match=message) as error:
        models.DuRNN(2, 4, length=5)(x, state)
    assert "\n" not in str(error.value)


def test_orthogonal_as_a_whole_and_identity_in_the_candidate():
    layer = models.LSTM(3, 8, seed=0, W_in_init="orthogonal-whole", W_rec_init="identity-candidate").layers[0]
    torch.testing.assert_close(layer.W_in.T @ layer.W_in, torch.eye(3), rtol=0, atol=1e-5)
    i_f, g, o = layer.W_rec[:16], layer.W_rec[16:24], layer.W_rec[24:]
    assert torch.equal(g, torch.eye(8))
    others = torch.cat([i_f, o])
    torch.testing.assert_close(others.T @ others, torch.eye(8), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"identity-candidate is for matrices \(4 N, N\)"):
        models.RNN(2, 4, W_rec_init="identity-candidate")
