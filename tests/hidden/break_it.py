"""Questions of the kind "break it": which sentence does this wrong function break, and on what?

The exercise's text shows a wrong function and asks for a function without arguments that returns
the sentence it breaks and a small input that shows it: C1 of the question's contract is about the
sentence, C2 about the input. A chapter's spec then says

    found = BreakIt(exercise, "break_hasty_merge", answer="C1", sentences=4)
    found.fits("_, first, second = break_hasty_merge()\n…")  # True: the form that C2 asks for
    found.shows(  # hidden: what the wrong function does with the input
        "_, first, second = break_hasty_merge()\n…",
        "the sum is wrong",
        lambda rng: {"shift": float(rng.integers(-9, 9))},  # a change that must not matter
    )
    found.blames("X17", "blames-the-axes", "C2", "Any number of axes is fine with it. …")
    found.input("X18", "first-maximum-larger", "Let the second be larger.", "[1.0], [0.0]")

    @found.alternative("arrays")
    def two_arrays():
        return "C1", np.array([-3.0, 2.0, 0.5]), np.array([5.0, 4.0])

with a `blames` for every other sentence, an `input` for every way to miss the point, and two
alternatives. A code that ends in words ("one position", "too little") instead of False lets `input`
tell these ways apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.hidden.spec import Example, Exercise


class BreakIt:
    """The spec of one question; `spec` is the ordinary FunctionSpec behind it."""

    def __init__(self, exercise: Exercise, name: str, *, answer: str, sentences: int) -> None:
        """answer: the sentence that is broken; sentences: how many there are to choose from."""
        self.spec = exercise.question(name)
        self.answer = answer
        self.alternative = self.spec.alternative
        ideas = list(self.spec.ideas)  # sentence and input; a question of one point has one idea
        self._sentence, self._input = ideas[0], ideas[-1]
        self._values = re.search(r"return (.*)", exercise.text.answers[name])[1]
        named = f"str({name}()[0]).strip()"
        known = f"re.fullmatch('C[1-{sentences}]', {named}) is not None"
        self.spec.witness(self._sentence, "C1", known, options={"expect": True})

        @self.spec.hidden(self._sentence)
        def right_sentence(rng):
            yield Example("C1", named, expect=answer)

    def fits(self, code: str, expect: Any = True, **inputs: Any) -> None:
        """A visible check of the input: that its form is the one asked for, or that it shows it."""
        self.spec.witness(self._input, "C2", code, **inputs, options={"expect": expect})

    def shows(
        self, code: str, expect: Any, inputs: Callable[[np.random.Generator], dict[str, Any]]
    ) -> None:
        """A hidden check of the input: that it shows the mistake, whatever `inputs` draws."""

        @self.spec.hidden(self._input)
        def shown(rng):
            for _ in range(2):
                yield Example("C2", code, inputs(rng), expect=expect)

    def blames(self, code: str, name: str, sentence: str, message: str) -> None:
        """A wrong answer: the right input, but another sentence."""
        self.returns(code, name, message, self._values.replace(self.answer, sentence, 1))

    def input(self, code: str, name: str, message: str, values: str) -> None:
        """A wrong answer: the right sentence with these values (the answer's own names are known)."""
        self.returns(code, name, message, f'"{self.answer}", {values}')

    def returns(self, code: str, name: str, message: str, values: str) -> None:
        """A wrong answer that returns these values."""
        self.spec.slip(code, name, message, f"return {self._values}", f"return {values}")
