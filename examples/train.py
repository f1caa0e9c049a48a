"""Train and rank HSASRecCE on one page: histories, an encoder, a Poincare head, exact cross-entropy, leave-one-out.

No configuration and no run folder, only parts that you can use in your own code::

    python -m examples.train orders.csv --epochs=20

The csv file has the columns user_id, item_id and timestamp. ``recbole-hyper run --model=HSASRecCE`` trains the same
model, stops early, and writes a folder that recommends.
"""

import argparse
import copy

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from recbole_hyper.batches.loader import windows
from recbole_hyper.curvature.estimate import estimate_curvature
from recbole_hyper.data.sequences import SequenceStore
from recbole_hyper.encoders.base import initialize, supervised_states
from recbole_hyper.encoders.transformer import TransformerEncoder
from recbole_hyper.evaluation.metrics import compute_metrics
from recbole_hyper.evaluation.ranking import rank_cases
from recbole_hyper.geometry.head import OutputHead
from recbole_hyper.geometry.poincare import Poincare
from recbole_hyper.losses.ce import CrossEntropy
from recbole_hyper.protocols.leave_one_out import LeaveOneOut
from recbole_hyper.types import Cases, Prefixes, Split, gather

LENGTH = 50  # the newest items that the encoder reads


class HSASRecCE(nn.Module):
    """A transformer over the items, and a Poincare head that shares their vectors."""

    def __init__(self, n_items: int, width: int, curvature: float) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items, width, padding_idx=0)
        initialize(self.items, rule="xavier")
        self.encoder = TransformerEncoder(self.items, max_length=LENGTH)
        self.head = OutputHead(Poincare(), self.items.weight, offset=True, theta=curvature)
        self.loss = CrossEntropy()

    def forward(self, items: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        """Return the mean loss of all positions that have a target."""
        states, answers, _ = supervised_states(self.encoder, items, targets, lengths)
        return self.loss(states, answers, self.head)

    @torch.no_grad()
    def scores(self, cases: Prefixes) -> Tensor:
        """Return the scores (n, n_items) of all items after each history."""
        items, lengths = histories(cases)
        return self.head.logits(self.encoder.last(items, lengths))


def read(file: str) -> SequenceStore:
    """Return the interactions of a csv file, each user's in time order; ids count from 1, as 0 is padding."""
    frame = pd.read_csv(file)
    users, user_tokens = pd.factorize(frame["user_id"].astype(str))
    items, item_tokens = pd.factorize(frame["item_id"].astype(str))
    tokens = (np.array(["[PAD]", *names]) for names in (user_tokens, item_tokens))
    return SequenceStore.from_interactions(users + 1, items + 1, frame["timestamp"], *tokens)


def histories(cases: Prefixes) -> tuple[Tensor, Tensor]:
    """Return the newest items (n, L) of each history, right-padded with 0, and their numbers (n,)."""
    starts = np.maximum(cases.starts, cases.ends - LENGTH)
    lengths = cases.ends - starts
    items = gather(cases.store, cases.rows, starts, cases.ends, int(lengths.max()))
    return torch.from_numpy(items), torch.from_numpy(lengths)


def batches(split: Split, size: int, generator: np.random.Generator) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the batches of an epoch: items and targets (B, L), and lengths (B,); a target is the item that follows."""
    parts = windows(split.store, split.train_lengths, LENGTH)
    order, found = generator.permutation(len(parts)), []
    for start in range(0, len(parts), size):
        part = parts[order[start : start + size]]
        part = part[np.argsort(part.ends - part.starts)]  # similar lengths side by side, for less padding
        items, lengths = histories(part)
        targets = gather(part.store, part.rows, part.starts + 1, part.ends + 1, items.shape[1])
        found.append((items, torch.from_numpy(targets), lengths))
    return found


def measure(model: HSASRecCE, cases: Cases) -> dict[str, float]:
    """Return NDCG@10 and Hit@10 of the targets among all items that the user has not seen."""
    model.eval()
    n_items = cases.store.n_items
    ranks = rank_cases(model.scores, cases, n_items=n_items, k=10)
    return compute_metrics(ranks, ["NDCG", "Hit"], [10], 4, n_items=n_items - 1, n_users=cases.store.n_rows)


def train(split: Split, *, epochs: int = 20, width: int = 64, rate: float = 1e-3, seed: int = 0) -> HSASRecCE:
    """Return the model with the weights of the epoch that is best on validation."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    curvature = estimate_curvature(split.store.matrix(split.train_lengths), seed=seed).curvature
    model = HSASRecCE(split.store.n_items, width, curvature)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    best, weights = -1.0, model.state_dict()
    for epoch in range(epochs):
        model.train()
        losses = []
        for items, targets, lengths in batches(split, 128, generator):
            loss = model(items, targets, lengths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        score = measure(model, split.valid)["ndcg@10"]
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, validation NDCG@10 {score:.4f}")
        if score > best:
            best, weights = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return model


def main() -> None:
    """Train on a csv file, and print the metrics of the test."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    split = LeaveOneOut("valid_and_test").split(read(arguments.file))
    print("test:", measure(train(split, epochs=arguments.epochs), split.test))


if __name__ == "__main__":
    main()
