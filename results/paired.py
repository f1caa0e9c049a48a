"""The difference of finished runs over the same cases, OTHER minus RUN: 95 % interval over users, p-value.

python results/paired.py RUN OTHER [--part=valid] [--metric=ndcg@10]
python results/paired.py RUN,RUN OTHER,OTHER      # several seeds, in the same order: cases pooled, users drawn
"""

import argparse
from pathlib import Path

from recbole_hyper.evaluation.statistics import compare_cases, pooled_cases

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("run")
parser.add_argument("other")
parser.add_argument("--part", default="valid", choices=("valid", "test"))
parser.add_argument("--metric", default="ndcg@10")
arguments = parser.parse_args()
first, second = (
    pooled_cases({number: Path(folder) for number, folder in enumerate(folders.split(","))}, arguments.part)
    for folders in (arguments.other, arguments.run)
)
print(compare_cases(first, second, arguments.metric))
