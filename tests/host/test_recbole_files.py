"""What is read from the files of the installed RecBole."""

import importlib
import re

from recbole_hyper.host.recbole_files import recbole_comments, recbole_models
from recbole_hyper.yaml_files import recbole_folder


def test_every_model_has_its_class_in_its_file() -> None:
    models = recbole_models()
    assert len(models) > 60
    for name, file in models.items():
        assert re.search(rf"^class {name}\b", file.read_text(encoding="utf-8"), flags=re.MULTILINE), name
    assert models["GRU4Rec"].parent.name == "sequential_recommender"
    assert set(recbole_models(["knowledge_aware_recommender"])).isdisjoint(models)


def test_the_folder_is_that_of_the_import() -> None:
    assert str(recbole_folder() / "__init__.py") == importlib.import_module("recbole").__file__


def test_comments_have_type_and_meaning() -> None:
    comments = recbole_comments()
    assert comments["epochs"] == "The number of training epochs"
    assert "n_heads" not in comments
    assert recbole_comments("SASRec")["n_heads"].startswith("The number of attention heads")
    assert recbole_comments("NoSuchModel") == comments
