"""``recbole-hyper serve RUN``: recommendations over HTTP, and a page to look at."""

import argparse

from recbole_hyper.commands import add_run, options_of

HELP = "serve a finished run over HTTP: recommend, similar, score, metrics, and a page about the model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser, "output_dir of the run, or a link to it")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port (default 8000)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--catalogue", help="table of items, text or parquet, whose columns rules name")


def main(arguments: argparse.Namespace) -> None:
    """Serve until the process is stopped."""
    from recbole_hyper.runs.serve import serve

    print(f"http://{arguments.host}:{arguments.port} shows the model, /docs the interface", flush=True)
    serve(**options_of(serve, arguments))
