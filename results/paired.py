"""The difference of models over the same cases, OTHER minus RUN: 95 % interval, p-value, and what they cover.

python results/paired.py RUN OTHER [--part=valid] [--metric=ndcg@10]
python results/paired.py RUN,RUN,RUN OTHER,OTHER,OTHER      # several seeds of each
"""

import argparse
from pathlib import Path

from recbole_hyper.evaluation.pairs import compare_models, read_cases

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run")
parser.add_argument("other")
parser.add_argument("--part", default="valid", choices=("valid", "test"))
parser.add_argument("--metric", default="ndcg@10")
arguments = parser.parse_args()
cases = {
    name: {folder: read_cases(Path(folder), arguments.part) for folder in folders.split(",")}
    for name, folders in (("other", arguments.other), ("run", arguments.run))
}
(pair,) = compare_models(cases, arguments.metric)
print(f"{pair.difference:+.4f} ({pair.low:.4f} to {pair.high:.4f}), p = {pair.p_value:.4f}, over {pair.over}")
