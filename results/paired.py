"""The difference of two finished runs over the same cases, OTHER minus RUN: 95 % interval over users, p-value.

python results/paired.py RUN OTHER [--part=valid] [--metric=ndcg@10]
"""

import argparse
from pathlib import Path

from recbole_hyper.evaluation.statistics import compare_runs

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run", type=Path)
parser.add_argument("other", type=Path)
parser.add_argument("--part", default="valid", choices=("valid", "test"))
parser.add_argument("--metric", default="ndcg@10")
arguments = parser.parse_args()
print(compare_runs(arguments.other, arguments.run, arguments.metric, arguments.part))
