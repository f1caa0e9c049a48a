"""Gets missing data sets by RecBole's names: prepares them if this package can, else downloads RecBole's files.

A download becomes a data set in one step, when it is complete: the archive has the length that the server announced,
passes its checksums, and contains a .inter file with a valid header. SOURCE.json beside it has address and digest.
"""

import shutil
import sys
import urllib.error
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar

from recbole_hyper.data.tables.archives import contents, unpacked
from recbole_hyper.data.tables.atomic import typed_header
from recbole_hyper.data.tables.prepare import public
from recbole_hyper.data.tables.prepare.pipeline import prepare
from recbole_hyper.errors import ConfigError, MissingDataError, NoSpaceError
from recbole_hyper.files import file_digest, replaced_folder, write_json
from recbole_hyper.yaml_files import data_addresses

T = TypeVar("T")

PATIENCE = 60  # seconds without an answer after which a connection counts as broken


def with_data(bind: Callable[[], T]) -> T:
    """Return the configuration that ``bind()`` makes; if its data set is missing, get that first and bind again.

    ConfigError if the data set cannot be downloaded, or ``offline`` is set; NoSpaceError if the disk is full.
    """
    try:
        return bind()
    except MissingDataError as missing:
        if not obtain(missing):
            raise
    return bind()


def obtain(missing: MissingDataError) -> bool:
    """Prepare or download a data set into its folder; False for an unknown name."""
    name, folder = missing.name, missing.root / missing.name
    entry = None if missing.of_recbole else public.entries().get(name)
    address = data_addresses().get(name)
    prepared_here = entry is not None and bool(entry.package)
    if entry is not None and not prepared_here and address:
        raise ConfigError(f"{missing}. RecBole's {name} is different data: --dataset=recbole/{name} downloads it")
    if not (prepared_here or address) or any(folder.glob("*")):
        return False
    origin = entry.address if entry is not None else address
    if missing.offline:
        raise ConfigError(f"{missing}. It is available at {origin}, but offline is set; turn that off to download it")
    if entry is not None:
        _say(f"preparing {name} from {origin} in {folder}")
        prepare(name, output=missing.root, say=_say)
    else:
        _fetch(name, str(address), folder)
    return True


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _fetch(name: str, address: str, folder: Path) -> None:
    """Download RecBole's data set ``name``; ``folder`` appears when it is complete."""
    _say(f"downloading {name} from {address} to {folder.absolute()}")
    try:
        with replaced_folder(folder) as part:
            archive = public.download(address, part, PATIENCE)
            write_json(part / "SOURCE.json", {"address": address, "sha256": file_digest(archive)})
            with unpacked(archive) as packed:
                for packed_file in contents(packed):  # without a folder around the files
                    shutil.move(packed_file.path, part / packed_file.name.replace(archive.stem, name))
            archive.unlink()
            for file in (part / f"{name}.inter", *part.glob(f"{name}.[iu]*")):
                typed_header(file)
    except NoSpaceError:
        raise
    except (OSError, ValueError, HTTPException) as error:
        reason: object = error.reason if type(error) is urllib.error.URLError else error
        raise ConfigError(
            f"{name} could not be downloaded from {address}: {reason}. Nothing was saved; get the file in another way "
            f"and run 'recbole-hyper prepare {name} --source=FILE'"
        ) from error
