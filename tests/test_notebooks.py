"""The notebooks run from top to bottom, and what they show stays small."""

from pathlib import Path

import pytest

from tests.stranger import CHECKOUT

NOTEBOOKS = sorted((CHECKOUT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


def test_notebooks_show_what_they_gave_and_stay_small() -> None:
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        assert path.stat().st_size < 40_000, path.name
        assert '"output_type"' in path.read_text(encoding="utf-8"), path.name
