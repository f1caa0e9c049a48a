"""Models and settings of the installed RecBole, found without importing it."""

import functools
import importlib.metadata
import importlib.util
import logging
import re
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from recbole_hyper.yaml_files import recbole_folder

logger = logging.getLogger("recbole_hyper")

MODEL_FOLDERS = ("general_recommender", "sequential_recommender")
# models that need a later release of RecBole
LATER_MODELS = dict.fromkeys(("AsymKNN", "GRU4RecCPR", "SASRecCPR"), "1.2.1")
# "epochs: 300   # (int) The number of training epochs."
_COMMENT = re.compile(r"^(\w+):.*?# \((.+?)\)\s+(.*?)\s*$", flags=re.MULTILINE)


@functools.cache
def installed_recbole() -> ModuleSpec | None:
    """Return the spec of the installed RecBole, None if it is not in a separate folder.

    A fork in the current folder, which Python would find first, is one warning with its folder and version.
    """
    try:
        root = importlib.metadata.distribution("recbole").locate_file("")
    except importlib.metadata.PackageNotFoundError:
        return None
    installed, first = PathFinder.find_spec("recbole", [str(root)]), PathFinder.find_spec("recbole")
    if installed is not None and first is not None and first.origin and first.origin != installed.origin:
        text = Path(first.origin).read_text(encoding="utf-8", errors="replace")
        version = re.search(r"""__version__\s*=\s*["']([^"']+)""", text)
        logger.warning(
            "%s is another RecBole (version %s), which is not used: RecBole %s is; a model of the fork runs by "
            "--plugins=recbole/model/.../FILE.py",
            *(Path(first.origin).parent, version[1] if version else "unknown", importlib.metadata.version("recbole")),
        )
    return installed


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


def data_arguments() -> list[str]:
    """Return RecBole's keys that determine the data."""
    from recbole.utils.argument_list import dataset_arguments

    return list(dataset_arguments)


def later_model(name: str) -> str:
    """Return why a model that needs another release of RecBole is missing, "" for any other name."""
    release = LATER_MODELS.get(name)
    if release is None or name in recbole_models():
        return ""
    here = importlib.metadata.version("recbole")
    return f"{name} needs RecBole {release}, but {here} is installed: pip install --no-deps recbole=={release}"


def recbole_comments(model: str | None = None) -> dict[str, tuple[str, str]]:
    """Return the type and the meaning of each key that RecBole's YAML files, and that of ``model``, explain."""
    folder = recbole_folder() / "properties"
    files = [folder / "overall.yaml", folder / "dataset" / "sample.yaml", folder / "model" / f"{model}.yaml"]
    comments: dict[str, tuple[str, str]] = {}
    for file in files:
        if file.is_file():
            for key, kind, about in _COMMENT.findall(file.read_text(encoding="utf-8")):
                comments[key] = (kind, about.rstrip("."))
    return comments
