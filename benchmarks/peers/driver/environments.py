"""Environments of the peers, made from requirements files, and checkouts of peers that are not packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from recbole_hyper.files import file_digest, write_text

SCRIPTS = Path(__file__).parents[1]


class UnavailableError(RuntimeError):
    """A peer is not available; the message says why and what to do."""


@dataclass(frozen=True)
class Repository:
    """A repository at a commit, for a peer that is not a package."""

    url: str
    commit: str


@dataclass(frozen=True)
class PeerSpec:
    """A peer and how to run it.

    Attributes:
        label: name in tables and figures.
        script: file in this folder.
        environment: environment of requirements-<environment>.txt; "" is the driver's environment.
        repository: repository that the script imports, None for packages.
        settings: settings for this script only.
    """

    label: str
    script: str
    environment: str = ""
    repository: Repository | None = None
    settings: dict[str, str] = field(default_factory=dict)


_PMIXER = Repository("https://github.com/pmixer/SASRec.pytorch", "3e5bb0f7be1c3a7526cb9a6b20a3e9a9ea2e7ba9")
_GSASREC = Repository("https://github.com/asash/gSASRec-pytorch", "25c9abcd55baf3344eac67d5a82e1b0ac26de7c2")
PEERS = {
    "ours": PeerSpec("recbole_hyper SASRecCE", "ours_run.py", settings={"model": "SASRecCE"}),
    "ours_hyperbolic": PeerSpec("recbole_hyper HSASRecCE", "ours_run.py", settings={"model": "HSASRecCE"}),
    "ours_esasrec": PeerSpec("recbole_hyper eSASRec", "ours_run.py", settings={"model": "eSASRec"}),
    "rectools": PeerSpec("RecTools SASRec, softmax", "rectools_run.py", "rectools", settings={"recipe": "softmax"}),
    "esasrec": PeerSpec("RecTools eSASRec", "rectools_run.py", "rectools", settings={"recipe": "esasrec"}),
    "pmixer": PeerSpec("pmixer SASRec", "pmixer_run.py", "pmixer", _PMIXER),
    "gsasrec": PeerSpec("gSASRec-pytorch", "gsasrec_run.py", "gsasrec", _GSASREC),
    "cornac": PeerSpec("Cornac SASRec", "cornac_run.py", "cornac"),
    "replay": PeerSpec("RePlay SasRec", "replay_run.py", "replay"),
    "recbole": PeerSpec("RecBole SASRec", "recbole_run.py", "recbole"),
}


def interpreter(peer: PeerSpec, build: Path, *, make: bool = True) -> Path:
    """Return the interpreter of a peer; with ``make``, create its environment if it is missing.

    Raises:
        UnavailableError: there is no environment, or pip failed.
    """
    if not peer.environment:
        return Path(sys.executable)
    requirements = SCRIPTS / f"requirements-{peer.environment}.txt"
    folder = build / peer.environment
    python, mark = folder / "bin" / "python", folder / ".installed"
    wanted = file_digest(requirements)
    if python.exists() and mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return python
    if not make:
        raise UnavailableError(f"no environment of {requirements.name} in {folder}; run without --no_make")
    print(f"{peer.environment}: making {folder} from {requirements.name}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], "venv")
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    _run([str(python), *install], f"pip install -r {requirements.name}")
    write_text(mark, wanted)
    return python


def checkout(peer: PeerSpec, build: Path, existing: Path | None, *, make: bool = True) -> tuple[Path, str]:
    """Return the folder and version of a peer's repository: an ``existing`` checkout, or a clone at the pinned commit.

    Raises:
        UnavailableError: a folder that does not exist, no network, or no git.
    """
    assert peer.repository is not None
    if existing is not None:
        if not existing.is_dir():
            raise UnavailableError(f"{existing} is not a folder")
        return existing.resolve(), f"{_commit_of(existing)} (given)"
    url, commit = peer.repository.url, peer.repository.commit
    folder = build / f"{peer.environment}-source"
    if folder.is_dir() and _commit_of(folder) == commit[:12]:
        return folder, commit[:12]
    if not make:
        raise UnavailableError(f"no checkout of {url} in {folder}; run without --no_make")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for arguments in (["init", "--quiet"], ["fetch", "--quiet", "--depth=1", url, commit]):
            _run(["git", "-C", str(folder), *arguments], f"git {arguments[0]} {url}")
        _run(["git", "-C", str(folder), "checkout", "--quiet", "FETCH_HEAD"], f"git checkout {commit}")
    except UnavailableError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, commit[:12]


def _commit_of(folder: Path) -> str:
    # not the commit of a checkout around the folder
    if not (folder / ".git").exists():
        return "no git checkout"
    try:
        command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown commit"


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"{what} failed: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise UnavailableError(f"{what} failed: {lines[-1].strip() if lines else f'exit status {done.returncode}'}")
