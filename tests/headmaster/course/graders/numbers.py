"""Hidden tests on numbers."""

import os
import random


class Wrong(AssertionError):
    """A wrong answer, with the record that the grader stores."""

    def __init__(self, **record: str) -> None:
        super().__init__(record["message"])
        self.record = record


def check_double(double) -> None:
    """Compare with twice a random number, and recognise the square."""
    draw = random.Random(int(os.environ.get("GRADING_SEED", "0")))
    for _ in range(5):
        x = draw.randrange(3, 1000)
        got = double(x)
        if got == x * x:
            raise Wrong(
                sentence="double(x) is twice x, for every number.",
                misconception="double-is-square",
                message="Your numbers are the squares: x times x instead of 2 times x.",
            )
        assert got == 2 * x, f"double({x}) gave {got}, SECRET {2 * x}"
