"""What a chapter's hidden tests are made of, and how they grade.

A chapter's module makes one `Exercise` and, for each function, hands it

- witnesses: tiny visible examples, at least one for every sentence of the contract;
- hidden examples: generators of randomised examples, at least one for every sentence;
- misconceptions: the wrong implementations that people really write, with a teacher's words;
- alternatives: right implementations in other styles.

The contract's sentences, the ideas with their points, the stub and the answer stand in the
exercise's text, `solutions/NN_topic/topic.md`, and are read from there.

Misconceptions and alternatives are ordinary functions below a decorator. They are loaded from their
source, in the namespace of a student's notebook (the exercise's setup cell and the course's answers
to its other functions), so they may only use what a student has.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import secrets
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from manyheads.check import CheckFailed, Example, Outcome, contract
from manyheads.check.comparison import Difference, judge
from manyheads.check.diagnosis import match, telling
from manyheads.check.example import run

SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"

# A function that remembers what it should not shows it within a few examples run a second time.
TWICE = 4

Generator = Callable[[np.random.Generator], Iterator[Example]]


@dataclass(frozen=True)
class Implementation:
    """A way to write a function: source in a student's words, with what is said about it."""

    name: str
    source: str
    message: str = ""


@dataclass(frozen=True)
class Verdict:
    """How an implementation fared on one idea."""

    passed: bool
    sentence: str = ""
    misconception: str = ""
    message: str = ""
    difference: str = ""


class Exercise:
    """An exercise of the course, read from its text; its functions get their specs here."""

    def __init__(self, name: str, library: ModuleType) -> None:
        self.name, self.library = name, library
        self.topic = name.split("_", 1)[1]
        self.text = ExerciseText(SOLUTIONS / name / f"{self.topic}.md")
        self.functions: dict[str, FunctionSpec] = {}

    def function(self, name: str, *, uses: tuple[str, ...] = ()) -> FunctionSpec:
        """The spec of a function, to be filled; `uses` names other functions that answers may call."""
        spec = FunctionSpec(self, name, uses)
        self.functions[name] = spec
        return spec

    def question(self, name: str) -> FunctionSpec:
        """As `function`, for a question that is answered by a function which the library lacks."""
        spec = self.function(name)
        spec.reference = spec.load(self.text.answers[name])
        return spec

    def grade(self, test: str, function: Any) -> None:
        """Grade a student's function on one test (`"attention-mask"`); raise CheckFailed if it fails.

        The random inputs come from the seed in GRADING_SEED, or are fresh; a failure names the seed.
        """
        name, idea = test.rsplit("-", 1)
        seed = int(os.environ.get("GRADING_SEED") or secrets.randbits(32))
        spec = self.functions[name]
        seen = len(spec.witnesses[idea])  # the visible check, which follows in the cell, has these
        with redirect_stdout(io.StringIO()):  # what a function prints would tell the hidden inputs
            verdict = spec.judge(function, idea, seed, skip=seen)
            others = sys._getframe(1).f_globals
            cause = "" if verdict.passed or verdict.message else spec.cause(others, seed)
        if verdict.passed:
            return
        said = verdict.message or cause or verdict.difference
        record = {
            "sentence": f"{verdict.sentence}: {spec.sentences.get(verdict.sentence, '')}",
            "misconception": verdict.misconception,
            "message": said,
            "seed": str(seed),
        }
        named = f" [{verdict.misconception}]" if verdict.misconception else ""
        raise CheckFailed(f"{record['sentence']}\n{said}{named}\n(seed {seed})", record)

    def namespace(self, **changes: str) -> dict[str, Any]:
        """What a student's notebook holds when it is complete; `changes` replaces answers by name."""
        space: dict[str, Any] = {"__name__": "student"}
        for source in [self.text.setup, *{**self.text.answers, **changes}.values()]:
            exec(compile(source, "<student>", "exec"), space)
        return space


class FunctionSpec:
    """One function: its contract (from the text), examples, misconceptions and alternatives."""

    def __init__(self, exercise: Exercise, name: str, uses: tuple[str, ...]) -> None:
        self.exercise, self.name, self.uses = exercise, name, uses
        self.sentences = exercise.text.of(name, "contracts")
        self.ideas = exercise.text.of(name, "ideas")  # idea -> points
        self.witnesses: dict[str, list[Example]] = {idea: [] for idea in self.ideas}
        self.generators: dict[str, list[Generator]] = {idea: [] for idea in self.ideas}
        self.misconceptions: dict[str, Implementation] = {}
        self.alternatives: dict[str, Implementation] = {}

    # --- what a chapter's module says

    def witness(self, idea: str, sentence: str, code: str, **inputs: Any) -> None:
        """A tiny visible example. Options of Example go in `options={…}`."""
        options = inputs.pop("options", {})
        self.witnesses[idea].append(Example(sentence, code, inputs, **options))

    def hidden(self, idea: str) -> Callable[[Generator], Generator]:
        """Decorates a generator of hidden examples for an idea: `def cases(rng): yield Example(…)`."""

        def add(generator: Generator) -> Generator:
            self.generators[idea].append(generator)
            return generator

        return add

    def misconception(self, code: str, message: str, method: str | None = None) -> Callable:
        """Decorates a wrong implementation; `code` is the catalogue's, its name completes the id.

        method: for a class, the method that the decorated function replaces in the course's answer.
        """

        def add(function: Callable) -> Callable:
            key = f"{code}-{function.__name__.replace('_', '-')}"
            self.misconceptions[key] = Implementation(key, self._source(function, method), message)
            return function

        return add

    def slip(self, code: str, name: str, message: str, old: str, new: str) -> None:
        """A wrong implementation that differs from the course's answer in one place."""
        answer = self.exercise.text.answers[self.name]
        if answer.count(old) < 1:
            raise ValueError(f"{self.name}: the answer has no {old!r} for {code}-{name}")
        key = f"{code}-{name}"
        self.misconceptions[key] = Implementation(key, answer.replace(old, new), message)

    def alternative(self, name: str, method: str | None = None) -> Callable:
        """Decorates a right implementation in another style."""

        def add(function: Callable) -> Callable:
            self.alternatives[name] = Implementation(name, self._source(function, method))
            return function

        return add

    def _source(self, function: Callable, method: str | None) -> str:
        source = textwrap.dedent(inspect.getsource(function))
        source = source[re.search(r"^(def|class) ", source, re.M).start() :]
        if method is not None:
            answer = self.exercise.text.answers[self.name]
            return f"{answer}\n\n{source}\n{self.name}.{method} = {function.__name__}\n"
        return re.sub(rf"\b{function.__name__}\b", self.name, source)  # recursion included

    # --- judging

    def examples(self, idea: str, seed: int) -> list[Example]:
        """The idea's witnesses and hidden examples for this seed."""
        rng = np.random.default_rng([seed, zlib.crc32(f"{self.name}-{idea}".encode())])
        hidden = [example for make in self.generators[idea] for example in make(rng)]
        later = [replace(example, once=True) for example in hidden[TWICE:]]
        return self.witnesses[idea] + hidden[:TWICE] + later

    @cached_property
    def reference(self) -> Any:
        return getattr(self.exercise.library, self.name)

    def load(self, source: str) -> Any:
        """The function that this source defines in a student's notebook."""
        return self.exercise.namespace(**{self.name: source})[self.name]

    @cached_property
    def _wrong(self) -> dict[str, Any]:
        return {key: self.load(wrong.source) for key, wrong in self.misconceptions.items()}

    def expected(self, example: Example) -> Outcome:
        if example.expect is not None:
            return Outcome(value=example.expect)
        if example.raises:
            return Outcome(error=example.raises)
        # The reference needs no second run, and no measurement, to be right.
        return run(replace(example, memory=None, once=True), {self.name: self.reference})

    def judge(self, function: Any, idea: str, seed: int, skip: int = 0) -> Verdict:
        """How a function fares on an idea: on its first failure, why and which misconception.

        The first `skip` examples do not decide; once another has failed, they help to explain it.
        """
        trials = self.trials(idea, seed)
        if not trials[skip:]:
            raise RuntimeError(f"{self.name}-{idea} compared nothing")

        def outcomes(some: list[tuple[Example, Outcome]]) -> list[Outcome]:
            return [run(example, {self.name: function}) for example, _ in some]

        def differences(some: list[tuple[Example, Outcome]], got: list[Outcome]) -> list:
            return [judge(*trial, mine) for trial, mine in zip(some, got, strict=True)]

        got = outcomes(trials[skip:])
        if not any(differences(trials[skip:], got)):
            return Verdict(True)
        got = outcomes(trials[:skip]) + got
        return self._explain(idea, seed, got, differences(trials, got))

    def _explain(
        self, idea: str, seed: int, got: list[Outcome], reasons: list[Difference | None]
    ) -> Verdict:
        trials = self.trials(idea, seed)
        failed = [reason is not None for reason in reasons]
        first = failed.index(True)
        why, (example, expected) = reasons[first], trials[first]
        if why.kind == "not written":
            return Verdict(False, example.sentence, difference=why.message)
        named = match(
            [(example, *pair) for (example, _), *pair in zip(trials, got, failed, strict=True)],
            self.misconceptions,
            lambda key, index: self._wrong_outcome(key, idea, seed, index),
        )
        message = self.misconceptions[named].message if named else ""
        about = f"{why.message}. {telling(example, expected, got[first], why)}".strip()
        if why.kind == "error" and first >= len(self.witnesses[idea]):
            about = _error_without_its_words(got[first])
        return Verdict(False, example.sentence, named or "", message, about)

    @cache  # noqa: B019  (specs live as long as the process)
    def trials(self, idea: str, seed: int) -> list[tuple[Example, Outcome]]:
        """The idea's examples for this seed, each with the right outcome."""
        return [(example, self.expected(example)) for example in self.examples(idea, seed)]

    @cache  # noqa: B019
    def _wrong_outcome(self, key: str, idea: str, seed: int, index: int) -> Outcome | None:
        """A misconception's outcome on a trial, None where it is right there."""
        return self._wrong_on(key, *self.trials(idea, seed)[index])

    def _wrong_on(self, key: str, example: Example, expected: Outcome) -> Outcome | None:
        outcome = run(example, {self.name: self._wrong[key]})
        return None if judge(example, expected, outcome) is None else outcome

    def cause(self, others: Mapping[str, Any], seed: int) -> str:
        """Where another function of the student's is the likely cause: a sentence that says so."""
        for name in self.uses:
            other, spec = others.get(name), self.exercise.functions.get(name)
            if spec is None or other is None:
                continue
            for idea in spec.ideas:
                verdict = spec.judge(other, idea, seed)
                if not verdict.passed:
                    return (
                        f"Your `{name}` fails its own test ({verdict.sentence}): if your "
                        f"`{self.name}` calls it, mend that first."
                    )
        return ""

    # --- what students may see

    def visible(self) -> contract.Function:
        """The contract with its witnesses, right and wrong outcomes as data."""
        ideas = {
            idea: tuple(self._visible_witness(example) for example in examples)
            for idea, examples in self.witnesses.items()
        }
        messages = {key: wrong.message for key, wrong in self.misconceptions.items()}
        return contract.Function(
            self.name, self.exercise.name, self.sentences, ideas, messages, self.uses
        )

    def _visible_witness(self, example: Example) -> contract.Witness:
        expected = self.expected(example)
        outcomes = {key: self._wrong_on(key, example, expected) for key in self._wrong}
        wrong = {key: outcome for key, outcome in outcomes.items() if outcome is not None}
        return contract.Witness(example, expected, wrong)


def _error_without_its_words(outcome: Outcome) -> str:
    """What was raised and where; its words are the student's, and could tell the hidden inputs."""
    where = f" ({outcome.lines[-1]})" if outcome.lines else ""
    return f"your function raised {outcome.error}{where}"


@dataclass
class ExerciseText:
    """What the exercise's text (a MyST notebook with nbgrader metadata) says."""

    path: Path
    setup: str = ""
    answers: dict[str, str] = field(default_factory=dict)
    stubs: dict[str, str] = field(default_factory=dict)
    contracts: dict[str, dict[str, str]] = field(default_factory=dict)
    ideas: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import jupytext

        notebook = jupytext.read(self.path)
        for cell in notebook.cells:
            mark = cell.metadata.get("nbgrader", {})
            grade_id = mark.get("grade_id", "")
            if cell.cell_type == "markdown":
                self._read_contracts(cell.source)
            elif grade_id == "setup":
                self.setup = cell.source
            elif mark.get("solution"):
                self.answers[grade_id] = _without_markers(cell.source)
                self.stubs[grade_id] = _stub(cell.source)
            elif mark.get("grade"):
                name, idea = grade_id.rsplit("-", 1)
                self.ideas.setdefault(name, {})[idea] = mark["points"]

    def of(self, function: str, part: str) -> dict[str, Any]:
        """A function's contracts or ideas; ValueError where the text has none."""
        found = getattr(self, part).get(function)
        if not found or function not in self.answers:
            raise ValueError(
                f"{self.path}: `{function}` needs a heading with its name in backticks, sentences "
                f"«- **C1** …» below it, a cell with the grade_id {function} for the answer and "
                f"test cells {function}-idea"
            )
        return found

    def _read_contracts(self, text: str) -> None:
        """Below a heading with `name` in it: items «- **C1** sentence», possibly over several lines."""
        name = None
        for block in re.split(r"\n(?=#|- \*\*C\d|\n)", text):
            heading = re.match(r"\n*#+ .*?`(\w+)", block)
            item = re.match(r"\n*- \*\*(C\d+)\*\* (.*)", block, re.S)
            if heading:
                name = heading[1]
            elif item and name:
                self.contracts.setdefault(name, {})[item[1]] = " ".join(item[2].split())


def _without_markers(source: str) -> str:
    """A solution cell's answer: what stands there when the stub's markers are taken out."""
    return "\n".join(line for line in source.splitlines() if "### " not in line)


def _stub(source: str) -> str:
    """A solution cell as students get it."""
    region = r"^( *)### BEGIN SOLUTION.*?### END SOLUTION"
    return re.sub(region, r"\1raise NotImplementedError()", source, flags=re.M | re.S)
