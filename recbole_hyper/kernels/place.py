"""Where compiled kernels are kept unless the user names a place. No numba is imported here."""

import hashlib
from pathlib import Path

from recbole_hyper.files import cache_folder


def default_folder() -> str:
    """Return a folder of the user's cache that other sources of the kernels do not share.

    "" where the user has no home: numba then looks for a place.
    """
    source = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        source.update(file.read_bytes())
    try:
        return str(cache_folder() / "kernels" / source.hexdigest()[:16])
    except RuntimeError:
        return ""
