"""Confine the student's process S for good, layer by layer (Linux; no layer needs root).

Threat model. The code in S is hostile, runs native code as it likes (ctypes), and knows this
file. It must not

* read the tests, the answers, the gradebook, other submissions or the course's library;
* write, chmod, rename or remove anything outside its own scratch folder;
* reach the network, T, the engine, another S, or any other process (signals, ptrace, memory);
* start processes, or use more memory, processor, threads, files or disk than `Limits` says;
* leave anything behind that the next submission meets: S is a fork that dies after one job.

It may do with itself whatever it wants: nothing in S decides a mark (see `trusted`).

The layers, each optional, from the most to the least available:

rlimits     address space, processor time (a backstop: T measures it per cell), size and number of
            files, no core dumps; threads where S has a user id of its own
landlock    reads only the interpreter, its packages and the system's libraries, writes only the
            scratch folder; no TCP, no signals and no abstract sockets to the outside (by ABI)
seccomp     no new process, no socket, no signals to others, no change of a file's mode, owner or
            times (Landlock does not cover metadata), no kernel interfaces that a notebook lacks
own uid     as root: an unprivileged user id that nothing else on the machine uses
namespaces  as root: processes, network, System V IPC and mounts of its own, once per warm process
bubblewrap  where it is installed: the same for the whole student zygote, without root
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headmaster.job import Limits

LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if LINUX else None

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
CLONE_THREAD = 0x10000

FIRST_UID, UIDS = 61184, 4335  # systemd's range for users that live for one service


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _syscall(number: int, *arguments: object) -> int:
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *plain), f"system call {number}")


def prctl(option: int, *arguments: int) -> None:
    """Call prctl; does nothing where there is none."""
    if LINUX:
        padded = [*arguments, 0, 0, 0, 0][:4]
        _check(_libc.prctl(option, *map(ctypes.c_ulong, padded)), f"prctl {option}")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that forked it ends."""
    with contextlib.suppress(OSError):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def close_to_others() -> None:
    """Keep processes of the same user from reading this one's memory (ptrace, /proc/PID/mem)."""
    with contextlib.suppress(OSError):
        prctl(PR_SET_DUMPABLE, 0)


# ---------------------------------------------------------------------------------- landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every processor
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 10, 1 << 11
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL = (1 << 16) - 1  # ABI 5 and later
_READ_WRITE = _ALL & ~(_MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _IOCTL_DEV)


@functools.cache
def landlock_abi() -> int:
    """Return the kernel's version of Landlock, 0 where there is none."""
    if not LINUX:
        return 0
    try:
        return _syscall(_CREATE_RULESET, 0, 0, 1)
    except OSError:
        return 0


@dataclass(frozen=True)
class OpenPath:
    """A path opened once in the zygote, so that S adds its rule with one system call."""

    fd: int
    folder: bool

    @classmethod
    def open(cls, path: str | Path) -> OpenPath | None:
        """Open `path` for a rule; None if it does not exist."""
        try:
            low = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None
        fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 16)  # the low numbers are S's own
        os.close(low)
        return cls(fd, os.path.isdir(path))


def landlock(read: Iterable[OpenPath], write: Iterable[OpenPath]) -> None:
    """Let this process read only below `read`, and read and write only below `write`."""
    abi = landlock_abi()
    handled = _ALL_BY_ABI.get(abi, _ALL)
    network = 3 if abi >= 4 else 0  # bind and connect
    scope = 3 if abi >= 6 else 0  # abstract sockets and signals
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = ctypes.c_char_p(struct.pack("QQQ", handled, network, scope))
    ruleset = _syscall(_CREATE_RULESET, attributes, size, 0)
    try:
        for paths, access in ((read, _READ), (write, _READ_WRITE)):
            for path in paths:
                allowed = access & handled & (-1 if path.folder else _FILE_ONLY)
                rule = ctypes.c_char_p(struct.pack("=Qi", allowed, path.fd))
                _syscall(_ADD_RULE, ruleset, 1, rule, 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        _syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


# ----------------------------------------------------------------------------------- seccomp

_OWN_PID = 0x5EC0DE11  # stands in the compiled filter for the pid, which is known after the fork

# What a notebook has no business with. Names that a processor lacks are skipped.
_FORBIDDEN = """
    fork vfork execve execveat
    socket socketpair connect bind listen accept accept4 recvmsg sendmsg sendmmsg recvmmsg
    kill tkill sigqueue rt_sigqueueinfo rt_tgsigqueueinfo
    ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp
    pidfd_open pidfd_getfd pidfd_send_signal
    mount umount2 pivot_root chroot unshare setns fsopen fsmount fspick open_tree move_mount
    mount_setattr open_by_handle_at name_to_handle_at quotactl quotactl_fd
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    keyctl add_key request_key kexec_load kexec_file_load init_module finit_module delete_module
    reboot swapon swapoff acct settimeofday clock_settime adjtimex clock_adjtime sethostname
    setdomainname iopl ioperm modify_ldt personality syslog vhangup
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
    mq_open mq_notify mq_timedsend shmget shmat shmctl msgget msgsnd semget semop
    memfd_create memfd_secret inotify_init inotify_init1 fanotify_init fanotify_mark
    setrlimit setpriority sched_setaffinity sched_setscheduler sched_setparam
    sched_setattr ioprio_set mlock mlock2 mlockall setsid setpgid
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat
    utime utimes futimesat utimensat mknod mknodat
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
    file_setattr landlock_create_ruleset seccomp
""".split()

# Python asks for these in good faith, and takes a failure well only if it is the right one.
_MISSING = "clone3 rseq_slice_yield".split()  # ENOSYS: the C library falls back to clone


@functools.cache
def seccomp_program() -> bytes | None:
    """Compile the filter by libseccomp; None where pyseccomp or its library is missing."""
    if not LINUX:
        return None
    try:
        import pyseccomp as libseccomp
    except (ImportError, RuntimeError, OSError):
        return None
    denied, absent = libseccomp.ERRNO(1), libseccomp.ERRNO(38)
    rules = libseccomp.SyscallFilter(libseccomp.ALLOW)
    argument = libseccomp.Arg
    for action, names in ((denied, _FORBIDDEN), (absent, _MISSING)):
        for name in names:
            _add_rule(rules, action, name)
    no_thread = argument(0, libseccomp.MASKED_EQ, CLONE_THREAD, 0)
    _add_rule(rules, denied, "clone", no_thread)  # threads, but no processes
    _add_rule(rules, denied, "tgkill", argument(0, libseccomp.NE, _OWN_PID))
    _add_rule(rules, denied, "prlimit64", argument(2, libseccomp.NE, 0))  # reading is harmless
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _add_rule(rules: object, action: int, name: str, *arguments: object) -> None:
    try:
        rules.add_rule(action, name, *arguments)
    except (OSError, ValueError, RuntimeError):
        return  # this processor, or this version of the library, has no such call


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def seccomp(program: bytes) -> None:
    """Load a filter from `seccomp_program` into this process."""
    own = program.replace(struct.pack("=I", _OWN_PID), struct.pack("=I", os.getpid()))
    buffer = ctypes.create_string_buffer(own, len(own))
    described = _FilterProgram(len(own) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _check(_libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(described), 0, 0), "seccomp")


# ------------------------------------------------------------------------- rlimits, user, caps


def set_rlimits(limits: Limits, total_cpu: int, own_uid: bool) -> None:
    """Set the resource limits, hard and soft; the address space counts from what is mapped now."""
    limit_memory(limits.memory_bytes)  # opens a file, which the next limits may forbid
    wanted = {
        resource.RLIMIT_CPU: total_cpu,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CORE: 0,
    }
    if own_uid:  # otherwise it would count every process of the user who grades
        wanted[resource.RLIMIT_NPROC] = limits.processes
    for limit, value in wanted.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def limit_memory(more: int) -> None:
    """Let this process map `more` bytes beyond what it has mapped (Linux only)."""
    if LINUX:  # elsewhere the address space holds more than memory
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        value = pages * resource.getpagesize() + more
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(resource.RLIMIT_AS, (value, value))


def become(uid: int) -> None:
    """Change to the user and group `uid` for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _give(folder: Path, uid: int) -> None:
    """Make a folder that nobody has touched yet, and the files copied into it, the user's own."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def drop_capabilities() -> None:
    """Give up every privilege of root but the ownership of root's files."""
    for capability in range(64):
        with contextlib.suppress(OSError):
            prctl(PR_CAPBSET_DROP, capability)
    header = ctypes.c_char_p(struct.pack("=Ii", 0x20080522, 0))
    _check(_libc.capset(header, ctypes.c_char_p(bytes(24))), "capset")


# --------------------------------------------------------------------------------- namespaces


def can_walk_to(path: str | Path) -> bool:
    """Tell whether any user may reach `path` (a Python below /root, mode 700, none can)."""
    return _first_closed(path) is None


def _first_closed(path: str | Path) -> Path | None:
    for folder in reversed(Path(path).resolve().parents):
        try:
            if not folder.stat().st_mode & 0o001:
                return folder
        except OSError:
            return folder
    return None


_NAMESPACES = {
    "mounts": CLONE_NEWNS,
    "network": CLONE_NEWNET,
    "ipc": CLONE_NEWIPC,
    "processes": CLONE_NEWPID,
}


def enter_namespaces(names: Iterable[str] = tuple(_NAMESPACES)) -> list[str]:
    """As root, leave the machine's namespaces; returns those that this process has left.

    The new process namespace begins with the next fork.
    """
    left = [name for name in names if _libc.unshare(_NAMESPACES[name]) == 0]
    if "mounts" in left:
        _mount(None, "/", None, 0x44000)  # MS_REC | MS_PRIVATE: nothing of ours leaks out
    return left


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


def open_the_way(paths: Sequence[str | Path]) -> None:
    """In a mount namespace of its own, make `paths` reachable for every user.

    A closed folder above them is covered by an empty one in which only these paths are mounted
    again: what else lies there becomes invisible.
    """
    closed: dict[Path, list[Path]] = {}
    for path in paths:
        gate = _first_closed(path)
        if gate is not None and Path(path).exists():
            closed.setdefault(gate, []).append(Path(path).resolve())
    for gate, below in closed.items():
        outer = [p for p in below if not any(q != p and q in p.parents for q in below)]
        held = {path: os.open(path, os.O_PATH) for path in outer}
        _mount("tmpfs", str(gate), "tmpfs", 6, "size=1m,mode=711")  # MS_NOSUID | MS_NODEV
        for path, fd in held.items():
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            _mount(f"/proc/self/fd/{fd}", str(path), None, 0x1000)  # MS_BIND
            os.close(fd)


# ------------------------------------------------------------------------------- all together


@functools.cache
def bubblewrap() -> tuple[str, ...]:
    """Return the command that wraps the student zygote, empty where it is of no use.

    Root has namespaces and a user id of its own for each S, which bubblewrap would take away.
    """
    program = shutil.which("bwrap")
    if not program or not LINUX or os.getuid() == 0:
        return ()
    command = (
        program,
        *("--die-with-parent", "--unshare-net", "--unshare-ipc", "--unshare-pid", "--unshare-uts"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *("--bind", tempfile.gettempdir(), tempfile.gettempdir()),
        "--",
    )
    works = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if works else ()  # a kernel may forbid unprivileged namespaces


def confine(
    limits: Limits,
    total_cpu: int,
    read: Sequence[OpenPath],
    scratch: Path,
    walkable: bool,
    without: Sequence[str] = (),
) -> dict[str, bool | str]:
    """Confine this process; returns which layers hold.

    `total_cpu` seconds are the backstop of the whole job; `walkable` says that another user
    could still reach the interpreter; `without` names layers to leave out. Raises OSError where a
    layer that this machine has cannot be put in place.
    """
    layers: dict[str, bool | str] = {}
    root = LINUX and os.getuid() == 0
    own_uid = root and walkable and "own uid" not in without
    uid = FIRST_UID + os.getpid() % UIDS
    if own_uid:
        _give(scratch, uid)
    set_rlimits(limits, total_cpu, own_uid)
    layers["rlimits"] = True
    writable = OpenPath.open(scratch) if LINUX else None
    if own_uid:
        become(uid)
    elif root:
        drop_capabilities()
    layers["own uid"] = own_uid
    die_with_parent()  # the change of user has cleared it
    if LINUX and not own_uid:
        prctl(PR_SET_DUMPABLE, 1)  # T reads how much memory S uses
    abi = 0 if "landlock" in without else landlock_abi()
    layers["landlock"] = f"ABI {abi}" if abi else False
    if abi and writable:
        landlock(read, [writable])
    if writable:
        os.close(writable.fd)
    program = None if "seccomp" in without else seccomp_program()
    layers["seccomp"] = program is not None
    if program is not None:
        seccomp(program)
    return layers
