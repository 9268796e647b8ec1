"""A sample class: what sixteen people hand in for the first two exercises, and six for the others.

Made from the released notebooks and the specs, so that it stays true when they change:
`python tests/class/make_class.py` writes `downloads/NN_topic/student_topic.ipynb`, named as a
learning platform names them, and `expected.json` with the score that each deserves.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from tests.hidden.__main__ import exercises  # noqa: E402

WHOLE = ("01_matrices", "02_scaled_dot_product")  # which the whole class hands in
LATER = ("ada", "bela", "dilip", "emma", "hana", "mateo")  # who stays for the others
SEED = 20  # the expected scores don't depend on it: the tests of the specs prove that

Edit = Callable[[dict], None]


@dataclass(frozen=True)
class Student:
    """A member of the class: how the functions are written, and what happened to the file.

    styles: which alternative (by its place in the spec) is chosen; None is the course's answer.
    wrong: a misconception by id for each function that has one.
    missing: functions that are left as they were released.
    rewritten: source of one's own, by function.
    edit: what happened to the notebook afterwards, by accident.
    file: the file's name, with {topic}.
    """

    name: str
    styles: int | None = None
    wrong: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    rewritten: dict[str, str] = field(default_factory=dict)
    edit: Edit | None = None
    file: str = "{student}_{topic}.ipynb"
    broken: bool = False  # the file is cut off: nobody can grade it


def copied_cell(notebook: dict) -> None:
    """Copying a cell in an editor copies nbgrader's metadata with it."""
    cells = notebook["cells"]
    place = next(
        i for i, cell in enumerate(cells) if cell["metadata"].get("nbgrader", {}).get("solution")
    )
    twin = copy.deepcopy(cells[place])
    twin["id"] = "pasted"
    cells.insert(place + 1, twin)


def answer_below_the_stub(notebook: dict) -> None:
    """The stub stays as it is, and the answer stands in a new cell below it."""
    cells = notebook["cells"]
    for index in range(len(cells) - 1, -1, -1):
        mark = cells[index]["metadata"].get("nbgrader", {})
        if mark.get("grade_id") in ("attention", "linear"):
            own = {"cell_type": "code", "id": f"own-{index}", "metadata": {}, "outputs": [],
                   "execution_count": None, "source": cells[index]["source"]}  # fmt: skip
            cells[index]["source"] = "# see below"
            cells.insert(index + 1, own)


def lost_metadata(notebook: dict) -> None:
    """Some editors drop all metadata and ids when they save."""
    notebook["metadata"] = {"accelerator": "GPU"}
    for index, cell in enumerate(notebook["cells"]):
        cell["metadata"] = {"colab_id": f"x{index}"}
        del cell["id"]
    notebook["nbformat_minor"] = 0


SCALE_WARNING = """
import sys
import warnings


def attention_scores(Q, K):
    print("scores of", Q.shape, K.shape, file=sys.stderr)
    warnings.warn("still to be made faster")
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("these do not fit")
    return Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
"""

SYNTAX_ERROR = """
def padding_mask(lengths, m):
    return (np.arange(m) < np.asarray(lengths)[:, None]
"""

UNCLOSED = "def softmax(x, axis=-1:\n    return x"

# What the two who misunderstand have misunderstood in the exercises from 03 on.
DILIP = {
    "self_attention": "B01-no-scale",
    "split_heads": "C06-interleaved",
    "attention_entropy": "J03-bits",
    "cross_attention": "B01-no-scale",
    "sinusoidal_encoding": "E05-cosine-first",
    "window_mask": "F01-window-exclusive",
    "merge_partial": "G01-first-not-rescaled",
    "softmax_backward": "H01-only-the-diagonal",
    "layer_norm": "I02-one-less",
}
EMMA = {
    "merge_heads": "C03-reshaped-in-one-step",
    "offset_score": "E11-sign-reversed",
    "decoder_attention": "B39-not-causal",
    "apply_rope": "E30-turned-backwards",
    "route_heads": "F27-not-renormalised",
    "KVCache": "G13-no-mask",
    "numerical_gradient": "X20-forward",
    "encoder_layer": "I08-pre-norm",
}
HANA = (
    "self_attention",
    "multi_head_attention",
    "ablate_heads",
    "hard_alignment",
    "alibi_bias",
    "hash_attention",
    "tiled_attention",
    "dead_heads",
    "feed_forward",
)

CLASS = (
    Student("ada"),
    Student("bela", styles=0),
    Student("chen", styles=1),
    Student(
        "dilip",
        styles=2,
        wrong={"Matrix": "A02-zip-truncates", "attention": "B01-no-scale", **DILIP},
    ),
    Student(
        "emma",
        wrong={
            "softmax": "A10-maximum-of-the-whole",
            "attention": "A13-softmax-over-queries",
            **EMMA,
        },
    ),
    Student(
        "farid",
        wrong={"linear": "C17-weights-transposed", "attention": "B38-mask-the-other-way"},
    ),
    Student("goran", styles=3, wrong={"xavier_normal": "A39-lecun", "causal_mask": "B37-top-left"}),
    Student("hana", missing=("xavier_normal", "attention", *HANA)),
    Student("ivo", rewritten={"padding_mask": SYNTAX_ERROR, "softmax": UNCLOSED}),
    Student("jana", styles=1, edit=copied_cell),
    Student("karl", file="{student}_{topic} (1).ipynb"),
    Student("lena", rewritten={"attention_scores": SCALE_WARNING}),
    Student("mateo", broken=True),
    Student("noor", styles=2, edit=answer_below_the_stub),
    Student("olu", wrong={"Matrix": "A13-softmax-by-column", "attention": "B32-mean-for-nothing"}),
    Student("priya", styles=3, edit=lost_metadata),
)  # fmt: skip


def source(student: Student, spec) -> str | None:
    """What the student writes for a function; None leaves the stub."""
    if spec.name in student.missing:
        return None
    if spec.name in student.rewritten:
        return student.rewritten[spec.name].strip("\n")
    if spec.name in student.wrong:
        return spec.misconceptions[student.wrong[spec.name]].source
    if student.styles is None:
        return spec.exercise.text.answers[spec.name]
    styles = list(spec.alternatives.values())
    return styles[student.styles % len(styles)].source


def notebook(student: Student, exercise) -> dict:
    """The released notebook with the student's answers in it."""
    path = ROOT / "exercises" / exercise.name / f"{exercise.topic}.ipynb"
    result = json.loads(path.read_text(encoding="utf-8"))
    for cell in result["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if name in exercise.functions:
            cell["source"] = source(student, exercise.functions[name]) or cell["source"]
        elif name.endswith("-question"):
            cell["source"] = (
                "Because the factor cancels." if student.name != "hana" else cell["source"]
            )
    if student.edit is not None:
        student.edit(result)
    return result


def expected(student: Student, exercise) -> dict | None:
    """Points of each test and the misconceptions to be found; None where nobody can grade."""
    if student.broken:
        return None
    functions = _load(student, exercise)
    points = {
        f"{spec.name}-{idea}": full if spec.judge(functions[spec.name], idea, SEED).passed else 0
        for spec in exercise.functions.values()
        for idea, full in spec.ideas.items()
    }
    found = sorted({student.wrong[name] for name in exercise.functions if name in student.wrong})
    return {"points": points, "misconceptions": found}


def _load(student: Student, exercise) -> dict:
    """The student's functions as in the notebook; a cell that does not compile leaves none."""
    written = {}
    for name, spec in exercise.functions.items():
        text = source(student, spec) or exercise.text.stubs[name]
        written[name] = text if _compiles(text) else f"{name} = None"
    return exercise.namespace(**written)


def _compiles(text: str) -> bool:
    try:
        compile(text, "<student>", "exec")
    except SyntaxError:
        return False
    return True


def main() -> None:
    scores: dict[str, dict] = {}
    course = exercises()
    for exercise in course:
        those = [s for s in CLASS if exercise.name in WHOLE or s.name in LATER]
        folder = HERE / "downloads" / exercise.name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.ipynb"):
            old.unlink()
        for student in those:
            text = json.dumps(notebook(student, exercise), indent=1, ensure_ascii=False) + "\n"
            name = student.file.format(student=student.name, topic=exercise.topic)
            (folder / name).write_text(
                text[: len(text) // 3] if student.broken else text, encoding="utf-8"
            )
        with contextlib.redirect_stderr(io.StringIO()):
            scores[exercise.name] = {student.name: expected(student, exercise) for student in those}
    text = json.dumps(scores, indent=1) + "\n"
    (HERE / "expected.json").write_text(text, encoding="utf-8")
    print(f"{len(CLASS)} students, {len(course)} exercises: {HERE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
