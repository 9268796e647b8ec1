"""The Python side of a live page: runs one cell, and hands back what a notebook would show.

A page has no IPython. The few of its names that the course's code asks for (`display`,
`get_ipython`) are supplied here, so that checks and figures show themselves as in a notebook.
"""

import ast
import base64
import importlib.abc
import io
import linecache
import os
import sys
import traceback
import types
import warnings

os.environ["MPLBACKEND"] = "agg"
LIMIT = 100_000  # characters of text that one cell may print

namespace = {"__name__": "__main__", "__builtins__": __builtins__}
_emit = None  # set for the time of a run: hands one output to the page


class _Text(io.TextIOBase):
    """Standard output that goes to the page at once, so that a long loop can be watched."""

    def __init__(self, name):
        self.name, self.length = name, 0

    def writable(self):
        return True

    def write(self, text):
        left = LIMIT - self.length
        if left > 0 and text:
            _emit({"kind": self.name, "text": text[:left]})
            if len(text) > left:
                _emit({"kind": self.name, "text": "\n… the rest is not shown.\n"})
        self.length += len(text)
        return len(text)


def _bundle(value):
    """How a value shows itself: HTML or a picture where it can, text else."""
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_() or {}
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        if "text/html" in bundle:
            return {"kind": "html", "html": bundle["text/html"]}
    for method, kind in (("_repr_html_", "html"), ("_repr_svg_", "html"), ("_repr_png_", "png")):
        shown = getattr(value, method, lambda: None)() if not isinstance(value, type) else None
        if shown is not None:
            if kind == "png":
                return {"kind": "png", "data": base64.b64encode(shown).decode()}
            return {"kind": "html", "html": shown}
    return {"kind": "result", "text": repr(value) + "\n"}


def display(*values, **_options):
    """Show values in the page, as IPython's function of the same name does in a notebook."""
    for value in values:
        output = _bundle(value)
        if hasattr(value, "holds") and hasattr(value, "sentences"):  # a report of manyheads.check
            output["report"] = {
                "function": value.function,
                "holds": {str(key): bool(held) for key, held in value.holds.items()},
            }
        _emit(output)


class HTML:
    """Finished HTML; stands in for IPython.display.HTML."""

    def __init__(self, data=""):
        self.data = data

    def _repr_html_(self):
        return self.data


def _supply(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def _nothing(*_args, **_options):
    """For what has no meaning in a page."""


def supply_notebook_names():
    """The names of IPython and of myst-nb that the course's cells use."""
    shell = types.SimpleNamespace(
        events=types.SimpleNamespace(register=_nothing), enable_gui=_nothing, user_ns=namespace
    )
    _supply("IPython", get_ipython=lambda: shell, version_info=(8, 30, 0), __path__=[])
    _supply("IPython.display", display=display, HTML=HTML, SVG=HTML, clear_output=_nothing)
    _supply("IPython.core", __path__=[])
    _supply("IPython.core.pylabtools", backend2gui={})
    sys.modules["IPython"].display = sys.modules["IPython.display"]
    _supply("myst_nb", glue=_nothing)
    namespace["display"] = display
    namespace["get_ipython"] = lambda: shell


class Curtain(importlib.abc.MetaPathFinder):
    """Hides the modules that hold what an exercise asks for, as the grader's curtain does."""

    def __init__(self, hide, show):
        self.hide, self.show = tuple(hide), tuple(show)

    def _covers(self, names, fullname):
        return any(fullname == name or fullname.startswith(name + ".") for name in names)

    def find_spec(self, fullname, path=None, target=None):
        if not self._covers(self.hide, fullname) or self._covers(self.show, fullname):
            return None
        if any(shown.startswith(fullname + ".") for shown in self.show):
            return None  # a package on the way to something that is shown
        raise ModuleNotFoundError(
            f"{fullname} can't be imported in this exercise: it is what you write here",
            name=fullname,
        )


def _plain(source):
    """A cell without the lines that only a notebook's kernel understands."""
    lines = source.split("\n")
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def _readable(error, filename):
    """An error as its reader needs it: their own lines, or what the error wants to say itself."""
    own = getattr(error, "_render_traceback_", None)
    if own is not None:
        return "\n".join(own())
    told = traceback.TracebackException.from_exception(error)
    told.__cause__ = told.__context__ = None
    told.stack = traceback.StackSummary.from_list(
        [frame for frame in told.stack if frame.filename.startswith("<cell ")]
    )
    return "".join(told.format(chain=False)).replace('File "<cell', 'File "<cell').rstrip()


def _show_figures():
    """Figures that pyplot holds are shown at the end of a cell, as in a notebook."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", dpi=144, bbox_inches="tight")
        _emit({"kind": "png", "data": base64.b64encode(buffer.getvalue()).decode()})
    if pyplot:
        pyplot.close("all")


def run_cell(source, number, emit):
    """Run one cell; outputs go to `emit` as they come. Returns None, or what went wrong."""
    global _emit
    filename = f"<cell {number}>"
    source = _plain(source)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    _emit = emit
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Text("stdout"), _Text("stderr")
    try:
        tree = ast.parse(source, filename)
        last = tree.body[-1] if tree.body else None
        shows = isinstance(last, ast.Expr) and not source.rstrip().endswith(";")
        if shows:
            tree.body.pop()
        exec(compile(tree, filename, "exec"), namespace)
        if shows:
            value = eval(compile(ast.Expression(last.value), filename, "eval"), namespace)
            if value is not None:
                namespace["_"] = value
                display(value)
        _show_figures()
    except BaseException as error:
        missing = ""
        if isinstance(error, ModuleNotFoundError):
            missing = (error.name or "").split(".")[0]
        if isinstance(error, FileNotFoundError):
            missing = str(error.filename or "")
        return {
            "text": _readable(error, filename),
            "name": type(error).__name__,
            "missing": missing,
        }
    finally:
        sys.stdout, sys.stderr = before
    return None


def prepare(hide, show):
    """Once, before the first cell."""
    import logging

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*non-interactive.*")
    supply_notebook_names()
    if hide:
        sys.meta_path.insert(0, Curtain(hide, show))
