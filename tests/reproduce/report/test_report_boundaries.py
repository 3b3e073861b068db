"""Boundaries of an HM-LSTM on a text: counted by hand, drawn from an untrained network, found on this machine."""

import numpy as np
import pytest
import torch
from run_samples import make_place, make_run, make_settings

import tasks
from reproduce.report import boundaries
from reproduce.train.loop import train
from reproduce.train.network import Network
from tasks.ptb import SYMBOLS

MODEL = {"name": "hm-lstm", "hidden_size": 6, "num_layers": 3}


def symbols_of(text):
    return np.array([SYMBOLS.index(character) for character in text])


def network_of(model, task):
    torch.manual_seed(0)
    return Network(make_settings(model=model, data=None, input={"name": "one-hot"}), task)


@pytest.fixture(scope="module")
def task():
    return tasks.build("ptb-c-synthetic")


def test_statistics_by_hand():
    z = np.array([[0, 0, 1, 0, 0, 1, 1, 0], [0] * 8])
    first, second = boundaries.statistics(z, symbols_of("ab cd ef"))
    assert (first.layer, first.share, first.length) == (1, 3 / 8, 8 / 3)
    assert (first.at_ends, first.ends) == (2 / 3, 2 / 8)
    assert "37.5%" in str(first)
    assert second.share == 0
    assert second.length == float("inf")
    assert np.isnan(second.at_ends)


def test_a_line_of_the_test_text_is_found(task):
    symbols, where = boundaries.text_of(task, 2, 200)
    text = "".join(SYMBOLS[symbol] for symbol in symbols)
    assert len(text) >= 200
    assert text[where].endswith("\n")
    assert text[where] == text[1:].splitlines(keepends=True)[2]
    with pytest.raises(ValueError, match="no line 999999"):
        boundaries.text_of(task, 999_999, 200)


def test_a_picture_of_an_untrained_network(task, tmp_path):
    network = network_of(MODEL, task)
    symbols, where = boundaries.text_of(task, 0, 100)
    z = boundaries.boundaries_of(network, symbols)
    assert z.shape == (2, len(symbols))
    assert set(np.unique(z)) == {0, 1}
    paths = boundaries.draw(z[:, where], symbols.numpy()[where], tmp_path, "untrained", ["a fact"])
    assert [path.name for path in paths] == ["boundaries.svg", "boundaries.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_other_models_have_no_boundaries(task):
    network = network_of({"name": "gru", "hidden_size": 4, "num_layers": 1}, task)
    with pytest.raises(ValueError, match="GRU has no boundaries"):
        boundaries.boundaries_of(network, torch.zeros(5, dtype=torch.long))


def test_the_command_takes_the_newest_weights_of_this_machine(tmp_path, capsys):
    folders = ["--results", str(tmp_path), "--runs", str(tmp_path / "runs")]
    assert boundaries.main(folders) == 2
    assert "no weights of an HM-LSTM" in capsys.readouterr().err
    run = make_run(
        task="ptb-c-synthetic", model=MODEL, data={"length": 20, "held_out": None}, input={"name": "one-hot"},
        schedule=None, training={"updates": 2}, evaluation={"every": 2, "valid_samples": 100, "test_samples": 100},
    )  # fmt: skip
    place = make_place(tmp_path)
    assert train(run, place).status == "completed"
    assert boundaries.main([*folders, "--line", "1"]) == 0
    said = capsys.readouterr().out
    assert "boundaries.png" in said
    assert "layer 2: a boundary at" in said
    assert (tmp_path / "figures" / "boundaries.svg").exists()
    assert boundaries.main([*folders, "--line", "999999"]) == 2
