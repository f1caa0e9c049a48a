"""Which settings a model reads, and in which ones runs differ."""

from recbole_hyper.report.differences import differing, legend_text, read_settings


def test_reading_of_settings() -> None:
    config = {"curvature": 1.0, "reg_weight": 3.0, "output_dir": "x", "train_batch_size": 2}
    assert read_settings("EASER", config) == {"reg_weight": 3.0}
    assert read_settings("SASRecCE", config) == {key: config[key] for key in config if key != "output_dir"}
    assert read_settings("a foreign model", config) == read_settings("SASRecCE", config)
    assert differing([{"a": 1, "hidden_size": 2, "b": [1]}, {"a": 1, "hidden_size": 3}]) == ["hidden_size", "b"]
    assert legend_text("cost $x$, " + "a=1, " * 20).count("\n") == 2
    assert r"\$x\$" in legend_text("$x$")
