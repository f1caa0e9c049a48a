"""Draw the pictures of docs/models and docs/architecture.md: python docs/images/draw.py [NAME ...]."""

import sys
from collections.abc import Sequence
from pathlib import Path

import geoopt
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recbole_hyper.functional import poincare_logits

HERE = Path(__file__).parent
# Okabe and Ito's colours, which colour-blind readers can tell apart
BLUE, ORANGE, GREEN, GREY, PALE = "#0072B2", "#D55E00", "#009E73", "#777777", "#e8eef4"
WIDTH = 5.2  # inches: the text stays readable on a telephone
MASK = matplotlib.colors.ListedColormap(["#f2f2f2", BLUE])


def panels(columns: int, height: float, rows: int = 1) -> tuple[Figure, np.ndarray]:
    """Return a figure with panels beside each other."""
    return plt.subplots(rows, columns, figsize=(WIDTH, height), layout="constrained", squeeze=False)


def matrix(axes: Axes, values: np.ndarray, title: str, colours: object = MASK, limit: float = 1) -> None:
    """Show a matrix without ticks; a mask in two colours, or numbers from -limit to limit."""
    axes.imshow(values, cmap=colours, vmin=0 if colours is MASK else -limit, vmax=limit, aspect="auto")
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])


def boxes(axes: Axes, texts: Sequence[str], x: float = 0.5, width: float = 0.8) -> None:
    """Draw boxes below each other, with arrows between them."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(texts) - 0.4, -0.6)
    for place, text in enumerate(texts):
        box(axes, x, place, text, width)
        if place:
            arrow(axes, (x, place - 0.68), (x, place - 0.32))


def box(axes: Axes, x: float, y: float, text: str, width: float, height: float = 0.64, colour: str = PALE) -> None:
    """Draw a box around a text; x and y are its centre."""
    corner = (x - width / 2, y - height / 2)
    axes.add_patch(plt.Rectangle(corner, width, height, facecolor=colour, edgecolor=GREY, lw=0.8))
    axes.text(x, y, text, ha="center", va="center")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1})


def disk(axes: Axes, title: str) -> None:
    """Draw the edge of the Poincare ball."""
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, color=GREY))
    square(axes, title, 1.05)


def square(axes: Axes, title: str, limit: float) -> None:
    """Give both axes one scale and no ticks."""
    axes.set_xlim(-limit, limit)
    axes.set_ylim(-limit, limit)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_title(title)


def sasrec() -> Figure:
    """Which items a position reads, and the layers."""
    figure, ((left, right),) = panels(2, 2.3)
    matrix(left, np.tril(np.ones((8, 8))), "causal attention")
    left.set_xlabel("item that is read, oldest first")
    left.set_ylabel("position")
    boxes(right, ["item vector + position", "attention, feed-forward", "state F", "⟨F, item vector⟩"])
    right.text(0.92, 1, "n times", va="center", fontsize=7)
    return figure


def fmlprec() -> Figure:
    """The weights of one learned filter, circular and causal."""
    figure, ((left, right),) = panels(2, 2.3)
    length = 10
    kernel = np.exp(-np.arange(length) / 2.5) * np.cos(np.arange(length) * 1.3)
    distance = np.arange(length)[:, None] - np.arange(length)
    matrix(left, kernel[distance % length], "FMLPRec: circular", "RdBu")
    matrix(right, np.where(distance >= 0, kernel[distance], 0), "FMLPRecCE: causal", "RdBu")
    for axes in (left, right):
        axes.set_xlabel("item that is read, oldest first")
    left.set_ylabel("position")
    return figure


def memory() -> Figure:
    """Mixing the probabilities of network and memory."""
    figure, (axes,) = panels(3, 1.7)
    network, counts, share = np.array([0.34, 0.26, 0.2, 0.12, 0.08]), np.array([0.05, 0.5, 0.05, 0.38, 0.02]), 0.4
    shown = [("network", network, GREY), ("memory", counts, ORANGE)]
    shown.append((f"mixture, share {share}", (1 - share) * network + share * counts, BLUE))
    for panel, (title, values, colour) in zip(axes, shown, strict=True):
        panel.barh(["lamp", "desk", "rug", "chair", "vase"], values, color=colour)
        panel.invert_yaxis()
        panel.set_xlim(0, 0.55)
        panel.set_xticks([])
        panel.tick_params(left=False, labelleft=panel is axes[0])
        panel.set_title(title)
        panel.set_xlabel("probability")
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    return figure


def bsarec() -> Figure:
    """The low and the high frequencies of one coordinate."""
    figure, (axes,) = panels(2, 1.9)
    length, lowest, random = 40, 4, np.random.default_rng(7)
    signal = np.cumsum(random.normal(size=length)) / 3 + 0.5 * random.normal(size=length)
    spectrum = np.fft.rfft(signal)
    spectrum[lowest:] = 0
    low = np.fft.irfft(spectrum, length)
    axes[0].plot(signal, color=GREY, lw=1, label="X")
    axes[0].plot(low, color=BLUE, label="low(X)")
    axes[1].plot(signal - low, color=GREY, lw=1, label="high: X - low(X)")
    axes[1].plot(0.3 * (signal - low), color=ORANGE, label="rescaled: β² (X - low(X))")
    for panel in axes:
        panel.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.35))
        panel.set_xlabel("position")
        panel.set_xticks([])
        panel.set_yticks([])
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def hsasrec() -> Figure:
    """Lines of equal score of one item: dot product and Poincare head."""
    figure, ((left, right),) = panels(2, 2.6)
    item = torch.tensor([[0.55, 0.35]], dtype=torch.float64)
    side = torch.linspace(-0.999, 0.999, 160, dtype=torch.float64)
    points = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).reshape(-1, 2)
    norm = points.norm(dim=-1, keepdim=True).clamp(max=0.9999)
    states = points * torch.atanh(norm) / norm  # exp_0 takes these to the points
    offset = torch.tensor([0.45], dtype=torch.float64)
    curved = poincare_logits(states, item, offset, 1.0).reshape(160, 160)
    curved = torch.where(norm.reshape(160, 160) < 0.995, curved, torch.nan)
    flat = 4 * (states.new_tensor(points.numpy()) * 2 @ item[0] - offset * item.norm()).reshape(160, 160)
    for axes, values in ((left, flat), (right, curved)):
        axes.contourf(side, side, values, levels=[-99, 0, 99], colors=["#f2f2f2", "#dbe9f4"])
        axes.contour(side, side, values, levels=[-6, -4, -2, 2, 4, 6], colors=GREY, linewidths=0.7, linestyles="solid")
        axes.contour(side, side, values, levels=[0], colors=BLUE, linewidths=2)
    square(left, "dot product", 1.0)
    disk(right, "Poincare head")
    return figure


def sampled() -> Figure:
    """What a trained score says about a probability, by the calibration t."""
    figure, ((axes,),) = panels(1, 2.5)
    true, rate = np.logspace(-4, -0.02, 200), 256 / 9_999
    for t, colour in ((0, ORANGE), (0.75, GREEN), (1, BLUE)):
        beta = rate * (t * (1 - 1 / rate) + 1 / rate)
        # the minimum of beta p softplus(-s) + rate (1 - p) softplus(s)
        learned = beta * true / (beta * true + rate * (1 - true))
        axes.loglog(true, learned, color=colour, label=f"t = {t}")
    axes.set_xlabel("true probability of an item")
    axes.set_ylabel("what the score says")
    axes.set_title("256 negatives of 10,000 items")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def scalable() -> Figure:
    """The scores that each loss computes."""
    figure, (axes,) = panels(3, 2.0)
    rows, columns, random = 24, 36, np.random.default_rng(7)
    buckets, chunks = np.zeros((rows, columns)), np.zeros((rows, columns))
    for _ in range(4):
        buckets[np.ix_(random.choice(rows, 7, replace=False), random.choice(columns, 9, replace=False))] = 1
    for chunk in range(6):
        chunks[4 * chunk : 4 * chunk + 4, max(0, 6 * chunk - 6) : 6 * chunk + 12] = 1
    for panel, values, title in zip(
        axes, (np.ones((rows, columns)), buckets, chunks), ("exact", "SCE: buckets", "RECE: sorted chunks"), strict=True
    ):
        matrix(panel, values, title)
        panel.set_xlabel("items")
    axes[0].set_ylabel("states")
    return figure


def dualrec() -> Figure:
    """What each head of the two encoders reads."""
    figure, axes = panels(4, 2.7, rows=2)
    length = 10
    distance = np.arange(length)[:, None] - np.arange(length)
    for head, window in enumerate((2, 4, 7, 10)):
        matrix(axes[0, head], (distance >= 0) & (distance < window), f"head {head + 1}")
        matrix(axes[1, head], (distance <= 0) & (distance > -window), "")
    axes[0, 0].set_ylabel("past encoder")
    axes[1, 0].set_ylabel("future encoder")
    figure.supxlabel("item that is read, oldest first; the heads of a column learn from each other", fontsize=8)
    return figure


def recurrent() -> Figure:
    """Eight equal steps, in the plane and in the ball."""
    figure, ((left, right),) = panels(2, 2.5)
    ball = geoopt.PoincareBall(1.0)
    angles = torch.linspace(0.2, 1.9, 8, dtype=torch.float64)
    steps = 0.33 * torch.stack((angles.cos(), angles.sin()), dim=-1)
    flat, curved = [torch.zeros(2, dtype=torch.float64)], [torch.zeros(2, dtype=torch.float64)]
    for step in steps:
        flat.append(flat[-1] + step)
        curved.append(ball.mobius_add(curved[-1], ball.expmap0(step)))
    for axes, path in ((left, flat), (right, curved)):
        axes.plot(*torch.stack(path).T.numpy(), "o-", color=BLUE, ms=3.5, lw=1.2)
        axes.plot(0, 0, "o", color=ORANGE, ms=5)
    disk(right, "Moebius addition in the ball")
    square(left, "addition in the plane", 2.4)
    return figure


def hstu() -> Figure:
    """The three things that a position knows about an earlier item."""
    figure, (axes,) = panels(3, 2.0)
    length = 12
    times = np.cumsum([0, 1, 1, 1, 30, 1, 1, 40, 1, 1, 1, 1])
    distance, age = np.arange(length)[:, None] - np.arange(length), times[:, None] - times
    vectors = np.random.default_rng(7).normal(size=(length, 5))
    content = vectors @ vectors.T / 6
    for panel, values, title in zip(
        axes,
        (content, np.exp(-distance.clip(0) / 4), np.exp(-np.log1p(age.clip(0)) / 1.2)),
        ("content", "position", "time"),
        strict=True,
    ):
        matrix(panel, np.where(distance >= 0, values, 0), title, "RdBu")
        panel.set_xlabel("item that is read")
    axes[0].set_ylabel("position")
    return figure


def linear() -> Figure:
    """How often two items share a user, and EASER's weights."""
    figure, (axes,) = panels(2, 2.4)
    random = np.random.default_rng(7)
    groups = random.integers(0, 3, size=60)
    users = (random.random((60, 9)) < np.where(np.arange(9) // 3 == groups[:, None], 0.7, 0.12)).astype(float)
    gram = users.T @ users
    inverse = np.linalg.inv(gram + 5 * np.eye(9))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    matrix(axes[0], gram, "users who have both items", "RdBu", gram.max())
    matrix(axes[1], weights, "B, the weights", "RdBu", np.abs(weights).max())
    for panel in axes:
        panel.set_xlabel("item")
    axes[0].set_ylabel("item")
    return figure


def flow() -> Figure:
    """The way of the data through the package, with the folder of each stage."""
    figure, ((axes,),) = panels(1, 4.9)
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(9.45, -0.5)
    stages = [
        ("tables: csv, parquet, frames", "data/tables/table.py"),
        ("SequenceStore: a row per user", "data/sequences.py"),
        ("Split: train, validate, test", "protocols/"),
        ("batches of histories (B, L)", "batches/loader.py"),
        ("encoder: states (B, L, d)", "encoders/"),
        ("geometry: scores of items (n, N)", "geometry/"),
    ]
    for place, (text, folder) in enumerate(stages):
        box(axes, 0.42, place, text, 0.5)
        axes.text(0.7, place, folder, va="center", color=BLUE)
        if place:
            arrow(axes, (0.42, place - 0.68), (0.42, place - 0.32))
    for x, text, folders in (
        (0.22, "loss: a step", "losses/, training/"),
        (0.62, "Ranks: metrics", "evaluation/"),
    ):
        arrow(axes, (0.42, 5.32), (x, 6.1))
        box(axes, x, 6.45, text, 0.3, colour="#fdeee4")
        axes.text(x, 7.0, folders, ha="center", va="center", color=BLUE)
    axes.plot([0.07, 0.03, 0.03], [6.45, 6.45, 4], color=GREY, lw=1)
    arrow(axes, (0.03, 4), (0.17, 4))
    axes.text(0.05, 5.2, "new\nweights", va="center", color=GREY)
    arrow(axes, (0.62, 7.2), (0.42, 7.75))
    box(axes, 0.42, 8.1, "folder of the run", 0.5)
    axes.text(0.7, 8.1, "runs/", va="center", color=BLUE)
    arrow(axes, (0.42, 8.42), (0.42, 8.78))
    box(axes, 0.42, 9.1, "recommendations", 0.5)
    axes.text(0.7, 9.1, "serving/", va="center", color=BLUE)
    return figure


PICTURES = (sasrec, fmlprec, memory, bsarec, hsasrec, sampled, scalable, dualrec, recurrent, hstu, linear, flow)


def main() -> None:
    """Write each picture, or those that are named, as SVG."""
    plt.rcParams.update({"font.size": 8.5, "axes.titlesize": 9, "axes.labelsize": 8, "svg.hashsalt": "recbole_hyper"})
    for draw in PICTURES:
        if draw.__name__ in (sys.argv[1:] or [picture.__name__ for picture in PICTURES]):
            draw().savefig(HERE / f"{draw.__name__}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
