"""Run the attacks as an ordinary user although root has called: python tests/attacks/ordinary.py.

Where Python lies in a folder that only root can enter, it is opened in a mount namespace of this
process only. Further arguments go to pytest.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UID = 60990


def main() -> None:
    """Become an ordinary user for good, and run pytest."""
    sys.path.insert(0, str(ROOT))
    from headmaster import sandbox
    from headmaster.curtain import interpreter_paths

    if os.getuid() == 0:
        sandbox.enter_namespaces(("mounts",))
        sandbox.open_the_way([sys.prefix, sys.base_prefix, *interpreter_paths(), ROOT])
        sandbox.become(UID)
    home = tempfile.mkdtemp(prefix="ordinary-")
    os.environ.update(HOME=home, PYTHONDONTWRITEBYTECODE="1")
    os.chdir(ROOT)
    options = ["-p", "no:cacheprovider", f"--basetemp={home}/pytest"]
    chosen = ["tests/attacks", *sys.argv[1:]]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *options, *chosen])


if __name__ == "__main__":
    main()
