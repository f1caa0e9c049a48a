"""result.json as a report reads it: the right kind of value in every place, or one line that says what is wrong."""

from pathlib import Path
from typing import Any

from recbole_hyper.files import read_json

_NUMBER, _TEXT, _MAPPING = (int, float, type(None)), (str, type(None)), (dict, type(None))
NEEDED = ("model", "dataset", "config")
OF_NUMBERS = ("valid", "test", "seconds", "peak_memory_bytes_per_phase")
# what a report reads of a result; the first three say that it is one of this program
FIELDS: dict[str, tuple[type, ...]] = {
    **{"model": (str,), "dataset": (str,), "config": (dict,), "curvature_interval": (list, type(None))},
    **dict.fromkeys(("protocol", "commit", "data_fingerprint"), _TEXT),
    **dict.fromkeys(("eval_args", "versions", *OF_NUMBERS), _MAPPING),
    **dict.fromkeys(("peak_memory_bytes", "best_valid_score", "parameters", "epochs", "seed", "curvature"), _NUMBER),
}


def read_result(path: Path) -> dict[str, Any]:
    """Read the result of a run; ValueError, which names the file, where it is damaged or of another program."""
    result = read_json(path)
    if missing := [name for name in NEEDED if name not in result]:
        raise ValueError(f"{path} is no result of a run: {', '.join(missing)} missing")
    for name, kind in FIELDS.items():
        if not isinstance(result.get(name), kind) and name in result:
            raise ValueError(f"{path} is no result of a run: {name} is a {type(result[name]).__name__}")
    for name in OF_NUMBERS:
        wrong = [key for key, value in (result.get(name) or {}).items() if not isinstance(value, _NUMBER)]
        if wrong:
            raise ValueError(f"{path} is no result of a run: {name}.{wrong[0]} is no number")
    interval = result.get("curvature_interval")
    if interval is not None and not (len(interval) == 2 and all(isinstance(end, int | float) for end in interval)):
        raise ValueError(f"{path} is no result of a run: curvature_interval is {interval!r}")
    return {name: value for name, value in result.items() if value is not None or name not in (*OF_NUMBERS, "versions")}
