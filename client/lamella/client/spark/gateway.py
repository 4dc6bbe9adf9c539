"""Access to Spark's JVM from the driver, through py4j: objects, arrays and Scala collections.

Connections with which the JVM calls back into this process are closed when they are no longer in use.

Only a classic session has a JVM beside the Python process; Spark Connect has none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError, Py4JJavaError

from lamella.client.spark.jvm_classes import JvmClasses, jvm_classes
from lamella.snapshot.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The connections with which the JVM calls proxies in this process, and closing those that are no longer in use.
#
# With pinned threads py4j gives each JVM thread that calls a proxy a connection of its own, which a thread of this
# process serves. Neither side closes it: not when the JVM thread ends, and not while that thread is idle. Spark runs
# the result stage of each adaptive query, each broadcast and each subquery on a thread of a pool that prefers a new
# thread to an idle one, so each query would leave file descriptors and a thread behind in both processes.
#
# Without pinned threads py4j has a connection pool, which it cleans up by itself.

#: Number of connections not used by any JVM thread that may stay open.
_IDLE: Final = 16

#: Objects of the JVM that are used again.
_MAX_RECENT: Final = 128

_log = logging.getLogger(__name__)


class CallbackConnections:
    """The callback connections of one py4j gateway."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._client = gateway._gateway_client
        self._pins_threads = isinstance(gateway, ClientServer)
        self._thread = threading.local()

    @contextmanager
    def callback(self) -> Iterator[None]:
        """Entered around each callback; closes idle connections when a new one exceeds the limit."""
        if not self._pins_threads:
            yield
            return
        connection = self._client.get_thread_connection()
        if connection is not None and not getattr(self._thread, "is_known", False):
            self._thread.is_known = True
            if connection.python_server is not None:  # opened by the JVM, not by a thread of this process
                self._add()
        try:
            yield
        finally:
            # A call into the JVM from within a callback returns the connection to py4j's list of idle ones, and so does
            # the call that led to the callback. When the thread ends py4j removes one entry only; the other would keep
            # the connection open forever.
            with suppress(ValueError):
                self._client.deque.remove(connection)

    def _add(self) -> None:
        """Note the connection of the current callback, and close those that no JVM thread uses if they are many.

        py4j assigns a connection to a thread under a lock, which is held while they are closed. So a thread that is
        outside py4j then must take that lock before it can use its connection, and opens another one when it finds it
        closed. Membership in py4j's own list of idle connections is not sufficient: a callback within a callback puts
        the connection there while the outer one still uses it.
        """
        try:
            client = self._gateway.java_gateway_server.getCallbackClient()
            jvm_classes(self._gateway).threads.opened(client, _IDLE)
        except Py4JError:
            # This must not fail the query.
            _log.warning("callback connections are not closed: unexpected version of py4j", exc_info=True)


@cache
def callback_connections(gateway: Any) -> CallbackConnections:
    """Return the callback connections of a py4j gateway; there is one object per gateway."""
    return CallbackConnections(gateway)


#: Prefixes of Spark's own classes.
SQL = "org.apache.spark.sql."
CONNECTOR = SQL + "connector."
DATASOURCES = SQL + "execution.datasources."


class Gateway:
    """One session's access to the JVM. Starts py4j's callback server, which serves the proxies.

    Everything that the JVM returns is ``Any``: py4j has no types.
    """

    def __init__(self, spark: SparkSession) -> None:
        session = getattr(spark, "_jsparkSession", None)
        context = getattr(spark, "_sc", None)
        if session is None or context is None:
            raise InvalidRequest(
                "this needs a classic Spark session with its driver's JVM beside it; on Spark Connect use"
                " lamella.client.spark.read(...) or spark.read.format('lamella'), or SQL on a server that was started"
                " with python -m lamella.client.spark.connect_server"
            )
        from pyspark.java_gateway import ensure_callback_server_started  # not part of a Connect-only install

        self._gateway: Any = context._gateway
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]  # PySpark's own
        # Without this setting a Java exception raised on purpose (table not found) reaches Spark as a Python traceback.
        self._gateway.python_parameters.propagate_java_exceptions = True
        #: Shared by all sessions of this JVM.
        self.connections = callback_connections(self._gateway)
        self.spark = spark
        self.session: Any = session
        self._classes: dict[str, Any] = {}
        self._constants: dict[tuple[str, str], Any] = {}
        self._made: dict[str, Any] = {}
        self._kinds: dict[type, Any] = {}
        self._recent: LRUCache[str, Any] = LRUCache(maxsize=_MAX_RECENT)
        self._lock = threading.Lock()
        #: What this version of Spark lacks, as found by ``probe_hooks``: names of hooks, and interfaces.
        self.missing_hooks: frozenset[str] = frozenset()
        self.missing_interfaces: frozenset[str] = frozenset()
        self._struct_types = lru_cache(maxsize=256)(session.parseDataType)

    def of_session(self, spark: SparkSession) -> Gateway:
        """Return the access of another session of the same Spark."""
        other = Gateway(spark)
        other.missing_hooks, other.missing_interfaces = self.missing_hooks, self.missing_interfaces
        return other

    @cached_property
    def classes(self) -> JvmClasses:
        """Classes of our own in the JVM."""
        return jvm_classes(self._gateway)

    @property
    def pins_threads(self) -> bool:
        """Whether a callback runs on the JVM thread that called it, so that callers can be distinguished.

        This is PySpark's default; ``PYSPARK_PIN_THREAD=false`` disables it.
        """
        from py4j.clientserver import ClientServer

        return isinstance(self._gateway, ClientServer)

    def require_pinned_threads(self, what: str) -> None:
        """Raise InvalidRequest in a session whose callbacks run on any thread."""
        if not self.pins_threads:
            raise InvalidRequest(f"{what} needs pinned threads (PYSPARK_PIN_THREAD), which is PySpark's default")

    def java_class(self, name: str) -> Any:
        """Return the class of that full name, to call its constructor or static members.

        Cached: py4j queries the JVM for every part of such a name, each time.
        """
        found = self._classes.get(name)
        if found is None:
            found = self._gateway.jvm
            for part in name.split("."):
                found = getattr(found, part)
            self._classes[name] = found
        return found

    def has_class(self, name: str) -> bool:
        """Whether this version of Spark has a class."""
        try:
            self.java_class("java.lang.Class").forName(name)
        except Py4JError:
            return False
        return True

    def compile_error(self, name: str) -> str | None:
        """Return why a class of our own, by its name in :class:`JvmClasses`, fails with this version of Spark; None: it
        works."""
        try:
            getattr(self.classes, name)
        except Py4JJavaError as error:
            return str(error.java_exception.toString())
        except Py4JError as error:
            return str(error)
        return None

    def scala_object(self, name: str) -> Any:
        """Return the instance of ``object name``."""
        return self.constant(name + "$", "MODULE$")

    def constant(self, class_name: str, member: str) -> Any:
        """Return a static field whose value never changes."""
        key = (class_name, member)
        if key not in self._constants:
            self._constants[key] = getattr(self.java_class(class_name), member)
        return self._constants[key]

    def static(self, class_name: str, method: str) -> Any:
        """Return a static method. Cached: py4j queries the JVM for the name each time."""
        return self.constant(class_name, method)

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """Return an immutable object of the JVM, made on first use."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = make()
        return found

    def recent(self, name: str, make: Callable[[], Any]) -> Any:
        """Return an immutable object of the JVM, made anew unless it is one of the most recent ones."""
        with self._lock:
            found = self._recent.get(name)
        if found is None:
            found = make()
            with self._lock:
                self._recent[name] = found
        return found

    def empty_array(self, element: str) -> Any:
        """Return ``new element[0]``, the same array each time."""
        key = (element, "[]")
        if key not in self._constants:
            self._constants[key] = self.new_array(element, 0)
        return self._constants[key]

    def new_array(self, element: str, length: int) -> Any:
        """Return ``new element[length]``."""
        return self._gateway.new_array(self.java_class(element), length)

    def new_array_of_arrays(self, element: str, length: int) -> Any:
        """Return ``new element[length][]``."""
        return self.java_class("java.lang.reflect.Array").newInstance(self.empty_array(element).getClass(), length)

    def array(self, element: str, items: Sequence[Any] = ()) -> Any:
        """Return ``element[]`` with these items; one call per item."""
        made = self.new_array(element, len(items))
        for at, item in enumerate(items):
            made[at] = item
        return made

    def seq(self, items: Iterable[Any] = ()) -> Any:
        """Return a ``scala.collection.immutable.Seq``."""
        made = self.java_class("java.util.ArrayList")()
        for item in items:
            made.add(item)
        return self.static("scala.jdk.javaapi.CollectionConverters", "asScala")(made).toSeq()

    def scala_map(self, items: dict[str, str]) -> Any:
        """Return a ``scala.collection.immutable.Map``."""
        made = self.scala_object("scala.collection.immutable.Map").empty()
        for key, value in items.items():
            made = made.updated(key, value)
        return made

    def java_map(self, items: Mapping[Any, Any]) -> Any:
        """Return a ``java.util.Map``."""
        made = self.java_class("java.util.HashMap")()
        for key, value in items.items():
            made.put(key, value)
        return made

    def java_set(self, items: Iterable[Any] = ()) -> Any:
        """Return a ``java.util.Set``."""
        made = self.java_class("java.util.HashSet")()
        for item in items:
            made.add(item)
        return made

    @property
    def none(self) -> Any:
        """Return Scala's ``None``."""
        return self.scala_object("scala.None")

    def some(self, value: Any) -> Any:
        """Return Scala's ``Some(value)``."""
        return self.static("scala.Option", "apply")(value)

    def python_object(self, java_object: Any) -> Any:
        """Return the Python object behind a proxy that the JVM returned; None: it is no such proxy."""
        found = self.classes.proxies.idOf(java_object)
        return None if found is None else self._gateway.gateway_property.pool[found]

    def kind(self, proxy: type, make: Callable[[Any], Any]) -> Any:
        """Return what the JVM remembers of the objects of a class of proxies (``Proxies.java``), made on first use."""
        found = self._kinds.get(proxy)
        if found is None:
            found = self._kinds[proxy] = make(self.classes.proxies)
        return found

    def local_property(self, name: str) -> str | None:
        """Return a property of Spark's of the current thread."""
        found = self._context.getLocalProperty(name)
        return None if found is None else str(found)

    @cached_property
    def _context(self) -> Any:
        return self.session.sparkContext()

    @contextmanager
    def active_session(self, session: Any) -> Iterator[None]:
        """Make a session the active one of this thread: parts of Spark take their settings and data sources from there.

        A query that streams has a copy of the session as the active one.
        """
        sessions = self.java_class(SQL + "classic.SparkSession")
        before = sessions.getActiveSession()
        sessions.setActiveSession(session)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()

    def setting(self, name: str, default: str) -> str:
        """Return a setting of the session as it is now."""
        return str(self.conf.getConfString(name, default))

    def time_zone(self) -> str:
        """Return the session's current time zone."""
        return str(self.conf.sessionLocalTimeZone())

    @cached_property
    def conf(self) -> Any:
        """The session's ``SQLConf``."""
        return self.session.sessionState().conf()

    def thread_id(self) -> int:
        """Return the id of the JVM thread that runs the current callback (see :attr:`pins_threads`)."""
        return int(self.static("java.lang.Thread", "currentThread")().getId())

    def is_called_from(self, class_name: str) -> bool:
        """Whether the current callback was called by a class of Spark; False without pinned threads."""
        return self.pins_threads and bool(self.classes.threads.isCalledFrom(class_name))

    def struct_type(self, schema_json: str) -> Any:
        """Return a ``StructType`` from its JSON; the most recent ones are cached."""
        return self._struct_types(schema_json)

    def planned_schema(self, schema_json: str) -> str:
        """Return a schema in Spark's JSON as Spark's plans have it: ``varchar(n)`` and ``char(n)`` are strings, whose
        metadata has the type."""
        if "char(" not in schema_json:
            return schema_json
        planned = self.java_class(SQL + "catalyst.util.CharVarcharUtils").replaceCharVarcharWithStringInSchema
        return str(planned(self.struct_type(schema_json)).json())

    def optional_long(self, value: int) -> Any:
        """Return ``OptionalLong.of(value)``."""
        return self.static("java.util.OptionalLong", "of")(value)

    def path(self, text: str) -> Any:
        """Return an ``org.apache.hadoop.fs.Path``."""
        return self.java_class("org.apache.hadoop.fs.Path")(text)
