"""Dates in five ways of writing, to be written in one: "7 October 1986" becomes "1986-10-07"."""

import numpy as np

from . import encoder_decoder
from .encoder_decoder import EncoderDecoder, Task

MONTHS = (
    "January February March April May June July August September October November December"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LETTERS = "".join(sorted(set("".join(MONTHS + DAYS) + "0123456789 ,/")))


def pair(rng: np.random.Generator) -> tuple[str, str]:
    """A random date between 1950 and 2049, written in one of five ways, and as year-month-day."""
    year, month, day = rng.integers(1950, 2050), rng.integers(1, 13), rng.integers(1, 29)
    name = MONTHS[month - 1]
    ways = (
        f"{day} {name} {year}",
        f"{name} {day}, {year}",
        f"{DAYS[rng.integers(7)]}, {day} {name[:3]} {year}",
        f"{name[:3]} {day} {year}",
        f"{day}/{month}/{year}",
    )
    return ways[rng.integers(len(ways))], f"{year}-{month:02d}-{day:02d}"


task = Task(LETTERS + "-", source_length=25, target_length=11, pair=pair)
PROBE = ("Tuesday, 7 Oct 1986", "1986-10-07")


def train(**settings) -> EncoderDecoder:
    """Train the model of dates: `encoder_decoder.train` says what can be set."""
    return encoder_decoder.train(task, PROBE, **{"reach": 1, "steps": 600} | settings)
