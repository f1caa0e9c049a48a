"""Compare SASRec of RecTools, Cornac, pmixer, gSASRec-pytorch, RePlay, RecBole and us: same data, time and threads.

    make bench-peers                               (all peers on ml-100k, five minutes of training each)
    .venv/bin/python benchmarks/bench_peers.py --peers ours rectools --minutes=5 --threads=2

Every peer trains on the same leave-one-out split, in a separate process and a separate environment (build/peers/<peer>,
made from benchmarks/peers/requirements-<peer>.txt when it is first needed). After every ``--every`` seconds of training
a peer writes the ten best items of each user, without seen items, and one evaluator ranks the lists of all peers. The
clock counts training and making batches, but not writing lists. Validation gives the curve and chooses a point; the
test is evaluated there, once. A second table has the validation after equal seconds, because packages count epochs and
steps differently. If a peer is not available or fails, the table says why. Peers that finished before with
the same settings are read from build/peers/runs.

Width, blocks, heads, dropout, L, batch, learning rate and threads are equal. Everything else (loss, norms, Adam's
betas, how histories are cut) is up to the peer. pmixer and gSASRec-pytorch are cloned at a pinned commit; without a
network, name a checkout with ``--pmixer=DIR`` and ``--gsasrec=DIR``.
"""

from __future__ import annotations

import os

# the environment before this package changes it: peers run as their users run them
VARIABLES = dict(os.environ)

import argparse  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from peers.driver.environments import (  # noqa: E402
    PEERS,
    SCRIPTS,
    PeerSpec,
    UnavailableError,
    checkout,
    interpreter,
)
from peers.driver.lists import BadListsError, read_lists, score_lists  # noqa: E402
from peers.driver.running import PeerFailedError, environment, machine, run_peer  # noqa: E402
from peers.driver.split import PeerSplit, make_split  # noqa: E402
from peers.driver.tables import QUALITY, at_equal_seconds, default_quality, figure, markdown  # noqa: E402

from recbole_hyper.evaluation.results import commit, versions  # noqa: E402
from recbole_hyper.files import digest, file_digest, read_json, write_json, write_text  # noqa: E402

ROOT = Path(__file__).parents[1]
K = 10
RESULT = "result.json"
# options that name paths on this machine
PLACES = ("data_path", "config_files", "pmixer", "gsasrec", "python", "build", "output")


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--data_path", help="folder above the dataset's folder; ml-100k comes with recbole")
    parser.add_argument("--config_files", nargs="*", help="YAML files with keys that read and filter the dataset")
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes of training per peer")
    parser.add_argument("--every", type=float, default=5.0, help="seconds of training between two points of a curve")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max_length", type=int, default=50, help="L, the number of items that a model reads")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch", type=int, default=128, help="sequences per batch; of RecBole and Cornac, rows")
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--quality", type=float, help="validation NDCG@10 to reach; default: 0.9 of the best peer's")
    parser.add_argument("--pmixer", type=Path, help="checkout of pmixer/SASRec.pytorch; default: a clone")
    parser.add_argument("--gsasrec", type=Path, help="checkout of asash/gSASRec-pytorch; default: a clone")
    parser.add_argument("--python", nargs="*", default=[], metavar="PEER=PATH", help="interpreter to use for a peer")
    parser.add_argument("--no_make", action="store_true", help="do not make environments and clones")
    parser.add_argument("--make_only", action="store_true", help="make environments and clones, but run nothing")
    parser.add_argument("--again", action="store_true", help="also run peers that finished before")
    parser.add_argument("--limit", type=float, help="minutes until a peer is stopped; default: 3 * minutes + 30")
    parser.add_argument("--build", type=Path, default=Path("build/peers"), help="environments, clones, splits and runs")
    parser.add_argument("--output", type=Path, help="<output>.json, .md and .png; default: bench_peers in --build")
    return parser


def shared_settings(arguments: argparse.Namespace, split: PeerSplit) -> dict[str, Any]:
    """Return the settings that all peers share."""
    names = ("threads", "max_length", "width", "blocks", "heads", "dropout", "batch", "learning_rate", "seed", "every")
    shared = {name: getattr(arguments, name) for name in names}
    return shared | {"seconds": 60 * arguments.minutes, "k": K, **split.meta}


def ready(name: str, arguments: argparse.Namespace) -> tuple[Path, dict[str, str]]:
    """Return the interpreter of a peer, and the settings of this peer only.

    Raises:
        UnavailableError: the peer is not available.
    """
    peer, make = PEERS[name], not arguments.no_make
    interpreters = dict(entry.partition("=")[::2] for entry in arguments.python)
    settings = dict(peer.settings)
    if peer.repository is not None:
        folder, settings["source"] = checkout(peer, arguments.build, getattr(arguments, peer.environment), make=make)
        settings["checkout"] = str(folder.absolute())
    if not peer.environment:
        settings["source"] = short(commit())
    python = Path(interpreters[name]) if name in interpreters else interpreter(peer, arguments.build, make=make)
    return python.absolute(), settings


def short(name: str | None) -> str:
    """Return 12 digits of a commit, with "+" if files were changed."""
    return "no commit" if name is None else name[:12] + name[40:]


def judged(facts: dict[str, Any], split: PeerSplit, folder: Path) -> dict[str, Any]:
    """Return the facts that a peer wrote, with its curve, the point that validation chooses, and the test there.

    Raises:
        BadListsError: lists that cannot be ranked.
    """

    def score(part: str, point: int) -> dict[str, float]:
        targets = split.targets(part)
        file = folder / f"{part}_{point}.tsv"
        lists = read_lists(file, targets[:, 0], split.seen(part), split.meta["n_items"], K)
        return score_lists(lists, targets[:, 1])

    curve = [point | score("valid", point["point"]) for point in facts.pop("points")]
    chosen = max(curve, key=lambda point: point[QUALITY])
    valid = {name: value for name, value in chosen.items() if "@" in name}
    return facts | {"chosen": chosen, "valid": valid, "test": score("test", chosen["point"]), "curve": curve}


def measure(name: str, arguments: argparse.Namespace, split: PeerSplit) -> dict[str, Any]:
    """Return the result of a peer, from a new or an earlier run; if it failed, the result says why."""
    peer = PEERS[name]
    settings = shared_settings(arguments, split)
    folder = arguments.build / "runs" / f"{arguments.dataset}-{digest(settings)}" / name
    identity = {"peer": name, "label": peer.label, "key": key_of(peer, settings)}
    if not arguments.again and (kept := kept_result(folder, identity["key"])) is not None:
        print(f"{name}: finished before", flush=True)
        return kept
    result: dict[str, Any] = {**identity, "machine": machine(arguments.threads), "commit": commit()}
    try:
        python, of_peer = ready(name, arguments)
        print(f"{name}: {arguments.minutes:g} minutes of training", flush=True)
        variables = environment(VARIABLES, arguments.threads, None if peer.environment else str(ROOT))
        limit = 60 * (arguments.limit if arguments.limit else 3 * arguments.minutes + 30)
        everything = {**settings, **of_peer, "split": str(split.folder.absolute())}
        facts = run_peer(python, SCRIPTS / peer.script, folder.absolute(), everything, variables, limit)
        result |= judged(facts, split, folder)
        drop_lists(folder, result["chosen"]["point"])
    except (UnavailableError, PeerFailedError, BadListsError) as error:
        result["failed"] = str(error)
        print(f"{name}: {error}", flush=True)
    result["settings"] = settings | peer.settings
    write_json(folder / RESULT, result)
    return result


def key_of(peer: PeerSpec, settings: dict[str, Any]) -> str:
    """Return a digest of everything that a result depends on: settings, scripts, versions, and our own code."""
    files = [SCRIPTS / peer.script, SCRIPTS / "peer.py"]
    files += [SCRIPTS / f"requirements-{peer.environment}.txt"] if peer.environment else []
    own = [] if peer.environment else [commit()]
    return digest([settings, peer.settings, [file_digest(file) for file in files], own])


def kept_result(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the result of a peer that finished before with the same key, or None."""
    try:
        result = read_json(folder / RESULT)
    except (OSError, ValueError):
        return None
    return result if result.get("key") == key and "failed" not in result else None


def drop_lists(folder: Path, point: int) -> None:
    """Remove the lists of all points except the chosen one."""
    for file in folder.glob("*_*.tsv"):
        if file.stem.rpartition("_")[2] != str(point):
            file.unlink()


def command_of(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """Return the command line without paths on this machine."""
    parts = ["python benchmarks/bench_peers.py"]
    for name, value in vars(arguments).items():
        if value == parser.get_default(name):
            continue
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        parts.append(f"--{name} {'...' if name in PLACES else text}" if value is not True else f"--{name}")
    return " ".join(parts)


def write_results(results: list[dict[str, Any]], arguments: argparse.Namespace, split: PeerSplit, command: str) -> None:
    """Write table, results and figure, and print the table."""
    quality = default_quality(results) if arguments.quality is None else arguments.quality
    settings = shared_settings(arguments, split)
    content = {
        "command": command,
        "commit": commit(),
        "settings": settings,
        "machine": machine(arguments.threads),
        "versions": versions(),
        "quality": quality,
        "peers": results,
    }
    output = arguments.output or arguments.build / "bench_peers"
    write_json(output.with_suffix(".json"), content)
    text = f"{markdown(results, quality)}\n\n{at_equal_seconds(results)}"
    drawn = figure(results, settings, output.with_suffix(".png"))
    place = content["machine"]
    head = (
        f"`{command}`\n\n{arguments.dataset} (data {split.meta['data_fingerprint'][:12]}), "
        f"{arguments.minutes:g} minutes of training for each peer, "
        f"{arguments.threads} of {place['cores']} threads, {place['processor']}, "
        f"seed {arguments.seed}, commit {short(commit())}."
    )
    write_text(output.with_suffix(".md"), f"{head}\n\n{text}\n")
    print(f"\n{text}\n\n{output}.json, .md{' and .png' if drawn else ''}")


def main() -> None:
    """Make what is missing, run every peer, and write the table."""
    parser = options()
    arguments = parser.parse_args()
    for entry in arguments.python:
        if entry.partition("=")[0] not in PEERS or not entry.partition("=")[2]:
            parser.error(f"--python {entry}: write PEER=PATH, where PEER is one of {', '.join(PEERS)}")
    if min(arguments.minutes, arguments.every) <= 0 or arguments.threads < 1:
        parser.error("--minutes and --every must be above 0, --threads at least 1")
    if arguments.make_only:
        for name in arguments.peers:
            try:
                print(f"{name}: {ready(name, arguments)[0]}", flush=True)
            except UnavailableError as error:
                print(f"{name}: {error}", flush=True)
        return
    split = make_split(arguments.build / "splits", arguments.dataset, arguments.data_path, arguments.config_files)
    print(f"{split.folder}: {split.meta}", flush=True)
    results = [measure(name, arguments, split) for name in arguments.peers]
    write_results(results, arguments, split, command_of(arguments, parser))


if __name__ == "__main__":
    main()
