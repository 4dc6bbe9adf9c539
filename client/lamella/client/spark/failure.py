"""Errors on their way through the JVM: out of a callback, so that Spark's user sees one clear sentence."""

from __future__ import annotations

from typing import Any, NoReturn

from lamella.client.spark.gateway import Gateway
from lamella.snapshot.errors import LamellaError

# The one condition whose text is the message alone.
_CONDITION = "_LEGACY_ERROR_USER_RAISED_EXCEPTION"


def raise_in_jvm(gateway: Gateway, error: LamellaError) -> NoReturn:
    """Let the callback that we are in throw a ``SparkRuntimeException`` with the error's message and code.

    The user catches it as :class:`pyspark.errors.SparkRuntimeException`.
    """
    raise_java(runtime_exception(gateway, f"[lamella.{error.code}] {error.message}"), error)


def runtime_exception(gateway: Gateway, text: str) -> Any:
    """A ``SparkRuntimeException`` with that message."""
    exception = gateway.java_class("org.apache.spark.SparkRuntimeException")
    contexts = gateway.empty_array("org.apache.spark.QueryContext")
    return exception(_CONDITION, gateway.scala_map({"errorMessage": text}), None, contexts, "")


def raise_java(exception: Any, cause: BaseException | None = None) -> NoReturn:
    """Let the callback that we are in throw a Java exception as it is."""
    from py4j.protocol import Py4JJavaError

    raise Py4JJavaError("", exception) from cause
