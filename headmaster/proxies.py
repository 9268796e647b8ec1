"""Proxies: what a test cell holds in place of the student's functions, classes and objects.

A proxy forwards calls, attributes, items and arithmetic, and each result is a plain value or
another proxy. Comparisons and truth are not forwarded: by them the student's code would decide
whether its own answer is right. The state of a proxy is in T and cannot be read by S.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headmaster import wire

if TYPE_CHECKING:
    from headmaster.client import Client


class StudentStopped(BaseException):
    """S broke a rule, ran out of a limit, or died.

    Not an `Exception`: a test that catches `Exception` must not take it for an answer.
    """


class StudentLeft(BaseException):
    """The student's code raised something that is not an `Exception` (SystemExit …)."""


# The special methods that a proxy has if the student's class has them.
SPECIALS = (
    "__call__ __getitem__ __setitem__ __delitem__ __len__ __iter__ __next__ __str__ __repr__ "
    "__float__ __int__ __complex__ __index__ __abs__ __neg__ __pos__ __invert__ __round__ "
    "__enter__ __exit__ __array__ "
    "__add__ __sub__ __mul__ __matmul__ __truediv__ __floordiv__ __mod__ __pow__ "
    "__and__ __or__ __xor__ __lshift__ __rshift__ "
    "__radd__ __rsub__ __rmul__ __rmatmul__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__ "
    "__rand__ __ror__ __rxor__ __rlshift__ __rrshift__ "
    "__iadd__ __isub__ __imul__ __imatmul__ __itruediv__"
).split()

# What these methods must give, as Python itself demands.
_PLAIN_RESULTS = {
    "__len__": int,
    "__int__": int,
    "__index__": int,
    "__float__": float,
    "__complex__": complex,
    "__str__": str,
    "__repr__": str,
}

_NUMBERS: dict[int, tuple[Any, int]] = {}  # id of a proxy → (the proxy, its number in S)


def number_of(x: Any) -> int | None:
    """Return the number in S of a proxy, None for anything else."""
    known = _NUMBERS.get(id(x))
    return known[1] if known is not None and known[0] is x else None


def _remember(proxy: Any, number: int) -> None:
    _NUMBERS[id(proxy)] = (proxy, number)


def make_function(
    client: Client, number: int, name: str, signature: Any, doc: Any
) -> Callable[..., Any]:
    """Return a function that calls the student's function.

    It is a real function, so that `inspect` works on it. Its name is the one that T looked it up
    by, its text is T's own copy of the student's cell; signature and docstring are S's word.
    """

    def proxy(*args: Any, **kwargs: Any) -> Any:
        return client.call(number, args, kwargs)

    def peak_memory(*args: Any, **kwargs: Any) -> tuple[Any, float]:
        return client.measure(number, args, kwargs)

    proxy.__name__ = proxy.__qualname__ = name
    proxy.__module__ = "student"
    proxy.__doc__ = doc if type(doc) is str else None
    proxy.__peak_memory__ = peak_memory
    known = make_signature(signature)
    if known is not None:
        proxy.__signature__ = known
    place = client.source_of(name)
    if place:
        code = proxy.__code__.replace(co_filename=place[0], co_firstlineno=place[1])
        proxy.__code__ = code
    _remember(proxy, number)
    return proxy


def make_signature(described: Any) -> inspect.Signature | None:
    """Return the signature that S describes, None if it is no valid one."""
    if type(described) is not list:
        return None
    try:
        return inspect.Signature([_parameter(*one) for one in described[:100]])
    except (TypeError, ValueError, wire.WireError):
        return None


def _parameter(name: str, kind: int, default: list[Any]) -> inspect.Parameter:
    value = inspect.Parameter.empty
    if default:
        value = wire.Decoder([], wire.no_handle).decode(default[0])
    return inspect.Parameter(str(name), inspect._ParameterKind(kind), default=value)


class RemoteType(type):
    """The class of proxies of classes: calling one makes an object in S."""

    def __new__(mcs, name: str, bases: tuple[type, ...], names: dict[str, Any], **more: Any):
        """Make the proxy of a class; a test cannot derive from one."""
        if any(isinstance(base, RemoteType) and base.__client__ for base in bases):
            raise TypeError("a test cannot derive a class from a student's class")
        return super().__new__(mcs, name, bases, names)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an object of the student's class."""
        return cls.__client__.call(cls.__number__, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        """Return an attribute of the student's class."""
        if name.startswith("__") or cls.__client__ is None:
            raise AttributeError(name)
        return cls.__client__.do("getattr", cls.__number__, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        """Set an attribute of the student's class."""
        cls.__client__.do("setattr", cls.__number__, name, value)

    def __instancecheck__(cls, x: Any) -> bool:
        """Ask S whether an object of its own is an instance of a class of its own."""
        if cls.__client__ is None or type(x) is cls:
            return super().__instancecheck__(x)
        number = number_of(x) if isinstance(type(x), RemoteType) else None
        if number is None or cls.__number__ < 0:
            return False
        return cls.__client__.do("isinstance", number, cls) is True


class Remote(metaclass=RemoteType):
    """The proxy of a student's object."""

    __client__: Client | None = None
    __number__ = -1
    __hash__ = object.__hash__
    __array_ufunc__ = None  # numpy leaves arithmetic to the object's own methods

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the student's object."""
        if name == "__peak_memory__" and callable(self):
            return lambda *a, **k: self.__client__.measure(number_of(self), a, k)
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__client__.do("getattr", number_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the student's object."""
        self.__client__.do("setattr", number_of(self), name, value)

    def __copy__(self) -> Any:
        """Copy the student's object."""
        return self.__client__.do("__copy__", number_of(self))

    def __deepcopy__(self, memo: Any) -> Any:
        """Copy the student's object and what it holds."""
        return self.__client__.do("__deepcopy__", number_of(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be pickled."""
        raise TypeError("a student's object cannot be pickled by a test")

    def __bool__(self) -> bool:
        """Refuse: the student's code does not decide what is true."""
        raise TypeError("a student's object is neither true nor false for a test")

    def __eq__(self, other: Any) -> bool:
        """Compare by identity; refuse where the student's own comparison would be asked."""
        if self is other:
            return True
        if isinstance(type(other), RemoteType):
            raise TypeError("a student's == does not decide a grade: compare what the objects hold")
        return NotImplemented

    def __ne__(self, other: Any) -> bool:
        """Compare by identity, like `==`."""
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal


def _forward(special: str) -> Callable[..., Any]:
    """Return the method of a proxy that forwards a special method to S."""
    if special in _OWN_FORWARDS:
        return _OWN_FORWARDS[special]
    expected = _PLAIN_RESULTS.get(special)

    def method(self: Any, *args: Any) -> Any:
        value = self.__client__.do(special, number_of(self), *args)
        if expected is not None and type(value) is not expected:
            self.__client__.broken(f"a wrong result of {special}")
        return value

    return method


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.__client__.call(number_of(self), args, kwargs)


def _array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    return np.asarray(self.__client__.do("__array__", number_of(self)), dtype)


def _next(self: Any) -> Any:
    going, value = self.__client__.do("__next__", number_of(self))
    if going is not True:
        raise StopIteration
    return value


_OWN_FORWARDS = {"__call__": _call, "__array__": _array, "__next__": _next}


def make_class(
    client: Client, number: int, name: str, specials: Any, signature: Any, doc: Any
) -> RemoteType:
    """Return the proxy of a student's class."""
    if type(specials) is not list:
        raise wire.WireError("a wrong class")
    names = {s: _forward(s) for s in SPECIALS if s in specials}
    names["__doc__"] = doc if type(doc) is str else None
    names["__module__"] = "student"
    cls = RemoteType(name, (Remote,), names)
    type.__setattr__(cls, "__client__", client)
    type.__setattr__(cls, "__number__", number)
    known = make_signature(signature)
    if known is not None:
        type.__setattr__(cls, "__signature__", known)
    if number >= 0:
        _remember(cls, number)
    return cls


def make_instance(
    client: Client, family: RemoteType, number: int, name: str | None, signature: Any
) -> Remote:
    """Return the proxy of a student's object."""
    proxy = object.__new__(family)
    known = make_signature(signature)
    if known is not None:
        object.__setattr__(proxy, "__signature__", known)
    if name is not None:
        object.__setattr__(proxy, "__name__", name)
    _remember(proxy, number)
    return proxy
