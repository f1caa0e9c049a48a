"""MIND: a row for each news item that was clicked (N12-1) of those shown: behaviors.tsv TARGET.csv"""

import sys

import pandas as pd

source, target = sys.argv[1:]
rows = pd.read_csv(source, sep="\t", names=["impression", "user_id", "time", "history", "shown"])
rows["time"] = pd.to_datetime(rows["time"], format="%m/%d/%Y %I:%M:%S %p")
rows["item_id"] = rows["shown"].str.split()
rows = rows[["user_id", "item_id", "time"]].explode("item_id")
rows = rows[rows["item_id"].str.endswith("-1", na=False)]
rows.assign(item_id=rows["item_id"].str.removesuffix("-1")).to_csv(target, index=False)
