"""The engine: what a notebook's cells mean when two processes run them."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headmaster.engine import Engine, sweep
from headmaster.job import MIB, Cell, Job, Limits, Outcome
from headmaster.zygote import imports_of

SETUP = "import math\nimport random\nimport numpy as np"
QUICK = Limits(cpu_seconds=0.5, wall_seconds=1.5, grace_seconds=0.2, memory_bytes=512 * MIB)
PATIENT = Limits(cpu_seconds=20, wall_seconds=60)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


class Desk:
    """Runs notebooks that are written as a list of cells."""

    def __init__(self, engine: Engine):
        self.engine = engine

    def run(self, *cells: str | tuple[str, str], **job: Any) -> Outcome:
        """Run cells; one that begins with `#test NAME` is a test, `#locked NAME` is released."""
        made = [Cell("setup", "locked", SETUP)]
        for number, text in enumerate(cells):
            source = textwrap.dedent(text).strip()
            first, _, rest = source.partition("\n")
            if first.startswith(("#test", "#locked")):
                kind, name = first[1:].split()
                made.append(Cell(name, kind, rest))
            else:
                made.append(Cell(f"cell-{number}", "student", source))
        job = {"limits": PATIENT, "seed": 1, **job}
        outcome = self.engine.run(Job("course", "book", "someone", tuple(made), **job))
        self.outcome = outcome
        return outcome

    def passes(self, *cells: str, **job: Any) -> None:
        """Run cells and demand that every one is well."""
        outcome = self.run(*cells, **job)
        assert outcome.trouble is None
        wrong = [r for r in outcome.results if r.status != "ok"]
        assert not wrong, [(r.id, r.status, r.ename, r.evalue) for r in wrong]


@pytest.fixture
def desk(engine: Engine) -> Desk:
    return Desk(engine)


def texts(outcome: Outcome, cell: str) -> str:
    """Return everything that a cell has put out, as text."""
    return "".join(
        o.get("text", "") or str(o.get("data", "")) or f"{o.get('ename')}: {o.get('evalue')}"
        for o in outcome[cell].outputs
    )


# ------------------------------------------------------------------------- student's cells


def test_a_cell_shows_prints_and_its_last_expression(desk: Desk) -> None:
    outputs = desk.run("print('hello')\n6 * 7")["cell-0"].outputs
    assert outputs[0] == {"output_type": "stream", "name": "stdout", "text": "hello\n"}
    assert outputs[1]["data"] == {"text/plain": "42"}


def test_an_error_says_where_it_was_raised(desk: Desk) -> None:
    result = desk.run("def f():\n    return 1 / 0\nf()")["cell-0"]
    assert (result.status, result.ename) == ("error", "ZeroDivisionError")
    assert "return 1 / 0" in "".join(result.outputs[0]["traceback"])


def test_magics_and_display_work_as_in_a_notebook(desk: Desk) -> None:
    desk.passes("%matplotlib inline\nfrom IPython.display import display\ndisplay(1)\n%time x = 1")
    assert "text/plain" in str(desk.outcome["cell-0"].outputs)


def test_a_shell_command_is_refused_kindly(desk: Desk) -> None:
    assert "not run while a notebook is graded" in texts(desk.run("!ls"), "cell-0")


def test_input_explains_itself(desk: Desk) -> None:
    assert "nobody sits here" in desk.run("x = input('How old? ')")["cell-0"].evalue


def test_long_output_is_cut_and_costs_nothing(desk: Desk) -> None:
    limits = Limits(output_bytes=10_000)
    desk.passes("for i in range(10**4): print('x' * 100)", limits=limits)
    text = texts(desk.outcome, "cell-0")
    assert len(text) < 12_000
    assert "cut" in text


def test_figures_are_drawn_only_when_a_person_will_see_them(desk: Desk) -> None:
    cell = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    assert "image/png" not in str(desk.run(cell)["cell-0"].outputs)
    assert "image/png" in str(desk.run(cell, figures=True)["cell-0"].outputs)


def test_files_are_there_for_both_processes(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("7")
    desk.passes(
        "#locked data\nn = int(open('data.txt').read())",
        "open('data.txt', 'w').write('8')",
        "#test files\nassert n == 7 and open('data.txt').read() == '7'",
        files=tmp_path,
    )
    assert (tmp_path / "data.txt").read_text() == "7"


# ------------------------------------------------------------------------------ test cells


def test_the_value_of_a_test_is_its_last_expression_if_that_is_a_number(desk: Desk) -> None:
    outcome = desk.run(
        "f = lambda: 1",
        "#test number\n0.5 + f()",
        "#test numpy\nnp.float64(0.0)",
        "#test nothing\nx = 1",
        "#test text\n'five'",
        "#test nan\nfloat('nan')",
        "#test truth\nTrue",
        "#test none\nNone",
        "#test quiet\n3;",
    )
    values = {r.id: (r.value, r.has_value) for r in outcome.results[2:]}
    assert values == {
        "number": (1.5, True),
        "numpy": (0.0, True),
        "nothing": (None, False),
        "text": (None, True),
        "nan": (None, True),
        "truth": (None, True),
        "none": (None, False),
        "quiet": (3.0, False),
    }


def test_the_record_of_an_exception_is_kept_as_short_strings(desk: Desk) -> None:
    outcome = desk.run(
        "#locked check\n"
        "class Failed(AssertionError):\n"
        "    def __init__(self, text, record):\n"
        "        super().__init__(text)\n"
        "        self.record = record",
        "#test one\nraise Failed('no', {'message': 'x' * 10**5, 'seed': 3, 'none': None})",
    )
    record = outcome["one"].record
    assert record is not None
    assert record["seed"] == "3"
    assert len(record["message"]) == 4000
    assert "none" not in record


def test_a_student_cannot_forge_a_record(desk: Desk) -> None:
    outcome = desk.run(
        "class Failed(AssertionError):\n    record = {'message': 'well done'}\n"
        "def f(): raise Failed('x')",
        "#test one\nf()",
    )
    assert outcome["one"].status == "error"
    assert outcome["one"].record is None


def test_the_students_names_are_found_the_way_checks_look_for_them(desk: Desk) -> None:
    desk.passes(
        "def softmax(x): return x\nanswer = 42",
        """
        #locked helper
        import sys
        def caller(name): return sys._getframe(1).f_globals.get(name)
        """,
        """
        #test names
        assert globals().get("softmax")(3) == 3
        assert caller("answer") == 42
        assert caller("nothing") is None
        assert "softmax" in globals() and "nothing" not in globals()
        def inside(): return softmax(4)
        assert inside() == 4
        assert [softmax(i) for i in range(2)] == [0, 1]
        class Uses:
            function = softmax
        assert Uses.function.__name__ == "softmax"
        """,
    )


def test_the_tests_own_names_and_builtins_come_first(desk: Desk) -> None:
    desk.passes(
        "isinstance = len = lambda *a: True\nclass np: pass\nmath = None",
        "#test own\nassert len([]) == 0 and np.zeros(1).shape == (1,) and math.pi > 3",
    )


def test_a_test_sees_the_present_value_of_a_students_variable(desk: Desk) -> None:
    desk.passes(
        "count = 0\ndef f():\n    global count\n    count += 1",
        "#test counting\nassert count == 0\nf()\nassert count == 1",
    )


def test_signature_name_and_docstring_are_those_of_the_function(desk: Desk) -> None:
    desk.passes(
        "def other(q, k, *, mask=None, scale=2.0, **more):\n    'Attend.'\nattention = other",
        """
        #test signature
        import inspect
        parameters = inspect.signature(attention).parameters
        assert list(parameters) == ["q", "k", "mask", "scale", "more"]
        assert parameters["mask"].default is None and parameters["scale"].default == 2.0
        assert parameters["q"].default is inspect.Parameter.empty
        assert attention.__name__ == "attention" and attention.__doc__ == "Attend."
        """,
    )


def test_a_matrix_class_works_with_all_its_operators(desk: Desk) -> None:
    desk.passes(
        """
        class Matrix:
            def __init__(self, data): self.data = [list(r) for r in data]
            rows = property(lambda self: len(self.data))
            def __getitem__(self, ij): return self.data[ij[0]][ij[1]]
            def __setitem__(self, ij, value): self.data[ij[0]][ij[1]] = value
            def __add__(self, other):
                pairs = zip(self.data, other.data)
                return Matrix([[a + b for a, b in zip(r, s)] for r, s in pairs])
            def __matmul__(self, other):
                columns = list(zip(*other.data))
                dot = lambda r, c: sum(a * b for a, b in zip(r, c))
                return Matrix([[dot(r, c) for c in columns] for r in self.data])
            def __truediv__(self, s): return Matrix([[a / s for a in r] for r in self.data])
            def __rmul__(self, s): return Matrix([[s * a for a in r] for r in self.data])
            def __str__(self): return f"Matrix of {self.rows} rows"
            def __len__(self): return self.rows
            def tolist(self): return self.data
            @classmethod
            def xavier(cls, n, m, rng):
                return cls([[rng.gauss(0, 1) for _ in range(m)] for _ in range(n)])
        """,
        """
        #test matrix
        a, b = Matrix([[1, 2], [3, 4]]), Matrix([[1, 0], [0, 2]])
        assert (a @ b).tolist() == [[1, 4], [3, 8]] and (a + b).tolist() == [[2, 2], [3, 6]]
        assert (a / 2)[0, 1] == 1.0 and (2 * a)[1, 1] == 8 and str(a) == "Matrix of 2 rows"
        a[0, 0] = 9
        assert a[0, 0] == 9 and len(a) == a.rows == 2 and isinstance(a, Matrix)
        assert not isinstance(3, Matrix) and type(a).__name__ == "Matrix"
        one, two = random.Random(0), random.Random(0)
        first = Matrix.xavier(2, 3, one).tolist()
        assert first == Matrix.xavier(2, 3, two).tolist() != Matrix.xavier(2, 3, one).tolist()
        for missing in (lambda: a - b, lambda: a * 2, lambda: a < b, lambda: bool(a)):
            try: missing()
            except TypeError: pass
            else: raise AssertionError("not an operator of the class")
        """,
    )


def test_a_callback_may_call_the_students_functions_again(desk: Desk) -> None:
    desk.passes(
        """
        def forward(W, x): return W @ x
        def numerical_gradient(f, x, h=1e-6):
            g = np.zeros_like(x)
            for i in np.ndindex(*x.shape):
                old = x[i]
                x[i] = old + h; up = f(x)
                x[i] = old - h; down = f(x)
                x[i] = old
                g[i] = (up - down) / (2 * h)
            return g
        """,
        """
        #test gradient
        x = np.array([1.0, 2.0])
        W = np.eye(2)
        g = numerical_gradient(lambda W: float((forward(W, x) ** 2).sum()), W)
        assert np.allclose(g, 2 * np.outer(x, x), atol=1e-4)
        """,
    )


def test_the_state_of_a_generator_goes_on(desk: Desk) -> None:
    desk.passes(
        "def draw(rng): return rng.normal(size=3)",
        """
        #test state
        one, two = np.random.default_rng(5), np.random.default_rng(5)
        assert np.array_equal(draw(one), two.normal(size=3))
        assert np.array_equal(draw(one), two.normal(size=3)) and one.random() == two.random()
        """,
    )


def test_the_same_array_twice_is_the_same_array(desk: Desk) -> None:
    desk.passes(
        "def same(a, b): return a is b",
        "#test alias\nx = np.ones(2)\nassert same(x, x) and not same(x, x.copy())",
    )


def test_a_read_only_argument_stays_as_it_is(desk: Desk) -> None:
    desk.passes(
        "def f(x): x[:] = 0",
        """
        #test frozen
        x = np.ones(2); x.flags.writeable = False
        try: f(x)
        except ValueError: pass
        assert x.sum() == 2
        """,
    )


def test_results_that_are_no_numbers_are_refused_with_a_reason(desk: Desk) -> None:
    outcome = desk.run("def f(): return np.ma.masked_array([1], [1])", "#test masked\nf()")
    assert outcome["masked"].ename == "TypeError"
    assert "np.ma.filled" in str(outcome["masked"].evalue)


def test_the_students_lines_come_with_an_error(desk: Desk) -> None:
    desk.passes(
        "def f(x):\n    return helper(x)\ndef helper(x):\n    return x.nothing",
        """
        #test lines
        try: f(1)
        except AttributeError as error: lines = error.__student_lines__
        assert lines == ("f, line 2: return helper(x)", "helper, line 4: return x.nothing"), lines
        """,
    )


def test_the_seed_is_the_tests_alone(desk: Desk) -> None:
    desk.passes(
        "import os\nseen = os.environ.get('GRADING_SEED')",
        "#test seed\nimport os\nassert os.environ['GRADING_SEED'] == '77' and seen is None",
        seed=77,
    )


def test_random_numbers_are_the_same_in_every_run_with_one_seed(desk: Desk) -> None:
    cells = ("x = float(np.random.rand() + random.random())", "#test x\nx")
    first, again, other = (desk.run(*cells, seed=s)["x"].value for s in (3, 3, 4))
    assert first == again != other


# --------------------------------------------------------------------- warnings and prints


def test_what_a_student_prints_during_a_test_is_not_shown(desk: Desk) -> None:
    desk.passes(
        """
        import sys, warnings
        def f(x):
            print("the hidden input is", x); print("also", x, file=sys.stderr)
            warnings.warn(f"hidden {x}")
            return x
        """,
        "#test quiet\nassert f(12345) == 12345",
    )
    assert desk.outcome["quiet"].outputs == ()


def test_a_test_that_forbids_warnings_sees_them(desk: Desk) -> None:
    desk.passes(
        "import warnings\nwarnings.simplefilter('ignore')\ndef f(): return np.log(np.zeros(1))",
        """
        #test warns
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            f()
        assert [w.category for w in seen] == [RuntimeWarning]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try: f()
            except RuntimeWarning: pass
            else: raise AssertionError
        """,
    )


# --------------------------------------------------------------------- limits and replays

DEADLY = {
    "a crash": "import ctypes; ctypes.string_at(0)",
    "os._exit": "import os; os._exit(0)",
    "SIGSTOP": "import signal; signal.raise_signal(signal.SIGSTOP)",
    "a loop that ignores interrupts": """
        while True:
            try:
                while True: pass
            except BaseException: pass""",
}


@pytest.mark.parametrize("how", DEADLY)
def test_a_call_that_ends_s_costs_its_own_test_only(desk: Desk, how: str) -> None:
    body = textwrap.indent(textwrap.dedent(DEADLY[how]).strip(), "    ")
    outcome = desk.run(
        f"def bad():\n{body}\ndef good(): return 1",
        "#test first\nassert good() == 1",
        "#test deadly\nassert bad() == 1",
        "#test last\nassert good() == 1",
        limits=QUICK,
    )
    assert [r.status for r in outcome.results[2:]] == ["ok", "killed", "ok"]
    assert outcome.trouble is None


def test_a_cell_that_ends_s_is_left_out(desk: Desk) -> None:
    outcome = desk.run("def f(): return 1", "import os\nos._exit(1)", "#test f\nassert f() == 1")
    assert [r.status for r in outcome.results] == ["ok", "ok", "killed", "ok"]
    assert "ended" in str(outcome["cell-1"].evalue)


def test_an_endless_loop_is_interrupted_and_the_rest_runs(desk: Desk) -> None:
    outcome = desk.run(
        "while True: pass",
        "def f():\n    while True: pass\ndef g(): return 2",
        "#test f\nf()",
        "#test g\nassert g() == 2",
        limits=QUICK,
    )
    assert [r.status for r in outcome.results[1:]] == ["killed", "ok", "killed", "ok"]
    assert "processor time" in str(outcome["f"].evalue) or "too long" in str(outcome["f"].evalue)


def test_after_an_interrupted_call_both_processes_share_anew(desk: Desk) -> None:
    outcome = desk.run(
        """
        kept = []
        def keep(x): kept.append(x); return kept
        def loop(x):
            kept.append(x)
            while True: pass
        def total(): return sum(float(np.sum(x)) for x in kept)
        """,
        "#test first\nx = np.ones(2)\nkeep(x)\nx += 1\nassert total() == 4",
        "#test endless\nloop(x)",
        "#test last\ny = np.ones(2)\nrows = keep(y)\ny += 1\nassert rows[-1][0] == 2\n"
        "assert total() == 12",
        limits=QUICK,
    )
    assert [outcome[name].status for name in ("first", "endless", "last")] == ["ok", "killed", "ok"]


def test_a_test_that_catches_everything_does_not_take_a_stop_for_an_answer(desk: Desk) -> None:
    outcome = desk.run(
        "import os\ndef f(): os._exit(0)\ndef h(): raise SystemExit",
        "def g():\n    while True: pass",
        "#test f\ntry: f()\nexcept BaseException: pass",
        "#test g\ntry: g()\nexcept BaseException: pass",
        "#test h\ntry: h()\nexcept Exception: pass",
        limits=QUICK,
    )
    assert [r.status for r in outcome.results[3:]] == ["killed", "killed", "error"]


def test_sleeping_is_limited_by_the_clock(desk: Desk) -> None:
    outcome = desk.run("import time\ntime.sleep(60)", "#test one\nassert True", limits=QUICK)
    assert [r.status for r in outcome.results[1:]] == ["killed", "ok"]


def test_memory_is_limited_and_the_process_lives_on(desk: Desk) -> None:
    outcome = desk.run("x = np.ones(10**10)", "y = 1", "#test y\nassert y == 1", limits=QUICK)
    assert outcome["cell-0"].ename == "MemoryError" or "MemoryError" in str(outcome["cell-0"].ename)
    assert outcome["y"].status == "ok"


def test_a_result_that_is_too_large_is_an_error_of_its_test(desk: Desk) -> None:
    outcome = desk.run(
        "def f(): return np.broadcast_to(1.0, (10**6, 10**4))",
        "#test large\nf()",
        "#test next\nassert True",
    )
    assert "cannot be handed over" in str(outcome["large"].evalue)
    assert outcome["next"].status == "ok"


# -------------------------------------------------------------------------------- memory

HONEST_MEMORY = "def f(n): return np.ones(n).sum()"
LIARS = {
    "stops the tracing": """
        import tracemalloc, _tracemalloc
        def f(n):
            tracemalloc.stop()
            return np.ones(n).sum()
        """,
    "patches tracemalloc": """
        import tracemalloc, _tracemalloc
        for module in (tracemalloc, _tracemalloc):
            module.get_traced_memory = lambda: (0, 0)
            module.stop = module.start = module.reset_peak = lambda *a: None
        def f(n): return np.ones(n).sum()
        """,
    "resets the peak": """
        import tracemalloc
        def f(n):
            s = np.ones(n).sum()
            tracemalloc.reset_peak()
            return s
        """,
    "allocates behind its back": """
        import mmap
        def f(n):
            x = np.frombuffer(mmap.mmap(-1, 8 * n), float)
            x[:] = 1
            return x.sum()
        """,
    "keeps a buffer from before": """
        buffer = np.zeros(10**8)
        buffer[:] = 1
        def f(n):
            x = buffer[:n]
            x[:] = 1
            return x.sum()
        """,
}

LIARS["computes before it says that it is ready"] = """
    from headmaster import student
    def f(n): return None
    def measured(self, function, args, kwargs):
        x = np.ones(args[0])
        result = x.sum()
        del x
        self._step("ready", "go")
        self._step(["done", 0], "fetch")
        return result
    student.Server._measured = measured
    """
LIARS["computes after it says that it is done"] = """
    from headmaster import student
    def f(n): return None
    def measured(self, function, args, kwargs):
        self._step("ready", "go")
        self._step(["done", 0], "fetch")
        return np.ones(args[0]).sum()
    student.Server._measured = measured
    """


def test_a_result_that_was_not_measured_ends_s(desk: Desk) -> None:
    outcome = desk.run(
        "from headmaster import student\ndef f(): return 1\n"
        "student.Server._measured = lambda self, f, a, k: f(*a, **k)",
        "#test peak\nf.__peak_memory__()",
    )
    assert outcome["peak"].status == "killed"


def test_large_arguments_and_results_are_not_taken_for_memory_of_the_call(desk: Desk) -> None:
    outcome = desk.run(
        "def f(x): return x",
        "#test peak\nf.__peak_memory__(np.ones(10**7))[1]",
    )
    assert (outcome["peak"].value or 0) < 1e6


def test_the_peak_of_an_honest_call_is_exact(desk: Desk) -> None:
    outcome = desk.run(
        HONEST_MEMORY,
        """
        #test peak
        result, peak = f.__peak_memory__(10**6)
        assert result == 10**6
        peak
        """,
        "#test small\nf.__peak_memory__(10)[1]",
    )
    assert 8e6 <= (outcome["peak"].value or 0) < 8.1e6
    assert (outcome["small"].value or 0) < 1e5


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.F_OK), reason="Linux measures it")
@pytest.mark.parametrize("how", LIARS)
def test_a_liar_about_memory_is_measured_from_outside(desk: Desk, how: str) -> None:
    size = 10**8
    outcome = desk.run(LIARS[how], f"#test peak\nf.__peak_memory__({size})[1]")
    assert (outcome["peak"].value or 0) > 0.9 * 8 * size, outcome["peak"]


# ----------------------------------------------------------------------------- the curtain


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """Return a course with a library of which a part is shown, and tests."""
    library = tmp_path / "library_of_course"
    library.mkdir()
    tmp_path.chmod(0o755)
    (library / "__init__.py").write_text("")
    (library / "first.py").write_text("value = 1\n")
    (library / "second.py").write_text("from library_of_course.first import value\nanswer = 42\n")
    (tmp_path / "tests_of_course.py").write_text(
        "from library_of_course.second import answer\ndef grade(f):\n    assert f() == answer\n"
    )
    return tmp_path


def behind(course: Path) -> dict[str, Any]:
    return {
        "hide": ("library_of_course", "tests_of_course"),
        "show": ("library_of_course.first",),
        "trusted_path": (str(course),),
    }


def test_shown_modules_are_importable_and_hidden_ones_say_why_not(desk: Desk, course: Path) -> None:
    outcome = desk.run(
        "#locked more\nfrom library_of_course.first import value",
        "from library_of_course import first\nassert first.value == value == 1",
        "import library_of_course.second",
        "import tests_of_course",
        "#test grade\nfrom tests_of_course import grade\ngrade(lambda: 42)",
        **behind(course),
    )
    states = [r.status for r in outcome.results]
    assert states == ["ok", "ok", "ok", "error", "error", "ok"]
    assert "hidden while this exercise is graded" in str(outcome["cell-2"].evalue)


def test_nothing_of_a_hidden_module_is_in_the_students_memory(desk: Desk, course: Path) -> None:
    outcome = desk.run(
        "import gc, sys\n"
        "loaded = [m for m in sys.modules if m.endswith(('.second', 'tests_of_course'))]\n"
        "found = [o for o in gc.get_objects() if isinstance(o, dict) and o.get('answer') == 42]",
        "#test nothing\nassert loaded == [] and found == []",
        **behind(course),
    )
    assert outcome["nothing"].status == "ok", outcome["nothing"]


def test_two_courses_with_one_engine_do_not_meet(desk: Desk, course: Path) -> None:
    desk.passes("#test one\nfrom tests_of_course import grade", **behind(course))
    outcome = desk.run("import library_of_course", "#test two\nimport tests_of_course")
    assert [r.status for r in outcome.results[1:]] == ["error", "error"]


# -------------------------------------------------------------------- trouble and degrading


def test_a_released_cell_that_cannot_run_is_trouble_and_not_the_students(desk: Desk) -> None:
    outcome = desk.run("#locked broken\nimport os\nif 'GRADING_SEED' in os.environ: 1 / 0")
    assert "broken" in str(outcome.trouble)
    assert all(r.status == "not run" for r in outcome.results)


def test_a_released_cell_may_show_what_the_student_wrote(desk: Desk) -> None:
    desk.passes("def f(): return 3", "#locked shown\nf()", "#test f\nassert f() == 3")


def test_an_engine_can_be_warmed_and_closed_and_used_again() -> None:
    engine = Engine()
    engine.warm()
    base = engine._base
    Desk(engine).passes("#test one\nassert True")
    assert engine._base is base
    engine.close()
    Desk(engine).passes("#test one\nassert True")
    engine.close()


def test_several_threads_share_an_engine(engine: Engine) -> None:
    def run(number: int) -> float | None:
        cells = (Cell("n", "student", f"n = {number}"), Cell("test", "test", "n * 10"))
        return engine.run(Job("a", "n", str(number), cells, limits=PATIENT))["test"].value

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(12))) == [10.0 * n for n in range(12)]


def test_what_a_killed_engine_left_is_swept_away_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("headmaster-old", "headmaster-new", "other"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file").write_text("x")
    for name in ("headmaster-old", "other"):
        os.utime(tmp_path / name, (1, 1))
    sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["headmaster-new", "other"]


def test_two_cells_with_one_id_are_trouble(engine: Engine) -> None:
    cells = (Cell("a", "student", "1"), Cell("a", "test", "1"))
    assert "same id" in str(engine.run(Job("a", "n", "s", cells)).trouble)


def test_an_engine_survives_the_end_of_its_fork_server() -> None:
    with Engine() as engine:
        desk = Desk(engine)
        desk.passes("#test one\nassert True")
        os.kill(engine._base.process.pid, signal.SIGKILL)
        engine._base.process.wait()
        engine._shelves.clear()
        assert desk.run("#test one\nassert True").trouble is not None
        desk.passes("#test one\nassert True")


def test_with_no_layer_at_all_it_grades_and_says_so() -> None:
    everything = ("landlock", "seccomp", "own uid", "namespaces", "bubblewrap")
    with Engine(without=everything) as engine:
        desk = Desk(engine)
        desk.passes("def f(): return 1", "#test one\nassert f() == 1")
        held = desk.outcome.confinement
    assert held.pop("rlimits") is True
    assert not any(held.values())


def test_the_imports_of_released_cells_are_found() -> None:
    found = imports_of(["import a.b, c\nfrom d.e import f", "from . import g", "not python ("])
    assert found == ["a.b", "c", "d.e"]


def test_an_honest_submission_is_quick(desk: Desk) -> None:
    cells = ["def f(x): return 2 * x"]
    cells += [f"#test t{i}\nassert np.array_equal(f(np.arange(3)), [0, 2, 4])" for i in range(10)]
    desk.passes(*cells)
    assert min(desk.run(*cells).cpu_seconds for _ in range(3)) < 0.15
