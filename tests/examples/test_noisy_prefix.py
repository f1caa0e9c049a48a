"""The noisy-prefix task: what the generator promises, the model's variants, exact resume, the command."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.noisy_prefix import __main__ as command
from examples.noisy_prefix import train as training
from examples.noisy_prefix.data import PrefixPairs, generate_pairs, load_or_generate
from examples.noisy_prefix.model import PrefixClassifier
from examples.noisy_prefix.train import accuracy, train_prefix
from tests.raising import refused


def make(n_pairs: int = 2000, noise: int = 10, seed: int = 0, **options: int) -> PrefixPairs:
    return generate_pairs(n_pairs, noise=noise, generator=np.random.default_rng(seed), **options)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    noise=st.integers(0, 100),
    max_words=st.integers(1, 20),
    n_words=st.sampled_from([1, 7, 100, 300]),
    seed=st.integers(0, 99),
)
def test_pairs_keep_the_rules(noise: int, max_words: int, n_words: int, seed: int) -> None:
    pairs = make(200, noise, seed, max_words=max_words, n_words=n_words)
    assert int(pairs.labels.sum()) == 100
    columns = np.arange(max_words)
    for words, lengths in ((pairs.first, pairs.first_lengths), (pairs.second, pairs.second_lengths)):
        real = columns < lengths[:, None]
        assert lengths.min() >= 1
        assert lengths.max() <= max_words
        assert words[real].min() >= 1
        assert words[real].max() <= n_words
        assert not words[~real].any()
    assert (pairs.second_lengths <= pairs.first_lengths).all()
    same = ((pairs.first == pairs.second) & (columns < pairs.second_lengths[:, None])).sum(1)
    changed = (pairs.second_lengths - same)[pairs.labels == 1]
    assert (changed <= noise * pairs.second_lengths[pairs.labels == 1] // 100).all()
    # every first sentence occurs once per class
    rows = {label: sorted(map(tuple, pairs.first[pairs.labels == label].tolist())) for label in (0, 1)}
    assert rows[0] == rows[1]


def test_noise_has_the_stated_size() -> None:
    pairs = make(40_000, 50)
    prefix = pairs.labels == 1
    real = np.arange(20) < pairs.second_lengths[:, None]
    changed = ((pairs.first != pairs.second) & real)[prefix].sum(1)
    drawn = pairs.second_lengths[prefix] // 2
    # a redrawn word hits the old one once in 100
    assert changed.sum() / drawn.sum() == pytest.approx(0.99, abs=0.003)
    # and the positions are uniform: the first word of a 20-word prefix is redrawn in half of the cases
    full = prefix & (pairs.second_lengths == 20)
    assert (pairs.first[full, 0] != pairs.second[full, 0]).mean() == pytest.approx(0.495, abs=0.05)


def test_lengths_are_uniform() -> None:
    pairs = make(40_000)
    counts = np.bincount(pairs.second_lengths, minlength=21)[1:] / len(pairs)
    assert np.abs(counts - 0.05).max() < 0.006
    rest = (pairs.first_lengths - pairs.second_lengths)[pairs.second_lengths == 11]
    assert np.abs(np.bincount(rest, minlength=10) / len(rest) - 0.1).max() < 0.03


VARIANTS = [
    {},
    {"geometry": "euclidean"},
    {"share_encoder": False, "n_layers": 2},
    {"embedding_type": "eucl", "decision_type": "eucl"},
    {"use_distance": False},
]


@pytest.mark.parametrize("options", VARIANTS)
def test_logits_ignore_padding_and_the_rest_of_the_batch(options: dict) -> None:
    torch.manual_seed(0)
    model = PrefixClassifier(**options)
    pairs = make(8)
    first, second = torch.from_numpy(pairs.first.astype(int)), torch.from_numpy(pairs.second.astype(int))
    n1, n2 = torch.from_numpy(pairs.first_lengths), torch.from_numpy(pairs.second_lengths)
    logits = model(first, n1, second, n2)
    for row in range(8):
        alone = model(
            first[row : row + 1, : n1[row]], n1[row : row + 1], second[row : row + 1, : n1[row]], n2[row : row + 1]
        )
        torch.testing.assert_close(alone[0], logits[row], rtol=1e-4, atol=1e-5)
    logits.square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("geometry", ["poincare", pytest.param("euclidean", marks=pytest.mark.slow)])
def test_the_classifier_learns_short_sentences(geometry: str, tmp_path: Path) -> None:
    # three words and sentences of up to three words: a prefix is distinguished from a random sentence in a few seconds
    sizes = {"n_train": 4000, "n_valid": 500, "n_test": 500, "n_words": 12, "max_words": 2}
    data = load_or_generate(tmp_path / "data", noise=0, seed=0, **sizes)
    torch.manual_seed(1)
    model = PrefixClassifier(geometry=geometry, n_words=12)
    result = train_prefix(
        model, data, tmp_path / "run", learning_rate=0.03, train_batch_size=250, epochs=8, report=lambda _: None
    )
    assert result["test_accuracy"] > 75
    assert result["test_accuracy"] == accuracy(model, data["test"])


def test_resume_gives_the_same_curve(tmp_path: Path) -> None:
    sizes = {"n_train": 160, "n_valid": 60, "n_test": 60, "max_words": 4}
    data = load_or_generate(tmp_path / "data", noise=10, seed=0, **sizes)

    def run(folder: str, epochs: int, **options: float) -> dict:
        torch.manual_seed(0)
        return train_prefix(
            PrefixClassifier(),
            data,
            tmp_path / folder,
            epochs=epochs,
            train_batch_size=64,
            report=lambda _: None,
            **options,
        )

    whole = run("whole", 3)
    run("parts", 1)
    parts = run("parts", 3)
    columns = ["train_loss", "train_accuracy", "valid_accuracy"]
    curves = [pd.read_csv(tmp_path / name / "curve.csv")[columns] for name in ("whole", "parts")]
    pd.testing.assert_frame_equal(*curves, rtol=1e-6)
    assert whole["test_accuracy"] == parts["test_accuracy"]
    with refused(ValueError, "learning_rate"):
        run("parts", 4, learning_rate=0.5)


def curve_of(monkeypatch: pytest.MonkeyPatch, folder: Path, epochs: int, valid: list[float]) -> dict:
    """Train with given validation accuracies of the epochs (the last number is that of the test)."""
    numbers = iter([*valid, 50.0])
    monkeypatch.setattr(training, "accuracy", lambda *_: next(numbers))
    torch.manual_seed(0)
    pairs = make(40, max_words=4)
    data = {"train": pairs, "valid": pairs, "test": pairs}
    return train_prefix(PrefixClassifier(), data, folder, epochs=epochs, report=lambda _: None)


def same_weights(first: Path, second: Path) -> bool:
    one, other = (torch.load(path / "best.pt", weights_only=True) for path in (first, second))
    return all(torch.equal(one[name], other[name]) for name in one)


def test_of_equal_epochs_the_first_is_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = curve_of(monkeypatch, tmp_path / "alone", 2, [60.0, 70.0])
    whole = curve_of(monkeypatch, tmp_path / "whole", 4, [60.0, 70.0, 70.0, 65.0])
    curve_of(monkeypatch, tmp_path / "parts", 2, [60.0, 70.0])
    parts = curve_of(monkeypatch, tmp_path / "parts", 4, [70.0, 65.0])
    assert alone["best_epoch"] == whole["best_epoch"] == parts["best_epoch"] == 2
    assert whole["valid_accuracy"] == 70
    assert same_weights(tmp_path / "alone", tmp_path / "whole")
    assert same_weights(tmp_path / "alone", tmp_path / "parts")
    better = curve_of(monkeypatch, tmp_path / "parts", 5, [71.0])
    assert better["best_epoch"] == 5
    assert not same_weights(tmp_path / "alone", tmp_path / "parts")


def test_the_best_epoch_is_one_of_the_curve_whatever_killed_runs_left(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "run"
    curve_of(monkeypatch, folder, 1, [60.0])
    first = torch.load(folder / "best.pt", weights_only=True)
    # killed between best.pt of the second epoch and its checkpoint
    torch.save({name: tensor + 1 for name, tensor in first.items()}, folder / "best.pt")
    assert curve_of(monkeypatch, folder, 2, [59.0])["best_epoch"] == 1
    again = torch.load(folder / "best.pt", weights_only=True)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_command_writes_curves_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--n_train=100", "--n_valid=40", "--n_test=40", "--epochs=1", "--train_batch_size=50"]
    places = [f"--data_path={tmp_path / 'data'}", f"--output_dir={tmp_path / 'out'}"]
    both = ["--geometry=poincare,euclidean", "--optimizer=riemannian_adam,riemannian_sgd"]
    assert command.main(["--noise=30", *small, *both, *places]) == 0
    assert len(list((tmp_path / "out").glob("prefix-30-*/curve.csv"))) == 4
    assert (tmp_path / "out" / "prefix-30-seed0.png").stat().st_size > 5000
    assert "test_accuracy" in capsys.readouterr().out
