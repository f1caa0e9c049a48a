"""Translates checkpoints that RecBole wrote without this package, so that torch's safe loader can read them.

They are pickles of protocol 4, which that loader cannot read. This module translates each opcode to protocol 2 and
executes nothing: torch decides what the file may load, as for any other file.
"""

import contextlib
import pickletools
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PICKLE = "/data.pkl"
_CONFIG = ("recbole.config.configurator", "Config")


class OldConfig:
    """Replaces RecBole's Config in a file, because building that one reads the command line."""

    def __new__(cls) -> Any:
        """Return an empty Config."""
        from recbole.config import Config

        return object.__new__(Config)


@contextlib.contextmanager
def readable(file: Any) -> Iterator[str]:
    """Yield the path of the checkpoint ``file``, or of a translated copy if the safe loader cannot read it."""
    name, data = _pickle_to_translate(Path(file))
    if not data:
        yield str(file)
        return
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(file) as old:
        path = Path(folder) / Path(file).name
        with zipfile.ZipFile(path, "w") as new:
            for entry in old.namelist():
                new.writestr(entry, translated(data) if entry == name else old.read(entry))
        yield str(path)


def _pickle_to_translate(file: Path) -> tuple[str, bytes]:
    """Return name and content of the pickle in a torch file, empty if it needs no translation."""
    if not zipfile.is_zipfile(file):
        return "", b""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            data = archive.read(name) if name.endswith(_PICKLE) else b""
            if data[:1] == b"\x80" and data[1] > 2:
                return name, data
    return "", b""


def translated(data: bytes) -> bytes:
    """Return a pickle of protocol 3 or 4 in protocol 2. Strings are written again instead of taken from the memo."""
    written: list[bytes] = [b"\x80\x02"]
    texts: dict[int, str] = {}  # strings by their index in written
    memo: dict[int, str] = {}
    memoized = 0

    def write_text(text: str) -> None:
        texts[len(written)] = text
        written.append(_text(text))

    operations: list[tuple[Any, Any, Any]] = list(pickletools.genops(data))
    ends = [start for _, _, start in operations[1:]] + [len(data)]
    for (code, argument, start), end in zip(operations, ends, strict=True):
        name, last = code.name, len(written) - 1
        if name in ("PROTO", "FRAME"):
            continue
        if name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            write_text(argument)
        elif name in ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"):
            written.append(b"c_codecs\nencode\n" + _text(argument.decode("latin1")) + _text("latin1") + b"\x86R")
        elif name == "MEMOIZE":
            if last in texts:
                memo[memoized] = texts[last]
            else:
                written.append(b"r" + struct.pack("<I", memoized))
            memoized += 1
        elif name in ("BINGET", "LONG_BINGET") and argument in memo:
            write_text(memo[argument])
        elif name == "STACK_GLOBAL" and {last, last - 1} <= texts.keys():
            module_and_name = texts.pop(last - 1), texts.pop(last)
            written[-2:] = [_global(*module_and_name)]
        else:
            written.append(data[start:end])
    return b"".join(written)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _global(module: str, name: str) -> bytes:
    """Return the opcode for a class; None for classes that a Config finds again by name."""
    if module.startswith("recbole.model.") or module == "yaml.loader":
        return b"N"
    if (module, name) == _CONFIG:
        module, name = OldConfig.__module__, OldConfig.__name__
    return f"c{module}\n{name}\n".encode()
