"""The difference of two finished runs over the same cases, with its interval.

python results/paired.py RUN OTHER [valid|test] [metric]      # OTHER minus RUN, 95 % interval over users, p-value
"""

import sys
from pathlib import Path

from recbole_hyper.evaluation.statistics import compare_runs

first, second = Path(sys.argv[1]), Path(sys.argv[2])
part, metric = (sys.argv[3:] + ["valid", "ndcg@10"][len(sys.argv) - 3 :])[:2]
found = compare_runs(second, first, metric, part)
print(found)
