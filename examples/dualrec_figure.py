"""Heat maps of what the two directions of a DualRec run attend to, averaged over test cases (DualRec, Figure 8).

    python examples/dualrec_figure.py saved/dual --past_only=saved/past_only --shown=20

``--past_only`` is a run with ``--dual_directions=past``, which is subtracted. Positions count from the newest item (0),
so that histories of different lengths can be averaged.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from recbole_hyper.encoders.dual import DualEncoder, reversal
from recbole_hyper.errors import ConfigError
from recbole_hyper.files import replaced
from recbole_hyper.runs.load import load_model, read_finished, read_run
from recbole_hyper.types import Cases, gather


def histories(cases: Cases, max_length: int, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the last ``max_length`` items of each history, right-padded (B, L), and their numbers (B,)."""
    for start in range(0, len(cases), batch_size):
        part = cases[slice(start, start + batch_size)]
        starts = np.maximum(part.ends - max_length, part.starts)
        width = int((part.ends - starts).max())
        items = gather(part.store, part.rows, starts, part.ends, width)
        yield torch.from_numpy(items), torch.from_numpy(part.ends - starts)


@torch.no_grad()
def mean_attention(encoder: DualEncoder, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return the mean attention weights of each direction of ``encoder``, in evaluation mode.

    ``batches`` are right-padded histories (B, L) and their lengths (B,), as from :func:`histories`.

    Returns:
        for ``past`` and ``future``, if they exist, (n_layers, L, L) float64 with the longest L: entry (i, j) is the
        weight from the item i positions before the newest to the item j positions before it, averaged over heads and
        over the cases that have position i. Rows sum to 1 if a case has that position, and are 0 otherwise.

    Raises:
        ValueError: a backbone without attention maps, or no cases.
    """
    directions = [name for name in ("past", "future") if encoder.directions in (name, "both", "shared")]
    total: dict[str, Tensor] = {}
    count = torch.zeros(0, dtype=torch.float64)
    was_training = encoder.training
    encoder.eval()
    try:
        for items, lengths in batches:
            device = encoder.item_embedding.weight.device
            items, lengths = items.to(device), lengths.to(device)
            width = items.shape[1]
            # reversed real positions: 0 is the newest item
            index = reversal(lengths, width)
            real = (torch.arange(width, device=device) < lengths[:, None]).double()
            count = _grown(count, (width,))
            count[:width] += real.sum(0).cpu()
            for name in directions:
                run = encoder.trace_past if name == "past" else encoder.trace_future
                by_layer = run(items, lengths, return_maps=encoder.has_maps)[1].maps
                if not by_layer:
                    raise ValueError(f"{type(encoder).__name__} has no attention maps; DualRec has")
                maps = torch.stack([layer.double().mean(dim=1) for layer in by_layer])  # (layers, B, L, L)
                rows = index[None, :, :, None].expand_as(maps)
                columns = index[None, :, None, :].expand_as(maps)
                reversed_maps = maps.gather(2, rows).gather(3, columns) * real[:, :, None]
                added = reversed_maps.sum(dim=1).cpu()
                total[name] = _grown(total.get(name, added.new_zeros(len(by_layer), 0, 0)), tuple(added.shape))
                total[name][:, :width, :width] += added
    finally:
        encoder.train(was_training)
    if not total:
        raise ValueError("there are no cases; at least one batch of histories is needed")
    return {name: value / count.clamp(min=1)[:, None] for name, value in total.items()}


def _grown(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return ``tensor`` padded with zeros at the end of every dimension to at least ``shape``."""
    grown = tensor.new_zeros([max(old, new) for old, new in zip(tensor.shape, shape, strict=True)])
    grown[tuple(slice(size) for size in tensor.shape)] = tensor
    return grown


def attention_figure(
    dual: dict[str, Tensor], path: str | Path, *, past_only: Tensor | None = None, shown: int = 20
) -> Path:
    """Plot heat maps of mean attention: a row per layer, a column per direction, oldest item left, newest right.

    ``dual`` is the result of :func:`mean_attention`. ``past_only``, the ``past`` maps of a model trained on the past
    only, adds a column with dual minus past only. The ``shown`` newest positions are plotted. The ending of ``path``
    sets the format. ValueError if the numbers of layers differ, or for ``past_only`` without a past direction.
    """
    columns: list[tuple[str, Tensor, bool]] = [(f"{name} encoder", maps, False) for name, maps in dual.items()]
    if past_only is not None:
        if "past" not in dual or len(past_only) != len(dual["past"]):
            raise ValueError("past_only needs the past maps of a model with as many layers")
        shown = min(shown, past_only.shape[-1])
        common = min(past_only.shape[-1], dual["past"].shape[-1])
        difference = dual["past"][:, :common, :common] - past_only[:, :common, :common]
        columns.append(("dual minus past only", difference, True))
    layers = len(columns[0][1])
    figure = Figure(figsize=(3.6 * len(columns), 3.2 * layers), layout="constrained")
    axes = figure.subplots(layers, len(columns), squeeze=False)
    for layer in range(layers):
        for column, (title, maps, signed) in enumerate(columns):
            # flipped, so that the newest item comes last
            values = maps[layer, :shown, :shown].flip(0, 1).numpy()
            bound = float(np.abs(values).max()) or 1.0
            axis = axes[layer, column]
            extent = (-len(values) + 0.5, 0.5, 0.5, -len(values) + 0.5)
            image = axis.imshow(
                values,
                cmap="RdBu_r" if signed else "viridis",
                vmin=-bound if signed else 0.0,
                vmax=bound,
                extent=extent,
                interpolation="nearest",
            )
            axis.set_title(f"layer {layer + 1}, {title}", fontsize=9)
            axis.set_xlabel("attended item (0 = newest)")
            axis.set_ylabel("query (0 = newest)")
            figure.colorbar(image, ax=axis, shrink=0.8)
    path = Path(path)
    with replaced(path) as part:
        figure.savefig(part, format=path.suffix.lstrip(".") or "png", dpi=150)
    return path


def maps_of(folder: str) -> dict[str, Tensor]:
    """Return the mean attention of the run in ``folder`` over its test cases; ConfigError if it is not a dual run."""
    config, data, split = read_finished(folder, read_run(folder))
    model, _ = load_model(config, data, split)
    if not isinstance(getattr(model, "encoder", None), DualEncoder):
        raise ConfigError(f"{folder}: {config['model']} with encoder {config['encoder']!r} has no two directions")
    return mean_attention(model.encoder, histories(split.test, config["MAX_ITEM_LIST_LENGTH"]))


def main(argv: Sequence[str] | None = None) -> int:
    """Plot the figure; an error is one line and returns 1."""
    parser = argparse.ArgumentParser(description="plot the mean attention of a dual run over its test cases")
    parser.add_argument("run", help="output_dir of a DualRec run")
    parser.add_argument("--past_only", help="output_dir of a run with --dual_directions=past, which is subtracted")
    parser.add_argument("--output", help="figure to write; its ending sets the format; default: RUN/attention.png")
    parser.add_argument("--shown", type=int, default=20, help="number of newest positions to plot (default 20)")
    arguments = parser.parse_args(argv)
    try:
        dual = maps_of(arguments.run)
        past_only = maps_of(arguments.past_only)["past"] if arguments.past_only else None
        output = arguments.output or Path(arguments.run) / "attention.png"
        print(attention_figure(dual, output, past_only=past_only, shown=arguments.shown))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
