"""Checkpoints that RecBole wrote without this package, translated for torch's safe loader.

They are pickles of protocol 4, which that loader cannot read. This module translates each opcode into protocol 2 and
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
    """A stand-in for RecBole's Config in a file: it does not read the command line."""

    def __new__(cls) -> Any:
        """Return a Config without content."""
        from recbole.config import Config

        return object.__new__(Config)


@contextlib.contextmanager
def readable(file: Any) -> Iterator[str]:
    """Give the path of a file with the content of the checkpoint ``file``, in protocol 2; mostly ``file`` itself."""
    name, data = _old_pickle(Path(file))
    if not data:
        yield str(file)
        return
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(file) as old:
        path = Path(folder) / Path(file).name
        with zipfile.ZipFile(path, "w") as new:
            for entry in old.namelist():
                new.writestr(entry, translated(data) if entry == name else old.read(entry))
        yield str(path)


def _old_pickle(file: Path) -> tuple[str, bytes]:
    """Return name and content of the pickle in a file of torch, empty where it needs no translation."""
    if not zipfile.is_zipfile(file):
        return "", b""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            data = archive.read(name) if name.endswith(_PICKLE) else b""
            if data[:1] == b"\x80" and data[1] > 2:
                return name, data
    return "", b""


def translated(data: bytes) -> bytes:
    """Return a pickle of protocol 3 or 4 in the opcodes of protocol 2; texts are written out wherever they occur."""
    written: list[bytes] = [b"\x80\x02"]
    texts: dict[int, str] = {}  # by the number of the piece that writes it
    memo: dict[int, str] = {}
    memoized = 0

    def write(piece: bytes) -> None:
        written.append(piece)

    def write_text(text: str) -> None:
        texts[len(written)] = text
        write(_text(text))

    operations: list[tuple[str, Any, Any]] = [
        (code.name, argument, place) for code, argument, place in pickletools.genops(data)
    ]
    ends = [place for _, _, place in operations[1:]] + [len(data)]
    for (name, argument, place), end in zip(operations, ends, strict=True):
        last = len(written) - 1
        if name in ("PROTO", "FRAME"):
            continue
        if name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            write_text(argument)
        elif name in ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"):
            write(b"c_codecs\nencode\n" + _text(argument.decode("latin1")) + _text("latin1") + b"\x86R")
        elif name == "MEMOIZE":
            if last in texts:
                memo[memoized] = texts[last]
            else:
                write(b"r" + struct.pack("<I", memoized))
            memoized += 1
        elif name in ("BINGET", "LONG_BINGET") and argument in memo:
            write_text(memo[argument])
        elif name == "STACK_GLOBAL" and {last, last - 1} <= texts.keys():
            named = texts.pop(last - 1), texts.pop(last)
            del written[-2:]
            write(_global(*named))
        else:
            write(data[place:end])
    return b"".join(written)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _global(module: str, name: str) -> bytes:
    """Return the opcode for a class: none for those of a Config that are found again by name."""
    if module.startswith("recbole.model.") or module == "yaml.loader":
        return b"N"
    if (module, name) == _CONFIG:
        module, name = OldConfig.__module__, OldConfig.__name__
    return f"c{module}\n{name}\n".encode()
