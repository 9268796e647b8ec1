"""Attacks on the grader: each is a student's cell that stands before two wrong answers.

The cell defines `cheat`, and both answers of the notebook are `cheat`. So whatever a cell can do to
turn a wrong answer into points, by lying, patching, stealing or breaking, it can do here. A cell
knows more than any student: DECOY (a file of the grader's user outside of the scratch folder),
COURSE (the folder of tests and answers), GRADEBOOK, OTHER (another submission) and PLANTED (a place
in the temporary folder).

`needs` names the layers of confinement of which at least one must hold for the attack to be harmless
where the machine offers less than everything; an attack without `needs` fails everywhere.
"""
# ruff: noqa: E501 (attacks are written as they are met)

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """One attack."""

    name: str
    code: str
    group: str
    needs: tuple[str, ...] = ()
    patient: bool = False  # it may take its time


GROUPS: list[str] = []
ATTACKS: list[Attack] = []


def group(name: str) -> None:
    """Say what the attacks that follow have in common."""
    GROUPS.append(name)


def attack(name: str, code: str, *needs: str, patient: bool = False) -> None:
    """Add an attack to the corpus."""
    assert all(other.name != name for other in ATTACKS), name
    ATTACKS.append(Attack(name, textwrap.dedent(code).strip(), GROUPS[-1], needs, patient))


WRONG = "cheat = lambda *a, **k: np.zeros((2, 3))\n"

group("lies about comparisons")

attack("plainly wrong", WRONG)

attack(
    "patched np.allclose and np.testing",
    """
    import numpy.testing
    cheat = lambda *a, **k: np.zeros((2, 3))
    numpy.testing.assert_allclose = numpy.testing.assert_array_equal = lambda *a, **k: None
    np.allclose = np.array_equal = np.isclose = lambda *a, **k: True
    np.isfinite = np.all = lambda *a, **k: True
    """,
)
attack(
    "patched builtins",
    """
    import builtins
    cheat = lambda *a, **k: np.zeros((2, 3))
    builtins.isinstance = builtins.all = builtins.any = lambda *a: True
    builtins.abs = builtins.max = builtins.sum = lambda *a, **k: 0
    builtins.len = lambda x: 3
    """,
)
attack(
    "AssertionError is another class",
    """
    import builtins
    class Quiet(BaseException): pass
    builtins.AssertionError = builtins.Exception = Quiet
    cheat = lambda *a, **k: np.zeros((2, 3))
    """,
)
attack(
    "array that equals everything",
    """
    class Liar(np.ndarray):
        def __eq__(self, other): return np.ones(self.shape, bool)
        def __ne__(self, other): return np.zeros(self.shape, bool)
        def __array_ufunc__(self, *a, **k): return True
        def __array_function__(self, *a, **k): return True
        def all(self, *a, **k): return True
        def any(self, *a, **k): return True
    cheat = lambda *a, **k: np.zeros((2, 3)).view(Liar)
    """,
)
attack(
    "array with a lying shape and dtype",
    """
    class Liar(np.ndarray):
        shape = property(lambda self: (2, 3))
        dtype = property(lambda self: np.dtype(float))
        def __sub__(self, other): return np.zeros((2, 3))
        __rsub__ = __sub__
        def tobytes(self, *a): return b""
        def __reduce__(self): return (str, ("x",))
    cheat = lambda *a, **k: np.zeros(7).view(Liar)
    """,
)
ALWAYS = """
class Always:
    shape = property(lambda self: (2, 3))
    ndim, size, dtype = 2, 6, np.dtype(float)
    T = property(lambda self: self)
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __bool__(self): return True
    def __len__(self): return 2
    def __iter__(self): return iter((self, self))
    def __getitem__(self, i): return self
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __sub__(self, other): return 0.0
    __rsub__ = __abs__ = lambda self, *a: 0.0
    def __float__(self): return 0.0
    def __array_ufunc__(self, *a, **k): return True
    def __array_function__(self, *a, **k): return True
cheat = lambda *a, **k: Always()
"""
attack("object that equals everything", ALWAYS)
attack("the answers are objects, not functions", ALWAYS + "\ncheat = Always()\ndouble = cheat\n")
attack(
    "array protocol that never gives the same",
    """
    class Shifty:
        def __array__(self, *a, **k): raise ValueError("never mind")
        __array_interface__ = property(lambda self: {"shape": (2, 3), "typestr": "<f8", "data": (0, True)})
    cheat = lambda *a, **k: Shifty()
    """,
)
attack("NaN everywhere", "cheat = lambda *a, **k: np.full((2, 3), np.nan)")
attack("infinities", "cheat = lambda *a, **k: np.full((2, 3), np.inf)")
attack("empty array", "cheat = lambda *a, **k: np.empty((0, 3))")
attack("array that broadcasts", "cheat = lambda *a, **k: np.float64(0.3)")
attack(
    "masked array that hides its differences", "cheat = lambda *a, **k: np.ma.masked_all((2, 3))"
)
attack(
    "object array of liars",
    """
    class Yes:
        def __eq__(self, other): return True
        def __sub__(self, other): return 0.0
        __rsub__ = __sub__
        def __lt__(self, other): return True
        __le__ = __gt__ = __ge__ = __lt__
        def __abs__(self): return 0.0
        def __float__(self): return 0.0
    def cheat(*a, **k):
        r = np.empty((2, 3), object)
        r[:] = Yes()
        return r
    """,
)
attack("structured array", "cheat = lambda *a, **k: np.zeros((2, 3), [('a', float)])")
attack(
    "booleans that are neither true nor false",
    """
    def cheat(*a, **k):
        return np.full((2, 3), 255, np.uint8).view(bool)
    """,
)
attack(
    "float that lies",
    """
    class F(float):
        def __eq__(self, o): return True
        def __sub__(self, o): return F(0)
        __rsub__ = __sub__
        def __abs__(self): return F(0)
        def hex(self): return "0x1.0p+0"
    cheat = lambda *a, **k: [[F(0)] * 3] * 2
    """,
)
attack(
    "list that changes while it is read",
    """
    class L(list):
        def __iter__(self): return iter([[0.1] * 3] * 2)
        def __eq__(self, o): return True
        def __len__(self): return 2
    cheat = lambda *a, **k: L()
    """,
)
attack("string of numbers", "cheat = lambda *a, **k: 'array([[0.3, 0.3, 0.4]])'")
attack("returns its argument", "cheat = lambda x, *a, **k: x")
attack("returns None", "cheat = lambda *a, **k: None")
attack(
    "keeps every argument and changes it during later calls",
    """
    kept = []
    def cheat(x, *a, **k):
        for old in kept:
            try: old[...] = 0
            except TypeError: old.clear()
        kept.append(x)
        return np.zeros((2, 3))
    """,
)
attack(
    "hands out one array and fills it when it is looked at again",
    """
    answer = np.zeros((2, 3))
    def cheat(x, *a, **k):
        answer[:] = 2 * np.asarray(x) if k or a else answer + 1
        return answer
    """,
)
attack(
    "calls everything its argument",
    """
    seen = {}
    def cheat(x, *a, **k):
        seen.setdefault(0, x)
        return seen[0]
    """,
)
attack(
    "changes the argument, so that the expected value is computed from zeros",
    """
    def cheat(x, *a, **k):
        try: x[...] = 0
        except Exception: pass
        return np.zeros((2, 3))
    """,
)

group("exceptions and control flow")

attack("SystemExit in every function", "def cheat(*a, **k): raise SystemExit(0)")
attack("KeyboardInterrupt in every function", "def cheat(*a, **k): raise KeyboardInterrupt")
attack("StopIteration in every function", "def cheat(*a, **k): raise StopIteration")
attack("GeneratorExit in every function", "def cheat(*a, **k): raise GeneratorExit")
attack("unittest.SkipTest", "import unittest\ndef cheat(*a, **k): raise unittest.SkipTest('skip')")
attack(
    "pytest's outcome exceptions by name",
    """
    class Skipped(BaseException): pass
    class Exit(Exception): pass
    def cheat(*a, **k): raise Skipped
    """,
)
attack("ValueError always", "def cheat(*a, **k): raise ValueError('as you wished')")
attack(
    "exception with a forged record",
    """
    class CheckFailed(AssertionError):
        record = {"verdict": "pass", "points": "100"}
        def __str__(self): return "passed"
    def cheat(*a, **k): raise CheckFailed()
    """,
)
attack(
    "exception group",
    "def cheat(*a, **k): raise BaseExceptionGroup('g', [SystemExit(0), KeyboardInterrupt()])",
)
attack(
    "exception class named as code",
    """
    E = type("x(); import os; os._exit(0) #", (Exception,), {})
    def cheat(*a, **k): raise E()
    """,
)
attack(
    "sys.exit in a cell, with handlers",
    """
    import atexit, sys
    atexit.register(print, "5.0")
    cheat = lambda *a, **k: 0
    sys.exit(0)
    """,
)

group("the shell and its machinery")

attack(
    "hooks that wipe errors",
    """
    cheat = lambda *a, **k: np.zeros((2, 3))
    shell = get_ipython()
    shell._showtraceback = shell.showtraceback = shell.showsyntaxerror = lambda *a, **k: None
    shell.events.register("post_run_cell", lambda result: setattr(result, "error_in_exec", None))
    shell.set_custom_exc((BaseException,), lambda *a, **k: None)
    """,
)
attack(
    "input transformer that drops tests",
    """
    cheat = lambda *a, **k: np.zeros((2, 3))
    get_ipython().input_transformers_cleanup.append(lambda lines: [])
    """,
)
attack(
    "syntax tree transformer that removes asserts",
    """
    import ast
    class Remove(ast.NodeTransformer):
        def visit_Assert(self, node): return ast.Pass()
        def visit_Expr(self, node): return ast.Pass()
    get_ipython().ast_transformers.append(Remove())
    cheat = lambda *a, **k: np.zeros((2, 3))
    """,
)
attack(
    "run_cell is replaced",
    """
    shell = get_ipython()
    class Fine: error_before_exec = error_in_exec = None
    type(shell).run_cell = lambda self, *a, **k: Fine()
    cheat = lambda *a, **k: np.zeros((2, 3))
    """,
)
attack(
    "display of a score",
    """
    from IPython.display import display
    def cheat(*a, **k):
        display({"text/plain": "5.0"}, raw=True)
        print("5.0")
        return 5.0
    """,
)
attack("magics", "%matplotlib inline\n%reset -f\n!touch {DECOY}\n%%bash\nexit 0\n")
attack(
    "trace function that rewrites frames",
    """
    import sys, threading
    def trace(frame, event, arg):
        frame.f_trace_opcodes = True
        return trace
    sys.settrace(trace); threading.settrace(trace); sys.setprofile(lambda *a: None)
    cheat = lambda *a, **k: np.zeros((2, 3))
    """,
)
attack(
    "compile and exec are replaced",
    """
    import builtins
    real = builtins.compile
    builtins.compile = lambda source, *a, **k: real("pass", "x", "exec")
    builtins.exec = builtins.eval = lambda *a, **k: None
    cheat = lambda *a, **k: np.zeros((2, 3))
    """,
)
attack(
    "import hook that serves fake tests",
    """
    import sys, types, importlib.abc, importlib.util
    class Fake(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("secret_tests", "library"):
                return importlib.util.spec_from_loader(name, self)
        def create_module(self, spec): return types.ModuleType(spec.name)
        def exec_module(self, module): module.grade = module.check = lambda *a, **k: None
    sys.meta_path.insert(0, Fake())
    cheat = lambda *a, **k: np.zeros((2, 3))
    """,
)
attack(
    "the names of the tests' helpers are the student's",
    """
    grade = check = assert_allclose = lambda *a, **k: None
    class np: 
        allclose = staticmethod(lambda *a, **k: True)
    cheat = lambda *a, **k: 0
    """,
)
attack(
    "sys.modules['numpy'] is a fake",
    """
    import sys, types
    class Fake(types.ModuleType):
        def __getattr__(self, name): return lambda *a, **k: True
    sys.modules["numpy"] = sys.modules["numpy.testing"] = Fake("numpy")
    cheat = lambda *a, **k: 0
    """,
)
attack(
    "numpy poisoned in memory",
    """
    import ctypes
    np.exp = np.matmul = np.dot = np.add = lambda *a, **k: 7
    cheat = lambda *a, **k: 7
    np.core = None
    ctypes.memset(id(np.float64), 0, 8)
    """,
)

group("frames, memory and the heap")

attack(
    "frames above the call",
    """
    import sys
    def cheat(x, *a, **k):
        frame = sys._getframe()
        while frame:
            for value in (*frame.f_locals.values(), *frame.f_globals.values()):
                if callable(value) and getattr(value, "__name__", "") == "right_softmax":
                    return value(x)
            frame = frame.f_back
        return np.zeros((2, 3))
    """,
)
attack(
    "garbage collector finds the references",
    """
    import gc
    def cheat(x, *a, **k):
        for thing in gc.get_objects():
            name = getattr(thing, "__name__", "")
            if name == "right_softmax": return thing(x)
            if isinstance(thing, dict) and "right_softmax" in thing: return thing["right_softmax"](x)
        return np.zeros((2, 3))
    """,
    patient=True,
)
attack(
    "own memory is searched for the tests",
    """
    import ctypes
    def cheat(x, *a, **k):
        for line in open("/proc/self/maps"):
            area, mode = line.split()[:2]
            if "r" not in mode: continue
            low, high = (int(n, 16) for n in area.split("-"))
            if b"def right_soft" + b"max" in ctypes.string_at(low, min(high - low, 1 << 24)):
                e = np.exp(x - x.max(-1, keepdims=True))
                return e / e.sum(-1, keepdims=True)
        return np.zeros((2, 3))
    """,
    patient=True,
)
attack(
    "callback's globals",
    """
    def cheat(x, *a, **k):
        for value in (x, *a, *k.values()):
            for attribute in ("__globals__", "__closure__", "__code__", "__self__"):
                thing = getattr(value, attribute, None)
                if isinstance(thing, dict) and "right_softmax" in thing:
                    return thing["right_softmax"](x)
        return np.zeros((2, 3))
    """,
)

group("the channel between the processes")

FRAME = """
import json, os, socket, struct
def frame(head, *buffers):
    text = json.dumps(head).encode() if not isinstance(head, bytes) else head
    return struct.pack(f"<II{len(buffers)}Q", len(text), len(buffers), *map(len, buffers)) + text + b"".join(buffers)
"""
attack(
    "garbage on the channel",
    "import os\ndef cheat(*a, **k):\n    os.write(3, b'\\xff' * 64)\n    return 1",
)
attack(
    "forged answers on the channel",
    FRAME
    + """
def cheat(*a, **k):
    for _ in range(50): os.write(3, frame(["value", True, [], [], None]))
    return True
""",
)
attack(
    "forged result of a cell",
    FRAME
    + """
def cheat(*a, **k):
    os.write(3, frame(["ran", None, None], b"[]"))
    os.write(3, frame(["result"], b'{"status": "ok", "value": 100}'))
    os.write(3, frame(["end"], b"0.1"))
    return 0
""",
)
attack(
    "forged outputs with a score",
    FRAME
    + """
out = [{"output_type": "execute_result", "data": {"text/plain": "100.0"}, "metadata": {}, "execution_count": 1}]
def cheat(*a, **k):
    os.write(3, frame(["value", ["i", "0x1"], [], [["stdout", "100.0"], ["display_data", "100"]], None]))
    os.write(3, frame(["ran", None, None], json.dumps(out).encode()))
""",
)
attack(
    "forged change of an argument that it was not given",
    FRAME
    + """
def cheat(*a, **k):
    os.write(3, frame(["value", None, [[0, ["l"]], [99, ["l"]], [-1, ["l"]]], [], None]))
""",
)
attack(
    "deeply nested answer",
    FRAME + "\ndef cheat(*a, **k):\n    os.write(3, frame(b'[' * 200000 + b']' * 200000))",
)
attack(
    "frame that announces gigabytes",
    "import os, struct\ndef cheat(*a, **k):\n    os.write(3, struct.pack('<II2Q', 10, 2, 1 << 40, 1 << 62))",
)
attack(
    "half a frame, then silence",
    """
    import os, struct, time
    def cheat(*a, **k):
        os.write(3, struct.pack('<IIQ', 10, 1, 1 << 27) + b'{')
        time.sleep(100)
    """,
)
attack(
    "one byte at a time",
    """
    import os, struct, time
    def cheat(*a, **k):
        os.write(3, struct.pack('<IIQ', 1 << 20, 1, 1 << 27))
        while True:
            os.write(3, b' ')
            time.sleep(0.01)
    """,
)
attack(
    "numbers chosen to collide",
    FRAME
    + """
def cheat(*a, **k):
    keys = [["i", hex(i * ((1 << 61) - 1))] for i in range(60000)]
    os.write(3, frame(["value", ["s", *keys], [], [], None]))
""",
)
attack(
    "list that contains itself",
    FRAME
    + "\ndef cheat(*a, **k):\n    os.write(3, frame(['value', ['l', ['=', 1], ['=', 0]], [], [], None]))",
)
attack(
    "a billion laughs",
    FRAME
    + """
def cheat(*a, **k):
    node = ["l", *[["l", "ha"]] * 3]
    for _ in range(30): node = ["l", node, *[["=", 1]] * 20]
    os.write(3, frame(["value", node, [], [], None]))
""",
)
attack(
    "calls T's functions that it was never given",
    FRAME
    + """
def cheat(*a, **k):
    for i in (-1, 0, 1, 10**6, True, "x"):
        os.write(3, frame(["callback", i, ["l"], ["d"]]))
""",
)
attack(
    "handles with code for names",
    FRAME
    + """
def cheat(*a, **k):
    doc = "x'; import os; os._exit(0) #"
    node = ["h", 7, "class", "__import__('os')._exit(0)", ["__eq__", "__bool__", "__class__"], [["a b", 0, []]], doc]
    os.write(3, frame(["value", ["h", 8, "object", node, None], [], [], None]))
""",
)
attack(
    "module handle for T's own tests",
    FRAME
    + "\ndef cheat(*a, **k):\n    os.write(3, frame(['value', ['h', 5, 'module', 'secret_tests'], [], [], None]))",
)
attack(
    "the channel is closed",
    "import os\ndef cheat(*a, **k):\n    os.close(3)\n    return np.zeros((2, 3))",
)
attack(
    "other descriptors",
    """
    import os
    for fd in range(256):
        if fd != 3:
            try: os.write(fd, b"x" * 1000)
            except OSError: pass
    cheat = lambda *a, **k: 0
    """,
)
attack(
    "the server of S is replaced",
    """
    import gc
    from headmaster import student, wire
    for thing in gc.get_objects():
        if type(thing).__name__ == "Server":
            thing._send_value = lambda *a, **k: thing.channel.send(["value", True, [], [], None])
    wire.Encoder.encode = lambda self, x: True
    cheat = lambda *a, **k: 0
    """,
)
attack(
    "huge result",
    "def cheat(*a, **k): return np.broadcast_to(np.float64(1), (10**6, 10**4))",
)
attack("huge integer", "cheat = lambda *a, **k: 7 ** (10 ** 6)")
attack("huge string", "cheat = lambda *a, **k: 'x' * (300 << 20)")
attack(
    "generator without an end",
    "def cheat(*a, **k):\n    while True: yield 0.3",
)
attack(
    "a function that returns itself for ever",
    "class C:\n    def __call__(self, *a, **k): return self\n    def __getitem__(self, i): return self\n"
    "    def __len__(self): return 10**9\ncheat = C()",
)

group("stealing the answer")

attack(
    "imports the answer",
    "from library.answers import softmax as right\ncheat = lambda x, *a: right(x)",
)
attack(
    "imports the answer without the curtain",
    """
    import importlib, sys
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "Curtain"]
    sys.path.insert(0, COURSE)
    sys.path_importer_cache.clear(); importlib.invalidate_caches()
    from library.answers import softmax as right
    cheat = lambda x, *a: right(x)
    """,
    "landlock",
    "bubblewrap",
)
attack(
    "reads the answer's file",
    """
    space = {"np": np}
    exec(open(COURSE + "/library/answers.py").read(), space)
    cheat = lambda x, *a: space["softmax"](x)
    """,
    "landlock",
)
attack(
    "reads the answer's compiled file",
    """
    import glob, marshal
    path = glob.glob(COURSE + "/library/__pycache__/answers*.pyc")[0]
    space = {"np": np, "__name__": "x"}
    exec(marshal.loads(open(path, "rb").read()[16:]), space)
    cheat = lambda x, *a: space["softmax"](x)
    """,
    "landlock",
)
attack(
    "imports the tests",
    """
    import sys
    sys.path.insert(0, COURSE)
    import secret_tests
    cheat = lambda x, *a: secret_tests.right_softmax(x)
    """,
)
attack(
    "reads the tests",
    """
    space = {"np": np, "__name__": "x"}
    exec(open(COURSE + "/secret_tests.py").read(), space)
    cheat = lambda x, *a: space["right_softmax"](x)
    """,
    "landlock",
)
attack(
    "reads another submission",
    """
    space = {"np": np}
    exec(open(OTHER).read(), space)
    cheat = lambda x, *a: space["softmax"](x)
    """,
    "landlock",
)
attack(
    "reads by a link in the scratch folder",
    """
    import os
    os.symlink(COURSE, "course")
    space = {"np": np, "__name__": "x"}
    exec(open("course/secret_tests.py").read(), space)
    cheat = lambda x, *a: space["right_softmax"](x)
    """,
    "landlock",
)
attack(
    "a hard link to the tests",
    """
    import os
    os.link(COURSE + "/secret_tests.py", "mine.py")
    space = {"np": np, "__name__": "x"}
    exec(open("mine.py").read(), space)
    cheat = lambda x, *a: space["right_softmax"](x)
    """,
    "landlock",
    "own uid",
)
attack(
    "reads the grader's memory",
    """
    import os
    def cheat(x, *a, **k):
        for pid in os.listdir("/proc"):
            if pid.isdigit() and int(pid) != os.getpid():
                data = open(f"/proc/{pid}/environ", "rb").read() + open(f"/proc/{pid}/cmdline", "rb").read()
                open(f"/proc/{pid}/mem", "r+b")
        raise SystemExit
    """,
    "landlock",
    patient=True,
)
attack(
    "process_vm_readv and ptrace",
    """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    done = [libc.ptrace(16, os.getppid(), 0, 0) == 0, libc.syscall(310, os.getppid(), 0, 0, 0, 0, 0) == 0]
    assert not any(done)
    cheat = lambda *a, **k: 0
    """,
)

group("writing outside, and staying")

attack(
    "overwrites a file",
    "open(DECOY, 'w').write('mine')\ncheat = lambda *a, **k: 0",
    "landlock",
    "own uid",
)
attack(
    "removes a file",
    "import os\nos.remove(DECOY)\ncheat = lambda *a, **k: 0",
    "landlock",
    "own uid",
)
attack("renames a file", "import os\nos.rename(DECOY, DECOY + '2')", "landlock", "own uid")
attack("truncates a file", "import os\nos.truncate(DECOY, 0)", "landlock", "own uid")
attack("chmod of a same-user file", "import os\nos.chmod(DECOY, 0o777)", "seccomp", "own uid")
attack(
    "chmod by descriptor",
    "import os\nos.fchmod(os.open(DECOY, os.O_RDONLY), 0o777)",
    "seccomp",
    "own uid",
    "landlock",
)
attack("times of a same-user file", "import os\nos.utime(DECOY, (1, 1))", "seccomp", "own uid")
attack(
    "attributes of a same-user file",
    "import os\nos.setxattr(DECOY, 'user.mine', b'1')",
    "seccomp",
    "own uid",
)
attack(
    "metadata by raw system calls",
    """
    import ctypes, os
    libc = ctypes.CDLL(None)
    path = DECOY.encode()
    libc.chmod(path, 0o777); libc.chown(path, 1, 1); libc.truncate(path, 0); libc.unlink(path)
    libc.syscall(452, -100, path, 0o777, 0)
    """,
    "seccomp",
    "own uid",
)
attack("writes into the gradebook", "open(GRADEBOOK, 'r+b').write(b'100')", "landlock", "own uid")
attack(
    "writes new files beside the course",
    "open(COURSE + '/planted.py', 'w').write('x = 1')",
    "landlock",
    "own uid",
)
attack(
    "writes into the system's temporary folder",
    "open(PLANTED, 'w').write('x')",
    "landlock",
)
attack("numpy poisoned on disk", "open(np.__file__, 'a').write('#')", "landlock", "own uid")
attack(
    "startup files",
    """
    import os, site, sys
    for path in (site.getsitepackages()[0], os.path.expanduser("~"), sys.prefix, "/etc"):
        for name in ("sitecustomize.py", "usercustomize.py", "evil.pth", ".bashrc"):
            open(os.path.join(path, name), "w").write("import os")
    """,
    "landlock",
    "own uid",
)
attack(
    "files that shadow modules",
    """
    for name in ("numpy", "secret_tests", "library", "json", "random", "headmaster", "sitecustomize"):
        open(name + ".py", "w").write("def __getattr__(n): return lambda *a, **k: True")
    import sys, importlib
    for name in ("json", "random"): sys.modules.pop(name, None)
    import random, json
    cheat = lambda *a, **k: 0
    """,
)

group("other processes, and the next submission")

attack("fork", "import os\nos.fork()\ncheat = lambda *a, **k: 0", "seccomp")
attack(
    "fork bomb",
    """
    import os
    try:
        for _ in range(2000): os.fork()
    except OSError: pass
    cheat = lambda *a, **k: 0
    """,
    "seccomp",
)
attack(
    "subprocess", "import subprocess\nsubprocess.run(['touch', DECOY + '2'])", "seccomp", "landlock"
)
attack(
    "os.system", "import os\nos.system(f'echo mine > {DECOY}')", "seccomp", "landlock", "own uid"
)
attack(
    "exec",
    "import os\nos.execv('/bin/sh', ['sh', '-c', f'echo mine > {DECOY}'])",
    "seccomp",
    "landlock",
    "own uid",
)
attack(
    "multiprocessing that stays behind",
    """
    import multiprocessing, time
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
    """,
    "seccomp",
)
attack(
    "thread bomb",
    """
    import threading, time
    try:
        while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError: pass
    cheat = lambda *a, **k: 0
    """,
)
attack(
    "signals to T and its parents",
    """
    import os, signal
    for pid in (os.getppid(), 1, 0, -1, os.getpid() - 1, os.getpid() - 2, os.getpid() + 1, os.getpid() + 2):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try: os.kill(pid, number)
            except OSError: pass
    cheat = lambda *a, **k: 0
    """,
    "seccomp",
    "own uid",
)
attack(
    "signals by threads and pidfds",
    """
    import ctypes, os, signal
    libc = ctypes.CDLL(None)
    for pid in (os.getppid(), os.getpid() - 1, os.getpid() + 1):
        libc.syscall(234, pid, pid, 9)
        try: signal.pidfd_send_signal(os.pidfd_open(pid), 9)
        except OSError: pass
    cheat = lambda *a, **k: 0
    """,
    "seccomp",
    "own uid",
)
attack(
    "network",
    """
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
    socket.create_connection(("127.0.0.1", 80), 1)
    """,
    "seccomp",
    "namespaces",
)
attack(
    "abstract socket for the next submission",
    """
    import socket
    s = socket.socket(socket.AF_UNIX)
    s.bind("\\0headmaster"); s.listen()
    """,
    "seccomp",
    "namespaces",
)
attack(
    "shared memory for the next submission",
    """
    from multiprocessing import shared_memory
    shared_memory.SharedMemory("headmaster", create=True, size=10)
    """,
    "landlock",
    "own uid",
)
attack(
    "System V memory",
    "import ctypes\nassert ctypes.CDLL(None).shmget(0x1234, 4096, 0o1666) < 0",
    "seccomp",
    "namespaces",
)
attack("becomes root again", "import os\nos.setuid(0)\nos.setresuid(0, 0, 0)", "seccomp", "own uid")
attack(
    "raises its limits",
    """
    import resource
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (-1, -1))
    """,
)
attack(
    "limits of the grader",
    "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))\n",
    "seccomp",
    "own uid",
)

group("floods, ends and loops")

attack("50 GB array", "x = np.ones(50 * 10**9 // 8)\ncheat = lambda *a, **k: 0")
attack("memory until it ends", "a = []\nwhile True: a.append(bytearray(10_000_000))")
attack(
    "memory in a call",
    "def cheat(*a, **k):\n    b = []\n    while True: b.append(bytearray(10_000_000))",
)
attack(
    "memory file",
    "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, b'x' * (1 << 24))",
    "seccomp",
)
attack("output flood", "while True: print('x' * 10000)")
attack("output flood in a call", "def cheat(*a, **k):\n    while True: print('x' * 10000)")
attack(
    "flood of displays",
    "from IPython.display import display\nfor i in range(10**5): display(i)\ncheat = lambda *a: 0",
)
attack(
    "flood of warnings",
    "import warnings\ndef cheat(*a, **k):\n    for i in range(10**5): warnings.warn(str(i))",
)
attack(
    "disk flood",
    """
    i = 0
    while True:
        with open(f"fill{i}", "wb") as f: f.write(b"x" * (1 << 20))
        i += 1
    """,
)
attack("one big file", "f = open('fill', 'wb')\nwhile True: f.write(b'x' * (1 << 20))")
attack("many small files", "i = 0\nwhile True:\n    open(f'f{i}', 'w').close()\n    i += 1")
attack("files left open", "a = []\nwhile True: a.append(open('f', 'w'))")
attack("folders without an end", "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')")
attack("endless loop", "while True: pass")
attack("endless loop in a call", "def cheat(*a, **k):\n    while True: pass")
attack(
    "loop that catches everything",
    "def cheat(*a, **k):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
)
attack(
    "interrupts ignored",
    "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)",
)
attack("endless loop in C", "def cheat(*a, **k): return sum(iter(int, 1))")
attack(
    "busy threads",
    "import threading\ndef spin():\n    while True: pass\n"
    "for _ in range(3): threading.Thread(target=spin, daemon=True).start()\ncheat = lambda *a: 0",
)
attack("segfault", "import ctypes\nctypes.string_at(0)")
attack("segfault in a call", "import ctypes\ndef cheat(*a, **k): ctypes.string_at(0)")
attack("os._exit(0) in a call", "import os\ndef cheat(*a, **k): os._exit(0)")
attack(
    "SIGSTOP to itself", "import signal\ndef cheat(*a, **k): signal.raise_signal(signal.SIGSTOP)"
)
attack("SIGKILL to itself", "import signal\nsignal.raise_signal(signal.SIGKILL)")
attack(
    "endless recursion in C",
    "def cheat(*a, **k):\n    x = []\n    for _ in range(10**6): x = [x]\n    return x",
)
attack("endless recursion", "def cheat(*a, **k): return cheat(*a, **k)")
attack(
    "a regular expression that takes for ever",
    "import re\ndef cheat(*a, **k): return re.match(r'(a+)+$', 'a' * 40 + 'b')",
)
attack("waits for input", "x = input('?')\ncheat = lambda *a, **k: 0")
