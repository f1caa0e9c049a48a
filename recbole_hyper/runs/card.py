"""The model card of a run: README.md in its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recbole_hyper.evaluation.results import metrics_table, model_text
from recbole_hyper.files import write_text

CARD = "README.md"
# identifies a card of this package
_MARK = "trained by recbole_hyper"
_SETTINGS = (
    "encoder", "geometry", "loss_type", "curvature", "hidden_size", "n_layers", "n_heads", "MAX_ITEM_LIST_LENGTH",
    "learning_rate", "weight_decay", "train_batch_size", "epochs", "stopping_step", "seed",
)  # fmt: skip
_TEXT = Path(__file__).with_name("card.md")


def write_card(folder: Path, result: Mapping[str, Any]) -> None:
    """Write the card of a ``result``; a README.md of somebody else stays."""
    path = folder / CARD
    if not path.exists() or _MARK in path.read_text(encoding="utf-8", errors="replace")[:500]:
        write_text(path, card_of(result))


def card_of(result: Mapping[str, Any]) -> str:
    """Return the text of a card."""
    dataset, config = result["dataset"], result.get("config", {})
    counts = {"users": "n_users", "items": "n_items", "interactions": "n_interactions"}
    data = ", ".join(f"{result[key]:,} {name}" for name, key in counts.items() if result.get(key) is not None)
    return _TEXT.read_text(encoding="utf-8").format(
        title=f"{model_text(result)} on {dataset}",
        data=f"`{dataset}`: {data}. Fingerprint `{result.get('data_fingerprint', 'unknown')}`.",
        protocol=f"{result.get('protocol', '')}, `{config.get('eval_args', result.get('eval_args'))}`",
        seen="are left out of the ranking" if result.get("exclude_seen") else "can be ranked again",
        figures=metrics_table(result) or "No case was ranked.",
        intervals=result.get("interval_method", "none"),
        settings="\n".join(f"| {key} | {config[key]} |" for key in _SETTINGS if config.get(key) is not None),
        seed=result.get("seed"),
    )
