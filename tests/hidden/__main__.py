"""`python -m tests.hidden` compiles what students may see of the specs: check/visible/*.json.
With the names of exercises it compiles these only.

`python -m tests.hidden fairness` tries every wrong and every right implementation with many seeds
and writes build/fairness.json, from which the book's page on fairness is made.
"""

import importlib
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.progress import track

from manyheads.check import contract
from tests.hidden.fairness import fairness
from tests.hidden.spec import SOLUTIONS, Exercise

VISIBLE = Path(contract.__file__).parent / "visible"
FAIRNESS = SOLUTIONS.parent / "build" / "fairness.json"
SEEDS = range(1, 21)


def exercises(*names: str) -> list[Exercise]:
    """The exercises of these names, or every one that has a spec, in order."""
    here = Path(__file__).parent
    topics = [name.split("_", 1)[1] for name in names or texts()]
    ready = [topic for topic in topics if (here / f"{topic}.py").is_file()]
    return [importlib.import_module(f"tests.hidden.{topic}").exercise for topic in ready]


def texts() -> list[str]:
    """The exercises that have a text, in order."""
    return sorted(path.parent.name for path in SOLUTIONS.glob("*/*.md"))


def compiled(exercise: Exercise) -> str:
    """The text of an exercise's visible file."""
    return contract.dump([spec.visible() for spec in exercise.functions.values()])


def compile_visible(*names: str) -> None:
    VISIBLE.mkdir(exist_ok=True)
    for exercise in exercises(*names):
        (VISIBLE / f"{exercise.name}.json").write_text(compiled(exercise), encoding="utf-8")
        print(f"{exercise.name}: {len(exercise.functions)} contracts compiled")


def write_fairness() -> None:
    names = [(exercise.name, name) for exercise in exercises() for name in exercise.functions]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(track(pool.map(_fairness_of, names), "Fairness", total=len(names)))
    FAIRNESS.parent.mkdir(exist_ok=True)
    text = json.dumps({"seeds": len(SEEDS), "functions": results}, indent=1, ensure_ascii=False)
    FAIRNESS.write_text(text + "\n", encoding="utf-8")


def _fairness_of(names: tuple[str, str]) -> dict:
    (exercise,) = exercises(names[0])
    return fairness(exercise.functions[names[1]], SEEDS)


if __name__ == "__main__":
    write_fairness() if sys.argv[1:] == ["fairness"] else compile_visible(*sys.argv[1:])
