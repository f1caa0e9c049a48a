"""RecBole's SASRec with cross-entropy, on the older numpy and pandas that its code was written for."""

from __future__ import annotations

from logging import getLogger
from pathlib import Path

import torch
from peer import Run
from recbole.config import Config
from recbole.data.dataloader import TrainDataLoader
from recbole.data.dataset import SequentialDataset
from recbole.data.interaction import Interaction
from recbole.model.sequential_recommender import SASRec
from recbole.utils import init_seed
from torch import Tensor


def main() -> None:
    """Train on (prefix, target) rows as RecBole does, 2,048 per batch."""
    run = Run()
    settings = run.settings
    _write_atomic(run.train)
    config = Config(model="SASRec", dataset="peers", config_dict=_keys(settings))
    init_seed(settings["seed"], True)
    getLogger().handlers.clear()
    dataset = SequentialDataset(config)
    training = dataset.build()[0]
    batches = TrainDataLoader(config, training, None, shuffle=True)
    model = SASRec(config, training)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    # RecBole numbers the items itself
    tokens = dataset.field2id_token["item_id"]
    ours = torch.tensor([0, *map(int, tokens[1:])])
    number = {token: at for at, token in enumerate(ours.tolist()) if at}

    def scores(histories: list[list[int]]) -> Tensor:
        length = settings["max_length"]
        known = [[number[item] for item in items if item in number][-length:] for items in histories]
        lists = torch.tensor([items + [0] * (length - len(items)) for items in known])
        lengths = torch.tensor([len(items) for items in known])
        model.eval()
        found = torch.full((len(known), run.n_items), -torch.inf)
        batch = Interaction({"item_id_list": lists, "item_length": lengths})
        found[:, ours[1:]] = model.full_sort_predict(batch)[:, 1:]
        model.train()
        return found

    run.begin(
        scores,
        packages=("recbole", "numpy", "pandas"),
        steps=len(batches),
        targets=len(training),
        notes=f"a row per prefix, {config['train_batch_size']} rows per batch (the default); older numpy and pandas",
    )
    model.train()
    while True:
        for batch in batches:
            optimizer.zero_grad()
            model.calculate_loss(batch).backward()
            optimizer.step()
            if not run.step():
                return


def _keys(settings: dict) -> dict:
    return {
        "data_path": str(Path.cwd()),
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        # training has all rows of the file
        "eval_args": {"split": {"RS": [1.0, 0.0, 0.0]}, "order": "TO", "group_by": "user", "mode": "full"},
        "train_neg_sample_args": None,
        "loss_type": "CE",
        "hidden_size": settings["width"],
        "inner_size": settings["width"],
        "n_layers": settings["blocks"],
        "n_heads": settings["heads"],
        "hidden_dropout_prob": settings["dropout"],
        "attn_dropout_prob": settings["dropout"],
        "MAX_ITEM_LIST_LENGTH": settings["max_length"],
        "learning_rate": settings["learning_rate"],
        "seed": settings["seed"],
        "use_gpu": False,
        "gpu_id": "",
        "show_progress": False,
    }


def _write_atomic(train: dict[int, list[int]]) -> None:
    folder = Path("peers")
    folder.mkdir()
    lines = ["user_id:token\titem_id:token\ttimestamp:float\n"]
    lines += [f"{user}\t{item}\t{at}\n" for user, items in train.items() for at, item in enumerate(items)]
    (folder / "peers.inter").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
