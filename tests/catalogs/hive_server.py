"""A Hive Metastore of its own, of PySpark's jars, and a Spark that writes and reads its tables."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from support.ports import free_port
from support.spark_environment import spark_environment

JARS: Final = Path(pyspark.__file__).parent / "jars"
_PROGRAM: Final = Path(__file__).with_name("hive_program.py")
_START_S: Final = 120
_SITE: Final = """<configuration>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:memory:metastore;create=true</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>hive.metastore.warehouse.dir</name><value>{warehouse}</value></property>
<property><name>hive.metastore.thrift.bind.host</name><value>127.0.0.1</value></property>
</configuration>
"""
# Hive's own configuration of its log needs a library that Spark leaves out.
_LOG: Final = """status = WARN
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


class Metastore:
    """A running metastore over a database in memory. ``warehouse``: the folder of its databases."""

    def __init__(self, java_home: Path, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        (folder / "hive-site.xml").write_text(_SITE.format(warehouse=self.warehouse.as_uri()))
        (folder / "hive-log4j2.properties").write_text(_LOG)
        self._log = folder / "log"
        self.port = free_port()
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                [
                    *(java_home / "bin" / "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-Dhive.async.log.enabled=false", f"-Dderby.stream.error.file={folder / 'derby.log'}"),
                    *("-cp", f"{folder}:{JARS}/*", "org.apache.hadoop.hive.metastore.HiveMetaStore"),
                    *("-p", str(self.port)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    @property
    def uri(self) -> str:
        """Its address."""
        return f"thrift://127.0.0.1:{self.port}"

    def wait_ready(self) -> Metastore:
        """Return it when it answers."""
        give_up = time.monotonic() + _START_S
        while time.monotonic() < give_up and self._process.poll() is None:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.05)
        raise AssertionError(f"the metastore did not start:\n{self._log.read_text()[-2_000:]}")

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield a client of its Thrift interface."""
        from hive_metastore.ThriftHiveMetastore import Client

        with closing(TBufferedTransport(TSocket("127.0.0.1", self.port))) as transport:
            transport.open()
            yield Client(TBinaryProtocol(transport))

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(timeout=60)


class HiveSpark:
    """Runs statements in a process of its own, with the tables of a metastore."""

    def __init__(self, metastore: Metastore, folder: Path) -> None:
        self._folder = folder
        self._errors = (folder / "log").open("w")
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, _PROGRAM, metastore.uri, metastore.warehouse.as_uri()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=spark_environment(),
            cwd=folder,
        )

    def run(self, *statements: str) -> None:
        """Run statements; raises AssertionError with Spark's error."""
        self._ask(list(statements), None)

    def rows(self, table: str) -> pa.Table:
        """Return the rows that Spark reads."""
        self._count += 1
        rows = self._folder / f"rows{self._count}"
        self._ask([], (table, rows))
        return pq.read_table(rows, coerce_int96_timestamp_unit="us", partitioning=None)

    def matches(self, table: str, filters: Sequence[str]) -> list[list[int]]:
        """Return the values of ``Id`` in the rows that match each filter, sorted."""
        return self._ask([], None, [(table, filters)])

    def _ask(
        self,
        statements: Sequence[str],
        read: tuple[str, Path] | None,
        filters: Sequence[tuple[str, Sequence[str]]] = (),
    ) -> list[list[int]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        target = None if read is None else [read[0], str(read[1])]
        given = {"statements": statements, "read": target, "filters": filters}
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                assert line.startswith("answer done "), line
                found: list[list[int]] = json.loads(line.removeprefix("answer done "))
                return found
        raise AssertionError(f"the program ended: {self._errors.name}")

    def close(self) -> None:
        """End the program."""
        self._process.communicate(timeout=60)
        self._errors.close()
