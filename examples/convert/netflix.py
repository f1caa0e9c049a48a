"""Netflix Prize, a line ``12:`` for a film above user,rating,date: TARGET.csv combined_data_*.txt"""

import sys

import pandas as pd

target, *sources = sys.argv[1:]
lines = pd.concat([pd.read_csv(source, names=["user_id", "rating", "date"], dtype=str) for source in sources])
films = lines["user_id"].str.endswith(":")
lines["item_id"] = lines["user_id"].where(films).str.rstrip(":").ffill()
lines[~films].to_csv(target, index=False)
