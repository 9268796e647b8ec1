"""Smaller blocks and a measured memory, so that small inputs meet every border."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def lowered(module, **constants):
    """Run with other values of a module's constants."""
    before = {name: getattr(module, name) for name in constants}
    try:
        for name, value in constants.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def peak_memory(call):
    """Bytes that a call holds at its worst, above what it is given."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
