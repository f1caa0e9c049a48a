"""Calls of the package's functions as a user writes them; `make check` reads their types, nothing runs them.

Each wrong call has the code of its error: mypy also reports an error that it expects and does not find.
"""

from __future__ import annotations

import pandas as pd

from recbole_hyper import Estimator, load, run, run_seeds


def right(frame: pd.DataFrame) -> None:
    result: dict[str, object] = run(model="HSASRecCE", dataset="ml-1m", config_dict={"epochs": 2})
    lists: pd.DataFrame = load("saved/run").recommend(users=["7"], k=5)
    similar: pd.DataFrame = Estimator("HSASRecCE", hidden_size=64).fit(frame).similar_items(["3"])
    print(result, lists, similar)
    run_seeds(model="Pop", dataset="ml-1m", config_dict={"output_dir": "saved/seeds"}, seeds=[1, 2])


def wrong(frame: pd.DataFrame) -> None:
    run(modle="HSASRecCE", dataset="ml-1m")  # type: ignore[call-arg]
    run(model="HSASRecCE", dataset="ml-1m", config_dict=["epochs", 2])  # type: ignore[arg-type]
    load(3)  # type: ignore[arg-type]
    load("saved/run").recommend(k="ten")  # type: ignore[arg-type]
    Estimator("HSASRecCE").fit(frame).recommend(rank=10)  # type: ignore[call-arg]
    run_seeds(model="Pop", dataset="ml-1m")  # type: ignore[call-arg]
