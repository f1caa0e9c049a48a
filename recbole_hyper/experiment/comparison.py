"""The tables of a comparison, from the results and saved cases of its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recbole_hyper.evaluation import compare
from recbole_hyper.evaluation.pairs import count_users
from recbole_hyper.evaluation.tables import Table
from recbole_hyper.experiment.experiment import Results, folder_name
from recbole_hyper.runs.claim import seed_folder


@dataclass(frozen=True)
class Comparison:
    """The results of several models on one split, what they are compared by, and the models that failed.

    The run of a model is in its folder below ``folder``, or in ``seed-N`` there.
    """

    results: Results
    folder: Path
    metric: str
    topk: Sequence[int]
    seeds: Sequence[int] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by model
    items: Path | None = None  # the .item file, for segments

    @property
    def folders(self) -> dict[str, dict[int | None, Path]]:
        """The folder of each model and seed."""
        places = {name: self.folder / folder_name(name) for name in self.results}
        return {n: {seed: seed_folder(places[n], seed) for seed in by_seed} for n, by_seed in self.results.items()}

    @property
    def first(self) -> Mapping[str, Any]:
        """A result, for what all of them share."""
        return next(iter(next(iter(self.results.values())).values()))

    @property
    def part(self) -> str:
        """The part that is compared: "test", or "valid" if the split has no test."""
        return "test" if self.first["test"] else "valid"

    def tables(self) -> tuple[Table, Table | None]:
        """Return the table with a row per model, and that of all pairs, None for fewer than three models."""
        rows, pairs = compare.comparison(self.results, self.folders, self.metric, part=self.part, failed=self.failed)
        for row in rows:
            if text := self.notes.get(row["model"]):
                row["note"] = "; ".join(filter(None, [text, row.get("note")]))
        users = count_users(next(iter(next(iter(self.folders.values())).values())), self.part)
        note = compare.p_value_text(self.metric, several=len(self.seeds) > 1, users=users)
        caption = compare.comparison_caption(self.first, self.part, self.seeds) + compare.measured_on(rows)
        # one cut-off: that of the metric that chose the epoch, marks the best, and has the p-values
        cut = self.metric.partition("@")[2]
        table = compare.comparison_table(rows, [int(cut)] if cut else self.topk, caption=caption, note=note)
        return table, compare.pair_table(pairs, self.metric) if len(pairs) > 1 else None
