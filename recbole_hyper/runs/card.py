"""The model card of a run: README.md in its folder, in the format of model hubs (YAML, then Markdown)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from recbole_hyper.files import plain, write_text

CARD = "README.md"
# identifies a card of this package
_MARK = "library_name: recbole_hyper"
_SETTINGS = (
    "encoder", "geometry", "loss_type", "curvature", "hidden_size", "n_layers", "n_heads", "MAX_ITEM_LIST_LENGTH",
    "learning_rate", "weight_decay", "train_batch_size", "epochs", "stopping_step", "seed",
)  # fmt: skip


def write_card(folder: Path, result: Mapping[str, Any]) -> Path | None:
    """Write the card of a ``result`` and return its path; None if the folder has another README.md, which stays."""
    path = folder / CARD
    if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace")[:500]:
        return None
    write_text(path, card_of(result))
    return path


def card_of(result: Mapping[str, Any]) -> str:
    """Return the text of a card."""
    model, dataset, config = result["model"], result["dataset"], result.get("config", {})
    metrics = result.get("test") or result.get("valid") or {}
    entry = {
        "task": {"type": "recommendation", "name": "next-item recommendation"},
        "dataset": {"name": str(dataset), "type": str(dataset)},
        "metrics": [{"type": name, "value": value} for name, value in metrics.items()],
    }
    header = {
        "tags": ["recommendation", "sequential-recommendation", "recbole"],
        "datasets": [str(dataset)],
        "metrics": sorted({name.partition("@")[0] for name in metrics}),
        "model-index": [{"name": str(model), "results": [entry]}],
    }
    front = _MARK + "\n" + yaml.safe_dump(plain(header), sort_keys=False, allow_unicode=True)
    settings = [f"| {key} | {config[key]} |" for key in _SETTINGS if config.get(key) is not None]
    counts = {"users": "n_users", "items": "n_items", "interactions": "n_interactions"}
    data = ", ".join(f"{result[key]:,} {name}" for name, key in counts.items() if result.get(key) is not None)
    seen = "are left out of the ranking" if result.get("exclude_seen") else "can be ranked again"
    lines = [
        f"---\n{front}---\n",
        f"# {model} on {dataset}\n",
        "A recommender, trained by recbole_hyper: it ranks the items that may come next after a history.\n",
        f"## Data\n\n`{dataset}`: {data}. Fingerprint `{result.get('data_fingerprint', 'unknown')}`.\n",
        f"## Protocol\n\n{result.get('protocol', '')}, `{config.get('eval_args', result.get('eval_args'))}`. Items of "
        f"the history {seen}. A target ranks behind every item with an equal score.\n",
        f"## Figures\n\n{_figures(result)}\n",
        "## Settings\n\n| key | value |\n|---|---|\n" + "\n".join(settings) + "\n\nAll of them are in `config.yaml`.\n",
        "## Intended use\n\nRecommendations from a catalogue like that of the data, for people whose history tells "
        "something about their next item.\n",
        "## Limits\n\nThe figures come from one data set, one protocol and "
        f"seed {result.get('seed')}; other seeds give other figures. Items without training interactions are not "
        "recommended unless the model reads features. Popular items are recommended more often. The model knows only "
        "the histories of people, and was not tested for harm to groups of them.\n",
        "## How to load\n\n```python\nimport recbole_hyper\n\nmodel = recbole_hyper.load(\".\")  # this folder\n"
        "print(model.recommend(histories=[list(model.item_ids[:3])], k=5))\n```\n\n"
        "`recbole-hyper serve .` answers over HTTP.\n",
    ]  # fmt: skip
    return "\n".join(lines)


def _figures(result: Mapping[str, Any]) -> str:
    """Return the metrics of validation and test, with intervals if the run has them."""
    parts = [part for part in ("valid", "test") if result.get(part)]
    if not parts:
        return "No case was ranked."

    def figure(part: str, name: str) -> str:
        value, interval = result[part].get(name), (result.get(f"{part}_intervals") or {}).get(name)
        text = f"{value:.4f}" if isinstance(value, float) else str(value)
        return text if not interval else f"{text} [{interval[0]:.4f}, {interval[1]:.4f}]"

    rows = [["metric", *parts], *([name, *(figure(part, name) for part in parts)] for name in result[parts[-1]])]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    note = f"\n\nIntervals: {result['interval_method']}." if result.get("interval_method") else ""
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + note
