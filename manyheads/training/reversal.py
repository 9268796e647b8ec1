"""Writing a word backwards: the smallest task that cross-attention is needed for."""

import numpy as np

from . import encoder_decoder
from .encoder_decoder import EncoderDecoder, Task

LETTERS = "abcdefghijkl"


def task(shortest: int = 10, longest: int = 10) -> Task:
    """Random words of shortest … longest letters, and the same words backwards."""

    def pair(rng: np.random.Generator) -> tuple[str, str]:
        n = rng.integers(shortest, longest + 1)
        word = "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=n))
        return word, word[::-1]

    return Task(LETTERS, longest + 1, longest + 1, pair)


PROBE = ("fedcabhgki", "ikghbacdef")


def train(**settings) -> EncoderDecoder:
    """Train a model of words of ten letters: `encoder_decoder.train` says what can be set."""
    return encoder_decoder.train(task(), PROBE, **{"reach": 0} | settings)
