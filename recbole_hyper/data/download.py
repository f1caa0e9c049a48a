"""Data sets by RecBole's names: prepared by this package where it can, or fetched from RecBole's addresses.

What is fetched becomes a data set in one step, when it is complete: the archive has the length that the server gave,
passes its checks, and contains the .inter file. SOURCE.json beside it has the address and the digests.
"""

import functools
import sys
import urllib.error
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from recbole_hyper.data.prepare import public
from recbole_hyper.data.prepare.cleaning import Cleaning
from recbole_hyper.data.prepare.pipeline import prepare
from recbole_hyper.errors import ConfigError, MissingDataError, NoSpaceError
from recbole_hyper.files import file_digest, replaced_folder, write_json
from recbole_hyper.recbole_files import recbole_folder
from recbole_hyper.yaml_files import read_yaml

T = TypeVar("T")

# RecBole's table of addresses by name
ADDRESSES = recbole_folder() / "properties" / "dataset" / "url.yaml"
# without an answer for so many seconds, a connection has broken
PATIENCE = 60


def with_data(bind: Callable[[], T]) -> T:
    """Return the configuration that ``bind()`` makes; if its data set is missing, get that by its name and bind again.

    ConfigError for a data set that cannot be had, or where ``offline`` is set; NoSpaceError for a full disk.
    """
    try:
        config: Any = bind()
    except MissingDataError as missing:
        if not obtain(missing):
            raise
        config = bind()
    if Path(config["data_path"]).parent.name != "recbole":
        _say_which(config.dataset)
    return config


@functools.cache
def _say_which(name: str) -> None:
    """Say once that a name means this package's data where RecBole has other data of that name."""
    entry = public.entries().get(name)
    if entry is not None and entry.cleaning != Cleaning() and name in read_yaml(ADDRESSES):
        _say(f"{name}: this package's data, as 'recbole-hyper prepare {name}' makes them; RecBole's are recbole/{name}")


def obtain(missing: MissingDataError) -> bool:
    """Prepare or fetch a data set into its folder; False for an unknown name."""
    name, folder = missing.name, missing.root / missing.name
    entry = None if missing.of_recbole else public.entries().get(name)
    address = read_yaml(ADDRESSES).get(name)
    ours = entry is not None and bool(entry.package)
    if entry is not None and not ours and address:
        raise ConfigError(f"{missing}. RecBole's {name} is other data: --dataset=recbole/{name} fetches that")
    if not (ours or address) or any(folder.glob("*")):
        return False
    place = entry.address if entry is not None else address
    if missing.offline:
        raise ConfigError(f"{missing}. It can be had from {place}, but offline is set")
    if entry is not None:
        _say(f"{name} is prepared from {place} into {folder}")
        prepare(name, output=missing.root, say=_say)
    else:
        _fetch(name, str(address), folder)
    return True


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _fetch(name: str, address: str, folder: Path) -> None:
    """Fetch RecBole's data set ``name`` into ``folder``, which it becomes when it is complete."""

    def tell(size: int) -> None:
        _say(f"fetching {name} from {address}, {size / 2**20:,.1f} MiB, into {folder.absolute()}")

    try:
        with replaced_folder(folder) as part:
            archive = public.download(address, part, timeout=PATIENCE, tell=tell)
            size, digest = archive.stat().st_size, file_digest(archive)
            with zipfile.ZipFile(archive) as packed:
                if (damaged := packed.testzip()) is not None:
                    raise zipfile.BadZipFile(f"{damaged} is damaged")
                packed.extractall(part)
            archive.unlink()
            inside = [path for path in part.iterdir() if path.is_dir() and not path.name.startswith("__")]
            if len(inside) == 1 and not any(part.glob("*.inter")):  # an archive may have a folder around the files
                for path in list(inside[0].iterdir()):
                    path.rename(part / path.name)
                inside[0].rmdir()
            for path in list(part.iterdir()):
                path.rename(part / (path.stem.replace(archive.stem, name) + path.suffix))
            if not (part / f"{name}.inter").is_file():
                held = ", ".join(sorted(path.name for path in part.iterdir())) or "nothing"
                raise ConfigError(f"the archive has no {archive.stem}.inter, but {held}")
            files = {path.name: file_digest(path) for path in sorted(part.iterdir()) if path.is_file()}
            write_json(part / "SOURCE.json", {"address": address, "bytes": size, "sha256": digest, "files": files})
    except NoSpaceError:
        raise
    except (OSError, ValueError, RuntimeError, HTTPException, zipfile.BadZipFile) as error:
        reason: object = error.reason if type(error) is urllib.error.URLError else error
        if isinstance(error, zipfile.BadZipFile):
            reason = f"what came is no complete zip archive ({error})"
        raise ConfigError(
            f"{name} could not be fetched from {address}: {reason}. Nothing was kept; get the file by other ways and "
            f"prepare it with 'recbole-hyper prepare {name} --source=FILE'"
        ) from error
