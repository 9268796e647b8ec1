"""A test cell means the same in two processes as in one: the idioms that graders are written in.

Each idiom is a student's cell and a test cell. It is run in this process, as a kernel would, and by
the engine; both must come to the same verdict, but for the known differences below.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import sys
import types
import warnings
from typing import Any

import pytest

from headmaster.engine import Engine
from headmaster.job import Cell, Job

SETUP = "import random\nimport numpy as np"

IDIOMS: dict[str, tuple[str, str]] = {
    "plain function": (
        "def f(x): return x * 2",
        "assert np.array_equal(f(np.arange(3)), [0, 2, 4])",
    ),
    "kwargs, defaults": (
        "def f(x, *, scale=2.0, mask=None): return x * scale if mask is None else x * mask",
        "assert f(3.0) == 6.0 and f(3.0, scale=1) == 3.0 and f(2.0, mask=0) == 0",
    ),
    "ValueError expected": (
        "def f(h):\n    if h % 2: raise ValueError('odd')\n    return h",
        "try:\n"
        "    f(3)\n"
        "except ValueError as ex: assert 'odd' in str(ex)\n"
        "else: assert False\n"
        "import unittest\n"
        "with unittest.TestCase().assertRaises(ValueError): f(5)",
    ),
    "own exception class": (
        "class ShapeError(ValueError):\n    pass\ndef f(): raise ShapeError('bad', 3)",
        "try:\n"
        "    f()\n"
        "except ShapeError as ex: assert ex.args == ('bad', 3)\n"
        "try:\n"
        "    f()\n"
        "except ValueError: pass",
    ),
    "input mutated (bad)": (
        "def f(x):\n    x += 1\n    return x",
        "a = np.zeros(3); a0 = a.copy(); f(a); assert np.array_equal(a, a0)",
    ),
    "in-place required": (
        "def f(x): x[:] = 7",
        "a = np.zeros(3); f(a); assert (a == 7).all()\nl = [1, 2]; f(l); assert l == [7] or True",
    ),
    "returns its own argument": (
        "def f(x): return x",
        "a = np.zeros(3); assert f(a) is a",
    ),
    "view of the argument": (
        "def f(x): return x[::2]",
        "a = np.arange(6.); assert np.shares_memory(f(a), a)",
    ),
    "F order, strides kept": (
        "def f(x): return x.T",
        "a = np.zeros((3, 4)); assert f(a).flags.f_contiguous and f(a).shape == (4, 3)",
    ),
    "dtype kept": (
        "def f(x): return x.astype(np.float32)",
        "assert f(np.ones(2)).dtype == np.float32 and f(np.float64(1)).dtype == np.float32 and type(f(np.ones(2))[0]) is np.float32",
    ),
    "dtype argument": (
        "def f(n, dtype=float): return np.zeros(n, dtype)",
        "assert f(2, dtype=np.float32).dtype == np.float32 and f(2, np.dtype('int8')).dtype == np.int8 and f(2, bool).dtype == bool",
    ),
    "None, str, nested": (
        "def f(): return {'a': [1, (2.5, None)], 'b': 'x', 3: np.float32(1)}",
        "r = f(); assert r['a'][1] == (2.5, None) and r[3].dtype == np.float32",
    ),
    "namedtuple": (
        "from collections import namedtuple\n"
        "Out = namedtuple('Out', 'output weights')\n"
        "def f(x): return Out(x, x + 1)",
        "r = f(1); assert r.weights == 2 and r[0] == 1; o, w = r",
    ),
    "dataclass result": (
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Out:\n"
        "    output: object\n"
        "    weights: object\n"
        "def f(x): return Out(x, x + 1)",
        "r = f(np.ones(2)); assert (r.weights == 2).all()",
    ),
    "class, attributes, state": (
        "class MHA:\n"
        "    def __init__(self, d, h):\n"
        "        self.W = np.eye(d); self.h = h; self.calls = 0\n"
        "    def forward(self, x): self.calls += 1; self.last = x @ self.W; return self.last\n"
        "    __call__ = forward",
        "m = MHA(4, 2); x = np.ones((2, 4)); assert np.allclose(m(x), x) and np.allclose(m.forward(x), x); assert m.calls == 2 and m.h == 2\n"
        "m.W = 3 * np.eye(4); assert np.allclose(m(x), 3 * x) and m.last.shape == (2, 4) and isinstance(m, MHA)",
    ),
    "attribute edited in place": (
        "class M:\n"
        "    def __init__(self): self.W = np.zeros(3)\n"
        "    def s(self): return self.W.sum()",
        "m = M(); m.W[:] = 1; assert m.s() == 3",
    ),
    "keeps its argument": (
        "class M:\n"
        "    def __init__(self, rows): self.rows = rows\n"
        "    def total(self): return sum(map(sum, self.rows))",
        "rows = [[1, 2], [3, 4]]\nm = M(rows)\nrows[0][0] = 10; rows.append([5]); assert m.total() == 24",
    ),
    "keeps a view of its argument": (
        "class M:\n"
        "    def __init__(self, x): self.column = np.asarray(x)[:, 1]\n"
        "    def total(self): return self.column.sum()",
        "x = np.ones((3, 2))\nm = M(x)\nx += 1; x[0] = 5\nassert m.total() == 9",
    ),
    "keeps the inner lists of its argument": (
        "class M:\n"
        "    def __init__(self, rows): self.rows = list(rows)\n"
        "    def total(self): return sum(map(sum, self.rows))",
        "rows = [[1, 2], [3, 4]]\nm = M(rows)\nrows[0][0] = 10; rows.append([5]); assert m.total() == 19",
    ),
    "copies its argument": (
        "class M:\n"
        "    def __init__(self, x): self.x = np.array(x)\n"
        "    def total(self): return self.x.sum()",
        "x = np.ones(3)\nm = M(x)\nx += 1\nassert m.total() == 3",
    ),
    "hands out its own list": (
        "class M:\n"
        "    def __init__(self): self.rows = [[1, 2], [3, 4]]\n"
        "    def get(self): return self.rows\n"
        "    def total(self): return sum(map(sum, self.rows))",
        "m = M()\nm.get()[0][0] = 10\nrows = m.get(); rows.append([5]); assert m.total() == 24\n"
        "assert m.get() is rows",
    ),
    "changes what it handed out": (
        "class M:\n"
        "    def __init__(self): self.buffer = np.zeros(3)\n"
        "    def step(self, x):\n        self.buffer += x\n        return self.buffer",
        "m = M()\nfirst = m.step(1); second = m.step(2)\nassert first is second and first[0] == 3",
    ),
    "changes an earlier argument": (
        "class M:\n    def __init__(self, x): self.x = x\n    def step(self): self.x += 1",
        "x = np.zeros(3)\nm = M(x)\nm.step(); m.step()\nassert (x == 2).all()",
    ),
    "keeps its argument in a closure": (
        "def make(x):\n    return lambda: x.sum()",
        "x = np.zeros(3)\nf = make(x)\nx += 1\nassert f() == 3",
    ),
    "a generator that reads on": (
        "def f(rows):\n    for row in rows: yield row",
        "rows = [1, 2]\ng = f(rows)\nassert next(g) == 1\nrows.append(3)\nassert list(g) == [2, 3]",
    ),
    "a cache that knows an argument by identity": (
        "known = {}\n"
        "def f(x):\n"
        "    if id(x) not in known: known[id(x)] = (x, x.sum())\n"
        "    return known[id(x)][1]",
        "x = np.ones(3)\nassert f(x) == 3\nx += 1\nassert f(x) == 3 and f(x.copy()) == 6",
    ),
    "a default that is filled": (
        "def f(x, seen=[]):\n    seen.append(x)\n    return seen",
        "a = f(1)\nb = f(2)\nassert a is b and a == [1, 2]",
    ),
    "an argument that is reshaped in place": (
        "def f(x):\n    x.shape = (3, 2)\n    return x",
        "x = np.arange(6.)\nassert f(x).shape == (3, 2) and x.shape == (3, 2)",
    ),
    "a generator of random numbers that is kept": (
        "class M:\n"
        "    def __init__(self, rng): self.rng = rng\n"
        "    def draw(self): return self.rng.random()",
        "rng = np.random.default_rng(1); twin = np.random.default_rng(1)\n"
        "m = M(rng)\nassert m.draw() == twin.random()\nassert rng.random() == twin.random()\n"
        "assert m.draw() == twin.random()",
    ),
    "subclass in the test": (
        "class Base:\n    def f(self): return self.g() + 1\n    def g(self): return 0",
        "class Sub(Base):\n    def g(self): return 41\nassert Sub().f() == 42",
    ),
    "dict of parameters": (
        "def f(p, x): return x @ p['W'] + p['b']",
        "assert np.allclose(f({'W': np.eye(2), 'b': np.ones(2)}, np.ones((1, 2))), 2)",
    ),
    "callback from the test": (
        "def f(g, x): return g(x) + 1",
        "assert f(lambda v: v * 10, 2) == 21",
    ),
    "callback raises": (
        "def f(g):\n    try: g()\n    except KeyError: return 'ok'",
        "def g(): raise KeyError('k')\nassert f(g) == 'ok'",
    ),
    "student passes a closure back": (
        "def make(n):\n    def g(x): return x + n\n    return g",
        "g = make(3); assert g(4) == 7",
    ),
    "student function as argument": (
        "def a(x): return x + 1\ndef app(fn, x): return fn(x)",
        "assert app(a, 1) == 2",
    ),
    "generator": (
        "def f(n):\n    for i in range(n): yield i * i",
        "assert list(f(4)) == [0, 1, 4, 9]",
    ),
    "iterator stop": (
        "class It:\n"
        "    def __init__(s): s.i = 0\n"
        "    def __iter__(s): return s\n"
        "    def __next__(s):\n"
        "        s.i += 1\n"
        "        if s.i > 3: raise StopIteration\n"
        "        return s.i",
        "assert list(It()) == [1, 2, 3]",
    ),
    "print captured": (
        "def f(): print('hello')",
        "import io, contextlib\n"
        "b = io.StringIO()\n"
        "with contextlib.redirect_stdout(b): f()\n"
        "assert b.getvalue() == 'hello\\n'",
    ),
    "np.random.seed in the test": (
        "def drop(x, p): return x * (np.random.rand(*x.shape) > p)",
        "np.random.seed(0); a = drop(np.ones(5), .5); np.random.seed(0); assert np.array_equal(a, np.ones(5) * (np.random.rand(5) > .5)); b = np.random.rand()\n"
        "np.random.seed(0); np.random.rand(5); assert b == np.random.rand()",
    ),
    "random.seed in the test": (
        "def r(): return random.random()",
        "random.seed(1); a = r(); random.seed(1); assert a == random.random()",
    ),
    "Generator argument": (
        "def init(rng, n): return rng.normal(size=n)",
        "g = np.random.default_rng(3); a = init(g, 4); b = init(g, 4); h = np.random.default_rng(3); assert np.array_equal(a, h.normal(size=4)) and np.array_equal(b, h.normal(size=4))",
    ),
    "test patches a student global": (
        "def sm(x): return x\ndef att(x): return sm(x) + 1",
        "calls = []\n"
        "_old = sm\n"
        "def sm(x):\n"
        "    calls.append(1); return _old(x)\n"
        "att(2); assert calls",
    ),
    "unittest.mock.patch of numpy": (
        "def f(x): return np.exp(x)",
        "from unittest import mock\n"
        "with mock.patch.object(np, 'exp') as m: f(1.0)\n"
        "assert m.called",
    ),
    "inspect.signature": (
        "def f(q, k, v, mask=None): pass",
        "import inspect\n"
        "assert list(inspect.signature(f).parameters) == ['q', 'k', 'v', 'mask'] and f.__name__ == 'f'",
    ),
    "inspect.getsource": (
        "def f(x):\n    return x",
        "import inspect\nassert 'return x' in inspect.getsource(f)",
    ),
    "docstring": (
        "def f():\n    'doc here'",
        "assert 'doc' in f.__doc__",
    ),
    "student variable": (
        "answer = 42\nW = np.eye(2)",
        "assert answer == 42 and W.shape == (2, 2)",
    ),
    "student alias of a module": (
        "import numpy.linalg as LA",
        "assert abs(LA.norm(np.ones(4)) - 2) < 1e-12",
    ),
    "undefined name": (
        "x = 1",
        "try:\n    nothing_here\nexcept NameError: pass\nelse: assert False",
    ),
    "np.vectorize / map over proxy": (
        "def f(x): return x * x",
        "assert list(map(f, [1, 2, 3])) == [1, 4, 9] and np.array_equal(np.vectorize(f)([1, 2]), [1, 4])",
    ),
    "object array result": (
        "def f(): return np.array([None, 1], dtype=object)",
        "assert f()[1] == 1",
    ),
    "masked array / matrix": (
        "def f(): return np.ma.masked_array([1., 2.], [0, 1])",
        "assert f().mask[1]",
    ),
    "structured array": (
        "def f(): return np.zeros(2, dtype=[('a', 'f8')])",
        "assert f()['a'].shape == (2,)",
    ),
    "string array": (
        "def f(): return np.array(['a', 'b'])",
        "assert list(f()) == ['a', 'b']",
    ),
    "warning -> stderr": (
        "import warnings\ndef f(): warnings.warn('careful'); return 1",
        "f()",
    ),
    "assertWarns": (
        "import warnings\ndef f(): warnings.warn('careful'); return 1",
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as w:\n"
        "    warnings.simplefilter('always'); f()\n"
        "assert len(w) == 1",
    ),
    "partial credit": (
        "def f(): return 1",
        "3 if f() == 1 else 0",
    ),
    "np.errstate in the test": (
        "def f(x): return np.log(x)",
        "with np.errstate(all='raise'):\n"
        "    try: f(np.zeros(1))\n"
        "    except FloatingPointError: pass\n"
        "    else: assert False",
    ),
    "time limit in the test": (
        "import time\ndef f(): time.sleep(0.01)",
        "import time\nt = time.perf_counter(); f(); assert time.perf_counter() - t < 0.5",
    ),
    "operator on instances": (
        "class V:\n"
        "    def __init__(s, x): s.x = x\n"
        "    def __add__(s, o): return V(s.x + o.x)\n"
        "    def __eq__(s, o): return s.x == o.x",
        "assert (V(1) + V(2)).x == 3",
    ),
    "== on instances (verdict)": (
        "class V:\n    def __init__(s, x): s.x = x\n    def __eq__(s, o): return s.x == o.x",
        "assert V(1) == V(1)",
    ),
}

KNOWN_DIFFERENCES = {
    "view of the argument": "memory is not shared: a result is a copy",
    "subclass in the test": "a test cannot derive a class from a student's class",
    "test patches a student global": "the student's functions see the student's names only",
    "unittest.mock.patch of numpy": "the student's functions use their own numpy",
    "masked array / matrix": "a masked array is not plain numbers",
    "structured array": "a structured array is not plain numbers",
    "== on instances (verdict)": "the student's own == must not decide",
}


@pytest.fixture(scope="module")
def engine():
    with Engine() as running:
        yield running


def in_one_process(student: str, test: str) -> str:
    """Run both cells in one namespace, as a kernel does; returns the verdict."""
    module = types.ModuleType("__main__")
    space = module.__dict__
    held, sys.modules["__main__"] = sys.modules["__main__"], module
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(said):
            lines = student.splitlines(keepends=True)
            linecache.cache["<student>"] = (len(student), None, lines, "<student>")
            exec(SETUP, space)
            exec(compile(student, "<student>", "exec"), space)
            value = _last_value(test, space)
    except Exception as error:
        return type(error).__name__
    finally:
        sys.modules["__main__"] = held
    return f"value {value}" if value is not None else "pass"


def _last_value(source: str, space: dict[str, Any]) -> Any:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<test>", "exec"), space)
    return eval(compile(ast.Expression(last.value), "<test>", "eval"), space) if last else None


def in_two_processes(engine: Engine, student: str, test: str) -> str:
    """Run the cells by the engine; returns the verdict."""
    cells = (
        Cell("setup", "locked", SETUP),
        Cell("student", "student", student),
        Cell("test", "test", test),
    )
    outcome = engine.run(Job("idioms", "idioms", "someone", cells, seed=1))
    assert outcome.trouble is None
    result = outcome["test"]
    if result.status != "ok":
        return result.ename or result.status
    return f"value {result.value:g}" if result.has_value and result.value is not None else "pass"


@pytest.mark.parametrize("name", IDIOMS)
def test_a_test_cell_means_the_same_in_two_processes(engine: Engine, name: str) -> None:
    student, test = IDIOMS[name]
    one, two = in_one_process(student, test), in_two_processes(engine, student, test)
    if name in KNOWN_DIFFERENCES:
        assert one != two, "no longer a difference: take it off the list"
    else:
        assert one == two


SHARING = """
class Box:
    '''Keeps what it is given, changes it, hands it out, and forgets it.'''
    def __init__(s): s.held = []
    def keep(s, x): s.held.append(x); s.held = s.held[-4:]; return len(s.held)
    def keep_inner(s, rows): s.held.extend(rows); s.held = s.held[-4:]
    def change(s, i, by):
        if i < len(s.held):
            x = s.held[i]
            if isinstance(x, list): x.append(by)
            elif isinstance(x, dict): x[by] = by
            else: x += by
    def give(s, i): return s.held[i] if i < len(s.held) else None
    def give_all(s): return tuple(s.held)
    def state(s): return [x.tolist() if isinstance(x, np.ndarray) else repr(x) for x in s.held]
    def fail(s, x): s.held.append(x); s.held = s.held[-4:]; raise ValueError('kept all the same')
"""


@pytest.mark.parametrize("seed", range(6))
def test_two_processes_share_values_as_one_does(engine: Engine, seed: int) -> None:
    """A student's box and the test's own get the same values; nobody can tell them apart."""
    steps = f"""
rng = random.Random({seed})
theirs, own = Box(), Own()
twins = []  # (given to the student's box, given to the test's own)

def fresh():
    kind = rng.randrange(3)
    if kind == 0: return np.zeros(3), np.zeros(3)
    if kind == 1: return [[1], [2]], [[1], [2]]
    return {{'a': 1}}, {{'a': 1}}

def plain(x): return x.tolist() if isinstance(x, np.ndarray) else repr(x)

for step in range(150):
    what, i, by = rng.randrange(9), rng.randrange(4), float(step)
    if what == 0 or not twins:
        twins.append(fresh()); twins = twins[-6:]
    one, two = twins[rng.randrange(len(twins))]
    if what == 1: theirs.keep(one), own.keep(two)
    if what == 2 and isinstance(one, list): theirs.keep_inner(one), own.keep_inner(two)
    if what == 3: theirs.change(i, by), own.change(i, by)
    if what == 4: twins.append((theirs.give(i), own.give(i))); twins = [t for t in twins if t[1] is not None]
    if what == 5:
        for x in (one, two):
            if isinstance(x, list): x.append(by)
            elif isinstance(x, dict): x[by] = by
            else: x += by
    if what == 6:
        for box, x in ((theirs, one), (own, two)):
            try: box.fail(x)
            except ValueError: pass
    if what == 7: assert list(map(plain, theirs.give_all())) == list(map(plain, own.give_all())), step
    assert theirs.state() == own.state(), (step, what)
    assert [plain(a) for a, b in twins] == [plain(b) for a, b in twins], (step, what)
"""
    own = SHARING.replace("class Box", "class Own")
    assert in_two_processes(engine, SHARING, own + steps) == "pass"
