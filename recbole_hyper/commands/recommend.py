"""``recbole-hyper recommend RUN --users=all --output=recs.parquet``: what a finished run recommends."""

import argparse
from pathlib import Path
from typing import Any

from recbole_hyper.commands import options_of

HELP = "recommend items from a finished run: to a file for any number of users, or a few as a table"
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="output_dir of the run")
    parser.add_argument("--users", help="all (default), or a file of ids: .txt, .csv or .parquet")
    parser.add_argument("--histories", type=Path, help="table of interactions, text or parquet: user, item, time")
    parser.add_argument("--k", type=int, default=10, help="items for each (default 10)")
    parser.add_argument("--items", type=Path, help="file of the only items that may be recommended")
    parser.add_argument("--exclude", type=Path, help="file of items that may not be recommended")
    parser.add_argument("--exclude_seen", type=switch, default=True, help="leave out items of the history (True)")
    parser.add_argument("--unknown", choices=("skip", "error"), default="skip", help="users and items not known")
    parser.add_argument("--cold", choices=("popular", "error"), default="popular", help="users without known items")
    parser.add_argument("--output", type=Path, help="file to write, .parquet or .csv; a killed call goes on")
    parser.add_argument("--num_workers", type=int, default=1, help="processes for all users; --output is a folder then")
    parser.add_argument("--ray_address", help="running Ray cluster for --num_workers, host:port; default: starts one")


def switch(text: str) -> bool:
    """Return the value of an option that is true or false."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def main(arguments: argparse.Namespace) -> int:
    """Recommend; without ``--output`` a table for the first few users."""
    from recbole_hyper.evaluation.results import frame_table
    from recbole_hyper.runs.load import identity, load
    from recbole_hyper.serving import stream

    if arguments.users is not None and arguments.histories is not None:
        raise ValueError("give --users or --histories, one of the two")
    if arguments.num_workers != 1:
        return _by_workers(arguments)
    if arguments.output is not None:
        stream.require_kind(arguments.output)
    model = load(arguments.run)
    how = {"unknown": arguments.unknown, "cold": arguments.cold}
    if arguments.histories is not None:
        question = stream.about_histories(model, arguments.histories, **how)
    else:
        file = None if arguments.users in (None, "all") else Path(arguments.users)
        question = stream.about_users(model, file, **how)
    lists = _lists(arguments, model.config["ITEM_ID_FIELD"])
    options = {"k": arguments.k, "exclude_seen": arguments.exclude_seen, **lists}
    if arguments.output is None:
        asked = question.part(0, min(_SHOWN, question.n))
        found = model.answer(asked, arguments.k, arguments.exclude_seen, model.allowed(**lists))
        print(frame_table(found))
        print(f"{len(asked)} of {question.n} users; --output=FILE.parquet writes all")
        stream.tell_skipped(asked.unknown_items, asked.unknown_users)
        return 0
    there = stream.write_recommendations(
        model, question, arguments.output, options=options, identity=identity(arguments.run)
    )
    if there:
        print(f"went on after {there} parts of an earlier call")
    print(f"{question.n} users")
    print(arguments.output)
    return 0


def _by_workers(arguments: argparse.Namespace) -> int:
    """Recommend to all users by several processes, into a folder of parquet files."""
    from recbole_hyper.runs.batch import recommend_all
    from recbole_hyper.runs.folder import read_begun
    from recbole_hyper.serving.stream import KINDS

    if arguments.users not in (None, "all") or arguments.histories is not None:
        raise ValueError("--num_workers recommends to all users of the run; leave --users and --histories out")
    if arguments.output is None or arguments.output.suffix in KINDS:
        raise ValueError("--num_workers writes parquet files into a folder; name one by --output=FOLDER")
    field = read_begun(Path(arguments.run)).get("ITEM_ID_FIELD", "item_id")
    options = options_of(recommend_all, arguments) | _lists(arguments, field)
    files = recommend_all(arguments.run, **options)
    print(f"{len(files)} files in {arguments.output}")
    return 0


def _lists(arguments: argparse.Namespace, field: str) -> dict[str, Any]:
    """Return the only items, and those left out, from the files that name them; ``field`` is the run's item_id."""
    from recbole_hyper.serving.stream import read_id_file

    given = {"items": arguments.items, "exclude": arguments.exclude}
    return {name: None if file is None else read_id_file(file, field, "item_id") for name, file in given.items()}
