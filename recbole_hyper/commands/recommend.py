"""``recbole-hyper recommend RUN --users=all --output=recs.parquet``: the recommendations of a finished run."""

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recbole_hyper.commands import argument, command, finished_run, options_of, words

_SHOWN = 5
# of files of ids
_SUFFIXES = (".txt", ".csv", ".tsv", ".parquet", ".gz")

logger = logging.getLogger("recbole_hyper")


def switch(text: str) -> bool:
    """Return the value of an option that is true or false."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


@command(
    "recommend items with a finished run: to a file for any number of users, or as a table for a few",
    *finished_run(),
    argument("--users", help="all (default), ids as anna,ben, or a file of ids (.txt, .csv, .parquet), also as @FILE"),
    argument("--histories", type=Path, help="table of interactions, text or parquet, with user, item and time"),
    argument("--k", type=int, help="items per user; default: 10, or all items if there are fewer"),
    argument("--items", help="items that may be recommended: ids or a file, as for --users; new ones need features"),
    argument("--exclude", help="items to leave out: ids or a file; a column of users excludes them per user"),
    argument("--exclude_seen", type=switch, help="leave out items of the history; default: as in the run"),
    argument("--unknown", choices=("skip", "error"), default="skip", help="skip or refuse unknown users and items"),
    argument("--cold", choices=("popular", "error"), default="popular", help="lists of users without known items"),
    argument("--columns", help="columns of the histories: user_id=...,item_id=...[,timestamp=...]; default: guessed"),
    argument("--time_format", help="format of their times, as for prepare; default: guessed"),
    argument("--missing_ids", help="for csv: drop or keep ids such as NA"),
    argument("--catalogue", type=Path, help="table of items for the rules below: text or parquet"),
    argument("--item_column", help="column of item ids in the catalogue, if its name is not a usual one"),
    argument("--where", default="", help="condition on items: \"category != 'Garden' and price < 50\""),
    argument("--at_most", default="", help="most items with the same value of a column: {category: 2}"),
    argument("--at_least", default="", help="fewest items that meet a condition: {interactions = 0: 2}"),
    argument("--boost", type=Path, help="table of items with a column boost, which is added to their scores"),
    argument("--diversity", type=float, default=0.0, help="0 to 1: how much the items of a list should differ"),
    argument("--diversity_by", default="", help="column by which items are similar; default: item vectors"),
    argument("--unfinished", action="store_true", help="use a run whose training was stopped"),
    argument("--output", type=Path, help="file to write, .parquet or .csv; repeat a killed command to resume it"),
    example="recommend saved/first --users=196,186 --k=5",
)
def recommend(arguments: argparse.Namespace) -> int:
    """Recommend; without ``--output`` a table for the first few users."""
    from recbole_hyper.commands.prepare import named_columns
    from recbole_hyper.data.tables import inputs
    from recbole_hyper.data.tables.formats import Layout
    from recbole_hyper.evaluation.tables import frame_table
    from recbole_hyper.runs.folder import identity
    from recbole_hyper.runs.load import load
    from recbole_hyper.serving import stream

    if arguments.users is not None and arguments.histories is not None:
        raise ValueError("--users and --histories exclude each other; leave one out")
    users = None if arguments.users == "all" else ids_or_file("users", arguments.users)
    for name in ("items", "exclude"):
        setattr(arguments, name, ids_or_file(name, getattr(arguments, name)))
    if arguments.output is not None:
        paths = (getattr(arguments, name) for name in ("histories", "items", "exclude", "catalogue", "boost"))
        stream.require_output(arguments.output, (path for path in (users, *paths) if isinstance(path, Path)))
    model = load(arguments.run, unfinished=arguments.unfinished)
    added = _add_items(model, arguments)
    how = {"unknown": arguments.unknown, "cold": arguments.cold}
    of_file = {key: getattr(arguments, key) for key in ("time_format", "missing_ids")}
    layout = Layout(named_columns(arguments.columns), **of_file)
    if arguments.histories is not None:
        read = inputs.read_history_file(arguments.histories, model.names, layout, model.unit)
        print(f"histories sorted {read.order}")
        query = model.query(histories=read, **how)
    else:
        ids = inputs.read_id_file(users, model.names, "user_id", layout) if isinstance(users, Path) else users
        query = model.query(users=stream.all_users(model) if ids is None else ids, **how)
        if isinstance(users, list):
            _name_unknown(users, query.owners == 0)
    if arguments.catalogue is not None:
        model.use_catalogue(inputs.read_table(arguments.catalogue), arguments.item_column)
    rules = {name: getattr(arguments, name) for name in ("where", "diversity", "diversity_by")}
    rules |= {name: _mapping(name, getattr(arguments, name)) for name in ("at_most", "at_least")}
    if arguments.boost is not None:
        rules["boost"] = inputs.read_boosts(arguments.boost, model.names)
    lists = {
        "k": min(10, model.n_recommendable) if arguments.k is None else arguments.k,
        "items": _read(arguments.items, lambda file: inputs.read_id_file(file, model.names, "item_id")),
        "exclude": _read(arguments.exclude, lambda file: inputs.read_exclusions(file, model.names)),
    }
    plan = model.catalogue.plan(**options_of(model.catalogue.plan, arguments) | lists | {"rules": rules})
    n = len(query)
    if arguments.output is None:
        print(frame_table(model.answer(query[:_SHOWN], plan)))
        print(f"{min(_SHOWN, n)} of {n} users; --output=FILE.parquet writes all")
        stream.warn_unknown(query, plan)
        return 0
    of_model = identity(arguments.run) | added
    resumed = stream.write_recommendations(model, query, arguments.output, plan=plan, identity=of_model)
    if resumed:
        print(f"resumed after {resumed} parts of an earlier call")
    print(f"{n} users", arguments.output, sep="\n")
    return 0


def _add_items(model: Any, arguments: argparse.Namespace) -> dict[str, str]:
    """Add the new items of ``--items`` to ``model``, if the table has all features that the model reads.

    Returns the digest of the file, {} if no items are added.
    """
    from recbole_hyper.data.tables.inputs import read_table
    from recbole_hyper.files import file_digest

    file, features = arguments.items, set(model.scorer.features)
    if not isinstance(file, Path) or not features or file.suffix == ".txt":
        return {}
    table, before = read_table(file), len(model.item_ids)
    if missing := features - set(table.column_names):
        if missing != features:
            logger.warning("--items=%s: new items need its columns %s too", file, ", ".join(sorted(missing)))
        return {}
    model.add_items(table)
    print(f"{len(model.item_ids) - before} new items, scored by their features")
    return {"items": file_digest(file)}


def ids_or_file(name: str, text: str | None) -> Path | list[str] | None:
    """Return the file or the ids that an option names, None without the option.

    A file is a path that exists, or any path after ``@``: ids may have dots and slashes. ValueError for an empty option
    or a missing file.
    """
    if text is None:
        return None
    path = Path(text.removeprefix("@"))
    if text.startswith("@") and not path.is_file():
        raise ValueError(f"--{name}={text}: the file {path} does not exist")
    if path.is_file():
        return path
    if not (ids := words(text)):
        raise ValueError(f"--{name}={text}: no id; write ids as --{name}=a,b, or a file as --{name}=@FILE")
    return ids


def _read(given: Path | list[str] | None, read: Callable[[Path], Any]) -> Any:
    return read(given) if isinstance(given, Path) else given


def _name_unknown(users: list[str], unknown: Any) -> None:
    """Warn about typed ids that the data do not have; ValueError if all of them look like names of files."""
    wrong = [user for user, missing in zip(users, unknown, strict=True) if missing]
    if wrong and len(wrong) == len(users) and all(Path(one).suffix in _SUFFIXES for one in wrong):
        raise ValueError(f"--users: there is neither a file nor a user {wrong[0]!r}")
    if wrong:
        names = ", ".join(map(repr, wrong[:_SHOWN])) + (" ..." if len(wrong) > _SHOWN else "")
        logger.warning("--users: not in the data: %s", names)


def _mapping(name: str, text: str) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(text) if text else {}
    except yaml.YAMLError as error:
        raise ValueError(f"--{name}={text!r} is not a mapping: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(values, dict):
        raise ValueError(f"--{name}={text!r}: a mapping is needed, such as {{category: 2}}")
    return values
