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
    "attribute edited in place": "T's copy of an attribute is read-only, so that it fails loudly",
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
