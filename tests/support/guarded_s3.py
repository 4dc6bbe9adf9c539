"""moto's S3 with users, a role and signatures that are checked: a request without a right is denied."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import httpx2
from pyiceberg.catalog import Catalog, load_catalog

from fixtures_s3 import s3_server
from fixtures_server import ServerProcess, StartServer
from lamella.client.http import Lamella
from lamella.snapshot.wire import Grant
from support.tenants import ROOT_KEY, ROOT_SHA256

ROOT = "/iceberg/v1"
REGION = "us-east-1"
BUCKET = "lake"
_READS = ("s3:GetObject", "s3:ListBucket")


@dataclass(frozen=True)
class GuardedS3:
    """A running server. ``service``, ``reader``: keys of users, as key and secret; the reader may not write."""

    endpoint_url: str
    role_arn: str
    service: dict[str, str]
    reader: dict[str, str]

    @property
    def store_options(self) -> str:
        """The service's options, as a setting."""
        region = {"region_name": REGION}
        return json.dumps({"s3": {**self.service, "endpoint_url": self.endpoint_url, "client_kwargs": region}})

    @property
    def properties(self) -> str:
        """The properties that all Iceberg clients get, as a setting."""
        return json.dumps({"s3.endpoint": self.endpoint_url, "s3.region": REGION})

    def client(self, keys: dict[str, str], token: str | None = None) -> Any:
        """botocore's client of S3 with such keys."""
        return _client(self.endpoint_url, "s3", keys, token)


@contextmanager
def guarded_s3(folder: Path) -> Iterator[GuardedS3]:
    """A server while the block runs, with the bucket ``lake``."""
    with s3_server(folder) as server:
        server.bucket(BUCKET)
        server.bucket("other")
        iam = _client(server.endpoint_url, "iam", {"key": "test", "secret": "test"})
        trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        role = iam.create_role(RoleName="lake", AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
        iam.put_role_policy(RoleName="lake", PolicyName="all", PolicyDocument=_policy("s3:*"))
        made = GuardedS3(
            server.endpoint_url,
            role["Role"]["Arn"],
            _user(iam, "service", "s3:*", "sts:AssumeRole"),
            _user(iam, "reader", *_READS),
        )
        begin = urllib.request.Request(  # noqa: S310  # the server above
            f"{server.endpoint_url}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
        )
        with urllib.request.urlopen(begin, timeout=30):  # noqa: S310
            yield made


class GuardedService:
    """A service with keys, whose warehouse is in that S3. ``writer``, ``reader``: keys for the namespace ``sales``."""

    def __init__(self, start: StartServer, guarded: GuardedS3, tmp_path: Path, **settings: Any) -> None:
        self.warehouse = f"s3://{BUCKET}/{uuid.uuid4().hex}"
        self.server: ServerProcess = start(
            warehouse=self.warehouse,
            catalog=tmp_path / f"{uuid.uuid4().hex}.db",
            store_options=guarded.store_options,
            iceberg_properties=guarded.properties,
            auth=True,
            root_key_sha256=ROOT_SHA256,
            auth_cache_s=0,
            **settings,
        )
        with Lamella(self.server.url, token=ROOT_KEY) as lake:
            lake.create_namespace("sales")
            lake.create_namespace("secret")
            self.writer = lake.keys.create("writer", [Grant(role="write", namespace="sales")]).key
            self.reader = lake.keys.create("reader", [Grant(role="read", namespace="sales")]).key

    def catalog(self, key: str, **properties: str) -> Catalog:
        """pyiceberg's view of it."""
        return load_catalog("lake", type="rest", uri=f"{self.server.url}/iceberg", token=key, **properties)

    def get(self, key: str, path: str, **headers: str) -> httpx2.Response:
        """An answer, whatever it is."""
        given = {"Authorization": f"Bearer {key}", **headers}
        return httpx2.get(f"{self.server.url}{ROOT}{path}", headers=given, timeout=60)

    def post(self, key: str, path: str, body: Any, **headers: str) -> httpx2.Response:
        """An answer, whatever it is."""
        given = {"Authorization": f"Bearer {key}", **headers}
        return httpx2.post(f"{self.server.url}{ROOT}{path}", json=body, headers=given, timeout=60)


def _client(endpoint_url: str, service: str, keys: dict[str, str], token: str | None = None) -> Any:
    return botocore.session.Session().create_client(
        service,
        region_name=REGION,
        endpoint_url=endpoint_url,
        aws_access_key_id=keys["key"],
        aws_secret_access_key=keys["secret"],
        aws_session_token=token,
    )


def _user(iam: Any, name: str, *actions: str) -> dict[str, str]:
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=_policy(*actions))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}


def _policy(*actions: str) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": ["*"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
