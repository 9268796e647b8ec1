"""Compile what students may see of the specs: `python -m tests.hidden` writes check/visible/*.json."""

import importlib
from pathlib import Path

from manyheads.check import contract
from tests.hidden.spec import SOLUTIONS, Exercise

VISIBLE = Path(contract.__file__).parent / "visible"


def exercises() -> list[Exercise]:
    """Every exercise that has a text, in order, with its spec."""
    names = sorted(path.parent.name for path in SOLUTIONS.glob("*/*.md"))
    modules = [importlib.import_module(f"tests.hidden.{name.split('_', 1)[1]}") for name in names]
    return [module.exercise for module in modules]


def compiled(exercise: Exercise) -> str:
    """The text of an exercise's visible file."""
    return contract.dump([spec.visible() for spec in exercise.functions.values()])


def main() -> None:
    VISIBLE.mkdir(exist_ok=True)
    for exercise in exercises():
        (VISIBLE / f"{exercise.name}.json").write_text(compiled(exercise), encoding="utf-8")
        print(f"{exercise.name}: {len(exercise.functions)} contracts compiled")


if __name__ == "__main__":
    main()
