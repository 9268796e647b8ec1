"""Fuzz the decoder with coverage, for as long as you like: python tests/headmaster/fuzz_wire.py.

It needs `atheris` (pip install atheris); arguments go to libFuzzer, such as -max_total_time=600.
Anything but a WireError is a finding. `test_wire.py` runs the same target without coverage.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import atheris
except ImportError:  # then only `one` is of use
    atheris = None

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from headmaster import wire


def refuse(node: object) -> object:
    """Refuse every handle."""
    raise wire.WireError("no handles here")


def one(data: bytes) -> None:
    """Read one message of a hostile S: the head up to the first zero byte, then buffers."""
    text, _, rest = data.partition(b"\0")
    buffers = [bytearray(part) for part in rest.split(b"\0\0")]
    try:
        head = wire.parse(text)
        for node in head if type(head) is list else [head]:
            wire.Decoder(buffers, refuse).decode(node)
    except wire.WireError:
        pass


def main() -> None:
    """Fuzz until a finding or the time is up."""
    if atheris is None:
        sys.exit("pip install atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
