"""``recbole-hyper attention RUN --past_only=RUN``: heat maps of what the two directions of a run attend to."""

import argparse
from pathlib import Path

HELP = "draw the mean attention of a dual run over its test cases, and its difference from a past-only run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="output_dir of a DualRec run")
    parser.add_argument("--past_only", help="output_dir of a run with --dual_directions=past, to be subtracted")
    parser.add_argument("--output", help="figure to write, its ending sets the format; default: RUN/attention.png")
    parser.add_argument("--shown", type=int, default=20, help="newest positions to draw (default 20)")


def main(arguments: argparse.Namespace) -> None:
    """Compute the mean attention maps and draw them."""
    from recbole_hyper.config import ConfigError
    from recbole_hyper.encoders.dual import DualEncoder
    from recbole_hyper.evaluation.attention import attention_figure, histories, mean_attention
    from recbole_hyper.runs.load import load_model, read_finished, read_run

    found = []
    for folder in filter(None, (arguments.run, arguments.past_only)):
        config, data, split = read_finished(folder, read_run(folder))
        model, _ = load_model(config, data, split)
        if not isinstance(getattr(model, "encoder", None), DualEncoder):
            raise ConfigError(f"{folder}: {config['model']} with encoder {config['encoder']!r} has no two directions")
        found.append(mean_attention(model.encoder, histories(split.test, config["MAX_ITEM_LIST_LENGTH"])))
    past_only = found[1]["past"] if len(found) == 2 else None
    output = arguments.output or Path(arguments.run) / "attention.png"
    print(attention_figure(found[0], output, past_only=past_only, shown=arguments.shown))
