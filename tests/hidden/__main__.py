"""`python -m tests.hidden` compiles what students may see of the specs: check/visible/*.json.
With the names of exercises it compiles these only.

`python -m tests.hidden fairness` tries every wrong and every right implementation with many seeds,
and every attack, and writes build/fairness.json and the counts for the book's page on fairness.
With the names of exercises (and fewer `--seeds`) it tries these, and leaves the book alone.
"""

import argparse
import importlib
import sys
from pathlib import Path

from manyheads.check import contract
from tests.hidden.spec import SOLUTIONS, Exercise

VISIBLE = Path(contract.__file__).parent / "visible"


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


def measure_fairness(arguments: list[str]) -> int:
    from tests.hidden import measuring

    parser = argparse.ArgumentParser(prog="python -m tests.hidden fairness")
    parser.add_argument("exercises", nargs="*", metavar="NN_topic", help="all by default")
    parser.add_argument("--seeds", type=int, default=measuring.SEEDS, help="%(default)s by default")
    chosen = parser.parse_args(arguments)
    whole = not chosen.exercises
    try:
        return measuring.measure(exercises(*chosen.exercises), chosen.seeds, whole)
    except KeyboardInterrupt:
        print("\nstopped; what is measured is kept, run it again")
        return 130


if __name__ == "__main__":
    if sys.argv[1:2] == ["fairness"]:
        sys.exit(measure_fairness(sys.argv[2:]))
    compile_visible(*sys.argv[1:])
