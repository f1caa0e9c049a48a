"""What a reader meets and a run costs, counted: docs/architecture.md names the same files."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from recbole_hyper import cli, registry, run, settings, values
from recbole_hyper.config import Config
from recbole_hyper.models.base import build_part
from tests.conftest import cycle_rows, write_inter
from tests.raising import refused

PACKAGE = f"{Path(settings.__file__).parent}/"
VALUE = 0.2537


def traced(note: Callable[[Any, str, Any], None], work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns; ``note`` sees every call and return."""
    sys.setprofile(note)
    try:
        return work()
    finally:
        sys.setprofile(None)


@pytest.fixture
def sixty_users(tmp_path: Path) -> dict[str, Any]:
    """Return the keys of a run of one epoch on 60 users."""
    folder = write_inter(tmp_path / "data", "cycle", cycle_rows(users=60))
    keys = {"data_path": str(folder), "output_dir": str(tmp_path / "run"), "epochs": 1, "topk": [5, 10]}
    return {**keys, "train_batch_size": 32, "hidden_size": 16, "show_progress": False}


@pytest.mark.usefixtures("growing_trials")
def test_calls_of_a_run(sixty_users: dict[str, Any]) -> None:
    calls = Counter[str]()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_filename.removeprefix(PACKAGE)] += 1

    traced(note, lambda: run("SASRecCE", "cycle", config_dict=sixty_users))
    assert 1_000 < calls.total() <= 12_000, calls.most_common(20)


def count_instances(part: type, counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count how often a part is built; its options stay those of its constructor."""
    options, build = part.options(), part.__init__  # type: ignore[attr-defined,misc]

    def constructor(self: Any, *arguments: Any, **more: Any) -> None:
        counts[part.__name__] += type(self) is part
        build(self, *arguments, **more)

    monkeypatch.setattr(part, "__init__", constructor)
    monkeypatch.setattr(part, "options", lambda *_: options)


def test_a_value_is_checked_once_and_a_part_is_built_once(sixty_users, monkeypatch) -> None:
    counts, allows = Counter[str](), values.allows

    def counted(kind: Any, value: Any) -> bool:
        counts["checked"] += value == VALUE
        return allows(kind, value)

    for module in [module for name, module in sys.modules.items() if name.startswith("recbole_hyper")]:
        if vars(module).get("allows") is allows:  # getattr would import what is loaded late
            monkeypatch.setattr(module, "allows", counted)
    parts = [
        registry.resolve(*one) for one in (("encoders", "transformer"), ("geometry", "euclidean"), ("losses", "ce"))
    ]
    for part in parts:
        count_instances(part, counts, monkeypatch)
    run("SASRecCE", "cycle", config_dict={**sixty_users, "temperature": VALUE})
    assert counts == {"checked": 1, **{part.__name__: 1 for part in parts}}


def test_files_that_a_key_passes_from_the_command_line_to_the_part() -> None:
    """In ``own`` files the value itself is a variable; others pass on a mapping of all keys."""
    own, mapped = set[str](), set[str]()

    def note(frame: Any, event: str, argument: Any) -> None:
        for place in (frame, frame.f_back):
            if place is None or not place.f_code.co_filename.startswith(PACKAGE):
                continue
            file = place.f_code.co_filename.removeprefix(PACKAGE)
            for value in place.f_locals.values():
                if isinstance(value, str | float) and value in (VALUE, str(VALUE)):
                    own.add(file)
                if isinstance(value, Config):
                    value = getattr(value, "final_config_dict", {})
                if isinstance(value, Mapping) and value.get("temperature") in (VALUE, str(VALUE)):
                    mapped.add(file)

    model = registry.resolve("models", "SASRecCE")
    Config(model, config_dict={"interactions": "given"})  # imports are not traced

    def way() -> Any:
        typed = cli._parse(["run", "--model=SASRecCE", f"--temperature={VALUE}"]).keys
        return build_part("geometry", Config(model, config_dict={**typed, "interactions": "given"}))

    assert traced(note, way).temperature == VALUE
    assert sorted(own) == ["cli.py", "config/binding.py", "geometry/euclidean.py", "options.py", "values.py"]
    assert len(own | mapped) <= 10, sorted(own | mapped)


def test_processor_time_of_a_configuration() -> None:
    Config("SASRecCE", config_dict={"interactions": "given"})
    seconds = []
    for _ in range(5):
        start = time.process_time()
        Config("SASRecCE", config_dict={"interactions": "given"})
        seconds.append(time.process_time() - start)
    assert min(seconds) <= 0.030


def test_a_configuration_looks_at_no_other_part_unless_a_key_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from recbole_hyper.config import resolve

    resolve.all_known_keys.cache_clear()
    monkeypatch.setattr(settings, "declared", lambda: pytest.fail("all parts were imported"))
    config = Config("SASRecCE", config_dict={"interactions": "given", "n_layers": 1, "embedding_size": 3})
    assert config.ignores("embedding_size")
    assert not config.ignores("n_layers")
    config = Config("EASER", config_dict={"interactions": "given", "epochs": 3})
    assert config.ignores("epochs")
    with refused(pytest.fail.Exception, "all parts"):
        Config("SASRecCE", config_dict={"interactions": "given", "sce_mix": True})
