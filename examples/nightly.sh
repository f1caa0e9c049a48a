#!/bin/sh
# Every night: new orders, a warm start, a check on the orders of the last day, a switch. The container of compose.yaml, which
# serves models/current, takes the new model between two requests.
set -eu
cd "${SHOP:-/srv/shop}"
day=$(date +%F)
before=$(readlink models/current)
yesterday=$(date --date=yesterday +%F)

recbole-hyper prepare "shop-$day" --source=orders.csv
recbole-hyper run --init_from="models/$before" --dataset="shop-$day" --output_dir="models/$day"
# both models on the newest orders, for the log of the night
for run in "$before" "$day"; do
    recbole-hyper evaluate "models/$run" --data=orders.csv --since="$yesterday" || true
done
ln -sfn "$day" models/next
mv -T models/next models/current
recbole-hyper recommend models/current --k=20 --catalogue=models/catalogue.csv --where="stock > 0" --output=recs.parquet
