"""Commands on finished runs: ``evaluate``, ``export``, ``report``, ``serve`` and ``similar``."""

import argparse
from pathlib import Path

from recbole_hyper.commands import argument, command, finished_run, options_of, words
from recbole_hyper.settings import COMMON_OF_RANKING


@command(
    "evaluate a finished run again, with other candidates, metrics or segments, or on new interactions",
    *finished_run(),
    argument("--data", help="csv or parquet with newer interactions, which become the test cases"),
    argument("--since", help="date or time of the first test case; default: the end of the run's data"),
    argument("--segments", type=words, default="", help="such as history_length,user.new,item.COLUMN: metrics of each"),
    example="evaluate saved/first --segments=history_length,item_popularity",
    keys=COMMON_OF_RANKING,
)
def evaluate(arguments: argparse.Namespace) -> None:
    """Evaluate again with the settings in ``arguments.keys``."""
    from recbole_hyper.runs.evaluate import evaluate

    evaluate(arguments.run, arguments.keys, data=arguments.data, since=arguments.since, segments=arguments.segments)


@command(
    "export a finished run as an ONNX graph, a torch program, or item vectors for a vector database",
    *finished_run(),
    argument("--format", default="onnx", help="onnx, program (torch.export) or vectors; default onnx"),
    argument("--output", required=True, help="file: .onnx, .pt2 or .parquet; NAME.json beside it describes it"),
    argument("--top_k", type=int, help="number of items to recommend; without it only the encoder is exported"),
    argument("--exclude_seen", action="store_true", help="with --top_k: add an input with items to leave out"),
    example="export saved/first --top_k=20 --output=first.onnx",
)
def export(arguments: argparse.Namespace) -> None:
    """Write the files and print their paths."""
    from recbole_hyper.models import MODULES
    from recbole_hyper.registry import resolve
    from recbole_hyper.runs.folder import read_result
    from recbole_hyper.runs.load import load, read_run
    from recbole_hyper.serving.export import check_model, check_request, description_of, export

    options = {"top_k": arguments.top_k, "exclude_seen": arguments.exclude_seen}
    path = check_request(arguments.format, arguments.output, **options)
    read_run(arguments.run)  # refuses code that is not trusted
    result = read_result(Path(arguments.run))
    # loading a model with a million items takes minutes
    if (model := result.get("model")) in MODULES:
        check_model(resolve("models", model), result["n_items"], arguments.format, arguments.top_k)
    run = load(arguments.run)
    length = int(run.config["MAX_ITEM_LIST_LENGTH"])
    content = export(run.model, run.store.item_tokens, length, path, format=arguments.format, **options)
    if "opset" in content:
        print(f"opset {content['opset']}, {' '.join(content['inputs'])} -> {' '.join(content['outputs'])}")
    elif "score" in content:
        print(f"{content['n_items']} vectors of {content['dimension']}: {content['query']}; score = {content['score']}")
    print(path)
    print(description_of(path))


@command(
    "write an HTML page, csv, markdown and figures about runs and sweeps",
    argument("folders", nargs="+", metavar="DIR", help="folders of runs or sweeps, or folders above them"),
    argument("--output", help="folder of the report; default: report/ in the first DIR"),
    example="report saved",
)
def report(arguments: argparse.Namespace) -> None:
    """Write the report and print its path."""
    from recbole_hyper.report.build import build_report

    print(build_report(arguments.folders, arguments.output or Path(arguments.folders[0]) / "report"))


@command(
    "serve a finished run over HTTP: recommend, similar, score, metrics, and a page about the model",
    *finished_run("output_dir of the run, or a link to it"),
    argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"),
    argument("--port", type=int, default=8000, help="port (default 8000)"),
    argument("--workers", type=int, default=1, help="processes (default 1)"),
    argument("--catalogue", help="table of items for rules on their columns: text or parquet"),
    argument("--new_items", help="table with features of items that the run does not know: they are recommended too"),
    argument("--item_column", help="column of item ids in these two tables, if its name is not a usual one"),
    example="serve saved/first --port=8000",
)
def serve(arguments: argparse.Namespace) -> None:
    """Serve until the process is stopped."""
    from recbole_hyper.runs.serve import serve

    serve(**options_of(serve, arguments))


@command(
    "list the items that are most similar to given items, according to a finished run",
    *finished_run(),
    argument("items", nargs="+", metavar="ITEM", help="original item id"),
    argument("--k", type=int, default=10, help="neighbors of each item (default 10)"),
    example="similar saved/first 50 181",
)
def similar(arguments: argparse.Namespace) -> None:
    """Print a row per neighbor, and the measure of similarity."""
    from recbole_hyper.evaluation.tables import frame_table
    from recbole_hyper.runs.load import load

    similar = load(arguments.run).similar_items(arguments.items, arguments.k)
    print(frame_table(similar))
    print(f"score: {similar.attrs['measure']}")
