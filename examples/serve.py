"""Recommendations over HTTP from an exported model, with FastAPI and onnxruntime; neither torch nor recbole_hyper.

recbole-hyper export saved/shop --output=shop.onnx --top_k=10 --exclude_seen
pip install fastapi uvicorn onnxruntime
MODEL=shop.onnx uvicorn --app-dir examples serve:app
curl localhost:8000/recommend -H "content-type: application/json" -d '{"histories": [["lamp", "chair"]]}'
"""

import json
import os
from pathlib import Path

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel

MODEL = Path(os.environ.get("MODEL", "model.onnx"))
session = onnxruntime.InferenceSession(MODEL)
about = json.loads(MODEL.with_name(f"{MODEL.name}.json").read_text(encoding="utf-8"))
ids = ["", *about["item_ids"]]  # number 0 is padding
numbers = {item: number for number, item in enumerate(ids)}
app = FastAPI(title=about["model"])


class Request(BaseModel):
    histories: list[list[str]]  # item ids, oldest first
    times: list[list[float]] | None = None  # of the items, for a model that reads times


def padded(rows: list[list], kind: type = np.int64) -> np.ndarray:
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows], dtype=kind)


@app.post("/recommend")
def recommend(request: Request) -> list[list[dict]]:
    """Return the best items after each history; unknown items are skipped, without a known one there are none."""
    times = request.times or [[0.0] * len(history) for history in request.histories]
    known = [
        [(numbers[item], time) for item, time in zip(*one, strict=True) if item in numbers and item]
        for one in zip(request.histories, times, strict=True)
    ]
    rows = [[number for number, _ in one] for one in known]
    asked = [row or [1] for row in rows]
    if not asked:
        return []
    recent = [row[-about["max_length"] :] for row in asked]
    lengths = np.array([len(row) for row in recent], dtype=np.int64)
    given = {"item_id_list": padded(recent), "item_length": lengths, "seen_items": padded(asked)}
    when = [[time for _, time in one][-about["max_length"] :] or [0.0] for one in known]
    given["timestamp_list"] = padded(when, np.float64)
    items, scores = session.run(["items", "scores"], {name: given[name] for name in about["inputs"]})
    return [
        [{"item": ids[i], "score": float(s)} for i, s in zip(*best, strict=True) if i] if row else []
        for row, *best in zip(rows, items, scores, strict=True)
    ]
