"""``recbole-hyper export RUN --format=onnx --output=model.onnx``: a finished run for programs without this package."""

import argparse

from recbole_hyper.commands import add_run

HELP = "write a finished run as an ONNX graph, a torch program, or item vectors for a vector database"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--format", default="onnx", help="onnx, program (torch.export) or vectors; default onnx")
    parser.add_argument(
        "--output", required=True, help="file: .onnx, .pt2 or .parquet; NAME.json beside it says what it holds"
    )
    parser.add_argument("--top_k", type=int, help="items that the graph recommends; default: the encoder alone")
    parser.add_argument("--exclude_seen", action="store_true", help="with --top_k: an input of items to leave out")


def main(arguments: argparse.Namespace) -> None:
    """Write the files and print their paths."""
    from recbole_hyper.serving.export import check_request, description_of, export

    asked = {"format": arguments.format, "top_k": arguments.top_k, "exclude_seen": arguments.exclude_seen}
    path = check_request(arguments.format, arguments.output, top_k=arguments.top_k, exclude_seen=arguments.exclude_seen)
    from recbole_hyper.runs.load import load

    run = load(arguments.run)
    content = export(run.model, run.store.item_tokens, int(run.config["MAX_ITEM_LIST_LENGTH"]), path, **asked)
    if "opset" in content:
        print(f"opset {content['opset']}, {' '.join(content['inputs'])} -> {' '.join(content['outputs'])}")
    elif "score" in content:
        print(f"{content['n_items']} vectors of {content['dimension']}: {content['query']}; score = {content['score']}")
    print(path)
    print(description_of(path))
