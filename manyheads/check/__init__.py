"""The checks that a student runs: `check(attention, "mask")`.

Each check runs the contract's visible examples on the student's function and shows which sentences
hold. Where one fails, it shows the smallest example of it, and the misconception whose numbers
these are.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import Any

from manyheads.check.comparison import Difference, judge
from manyheads.check.contract import Function, Witness, functions, load
from manyheads.check.diagnosis import match, telling
from manyheads.check.example import Example, Outcome, run
from manyheads.check.report import Failure, Report

__all__ = [
    "CheckFailed",
    "Example",
    "Outcome",
    "Report",
    "check",
    "contract_table",
    "report",
]


class CheckFailed(AssertionError):
    """A sentence of the contract does not hold: `report` for people, `record` for programs."""

    def __init__(self, text: str, record: Mapping[str, str], report: Report | None = None) -> None:
        super().__init__(text)
        self.record = dict(record)
        self.report = report

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback: the report stands above it already."""
        return [self.report.headline if self.report is not None else str(self)]


def check(function: Callable, idea: str | None = None, *, name: str | None = None) -> None:
    """Check a function of yours against its contract, and show what holds.

    function: what you wrote; its name tells which contract it is held against.
    idea: one idea of the contract ("values", "mask", …); all of them where it is left out.
    name: the contract's name for it, where your function is called something else.

    Raises CheckFailed where a sentence does not hold, TypeError where `function` can't be called,
    and ValueError where there is no such function or idea (it lists those there are).
    """
    contract = _find(function, name)
    if idea is not None and idea not in contract.ideas:
        raise ValueError(f"{contract.name} has no idea {idea!r}; there are {_list(contract.ideas)}")
    result = report(contract, function, idea, sys._getframe(1).f_globals)
    shown = _display(result)
    if not result.passed:
        raise CheckFailed(result.headline if shown else str(result), _record(result), result)


def report(
    contract: Function,
    function: Callable,
    idea: str | None = None,
    others: Mapping[str, Any] | None = None,
) -> Report:
    """The report on a function; `others` holds the student's other functions by name."""
    chosen = contract.ideas if idea is None else {idea: contract.ideas[idea]}
    witnesses = [witness for group in chosen.values() for witness in group]
    names = {contract.name: function}
    outcomes, differences = [], []
    for witness in witnesses:
        got = run(witness.example, names)
        outcomes.append(got)
        differences.append(judge(witness.example, witness.expected, got))
        if differences[-1] is not None and differences[-1].kind == "not written":
            return Report(
                contract.name, idea, contract.sentences, {},
                Failure(witness.example, witness.expected, got, differences[-1]),
            )  # fmt: skip
    holds: dict[str, bool] = {}
    for witness, difference in zip(witnesses, differences, strict=True):
        key = witness.example.sentence
        holds[key] = holds.get(key, True) and difference is None
    failure = None
    if any(differences):
        trials = list(zip(witnesses, outcomes, differences, strict=True))
        failure = _failure(contract, trials, names, others or {})
    return Report(contract.name, idea, contract.sentences, holds, failure)


def contract_table(exercise: str, function: str | None = None) -> ContractTable:
    """The contracts of an exercise, or of one function in it, to show in a page."""
    contracts = load(exercise)
    if function is not None:
        contracts = {function: contracts[function]}
    return ContractTable(contracts)


class ContractTable:
    """Sentences and one witness each; shows itself as HTML in a notebook and as text elsewhere."""

    def __init__(self, contracts: Mapping[str, Function]) -> None:
        self.contracts = contracts

    def __str__(self) -> str:
        lines = []
        for contract in self.contracts.values():
            lines.append(contract.name)
            lines += [f"  {key}  {sentence}" for key, sentence in contract.sentences.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        from manyheads.check.report import _inline

        parts = []
        for contract in self.contracts.values():
            parts.append(f"<p><code>{escape(contract.name)}</code></p><ul class='contract'>")
            for key, sentence in contract.sentences.items():
                parts.append(
                    f"<li><strong>{key}</strong> {_inline(sentence)}{_witness(contract, key)}</li>"
                )
            parts.append("</ul>")
        return "".join(parts)


def _witness(contract: Function, key: str) -> str:
    from html import escape

    from manyheads.check.report import _assignment, _show

    for witnesses in contract.ideas.values():
        for witness in witnesses:
            if witness.example.sentence != key:
                continue
            example = witness.example
            lines = [line[4:] for n, v in example.inputs.items() for line in _assignment(n, v)]
            result = f"raises {example.raises}" if example.raises else _show(witness.expected.value)
            lines += [example.code, *(f"# {line}" for line in result.splitlines())]
            code = escape("\n".join(lines))
            return f"<details><summary>Witness of {key}</summary><pre>{code}</pre></details>"
    return ""


def _find(function: Callable, name: str | None) -> Function:
    if not callable(function):
        raise TypeError(
            f"check needs a function of yours, got {type(function).__name__} {function!r:.60}; "
            "write check(attention), without calling it"
        )
    known = functions()
    wanted = name or getattr(function, "__name__", "")
    if wanted not in known:
        raise ValueError(f"no contract is called {wanted!r}; there are {_list(known)}")
    return known[wanted]


Trial = tuple[Witness, Outcome, Difference | None]


def _failure(
    contract: Function,
    trials: list[Trial],
    names: Mapping[str, Any],
    others: Mapping[str, Any],
) -> Failure:
    witness, got, difference = next(trial for trial in trials if trial[2] is not None)
    more = trials + _elsewhere(contract, trials, names)
    named = match(
        [(trial.example, outcome, wrong is not None) for trial, outcome, wrong in more],
        contract.misconceptions,
        lambda key, index: more[index][0].wrong.get(key),
        own=len(trials),
    )
    return Failure(
        witness.example,
        witness.expected,
        got,
        difference,
        telling(witness.example, witness.expected, got, difference),
        named,
        contract.misconceptions[named] if named else "",
        _cause(contract, others),
    )


def _elsewhere(contract: Function, trials: list[Trial], names: Mapping[str, Any]) -> list[Trial]:
    """The function on its other ideas: they tell apart mistakes that agree on this one."""
    seen = [witness for witness, _, _ in trials]
    more = []
    with redirect_stdout(io.StringIO()):
        for witness in (w for group in contract.ideas.values() for w in group):
            if witness.example.memory is None and not any(witness is other for other in seen):
                got = run(witness.example, names)
                more.append((witness, got, judge(witness.example, witness.expected, got)))
    return more


def _cause(contract: Function, others: Mapping[str, Any]) -> str:
    """A function of the student's that this one may call, and that fails its own checks."""
    for name in contract.uses:
        other, known = others.get(name), functions().get(name)
        if known is None or not callable(other):
            continue
        result = report(known, other)
        if not result.passed and result.failure is not None:
            broken = result.failure.example.sentence
            return (
                f"Your `{name}` fails its own check ({broken}): if your `{contract.name}` calls "
                "it, mend that first."
            )
    return ""


def _record(result: Report) -> dict[str, str]:
    failure = result.failure
    assert failure is not None
    return {
        "sentence": f"{failure.example.sentence}: {result.sentences[failure.example.sentence]}",
        "misconception": failure.misconception or "",
        "message": failure.message
        or failure.cause
        or failure.telling
        or failure.difference.message,
    }


def _display(result: Report) -> bool:
    """Show the report in a notebook (True), or print it where it is good news."""
    shell = sys.modules.get("IPython")
    if shell is not None and shell.get_ipython() is not None:
        from IPython.display import display

        display(result)
        return True
    if result.passed:
        print(result)
    return False


def _list(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
