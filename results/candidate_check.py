"""How hard 99 uniform candidates are: popularity over all interactions (the test item's own too) ranks the last items.

    python results/candidate_check.py Beauty.txt Sports_and_Outdoors.txt      # the files of results/dual.md

A published value of the same ranking must lie between the two rows if its candidates were drawn alike.
"""

import sys

import numpy as np
import torch

from recbole_hyper.data.negatives import NegativeSampler
from recbole_hyper.evaluation.statistics import case_values

# MRR@100 is MRR over all 100 candidates
METRICS = ("hit@1", "hit@5", "hit@10", "ndcg@5", "ndcg@10", "mrr@100")

for path in sys.argv[1:]:
    with open(path) as file:
        sequences = [np.array(line.split()[1:], dtype=np.int64) for line in file]
    items = np.concatenate(sequences)
    offsets = np.cumsum([0, *map(len, sequences)])
    targets = torch.from_numpy(items[offsets[1:] - 1])
    rows = torch.arange(len(sequences))
    sampler = NegativeSampler(int(items.max()) + 1, offsets, items, generator=torch.Generator().manual_seed(0))
    drawn = sampler.bind(rows, rows, targets).per_position(99, replacement=False)
    counts = torch.from_numpy(np.bincount(items))
    own, others = counts[targets][:, None], counts[drawn]
    for ties, rank in (("last", (others >= own).sum(1).numpy()), ("first", (others > own).sum(1).numpy())):
        figures = (f"{metric} {case_values(metric, rank + 1).mean():.4f}" for metric in METRICS)
        print(path, f"ties {ties}:", "  ".join(figures))
