"""Where jobs run: a pool on this machine, or a Dask cluster; both speak concurrent.futures.

The function that a pool runs must be importable by name in its workers, and what it takes and
returns are plain values: `Task` in, `Outcome` out.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headmaster.job import Job, Outcome

CONNECT_SECONDS = 20  # that a scheduler may take to answer


@dataclass(frozen=True)
class Task:
    """A job and the files that lie beside the notebook, by their relative names."""

    job: Job
    files: tuple[tuple[str, bytes], ...] = ()


def run_task(task: Task) -> Outcome:
    """Run one task in this process's engine; trouble of any kind comes back in the outcome."""
    try:
        with _files_on_disk(task.files) as folder:
            return _engine().run(replace(task.job, files=folder))
    except Exception as error:  # one job's trouble must not end the pool
        return failed(task.job, f"{type(error).__name__}: {error}")


def failed(job: Job, trouble: str) -> Outcome:
    """Return the outcome of a job that could not run."""
    return Outcome(results=(), confinement={}, seed=job.seed, trouble=trouble)


@contextmanager
def pool(jobs: int | None = None, scheduler: str | None = None) -> Iterator[Executor]:
    """Open the executor that runs tasks: local threads over one warm zygote, or a cluster.

    Threads are enough here: all work of a submission happens in processes that the zygote forks.
    """
    if scheduler:
        with _dask(scheduler) as executor:
            yield executor
        return
    threading.Thread(target=_warm, daemon=True).start()
    executor = ThreadPoolExecutor(jobs or os.cpu_count() or 1, thread_name_prefix="headmaster")
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


@contextmanager
def _dask(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError:
        raise PoolError("--scheduler needs Dask: pip install distributed") from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise PoolError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        yield client.get_executor(pure=False, retries=3)


class PoolError(Exception):
    """The place where jobs should run is not there."""


_lock = threading.Lock()
_state: dict[int, Any] = {}


def _engine() -> Any:
    """Return this process's engine; a forked copy of another process's engine is never used."""
    with _lock:
        if os.getpid() not in _state:
            from headmaster.engine import Engine

            engine = Engine().__enter__()
            _state[os.getpid()] = engine
            atexit.register(engine.__exit__, None, None, None)
        return _state[os.getpid()]


def _warm() -> None:
    """Start the engine while the class list is read; what fails here fails again with a job."""
    with suppress(Exception):
        _engine().warm()


@contextmanager
def _files_on_disk(files: tuple[tuple[str, bytes], ...]) -> Iterator[Path | None]:
    if not files:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headmaster-") as folder:
        for name, data in files:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        yield Path(folder)
