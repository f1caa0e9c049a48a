"""SASRec of RecTools, pmixer, gSASRec-pytorch, RePlay and RecBole beside this package's: equal data, minutes, threads.

    make bench-peers                               (all peers on ml-100k, five minutes of training each)
    .venv/bin/python benchmarks/bench_peers.py --peers ours rectools --minutes=5 --threads=2

Every peer trains in a process and an environment of its own (build/peers/<peer>, made from
benchmarks/peers/requirements-<peer>.txt when it is first asked for) on the same leave-one-out split. Each ``--every``
seconds of training its ten best items for each user are written, seen items left out, and all peers' lists are ranked
here by one evaluator. The clock counts training and the making of batches, not the lists. Validation draws the curve
and chooses the point; the test is looked at there, once. A peer that cannot be had, or fails, has its reason in the
table. Peers that finished before with the same settings are taken from build/peers/runs.

Width, blocks, heads, dropout, L, batch, learning rate and threads are equal; what else a peer has (loss, norms, betas
of Adam, how histories are cut) is its own. pmixer and gSASRec-pytorch are cloned at a pinned commit; ``--pmixer=DIR``
and ``--gsasrec=DIR`` name a checkout where no network is.
"""

from __future__ import annotations

import os

# as they are before this package sets its own: peers get what a user of them has
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
from peers.driver.tables import QUALITY, default_quality, figure, markdown  # noqa: E402

from recbole_hyper.evaluation.results import commit, versions  # noqa: E402
from recbole_hyper.files import digest, file_digest, read_json, write_json, write_text  # noqa: E402

ROOT = Path(__file__).parents[1]
K = 10
RESULT = "result.json"
# options that name a place of this machine
PLACES = ("data_path", "config_files", "pmixer", "gsasrec", "python", "build", "output")


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--data_path", help="folder of the dataset's folder; ml-100k comes with recbole")
    parser.add_argument("--config_files", nargs="*", help="YAML files of keys that read and filter the dataset")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, for each peer")
    parser.add_argument("--every", type=float, default=5.0, help="seconds of training between two points of a curve")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max_length", type=int, default=50, help="L: items that a model reads")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch", type=int, default=128, help="sequences; RecBole's rows are its own")
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--quality", type=float, help="validation NDCG@10 to reach; default .9 of the best peer's")
    parser.add_argument("--pmixer", type=Path, help="checkout of pmixer/SASRec.pytorch; default: a clone")
    parser.add_argument("--gsasrec", type=Path, help="checkout of asash/gSASRec-pytorch; default: a clone")
    parser.add_argument("--python", nargs="*", default=[], metavar="PEER=PATH", help="another interpreter of a peer")
    parser.add_argument("--no_make", action="store_true", help="make no environment and no clone")
    parser.add_argument("--make_only", action="store_true", help="make environments and clones, run nothing")
    parser.add_argument("--again", action="store_true", help="run peers that have finished before")
    parser.add_argument("--limit", type=float, help="minutes after which a peer is ended; default 3 times + 30")
    parser.add_argument("--build", type=Path, default=Path("build/peers"), help="environments, clones, splits and runs")
    parser.add_argument("--output", type=Path, help="<output>.json, .md and .png; default bench_peers below --build")
    return parser


def shared_settings(arguments: argparse.Namespace, split: PeerSplit) -> dict[str, Any]:
    """Return what every peer is told alike."""
    names = ("threads", "max_length", "width", "blocks", "heads", "dropout", "batch", "learning_rate", "seed", "every")
    told = {name: getattr(arguments, name) for name in names}
    return told | {"seconds": 60 * arguments.minutes, "k": K, **split.meta}


def ready(name: str, arguments: argparse.Namespace) -> tuple[Path, dict[str, str]]:
    """Return the interpreter of a peer, and what its script is told of it alone.

    Raises:
        UnavailableError: it cannot be had.
    """
    peer, make = PEERS[name], not arguments.no_make
    own = dict(entry.partition("=")[::2] for entry in arguments.python)
    told = dict(peer.settings)
    if peer.repository is not None:
        folder, told["source"] = checkout(peer, arguments.build, getattr(arguments, peer.environment), make=make)
        told["checkout"] = str(folder.absolute())
    if not peer.environment:
        told["source"] = short(commit())
    python = Path(own[name]) if name in own else interpreter(peer, arguments.build, make=make)
    return python.absolute(), told


def short(name: str | None) -> str:
    """Return a commit in 12 digits, and "+" where files were changed."""
    return "no commit" if name is None else name[:12] + name[40:]


def judged(facts: dict[str, Any], split: PeerSplit, folder: Path) -> dict[str, Any]:
    """Return what a peer wrote with its curve, the point that validation chooses, and the test there.

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
    """Return the result of a peer: run now, or kept from before; one that failed says why."""
    peer = PEERS[name]
    settings = shared_settings(arguments, split)
    folder = arguments.build / "runs" / f"{arguments.dataset}-{digest(settings)}" / name
    identity = {"peer": name, "label": peer.label, "key": key_of(peer, settings)}
    if not arguments.again and (kept := kept_result(folder, identity["key"])) is not None:
        print(f"{name}: finished before", flush=True)
        return kept
    result: dict[str, Any] = {**identity, "machine": machine(arguments.threads), "commit": commit()}
    try:
        python, told = ready(name, arguments)
        print(f"{name}: {arguments.minutes:g} minutes of training", flush=True)
        variables = environment(VARIABLES, arguments.threads, None if peer.environment else str(ROOT))
        limit = 60 * (arguments.limit if arguments.limit else 3 * arguments.minutes + 30)
        # a script reads the split where it is
        asked = {**settings, **told, "split": str(split.folder.absolute())}
        facts = run_peer(python, SCRIPTS / peer.script, folder.absolute(), asked, variables, limit)
        result |= judged(facts, split, folder)
        drop_lists(folder, result["chosen"]["point"])
    except (UnavailableError, PeerFailedError, BadListsError) as error:
        result["failed"] = str(error)
        print(f"{name}: {error}", flush=True)
    result["settings"] = settings | peer.settings
    write_json(folder / RESULT, result)
    return result


def key_of(peer: PeerSpec, settings: dict[str, Any]) -> str:
    """Return what a kept result must have been made of: settings, scripts and versions, our own code included."""
    files = [SCRIPTS / peer.script, SCRIPTS / "peer.py"]
    files += [SCRIPTS / f"requirements-{peer.environment}.txt"] if peer.environment else []
    own = [] if peer.environment else [commit()]
    return digest([settings, peer.settings, [file_digest(file) for file in files], own])


def kept_result(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the result of a peer that finished before, None where it did not or would be another now."""
    try:
        result = read_json(folder / RESULT)
    except (OSError, ValueError):
        return None
    return result if result.get("key") == key and "failed" not in result else None


def drop_lists(folder: Path, point: int) -> None:
    """Remove the lists of all points but one, which has been chosen."""
    for file in folder.glob("*_*.tsv"):
        if file.stem.rpartition("_")[2] != str(point):
            file.unlink()


def command_of(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """Return the command line without places of this machine."""
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
    text = markdown(results, quality)
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
    """Make what is missing, run every peer that is asked for, and write the table after each."""
    parser = options()
    arguments = parser.parse_args()
    for entry in arguments.python:
        if entry.partition("=")[0] not in PEERS or not entry.partition("=")[2]:
            parser.error(f"--python {entry}: PEER=PATH is expected, PEER one of {', '.join(PEERS)}")
    if min(arguments.minutes, arguments.every) <= 0 or arguments.threads < 1:
        parser.error("--minutes and --every are above 0, --threads is 1 or more")
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
