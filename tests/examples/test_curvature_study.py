"""The study of curvature: each head gets the same trials, the best one is repeated, and finished runs are not."""

import json

import pandas as pd

from examples import curvature_study
from examples.curvature_study import main
from recbole_hyper import run
from recbole_hyper.experiment.experiment import Run


def test_the_study_tunes_repeats_measures_and_continues(random_data, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(curvature_study, "NEIGHBOURS", 3)
    started: list[str] = []

    def start(one: Run) -> None:
        started.append(f"{one.name}, {one.seed}")
        run(one.model, one.dataset, config_dict=one.keys)

    folder = tmp_path / "study"
    command = [str(folder), "--data=random", f"--data_path={random_data}", "--widths=4", "--epochs=1", "--trials=2"]
    command += ["--heads=poincare-learned,flat-limit", "--seeds=5,6"]
    main(command, start)
    trials = [f"random_{one}_4_rate{rate}" for one in ("poincare-learned", "flat-limit") for rate in ("0.003", "0.005")]
    assert [name.partition("_dropout")[0] for name in started[:4]] == trials
    assert all(name.endswith(", 5") for name in started[:4])
    assert len(started) == 6  # the best of each, with the other seed
    assert all(name.endswith(", 6") for name in started[4:])
    rows = pd.read_csv(folder / "study.csv")
    assert list(zip(rows["head"], rows["seed"], strict=True)) == [
        ("poincare-learned", 5), ("poincare-learned", 6), ("flat-limit", 5), ("flat-limit", 6),
    ]  # fmt: skip
    for head, place in (("poincare-learned", trials[:2]), ("flat-limit", trials[2:])):
        results = [json.loads(next(folder.glob(f"{name}*/seed-5/result.json")).read_text()) for name in place]
        best = max(results, key=lambda result: result["valid"]["ndcg@10"])
        row = rows[(rows["head"] == head) & (rows["seed"] == 5)].iloc[0]
        assert row["valid"] == best["valid"]["ndcg@10"]
        assert row["rate"] == best["config"]["learning_rate"]
        assert row["ndcg@10"] == best["test"]["ndcg@10"]
    assert rows["overlap"].between(0, 1).all()
    assert rows["trustworthiness"].between(0, 1).all()
    assert (rows.loc[rows["head"] == "flat-limit", "theta"] == 1).all()
    text = (folder / "study.md").read_text()
    assert text.count("| random |") == 2

    capsys.readouterr()
    main([*command, "--table"], start)
    main(command, start)
    assert len(started) == 6
    assert (folder / "study.md").read_text() == text
    # one more trial of each head, whose best may change
    main([word.replace("trials=2", "trials=3") for word in command], start)
    assert {name.partition("_dropout")[0] for name in started[6:8]} == {
        "random_poincare-learned_4_rate0.002", "random_flat-limit_4_rate0.002",
    }  # fmt: skip
