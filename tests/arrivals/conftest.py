"""A bucket that tells a queue of its objects, a service that reads both, and the command that watches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest

import leftovers
from fixtures_s3 import S3Server
from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.client.http import Table
from lamella.snapshot.schema import Column
from support.service_api import fresh_name, parquet_bytes


class Bucket:
    """A bucket with a queue, a dead-letter queue, and a table."""

    def __init__(self, s3: S3Server, service: ServerProcess, lake: Lamella, *, visible_s: int = 1) -> None:
        self.service, self.lake = service, lake
        self.name = fresh_name("arrivals-")
        self.url = s3.bucket(self.name)
        self.options = json.dumps({"s3": s3.storage_options})
        session = botocore.session.Session()
        credentials = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        self.sqs = session.create_client("sqs", endpoint_url=s3.endpoint_url, **credentials)
        self.s3 = session.create_client("s3", endpoint_url=s3.endpoint_url, **credentials)
        self.dead = self.sqs.create_queue(QueueName=f"{self.name}-dead")["QueueUrl"]
        policy = {"deadLetterTargetArn": self._arn(self.dead), "maxReceiveCount": 100}
        attributes = {"VisibilityTimeout": str(visible_s), "RedrivePolicy": json.dumps(policy)}
        self.queue = self.sqs.create_queue(QueueName=self.name, Attributes=attributes)["QueueUrl"]
        events = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]
        target = {"QueueArn": self._arn(self.queue), "Events": events}
        self.s3.put_bucket_notification_configuration(
            Bucket=self.name, NotificationConfiguration={"QueueConfigurations": [target]}
        )
        name = f"{fresh_name('n')}.t"
        lake.create_namespace(name.partition(".")[0])
        lake.create_table(name, schema=[Column(name="a", type="int64")])
        self.table: Table = lake.table(name)

    def close(self) -> None:
        """End the connections."""
        self.sqs.close()
        self.s3.close()

    def _arn(self, queue: str) -> str:
        answer = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def put(self, key: str, *values: int, data: bytes | None = None) -> str:
        """An object of numbers, or of bytes; the bucket sends a message."""
        body = parquet_bytes({"a": list(values)}) if data is None else data
        self.s3.put_object(Bucket=self.name, Key=key, Body=body)
        return f"{self.url}/{key}"

    def send(self, body: Any) -> None:
        """A message that the bucket did not send."""
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=body if isinstance(body, str) else json.dumps(body))

    def waiting(self) -> int:
        """How many messages are in the queue, visible or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)
        return sum(int(count) for count in answer["Attributes"].values())

    def command(self, *more: str) -> list[str]:
        """The command that watches the queue."""
        return watch_command(self.table, "--queue", self.queue, "--storage-options", self.options, *more)

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return run(self.service, self.command(*more))

    def values(self) -> Counter[int]:
        """The values of the table, each with how often it is there."""
        return values_of(self.table, json.loads(self.options))


def values_of(table: Table, options: dict[str, Any] | None = None) -> Counter[int]:
    """The values of a table, each with how often it is there."""
    return Counter(table.scan(storage_options=options).to_arrow()["a"].to_pylist())


def watch_command(table: Table, *arguments: str) -> list[str]:
    """``lamella arrivals watch`` with arguments."""
    return [sys.executable, "-m", "lamella.client.cli", "arrivals", "watch", str(table), *arguments]


def environment(service: ServerProcess) -> dict[str, str]:
    """The environment of a command that asks a service."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMELLA_")}
    return {**inherited, **leftovers.mark(), "LAMELLA_URL": service.url}


def run(service: ServerProcess, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its status."""
    return subprocess.run(command, env=environment(service), capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="session")
def local_service(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service with SQLite and a local warehouse."""
    folder = tmp_path_factory.mktemp("arrivals")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_service(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, s3: S3Server
) -> Iterator[ServerProcess]:
    """A service with a local warehouse that reads from the S3 server."""
    folder = tmp_path_factory.mktemp("arrivals")
    options = json.dumps({"s3": s3.storage_options})
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse", "store_options": options})
    yield server
    server.stop()


@pytest.fixture
def bucket(s3: S3Server, s3_service: ServerProcess) -> Iterator[Bucket]:
    """A bucket of a test's own."""
    with Lamella(s3_service.url) as lake:
        made = Bucket(s3, s3_service, lake)
        yield made
        made.close()


@pytest.fixture
def local_table(local_service: ServerProcess, tmp_path: Path) -> Iterator[tuple[Table, Path]]:
    """A table, and a folder that files arrive in."""
    with Lamella(local_service.url) as lake:
        namespace = fresh_name("n")
        lake.create_namespace(namespace)
        lake.create_table(f"{namespace}.t", schema=[Column(name="a", type="int64")])
        folder = tmp_path / "landing"
        folder.mkdir()
        yield lake.table(f"{namespace}.t"), folder
