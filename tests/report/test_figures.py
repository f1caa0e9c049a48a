"""A line joins only runs that differ in its axis, and no legend names two things alike."""

from pathlib import Path

from recbole_hyper.report.collect import collect
from recbole_hyper.report.figures import curve_figure, parameter_figure
from recbole_hyper.report.tables import entry_labels
from tests.report.conftest import write_sweep


def test_no_legend_names_two_things_alike(sizes: Path) -> None:
    found = collect([sizes])
    long = [entry for entry in found.entries if entry.history]
    figures = [curve_figure(long, "b"), curve_figure([*long[:2], *long[:2]], "the same twice")]
    for figure in figures:
        assert figure is not None
        legend = (figure.legends or [figure.axes[0].get_legend()])[0]
        names = [text.get_text() for text in legend.get_texts()]
        assert names
        if figure is not figures[1]:
            assert len(set(names)) == len(names)
    assert entry_labels(long)[0] == "SASRecCE, hidden_size=16, train_batch_size=32, epochs=9, seed 1"


def test_lines_over_a_key_of_a_sweep_join_trials_that_differ_in_it_alone(tmp_path: Path) -> None:
    base = {"status": "finished", "seconds": 1.0, "MiB": 1}
    trials = [
        {**base, "score": score, "hidden_size": size, "more": {"n_layers": layers}}
        for layers, size, score in ((1, 16, 0.1), (1, 32, 0.2), (2, 16, 0.5), (2, 32, 0.4), (3, 64, 0.9))
    ]
    found = collect([write_sweep(tmp_path / "s", trials)])
    figure = parameter_figure(found.sweeps[0])
    assert figure is not None
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[0.1, 0.2], [0.5, 0.4]]
    assert figure.axes[0].get_xlabel() == "hidden_size"
