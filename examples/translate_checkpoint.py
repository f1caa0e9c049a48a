"""Translates a checkpoint that RecBole wrote without recbole_hyper, so that RecBole's functions read it here::

    python -m examples.translate_checkpoint saved/SASRec-Jan-01-2024.pth saved/SASRec.pth

Such a file is a pickle of protocol 4, which torch's safe loader cannot read. The script writes each opcode in protocol
2, and executes nothing: torch decides what the new file may load, as for any other file.
"""

import argparse
import pickletools
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

_CONFIG = ("recbole.config.configurator", "Config")
# takes the place of RecBole's Config, because building that one reads the command line
_EMPTY_CONFIG = ("recbole_hyper.hosted.pickles", "OldConfig")


def translate(old: Path, new: Path) -> None:
    """Write the checkpoint ``old`` to ``new``, with its pickle in protocol 2."""
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(new, "w") as target:
        for entry in source.namelist():
            data = source.read(entry)
            target.writestr(entry, translated(data) if entry.endswith("/data.pkl") and data[1] > 2 else data)


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
        module, name = _EMPTY_CONFIG
    return f"c{module}\n{name}\n".encode()


def main() -> int:
    """Translate one file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0].rstrip(":"))
    parser.add_argument("old", type=Path, help="the checkpoint that RecBole wrote")
    parser.add_argument("new", type=Path, help="the file to write")
    arguments = parser.parse_args()
    if not zipfile.is_zipfile(arguments.old) or arguments.new.exists():
        what = f"{arguments.new} exists" if arguments.new.exists() else f"{arguments.old} is not a file of torch"
        print(f"error: {what}", file=sys.stderr)
        return 1
    translate(arguments.old, arguments.new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
