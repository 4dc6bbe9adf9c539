"""Python objects behind Java interfaces of the JVM, and how their errors pass through the JVM.

Rules for every proxy:

- ``SystemExit`` or ``KeyboardInterrupt`` out of a callback hangs the query forever, since py4j passes on ``Exception``
  only, and that as a traceback: every public method is wrapped.
- The result of a callback must stay referenced until the JVM has read the reply, or py4j's garbage collection may
  have removed it by then.
- Spark compares and hashes these objects (cached plans, reused exchanges): by ``key()``, which therefore must contain
  everything that determines which rows are read.
- What Spark asks often and never changes is asked once (``_once``): a call to Python is a round trip through a socket.
- A proxy inherits no default method of a Java interface: every method that Spark calls must exist. Methods that only
  later versions of Spark call are refused by name.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Final, NoReturn
from zlib import crc32

from lamella.client.spark.gateway import Gateway
from lamella.snapshot import errors
from lamella.snapshot.errors import InvalidRequest, LamellaError

# The only error condition whose text is just the message.
_CONDITION = "_LEGACY_ERROR_USER_RAISED_EXCEPTION"

# The last line of a traceback that Spark forwards from a Python worker.
_OF_TASK: Final = re.compile(r"^lamella\.snapshot\.errors\.(\w+): (.+)$", re.MULTILINE)


def error_of_task(text: str) -> LamellaError | None:
    """Return the LamellaError that ended a task, from Spark's message; None: it was another error."""
    found = _OF_TASK.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, LamellaError)
    made: LamellaError = kind(message)
    return made


def raise_in_jvm(gateway: Gateway, error: LamellaError) -> NoReturn:
    """Let the current callback throw a ``SparkRuntimeException`` with the error's message and code.

    Users catch it as :class:`pyspark.errors.SparkRuntimeException`.
    """
    raise_java(runtime_exception(gateway, f"[lamella.{error.code}] {error.message}"), error)


def refuse_in_jvm(gateway: Gateway, text: str) -> NoReturn:
    """Let the current callback throw an ``UnsupportedOperationException``, with the code of InvalidRequest."""
    text = f"[lamella.{InvalidRequest.code}] {text}"
    raise_java(gateway.java_class("java.lang.UnsupportedOperationException")(text))


def runtime_exception(gateway: Gateway, text: str) -> Any:
    """Return a ``SparkRuntimeException`` with that message."""
    return spark_exception(gateway, _CONDITION, gateway.scala_map({"errorMessage": text}))


def spark_exception(gateway: Gateway, condition: str, parameters: Any) -> Any:
    """Return a ``SparkRuntimeException`` of one of Spark's error conditions; ``parameters``: a Scala map."""
    exception = gateway.java_class("org.apache.spark.SparkRuntimeException")
    return exception(condition, parameters, None, gateway.empty_array("org.apache.spark.QueryContext"), "")


def raise_java(exception: Any, cause: BaseException | None = None) -> NoReturn:
    """Let the current callback throw a Java exception unchanged."""
    from py4j.protocol import Py4JJavaError

    raise Py4JJavaError("", exception) from cause


_log = logging.getLogger(__name__)


class _Replies(threading.local):
    """The last results of this thread's callbacks: one is in flight at a time, nested calls add a few."""

    def __init__(self) -> None:
        self.recent: deque[Any] = deque(maxlen=16)


_replies = _Replies()


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Proxy, *arguments: Any) -> Any:
        with self._gateway.connections.callback():
            result = _called(self._gateway, lambda: method(self, *arguments))
        _replies.recent.append(result)
        return result

    return call


def _called(gateway: Gateway, method: Callable[[], Any]) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    try:
        return method()
    except LamellaError as error:
        raise_in_jvm(gateway, error)
    except CapturedException as error:
        # PySpark translated a Java exception when it was raised in Python; Spark's own code expects the original.
        origin = getattr(error, "_origin", None)
        if origin is None:
            _raise_unexpected(gateway, error)
        raise Py4JJavaError("", origin) from error
    except Py4JJavaError:
        raise
    except BaseException as error:
        _raise_unexpected(gateway, error)


def _raise_unexpected(gateway: Gateway, error: BaseException) -> NoReturn:
    """Log an unexpected error and raise a short one; py4j would send the whole traceback to Java."""
    _log.error("%s in a callback of Spark", type(error).__name__, exc_info=error)
    (said, *_) = str(error).splitlines() or [""]
    raise_in_jvm(gateway, LamellaError(f"{type(error).__name__} in a callback of Spark: {said}"))


class Proxy:
    """Base of callback classes. A subclass names its interfaces in ``class Java: implements = [...]``.

    The JVM calls its public methods; values that a callback does not return stay Python objects.
    """

    Java: ClassVar[Any]

    #: Methods without parameters that the JVM calls once for each object, separated by blanks.
    _once: ClassVar[str] = ""
    #: Those that have the same answer for all objects of the class.
    _once_for_all: ClassVar[str] = ""
    #: Pairs of such a method and a class of Spark that gets another answer.
    _unless: ClassVar[str] = ""
    #: Classes of the objects that methods return, if the JVM asks them once too.
    _returned: ClassVar[Mapping[str, type[Proxy]]] = {}

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        if gateway.missing_interfaces:
            left = [each for each in self.Java.implements if each not in gateway.missing_interfaces]
            vars(self)["Java"] = SimpleNamespace(implements=left)  # py4j reads it from the object

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, member in list(vars(cls).items()):
            if callable(member) and not name.startswith("_") and name != "Java":
                setattr(cls, name, _guarded(member))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._missing, name)

    @_guarded
    def _missing(self, method: str, *_arguments: Any) -> NoReturn:
        refuse_in_jvm(
            self._gateway,
            f"Spark calls {method} of {type(self).__name__}, which this version of Lamella does not support",
        )

    def _key(self) -> str:
        """A key that is equal for two objects only if Spark may use one for the other."""
        return f"{type(self).__name__}#{id(self):x}"

    @classmethod
    def _remembered(cls, gateway: Gateway) -> Any:
        return gateway.kind(cls, lambda proxies: cls._new_remembered(gateway, proxies))

    @classmethod
    def _new_remembered(cls, gateway: Gateway, proxies: Any) -> Any:
        made = proxies.kind(cls._once, cls._once_for_all, cls._unless)
        for method, returned in cls._returned.items():
            made.returning(method, returned._remembered(gateway))
        return made

    def _in_jvm(self, *answers: Any) -> Any:
        """Return an object of the JVM that stands for this one, and is compared and hashed there by its key.

        ``answers``: a ``java.util.Map`` of those that are known.

        It refers to this object, which therefore must not keep it: neither would ever be released.
        """
        return self._remembered(self._gateway).around(self, *answers)

    @_guarded
    def toString(self) -> str:
        return self._key()

    @_guarded
    def hashCode(self) -> int:
        return crc32(self._key().encode("utf-8")) & 0x7FFF_FFFF

    @_guarded
    def equals(self, other: Any) -> bool:
        return other is not None and bool(other.toString() == self._key())
