"""The notebook's shell in S: IPython without a kernel, its outputs kept as nbformat wants them."""

from __future__ import annotations

import base64
import builtins
import getpass
import io
import sys
import traceback
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any as AnyTrait
from traitlets import Type

MAX_OUTPUTS = 500  # outputs of one cell
MAX_FRAMES = 12  # lines of a plain traceback
_INLINE = "matplotlib_inline.backend_inline"
CUT = "\n… the rest of this output was cut …\n"

Output = dict[str, Any]


class Sink:
    """The outputs of the running cell: bounded, what is too long is cut."""

    def __init__(self, most: int = 1_000_000):
        self.most = most
        self.size = 0
        self.outputs: list[Output] = []

    def begin(self) -> None:
        """Forget everything: a new cell begins."""
        self.outputs, self.size = [], 0

    def add(self, output: Output) -> None:
        """Take one display, result or error."""
        size = sum(len(str(value)) for value in output.get("data", output).values())
        if self.size + size <= 8 * self.most and len(self.outputs) < MAX_OUTPUTS:
            self.size += size
            self.outputs.append(output)

    def write(self, name: str, text: str) -> None:
        """Take printed text."""
        if self.size > self.most:
            return
        if self.size + len(text) > self.most:
            text = text[: self.most - self.size] + CUT
        self.size += len(text) + 1
        last = self.outputs[-1] if self.outputs else None
        if last and last["output_type"] == "stream" and last["name"] == name:
            last["text"].append(text)
        elif len(self.outputs) < MAX_OUTPUTS:
            self.outputs.append({"output_type": "stream", "name": name, "text": [text]})

    def end(self) -> list[Output]:
        """Return the outputs."""
        for output in self.outputs:
            if output["output_type"] == "stream":
                output["text"] = "".join(output["text"])
        return self.outputs


class Stream(io.TextIOBase):
    """A `sys.stdout` or `sys.stderr` that writes into the present sink of `owner`."""

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, name: str, owner: Any):
        self._name = name
        self._owner = owner

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, text: str) -> int:
        """Write text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._owner.sink.write(self._name, text)
        return len(text)

    def isatty(self) -> bool:
        """Say no."""
        return False

    def fileno(self) -> int:
        """Return the descriptor that a program of its own would have."""
        return {"stdout": 1, "stderr": 2}[self._name]


def _text(data: dict[str, Any]) -> dict[str, Any]:
    return {
        kind: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for kind, value in data.items()
    }


class _Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, **_):
        self.shell.sink.add(
            {"output_type": "display_data", "data": _text(data), "metadata": metadata or {}}
        )

    def clear_output(self, wait=False):
        self.shell.sink.outputs.clear()


class _Results(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.sink.add(
            {
                "output_type": "execute_result",
                "data": _text(format_dict),
                "metadata": md_dict or {},
                "execution_count": self.prompt_count,
            }
        )

    def finish_displayhook(self):
        self._is_active = False


class Shell(InteractiveShell):
    """An IPython shell whose outputs go to `sink`."""

    displayhook_class = Type(_Results)
    display_pub_class = Type(_Publisher)
    sink = AnyTrait()
    full_tracebacks = AnyTrait(False)

    def enable_gui(self, gui=None):
        """Do nothing: there is no screen."""

    def init_history(self):
        """Keep no history on disk, and start no thread for it."""
        HistoryManager.enabled = False
        super().init_history()

    def atexit_operations(self):
        """Do nothing: S ends with `os._exit`."""

    def system(self, cmd):
        """Refuse a shell command kindly."""
        print(f"Commands such as !{cmd.strip()} are not run while a notebook is graded.")

    system_raw = system_piped = system

    def getoutput(self, cmd, split=True, depth=0):
        """Refuse a shell command kindly, and return no output."""
        self.system(cmd)
        return []

    def _format_exception_for_storage(self, *_, **__):
        return None  # IPython 9 would format every traceback a second time for its history

    def _showtraceback(self, etype, evalue, stb):
        self.sink.add(
            {
                "output_type": "error",
                "ename": etype.__name__,
                "evalue": safe_text(evalue),
                "traceback": list(stb),
            }
        )

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        """Show where it went wrong: plain lines (0.2 ms), not IPython's coloured ones (20 ms)."""
        if self.full_tracebacks:
            super().showtraceback(exc_tuple, *args, **kwargs)
            return
        kind, error, trace = self._get_exc_info(exc_tuple)
        while trace and trace.tb_next and not _is_cell(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        lines = traceback.format_exception(kind, error, trace, limit=MAX_FRAMES)
        self._showtraceback(kind, error, "".join(lines).rstrip("\n").split("\n"))


def _is_cell(filename: str) -> bool:
    return filename.startswith("<ipython-input") or "ipykernel" in filename


def safe_text(error: BaseException) -> str:
    """Return the text of an error, whose own code may fail."""
    try:
        return str(error)
    except Exception as broken:
        return f"(its text could not be made: {type(broken).__name__})"


def make_shell() -> Shell:
    """Make the one shell of this process."""
    InteractiveShell.clear_instance()
    shell = Shell.instance()
    shell.sink = Sink()
    builtins.input = getpass.getpass = _no_input
    backend = sys.modules.get(_INLINE)
    if backend is not None:
        backend._enable_matplotlib_integration()  # figures are shown, or closed, after each cell
    return shell


def _no_input(prompt: object = "", *_: object) -> str:
    raise RuntimeError(
        f"This cell asked for input ({prompt!s}), but nobody sits here while it is graded. "
        "Give the value in the code instead."
    )


def attach(shell: Shell) -> None:
    """Send this process' prints to the shell."""
    sys.stdout = Stream("stdout", shell)
    sys.stderr = Stream("stderr", shell)


def set_figures(shell: Shell, wanted: bool) -> None:
    """Draw figures into the outputs, or close them undrawn (one costs as much as ten cells)."""
    shell.full_tracebacks = wanted
    backend = sys.modules.get(_INLINE)
    if backend is not None and not wanted:
        backend.display = lambda *_, **__: None


def run_cell(shell: Shell, source: str) -> tuple[list[Output], str | None, str | None]:
    """Run one cell; returns its outputs and the name and text of what it raised."""
    shell.sink.begin()
    result = shell.run_cell(source, store_history=True)
    error = result.error_before_exec or result.error_in_exec
    outputs = shell.sink.end()
    if error is None:
        return outputs, None, None
    return outputs, type(error).__name__, safe_text(error)
