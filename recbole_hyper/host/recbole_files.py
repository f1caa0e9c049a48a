"""Models and settings of the installed RecBole, found without importing it."""

import re
from collections.abc import Sequence
from pathlib import Path

from recbole_hyper.yaml_files import recbole_folder

MODEL_FOLDERS = ("general_recommender", "sequential_recommender")
# "epochs: 300   # (int) The number of training epochs."
_COMMENT = re.compile(r"^(\w+):.*?# \(.+?\)\s+(.*?)\s*$", flags=re.MULTILINE)


def recbole_models(folders: Sequence[str] = MODEL_FOLDERS) -> dict[str, Path]:
    """Return the file of each RecBole model in ``folders``, by model name; default: general and sequential models.

    If two models have the same name, the one in the later folder wins.
    """
    yamls = {path.stem.lower(): path.stem for path in (recbole_folder() / "properties" / "model").glob("*.yaml")}
    files = {}
    for path in (path for folder in folders for path in (recbole_folder() / "model" / folder).glob("[!_]*.py")):
        name = yamls.get(path.stem)
        if name is None:  # Random has no YAML, so its class has the spelling of its name
            classes = re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            name = next((one for one in classes if one.lower() == path.stem), path.stem)
        files[name] = path
    return files


def recbole_comments(model: str | None = None) -> dict[str, str]:
    """Return the meaning of each key that RecBole's YAML files, and that of ``model``, explain."""
    files = [recbole_folder() / "properties" / name for name in ("overall.yaml", "dataset/sample.yaml")]
    files += (recbole_folder() / "properties" / "model").glob(f"{model}.yaml")
    found = (pair for file in files for pair in _COMMENT.findall(file.read_text(encoding="utf-8")))
    return {key: about.rstrip(".") for key, about in found}
