"""Commands on a finished run, on the device: none of them takes a tensor of the device for one of the host."""

import pytest

from recbole_hyper import run
from recbole_hyper.cli import main
from tests.devices.steps import small_keys, write_random

FILES = {"onnx": "model.onnx", "vectors": "items.parquet"}


@pytest.mark.parametrize(
    ("model", "keys", "formats"),
    [
        ("FMLPRecMemory", {"memory_ease": True}, ("onnx",)),
        ("HSASRecCE", {"curvature": "learn"}, ("vectors",)),
        ("EASER", {}, ()),
    ],
)
def test_every_command_takes_a_run(model, keys, formats, tmp_path, capsys, foreign) -> None:
    data, folder = write_random(tmp_path / "data"), str(tmp_path / "run")
    result = run(model, "random", config_dict=small_keys(model, data, output_dir=folder, **keys))
    assert result["device"]["type"] == foreign.type
    commands = [
        ["similar", folder, "i1", "i2"],
        ["recommend", folder, "--users=u1,u2", "--k=3"],
        ["recommend", folder, f"--output={tmp_path / 'all.csv'}", "--k=3"],
        ["evaluate", folder, "--topk=[5]"],
        ["report", folder, f"--output={tmp_path / 'report'}"],
        *(["export", folder, f"--format={one}", f"--output={tmp_path / FILES[one]}"] for one in formats),
    ]
    for command in commands:
        assert main(command) == 0, f"{command}: {capsys.readouterr().err}"
