"""examples/serve.py answers as the run's own recommend, in a process that has neither torch nor this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recbole_hyper import recommend, run
from recbole_hyper.cli import main
from tests.conftest import SMALL

EXAMPLES = Path(__file__).parents[2] / "examples"

CLIENT = """
import json, sys
for name in ("torch", "recbole", "recbole_hyper"):
    sys.modules[name] = None  # importing it fails
sys.path.insert(0, sys.argv[1])
from fastapi.testclient import TestClient
import serve
answer = TestClient(serve.app).post("/recommend", json={"histories": json.loads(sys.argv[2])})
assert answer.status_code == 200, answer.text
print(answer.text)
"""


def test_the_example_recommends_what_the_run_does(
    random_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = tmp_path / "run", tmp_path / "served" / "model.onnx"
    run("SASRecCE", "random", config_dict={**SMALL, "data_path": str(random_data), "output_dir": str(folder)})
    capsys.readouterr()
    assert main(["export", str(folder), f"--output={model}", "--top_k=5", "--exclude_seen"]) == 0
    assert "opset 20, item_id_list item_length seen_items -> items scores" in capsys.readouterr().out
    # longer than MAX_ITEM_LIST_LENGTH: all of it is left out, its last part is read
    histories = [["i3"], ["i4", "i9", "i1"], [f"i{item}" for item in range(20)], ["i7", "nothing"], ["nothing"], []]
    environment = {**os.environ, "MODEL": str(model), "PYTHONPATH": ""}
    command = [sys.executable, "-c", CLIENT, str(EXAMPLES), json.dumps(histories)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    wanted = recommend(folder, sequences=[*histories[:3], ["i7"]], k=5)
    assert [best["item"] for row in answers for best in row] == wanted["item_id"].tolist()
    assert [best["score"] for row in answers for best in row] == pytest.approx(wanted["score"].tolist(), abs=1e-4)
    assert [len(row) for row in answers] == [5, 5, 5, 5, 0, 0]
