"""A Hive Metastore, read by its Thrift protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from lamella.client.catalogs.metastore import MetastoreTable, Partition, Storage, source_table
from lamella.client.catalogs.tables import SourceTable
from lamella.snapshot.errors import CommitConflict, InvalidRequest, StoreError

_PORT: Final = 9083
#: Tables and partitions of one request: a metastore refuses or delays requests for too many.
_TABLES: Final = 100
_PARTITIONS: Final = 1_000
#: How often the partitions of a table are read if some disappear meanwhile.
_TRIES: Final = 4

_T = TypeVar("_T")


class HiveMetastore:
    """The tables of a Hive Metastore. ``uri``: ``thrift://host:9083``; several with commas are tried in order.

    A connection is made by the first call, and closed by :meth:`close` or at the end of a ``with`` block. Kerberos is
    not supported.
    """

    def __init__(self, uri: str, *, timeout_s: float = 60.0) -> None:
        """Set up; sends nothing.

        Raises:
            InvalidRequest: an address that is not of this form.
            ModuleNotFoundError: the extra ``lamella[hive]`` is not installed.
        """
        import thrift.transport.TSocket  # noqa: F401  # fail before anything is asked

        self._hosts = [_host(text.strip()) for text in uri.split(",")]
        self._timeout_s = timeout_s
        self._connected: Any = None
        self._transport: Any = None

    @property
    def address(self) -> str:
        """Return ``hive thrift://host:port``, of the first address."""
        host, port = self._hosts[0]
        return f"hive thrift://{host}:{port}"

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        return sorted(self._request(lambda client: client.get_all_databases()))

    def names(self, database: str) -> list[str]:
        """Return the names of the tables and views of a database."""
        return sorted(self._request(lambda client: client.get_all_tables(database)))

    def tables(self, database: str, names: Sequence[str]) -> Iterator[SourceTable]:
        """Yield some tables of a database; those that are gone by now are left out."""
        for start in range(0, len(names), _TABLES):
            some = list(names[start : start + _TABLES])
            for found in self._objects(database, some):
                yield source_table(_table(found), self._partitions_of(database, found.tableName))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
        self._connected = self._transport = None

    def _objects(self, database: str, names: list[str]) -> list[Any]:
        from hive_metastore.ttypes import GetTablesRequest
        from thrift.Thrift import TApplicationException

        def ask(client: Any) -> Any:
            try:
                return client.get_table_objects_by_name(database, names)
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                request = GetTablesRequest(dbName=database, tblNames=names)  # Hive 4 has only this one
                return client.get_table_objects_by_name_req(request).tables

        return sorted(self._request(ask), key=lambda table: str(table.tableName))

    def _partitions_of(self, database: str, name: str) -> Callable[[], list[Partition]]:
        return lambda: self._partitions(database, name)

    def _partitions(self, database: str, name: str) -> list[Partition]:
        """Return all partitions of a table, as they were at one moment after the call."""
        for _ in range(_TRIES):
            names = self._request(lambda client: client.get_partition_names(database, name, -1))
            found: list[Any] = []
            for start in range(0, len(names), _PARTITIONS):
                found += self._some_partitions(database, name, names[start : start + _PARTITIONS])
            if len(found) == len(names):
                return [Partition(values=tuple(each.values), storage=_storage(each.sd)) for each in found]
        raise CommitConflict(f"the partitions of {database}.{name} change while they are read; try again later")

    def _some_partitions(self, database: str, name: str, names: list[str]) -> list[Any]:
        return self._request(lambda client: list(client.get_partitions_by_names(database, name, names)))

    def _request(self, ask: Callable[[Any], _T]) -> _T:
        """Return an answer of the metastore.

        Raises:
            StoreError: it cannot be reached, or reports an error.
        """
        from hive_metastore.ttypes import MetaException, NoSuchObjectException
        from thrift.Thrift import TException

        for is_last in (False, True):
            is_new = self._connected is None
            try:
                return ask(self._client())
            except (MetaException, NoSuchObjectException) as error:
                raise StoreError(f"the metastore says: {error.message}", location=self.address) from error
            except (TException, OSError) as error:
                self.close()
                if is_new or is_last:  # the metastore may have closed a connection that was not used for long
                    raise StoreError(f"the metastore cannot be reached: {error}", location=self.address) from error
        raise AssertionError("unreachable")

    def _client(self) -> Any:
        if self._connected is None:
            from hive_metastore.ThriftHiveMetastore import Client
            from thrift.protocol.TBinaryProtocol import TBinaryProtocol
            from thrift.Thrift import TException
            from thrift.transport.TSocket import TSocket
            from thrift.transport.TTransport import TBufferedTransport

            for number, (host, port) in enumerate(self._hosts, 1):
                socket = TSocket(host, port)
                socket.setTimeout(self._timeout_s * 1_000)
                self._transport = TBufferedTransport(socket)
                with suppress(*(() if number == len(self._hosts) else (TException, OSError))):
                    self._transport.open()
                    break
            self._connected = Client(TBinaryProtocol(self._transport))
        return self._connected


def _host(uri: str) -> tuple[str, int]:
    try:
        parts = urlsplit(uri if "://" in uri else f"thrift://{uri}")
        port = parts.port or _PORT
    except ValueError as error:
        raise InvalidRequest(f"not the address of a metastore: {uri!r}; write thrift://host:9083") from error
    if parts.scheme != "thrift" or not parts.hostname or parts.username is not None or parts.path not in ("", "/"):
        raise InvalidRequest(f"not the address of a metastore: {uri!r}; write thrift://host:9083")
    return parts.hostname, port


def _table(found: Any) -> MetastoreTable:
    skewed = found.sd.skewedInfo
    return MetastoreTable(
        database=found.dbName,
        name=found.tableName,
        kind=found.tableType or "",
        storage=_storage(found.sd),
        columns=tuple((column.name, column.type) for column in found.sd.cols or ()),
        keys=tuple((column.name, column.type) for column in found.partitionKeys or ()),
        parameters=dict(found.parameters or {}),
        in_skewed_folders=bool(found.sd.storedAsSubDirectories)
        or bool(skewed is not None and skewed.skewedColValueLocationMaps),
    )


def _storage(found: Any) -> Storage:
    serde = found.serdeInfo
    return Storage(
        location=found.location,
        input_format=found.inputFormat,
        serde=None if serde is None else serde.serializationLib,
        parameters={} if serde is None else dict(serde.parameters or {}),
    )
