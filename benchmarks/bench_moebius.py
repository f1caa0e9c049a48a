"""A training step of the Moebius GRU, compared with a geoopt cell looped over time and with torch.nn.GRU.

    python benchmarks/bench_moebius.py [--threads 2] [--repeats 9] [--output results/bench_moebius.csv]

All take turns in one process, in float32, on the same random inputs. A step is: forward from Euclidean inputs, sum of
squares of all states, backward to inputs and weights. The table has the fastest and the median time. Ratios compare the
fastest times, which other work on the machine affects least.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import geoopt
import pandas as pd
import torch
from torch import Tensor, nn

from recbole_hyper.encoders.moebius_gru import MoebiusGRU

SHAPES = [(1024, 20, 5), (1024, 20, 64)]


class LoopedCell(nn.Module):
    """The cell as written with geoopt: input products of all steps at once, then one step after the other."""

    def __init__(self, model: MoebiusGRU) -> None:
        super().__init__()
        self.ball = geoopt.PoincareBall(c=1.0)
        self.weight_ih = nn.Parameter(model.weight_ih_l0.detach().clone())
        self.weight_hh = nn.Parameter(model.weight_hh_l0.detach().clone())
        self.bias = nn.Parameter(model.bias_l0.detach().clone().as_subclass(Tensor))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the states (L, B, d) of tangent ``inputs`` (L, B, d)."""
        ball, (b_r, b_z, b_h) = self.ball, self.bias
        w_r, w_z, w_h = self.weight_hh.chunk(3)
        points = ball.expmap0(inputs)
        x_r, x_z, x_h = (ball.mobius_matvec(u, points) for u in self.weight_ih.chunk(3))
        h = torch.zeros_like(x_r[0])
        states = []
        for t in range(len(inputs)):
            moved = ball.mobius_add(ball.mobius_add(ball.mobius_matvec(w_r, h), x_r[t]), b_r)
            r = torch.sigmoid(ball.logmap0(moved))
            moved = ball.mobius_add(ball.mobius_add(ball.mobius_matvec(w_z, h), x_z[t]), b_z)
            z = torch.sigmoid(ball.logmap0(moved))
            reset = ball.expmap0(r * ball.logmap0(h))
            candidate = ball.mobius_add(ball.mobius_add(ball.mobius_matvec(w_h, reset), x_h[t]), b_h)
            step = ball.expmap0(z * ball.logmap0(ball.mobius_add(-h, candidate)))
            h = ball.mobius_add(h, step)
            states.append(h)
        return torch.stack(states)


def _time(run: Callable[[], Tensor], inputs: Tensor, module: nn.Module) -> tuple[float, float]:
    """Return seconds of the forward pass and of forward + backward."""
    module.zero_grad(set_to_none=True)
    inputs.grad = None
    start = time.perf_counter()
    output = run()
    middle = time.perf_counter()
    output.square().sum().backward()
    return middle - start, time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"CPU {platform.machine()}, {arguments.threads} threads, float32, torch {torch.__version__}, "
        f"geoopt {geoopt.__version__}, {arguments.repeats} repeats, load {os.getloadavg()[0]:.1f}"
    )
    rows = []
    for batch, length, width in SHAPES:
        torch.manual_seed(0)
        inputs = (torch.randn(length, batch, width) * 0.3).requires_grad_()
        ours, flat = MoebiusGRU(width, width), nn.GRU(width, width)
        peers: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
            "MoebiusGRU": (ours, lambda m=ours, x=inputs: m(x)[0]),
            "geoopt cell, looped": (loop := LoopedCell(ours), lambda m=loop, x=inputs: m(x)),
            "torch.nn.GRU": (flat, lambda m=flat, x=inputs: m(x)[0]),
        }
        difference = float((peers["MoebiusGRU"][1]() - peers["geoopt cell, looped"][1]()).detach().abs().max())
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
        for repeat in range(arguments.repeats + 2):
            for name, (module, run) in peers.items():
                measured = _time(run, inputs, module)
                if repeat >= 2:
                    times[name].append(measured)
        fastest = {name: pd.DataFrame(values).min().tolist() for name, values in times.items()}
        median = {name: float(pd.DataFrame(values)[1].median()) for name, values in times.items()}
        base = fastest["MoebiusGRU"]
        rows += [
            {
                "B": batch,
                "L": length,
                "d": width,
                "layer": name,
                "forward_ms": round(value[0] * 1e3, 2),
                "step_ms": round(value[1] * 1e3, 2),
                "median_step_ms": round(median[name] * 1e3, 2),
                "forward_over_ours": round(value[0] / base[0], 2),
                "step_over_ours": round(value[1] / base[1], 2),
                "largest_difference": f"{difference:.1e}" if name.startswith("geoopt") else "",
            }
            for name, value in fastest.items()
        ]
        print(pd.DataFrame(rows[-len(peers) :]).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(arguments.output, index=False)


if __name__ == "__main__":
    main()
