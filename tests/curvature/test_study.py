"""The study's trials against single calls; resuming; the verdict on data whose answer is known; faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import recbole_hyper.curvature.study as study
from recbole_hyper.curvature.gromov import euclidean_distances, gromov_delta
from recbole_hyper.curvature.study import Trial, run_trials
from recbole_hyper.curvature.verdict import judge, plateau_ranks
from tests.reference.gromov import tree_distances


def plain(trials: list[Trial]) -> list[Trial]:
    return [replace(trial, seconds=0.0) for trial in trials]


@pytest.mark.parametrize("whole", [True, False])
def test_trials_equal_single_calls(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(study, "_WHOLE_BYTES", 0)
    vectors = np.random.default_rng(0).standard_t(2, size=(300, 12))
    trials = run_trials(vectors, ranks=[3, 12], sample_sizes=[50, 200], repeats=3, seed=5, threads=2)
    assert [(t.rank, t.sample_size, t.repeat) for t in trials] == [
        (k, m, r) for k in (3, 12) for m in (50, 200) for r in range(3)
    ]
    for trial in trials:
        order = np.random.default_rng([5, trial.repeat]).permutation(300)[: trial.sample_size]
        single = gromov_delta(vectors[order, : trial.rank])
        assert trial.base == order[0]
        assert trial.delta_rel == pytest.approx(single.delta_rel, rel=1e-9)
        assert trial.diameter == pytest.approx(single.diameter, rel=1e-9)
    every = run_trials(vectors, ranks=[3], sample_sizes=[50], repeats=2, seed=5, every_base=True)
    for trial in every:
        order = np.random.default_rng([5, trial.repeat]).permutation(300)[:50]
        assert trial.delta == pytest.approx(gromov_delta(vectors[order, :3], base="all").delta, rel=1e-9)


def test_an_interrupted_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(1).normal(size=(120, 6))
    options = {"ranks": [2, 6], "sample_sizes": [30, 60], "repeats": 4, "seed": 2}
    expected = run_trials(vectors, **options)
    record = tmp_path / "deep" / "trials.jsonl"

    class Interrupt(Exception):
        pass

    def stop(finished: int, total: int) -> None:
        if finished >= 6:
            raise Interrupt

    with pytest.raises(Interrupt):
        run_trials(vectors, **options, record=record, progress=stop, threads=1)
    kept = record.read_text().strip().splitlines()
    assert 6 <= len(kept) < len(expected)
    with open(record, "a") as file:
        file.write('\n{"rank": 6, "sample')  # cut short by the interruption
    seen = []
    resumed = run_trials(vectors, **options, record=record, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (len(kept), len(expected))
    assert plain(resumed) == plain(expected)
    monkeypatch.setattr(study, "_measure", None)  # nothing is left to measure
    assert plain(run_trials(vectors, **options, record=record)) == plain(expected)


def hyperbolic_disk(n: int, radius: float, rng: np.random.Generator) -> np.ndarray:
    """Distances of points spread evenly over a disk of the hyperbolic plane."""
    r = np.arccosh(1 + rng.random(n) * (np.cosh(radius) - 1))
    angle = rng.random(n) * 2 * np.pi
    product = np.cosh(r)[:, None] * np.cosh(r) - np.sinh(r)[:, None] * np.sinh(r) * np.cos(angle[:, None] - angle)
    distances = np.arccosh(np.maximum(product, 1.0))
    np.fill_diagonal(distances, 0.0)
    return (distances + distances.T) / 2


def random_tree(n: int, rng: np.random.Generator) -> np.ndarray:
    return tree_distances([int(rng.integers(0, i + 1)) for i in range(n - 1)], list(rng.integers(1, 9, n - 1)))


def sphere(n: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(size=(n, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("kind", "expected", "because"),
    [
        ("tree", "compatible", None),
        ("hyperbolic disk", "compatible", None),
        ("gaussian, 128 dimensions", "not compatible", "change per doubling of the rank"),
        ("grid", "not compatible", "level"),
        ("sphere", "not compatible", "level"),
        ("flat square", "not compatible", "level"),
    ],
)
def test_verdict_where_the_answer_is_known(kind: str, expected: str, because: str | None) -> None:
    rng = np.random.default_rng(0)
    n = 400
    arguments = {
        "tree": lambda: {"distances": random_tree(n, rng)},
        "hyperbolic disk": lambda: {"distances": hyperbolic_disk(n, 8.0, rng)},
        "gaussian, 128 dimensions": lambda: {"vectors": rng.normal(size=(n, 128)), "ranks": [16, 32, 64, 128]},
        "grid": lambda: {"vectors": np.argwhere(np.ones((20, 20)))},
        "sphere": lambda: {"vectors": sphere(n, 3, rng)},
        "flat square": lambda: {"vectors": rng.random((n, 2))},
    }[kind]()
    verdict = judge(run_trials(**arguments, sample_sizes=[100, 200, 400], repeats=12, seed=1))
    assert verdict.verdict == expected, verdict.explain()
    if because:
        assert any(question.name.startswith(because) and question.answer == "no" for question in verdict.questions)
    if kind == "tree":
        assert verdict.questions[0].value == 0.0


def made(level: dict[int, float], growth: float, repeats: int = 8, noise: float = 0.0) -> list[Trial]:
    """Trials with the given level at each rank and growth over the last doubling of the sample."""
    rng = np.random.default_rng(0)
    return [
        Trial(k, m, r, 0, 0.0, 1.0, value * (1 + (growth if m == 1000 else 0.0)) * (1 + noise * rng.normal()), 0.0)
        for k, value in level.items()
        for m in (500, 1000)
        for r in range(repeats)
    ]


def test_each_question_decides() -> None:
    flat = {64: 0.25, 128: 0.25, 256: 0.25, 512: 0.25}
    assert judge(made(flat, 0.0)).verdict == "compatible"
    assert judge(made(flat, 0.02)).verdict == "compatible"
    assert judge(made(flat, 0.10)).verdict == "not compatible"
    assert judge(made(dict.fromkeys(flat, 0.40), 0.0)).verdict == "not compatible"
    assert judge(made(flat | {512: 0.18}, 0.0)).verdict == "not compatible"
    assert judge(made(flat | {64: 0.40, 128: 0.33}, 0.0)).verdict == "compatible"  # low ranks are not asked
    assert judge(made(flat, 0.045, noise=0.05)).verdict == "undecided"
    assert judge(made(flat, 0.0, repeats=2)).verdict == "undecided"
    assert judge([t for t in made(flat, 0.0) if t.sample_size == 1000]).verdict == "undecided"
    assert judge(made({64: 0.25}, 0.0)).verdict == "undecided"
    assert "rank" in " ".join(judge(made({64: 0.25}, 0.0)).explain())
    assert plateau_ranks([32, 64, 128, 256]) == [128, 256]
    assert plateau_ranks([64, 32]) == [32, 64]
    with pytest.raises(ValueError, match="not measured"):
        judge(made(flat, 0.0)[1:])
    with pytest.raises(ValueError, match="measure first"):
        judge([])


VECTORS = np.random.default_rng(3).normal(size=(20, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectors": VECTORS, "ranks": [5]}, r"ranks \[5\]: .* from 1 to 4"),
        ({"vectors": VECTORS, "sample_sizes": [21]}, r"sample sizes \[21\]: .* from 1 to 20"),
        ({"vectors": VECTORS, "sample_sizes": [3]}, "at least 4 points"),
        ({"vectors": VECTORS, "sample_sizes": []}, "at least one value"),
        ({"vectors": VECTORS[:3]}, "at least 4 points, got 3"),
        ({"vectors": VECTORS, "repeats": 0}, "repeats must be at least 1"),
        ({"vectors": VECTORS * np.nan}, "NaN"),
        ({"vectors": VECTORS * 0}, "coincide"),
        ({}, "not both"),
    ],
)
def test_faults(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_trials(**arguments)


def test_defaults_are_cut_at_the_data() -> None:
    trials = run_trials(VECTORS, repeats=1)
    assert {trial.rank for trial in trials} == {4}
    assert {trial.sample_size for trial in trials} == {20}
    assert euclidean_distances(VECTORS).max() == pytest.approx(trials[0].diameter)
