"""`make fairness`: what came of every wrong and every right implementation, and of every attack.

Each function's result is kept in build/fairness/ until something that it depends on changes, so
that a run can be stopped, and started again, without repeating what is done.

A whole run also writes book/fairness.json: the counts that the book's page on fairness shows.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from rich.progress import track

from tests.attacks.corpus import ATTACKS, GROUPS
from tests.hidden.fairness import counts, fairness, right_ways
from tests.hidden.likeness import likeness
from tests.hidden.spec import SOLUTIONS, Exercise, FunctionSpec

ROOT = SOLUTIONS.parent
PARTS = ROOT / "build" / "fairness"
WHOLE = ROOT / "build" / "fairness.json"
BOOK = ROOT / "book" / "fairness.json"
SEEDS = 20
HARMLESS, GAINING = "test_an_attack_gains_nothing[", "test_the_attack_would_gain_in_one_process["


def measure(exercises: list[Exercise], seeds: int, whole: bool) -> int:
    """Measure the exercises' functions, and for a whole run the attacks; return the exit status."""
    PARTS.mkdir(parents=True, exist_ok=True)
    attacks = measured_attacks() if whole else None
    functions = measured_functions(exercises, seeds)
    found = {
        "seeds": seeds,
        "machine": machine(),
        "attacks": attacks,
        "likeness": likeness(exercises),
        "functions": functions,
    }
    _write(WHOLE, found)
    short = {**found, "functions": [counts(function) for function in functions]}
    if whole:
        _write(BOOK, short)
    return _report(short)


def machine() -> dict[str, str]:
    """What measured."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"system": platform.system(), "python": python, "numpy": np.__version__}


# --- implementations


def measured_functions(exercises: list[Exercise], seeds: int) -> list[dict]:
    """The result of each function, in order; what is known already is not measured again."""
    specs = [spec for exercise in exercises for spec in exercise.functions.values()]
    keys = {exercise.name: _key_of(exercise, seeds) for exercise in exercises}
    missing = [spec for spec in specs if _known(_part(spec), keys[spec.exercise.name]) is None]
    missing.sort(key=_size, reverse=True)  # the longest first, so that all processors end together
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = {
            pool.submit(_fairness_of, spec.exercise.topic, spec.name, seeds): spec
            for spec in missing
        }
        try:
            for done, job in enumerate(_bar(as_completed(jobs), len(jobs)), 1):
                spec = jobs[job]
                _write(_part(spec), {"key": keys[spec.exercise.name], **job.result()})
                if not sys.stdout.isatty():
                    print(f"{done} of {len(jobs)}: {spec.exercise.name} {spec.name}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C nothing else begins
    results = [_known(_part(spec), keys[spec.exercise.name]) for spec in specs]
    return [{name: value for name, value in result.items() if name != "key"} for result in results]


def _bar(jobs: Iterable[Future], total: int) -> Iterable[Future]:
    return track(jobs, "Implementations", total=total, disable=not sys.stdout.isatty())


def _fairness_of(topic: str, function: str, seeds: int) -> dict:
    exercise = importlib.import_module(f"tests.hidden.{topic}").exercise
    return fairness(exercise.functions[function], range(1, seeds + 1))


def _part(spec: FunctionSpec) -> Path:
    return PARTS / f"{spec.exercise.name}.{spec.name}.json"


def _size(spec: FunctionSpec) -> int:
    ways = len(spec.misconceptions) + len(right_ways(spec))
    return ways * len(spec.misconceptions)  # each wrong way is compared with all others


def _key_of(exercise: Exercise, seeds: int) -> str:
    """Changes with everything that a result can depend on."""
    here = Path(__file__).parent
    library = (path for path in (ROOT / "manyheads").rglob("*.py"))
    own = [here / f"{exercise.topic}.py", here / "spec.py", here / "fairness.py"]
    return _digest([*own, exercise.text.path, *library], f"{seeds} {machine()}")


# --- attacks


def measured_attacks() -> dict:
    """What came of the attacks, group by group, by the tests that `make test` runs too."""
    code = [*(ROOT / "headmaster").rglob("*.py"), *(ROOT / "tests" / "attacks").glob("*.py")]
    part, key = PARTS / "attacks.json", _digest(code, str(machine()))
    known = _known(part, key)
    if known is None:
        known = {"key": key, **_attacked()}
        _write(part, known)
    return {name: value for name, value in known.items() if name != "key"}


def _attacked() -> dict:
    report = PARTS / "attacks.xml"
    options = ["-n", str(os.cpu_count()), f"--junitxml={report}", "-p", "no:cacheprovider"]
    # its exit status says that some attack had an effect; so does the report
    subprocess.run([sys.executable, "-m", "pytest", "tests/attacks", *options], cwd=ROOT)
    cases = {case.get("name"): case for case in xml.parse(report).getroot().iter("testcase")}
    states = {name: _state(cases.get(f"{HARMLESS}{name}]")) for name in _names()}
    groups = [_group(group, states) for group in GROUPS]
    gaining = sum(
        name.startswith(GAINING) and _state(case) == "repelled" for name, case in cases.items()
    )
    return {"groups": groups, "gaining": gaining, "layers": _layers()}


def _names() -> list[str]:
    return [attack.name for attack in ATTACKS]


def _state(case: xml.Element | None) -> str:
    if case is None:
        return "not tried"
    if case.find("skipped") is not None:
        return "not tried"  # the machine lacks the layer that the attack is about
    troubled = case.find("failure") is not None or case.find("error") is not None
    return "succeeded" if troubled else "repelled"


def _group(group: str, states: dict[str, str]) -> dict:
    found = Counter(states[attack.name] for attack in ATTACKS if attack.group == group)
    return {"group": group, **{state: found[state] for state in _STATES}}


_STATES = ("repelled", "succeeded", "not tried")


def _layers() -> list[str]:
    from headmaster.doctor import layers

    return [layer.name for layer in layers() if layer.holds]


# --- files


def _digest(paths: Iterable[Path], more: str) -> str:
    digest = hashlib.sha256(more.encode())
    for path in sorted(paths):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _known(path: Path, key: str) -> dict | None:
    try:
        part = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return part if part.get("key") == key else None


def _write(path: Path, data: dict) -> None:
    """Whole or not at all: a run may be stopped at any moment."""
    half = path.with_suffix(".half")
    text = json.dumps(data, indent=1, ensure_ascii=False)
    half.write_text(text + "\n", encoding="utf-8")
    half.replace(path)


def _report(found: dict) -> int:
    """Print the sums and everything that is not as it should be; return the exit status."""
    functions, groups = found["functions"], (found["attacks"] or {}).get("groups", [])

    def total(name: str) -> int:
        return sum(function[name] for function in functions)

    print(
        f"{len(functions)} functions, {found['seeds']} seeds: {total('rejected')} of "
        f"{total('wrong')} wrong ways rejected, {total('named')} named; "
        f"{total('accepted')} of {total('right')} right ways accepted"
    )
    if groups:
        repelled = sum(group["repelled"] for group in groups)
        print(f"{repelled} of {len(ATTACKS)} attacks repelled")
    lapses = [(f["function"], lapse) for f in functions for lapse in f["lapses"]]
    lapses += [(group["group"], "an attack succeeded") for group in groups if group["succeeded"]]
    for where, lapse in lapses:
        print(f"{where}: {lapse}")
    return 1 if lapses else 0
