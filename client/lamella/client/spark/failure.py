"""Errors on their way through the JVM: out of a callback, so that Spark's user sees one clear sentence."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from lamella.client.spark.gateway import Gateway
from lamella.snapshot import errors
from lamella.snapshot.errors import InvalidRequest, LamellaError

# The one condition whose text is the message alone.
_CONDITION = "_LEGACY_ERROR_USER_RAISED_EXCEPTION"

# The last line of a traceback that Spark passes on from a Python worker.
_OF_TASK: Final = re.compile(r"^lamella\.snapshot\.errors\.(\w+): (.+)$", re.MULTILINE)


def error_of_task(text: str) -> LamellaError | None:
    """The error of ours that ended a task, by what Spark says of it; None: it was another one."""
    found = _OF_TASK.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, LamellaError)
    made: LamellaError = kind(message)
    return made


def raise_in_jvm(gateway: Gateway, error: LamellaError) -> NoReturn:
    """Let the callback that we are in throw a ``SparkRuntimeException`` with the error's message and code.

    The user catches it as :class:`pyspark.errors.SparkRuntimeException`.
    """
    raise_java(runtime_exception(gateway, f"[lamella.{error.code}] {error.message}"), error)


def refuse_in_jvm(gateway: Gateway, text: str) -> NoReturn:
    """Let the callback that we are in throw an ``UnsupportedOperationException``, with the code of InvalidRequest."""
    text = f"[lamella.{InvalidRequest.code}] {text}"
    raise_java(gateway.java_class("java.lang.UnsupportedOperationException")(text))


def runtime_exception(gateway: Gateway, text: str) -> Any:
    """A ``SparkRuntimeException`` with that message."""
    exception = gateway.java_class("org.apache.spark.SparkRuntimeException")
    contexts = gateway.empty_array("org.apache.spark.QueryContext")
    return exception(_CONDITION, gateway.scala_map({"errorMessage": text}), None, contexts, "")


def raise_java(exception: Any, cause: BaseException | None = None) -> NoReturn:
    """Let the callback that we are in throw a Java exception as it is."""
    from py4j.protocol import Py4JJavaError

    raise Py4JJavaError("", exception) from cause
