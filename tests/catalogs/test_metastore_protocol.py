"""What metastores do that the one of the other tests does not: a server of ours on Thrift's generated interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hive_metastore.ThriftHiveMetastore import Processor
from hive_metastore.ttypes import (
    FieldSchema,
    GetTablesResult,
    MetaException,
    Partition,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TBufferedTransportFactory

from lamella.client.catalogs.hive import HiveMetastore
from lamella.snapshot.errors import CommitConflict, InvalidRequest, StoreError
from support.ports import free_port

PARQUET = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"


def storage(location: str) -> StorageDescriptor:
    """Parquet files."""
    columns = [FieldSchema("a", "int", None)]
    return StorageDescriptor(cols=columns, location=location, inputFormat=PARQUET, serdeInfo=SerDeInfo(parameters={}))


class Answers:
    """The metastore's side. ``lost``: how many lists of partitions are answered with one fewer."""

    def __init__(self) -> None:
        self.lost = 0
        self.sizes: list[int] = []

    def get_all_databases(self) -> list[str]:
        return ["d"]

    def get_all_tables(self, db_name: str) -> list[str]:
        if db_name != "d":
            raise MetaException(message="no such database")
        return ["t"]

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        keys = [FieldSchema("p", "int", None)]
        return [
            Table(dbName=dbname, tableName=name, sd=storage("file:/w"), partitionKeys=keys, parameters={})
            for name in tbl_names
        ]

    def get_table_objects_by_name_req(self, req: Any) -> GetTablesResult:
        return GetTablesResult(tables=self.get_table_objects_by_name(req.dbName, req.tblNames))

    def get_partition_names(self, db_name: str, tbl_name: str, max_parts: int) -> list[str]:
        assert (db_name, tbl_name, max_parts) == ("d", "t", -1)
        return [f"p={number}" for number in range(2_500)]

    def get_partitions_by_names(self, db_name: str, tbl_name: str, names: list[str]) -> list[Partition]:
        assert (db_name, tbl_name) == ("d", "t")
        self.sizes.append(len(names))
        lost, self.lost = self.lost > 0, max(0, self.lost - 1)
        return [Partition(values=[name[2:]], sd=storage(f"file:/w/{name}")) for name in names[lost:]]


class Server:
    """A running server. ``processor``: its methods, which may be taken away."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.processor = Processor(self.answers)
        self.port = free_port()
        self._socket = TServerSocket("127.0.0.1", self.port)
        self._server = TThreadedServer(
            self.processor, self._socket, TBufferedTransportFactory(), TBinaryProtocolFactory(), daemon=True
        )
        self._socket.listen()
        self._socket.listen = lambda: None  # it listens already, so a client can connect at once
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._server.serve()
        except OSError:
            return  # closed

    @property
    def uri(self) -> str:
        """Its address."""
        return f"thrift://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End it."""
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server."""
    made = Server()
    yield made
    made.close()


def test_partitions_come_in_batches_and_are_read_again_if_some_are_gone(server: Server) -> None:
    """A list that lacks partitions is not taken; after some attempts the import of the table is refused."""
    with HiveMetastore(server.uri) as metastore:
        (table,) = metastore.tables("d", ["t"])
        assert table.partitions is not None
        found = table.partitions()
        assert [each.values for each in found] == [(str(number),) for number in range(2_500)]
        assert server.answers.sizes == [1_000, 1_000, 500]
        server.answers.lost = 1
        assert len(table.partitions()) == 2_500
        server.answers.lost = 100
        with pytest.raises(CommitConflict, match="change while they are read"):
            table.partitions()


def test_a_metastore_of_hive_4_has_another_request(server: Server) -> None:
    """It has no list of tables by name but the one of a request."""
    del server.processor._processMap["get_table_objects_by_name"]
    with HiveMetastore(server.uri) as metastore:
        (table,) = metastore.tables("d", ["t"])
        assert (table.name, table.kind) == ("t", "hive")
        assert table.refused is None


def test_addresses_are_tried_in_order_and_a_lost_connection_is_made_again(server: Server) -> None:
    """An error of the metastore itself is not repeated."""
    with HiveMetastore(f"127.0.0.1:1, {server.uri}") as metastore:
        assert metastore.address == "hive thrift://127.0.0.1:1"
        assert metastore.databases() == ["d"]
        metastore._transport.close()
        assert metastore.databases() == ["d"]
        with pytest.raises(StoreError, match="no such database"):
            metastore.names("other")
    for text in ("thrift://", "thrift://user:secret@x", "thrift://x/path", "thrift://x:port", ""):
        with pytest.raises(InvalidRequest, match="thrift://host:9083"):
            HiveMetastore(text)
