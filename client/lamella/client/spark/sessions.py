"""Sessions that Spark makes itself: those of Spark Connect, the copies for ``foreachBatch``, and ``newSession()``.

Each has catalogs of its own, and Spark tells nobody that it makes one. But each makes a parser, through Spark's
extensions, and parses a statement or a name before it looks for a table (``Sessions.java``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lamella.client.spark.gateway import Gateway
from lamella.client.spark.proxy import Proxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NewSessions(Proxy):
    """Gives each session that is made from now on to a function, before its first statement; until ``end``."""

    class Java:
        implements = ["java.util.function.Consumer"]  # noqa: RUF012  # py4j reads it from the object

    def __init__(self, gateway: Gateway, found: Callable[[SparkSession], None]) -> None:
        super().__init__(gateway)
        self._found = found
        self._watch: Any = gateway.classes.sessions.watch(gateway.session.extensions(), self)

    def accept(self, session: Any) -> None:
        from pyspark.sql.session import SparkSession  # that of a classic session, in each mode of PySpark

        self._found(SparkSession(self._gateway.spark.sparkContext, session))

    def _end(self) -> None:
        self._watch.end()
