"""The stand-ins: learnable, not trivial, and never mistaken for the real thing."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import tasks
from tasks.ptb import SYMBOLS
from tasks.standins import digits


def test_standins_say_what_they_are() -> None:
    for name in ("mnist-synthetic", "pmnist-synthetic", "ptb-c-synthetic"):
        task = tasks.build(name)
        assert task.is_standin
        assert "synthetic" in task.name
        assert task.info()["stand-in"] is True


def linear_error(train: np.ndarray, labels: np.ndarray, test: np.ndarray, truth: np.ndarray) -> float:
    """Per cent wrong of a ridge regression on one-hot labels."""
    features = np.concatenate([train, np.ones((len(train), 1))], axis=1)
    gram = features.T @ features + 10 * np.eye(features.shape[1])
    weights = np.linalg.solve(gram, features.T @ np.eye(10)[labels])
    guesses = np.concatenate([test, np.ones((len(test), 1))], axis=1) @ weights
    return 100 * float((guesses.argmax(1) != truth).mean())


def test_drawn_digits_are_learnable_but_not_trivial() -> None:
    images = digits.draw_all()
    (train, labels), (test, truth) = images["train"], images["test"]
    assert train.shape == (12_000, 784)
    assert test.shape == (2_000, 784)
    assert np.bincount(labels, minlength=10).min() > 1000
    pixels = linear_error(train[:4000] / 255, labels[:4000], test / 255, truth)
    assert 5 < pixels < 35
    # the amount of ink alone says little
    ink = linear_error(train[:, :1] * 0 + train.mean(1, keepdims=True), labels, test.mean(1, keepdims=True), truth)
    assert ink > 60
    assert len({image.tobytes() for image in np.concatenate([train, test])}) == 14_000


def bits_per_character(train: str, test: str, context: int) -> float:
    """An interpolated n-gram model with `context` characters: longer contexts fall back to shorter ones."""
    counts: list[dict[str, Counter[str]]] = []
    for size in range(context + 1):
        table: dict[str, Counter[str]] = {}
        for place in range(size, len(train)):
            table.setdefault(train[place - size : place], Counter())[train[place]] += 1
        counts.append(table)
    bits = 0.0
    for place in range(context, len(test)):
        probability = 1 / len(SYMBOLS)
        for size, table in enumerate(counts):
            seen = table.get(test[place - size : place])
            if seen:
                total, kinds = seen.total(), len(seen)
                probability = (seen[test[place]] + kinds * probability) / (total + kinds)
        bits -= np.log2(probability)
    return bits / (len(test) - context)


def test_generated_text_has_structure_at_several_ranges() -> None:
    task = tasks.build("ptb-c-synthetic")
    train, test = task.text("train")[:200_000], task.text("test")[:10_000]
    assert set(task.text("train")) == set(SYMBOLS)
    ranges = [bits_per_character(train, test, context) for context in (0, 1, 3, 5)]
    assert ranges[0] > 4
    assert all(longer < shorter - 0.2 for shorter, longer in pairwise(ranges))
    assert 1.0 < ranges[-1] < 2.2
    lines = task.text("train").splitlines()
    assert len(set(lines)) > 0.9 * len(lines)
    assert not set(task.text("test").splitlines()) <= set(lines)


def test_the_validation_rule_that_needs_more_images_is_refused() -> None:
    from tasks.mnist import PixelSequences

    with pytest.raises(ValueError, match="leaves nothing to train on"):
        PixelSequences("tiny", {"train": (np.zeros((5, 784)), np.zeros(5))}, "rowwise", "zero-one", "last-10000")
