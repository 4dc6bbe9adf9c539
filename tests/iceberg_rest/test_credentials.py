"""Iceberg clients without credentials of their own get some with a table, for that table's files and their role."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from lamella.client.http import Lamella
from lamella.service.app import create_app
from lamella.service.config.settings import Settings
from lamella.service.iceberg.granted import GrantedFolders
from lamella.service.iceberg.s3_sessions import Keys, S3Sessions, ServiceKeys, Session, session_policy
from lamella.snapshot.errors import InvalidRequest, NotExpressible, NotSignable, StoreError
from support.guarded_s3 import BUCKET, GuardedS3, GuardedService
from support.tenants import ROOT_KEY

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{i}" for i in range(10)]})
WAYS = "X-Iceberg-Access-Delegation"


def keys_of(answer: dict[str, Any]) -> dict[str, str]:
    """The credentials in an answer, which are the same in all places."""
    (first, *others) = answer["storage-credentials"]
    assert all(each["config"] == first["config"] for each in others)
    config: dict[str, str] = first["config"]
    assert "config" not in answer or config.items() <= answer["config"].items()
    return config


def denied(call: Callable[..., Any], **arguments: Any) -> bool:
    """Whether S3 denies a request."""
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Code"] in ("AccessDenied", "403")
    return False


def test_pyiceberg_works_with_temporary_credentials_of_the_service(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """It creates, appends and scans with none of its own; a reader scans and cannot write."""
    service = guarded_service(iceberg_role_arn=guarded.role_arn, iceberg_sts_url=guarded.endpoint_url)
    catalog = service.catalog(service.writer)
    table = catalog.create_table("sales.clicks", schema=ROWS.schema)
    table.append(ROWS)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(10))
    staged = catalog.create_table_transaction("sales.staged", schema=ROWS.schema)
    with staged as transaction:
        transaction.append(ROWS)
    assert catalog.load_table("sales.staged").scan().count() == 10
    seen = service.catalog(service.reader).load_table("sales.clicks")
    assert sorted(seen.scan("id > 6").to_arrow()["id"].to_pylist()) == [7, 8, 9]
    with (
        pytest.raises(OSError, match=r"(?i)access.?denied"),
        seen.io.new_output(f"{table.location()}/x").create() as out,
    ):
        out.write(b"x")
    with Lamella(service.server.url, token=service.reader) as lake:
        assert lake.table("sales.clicks").info().row_count == 10


def test_temporary_credentials_open_the_folders_of_one_table(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """Not another table, not Lamella's own files for writing, not other buckets; a reader's do not write at all."""
    service = guarded_service(iceberg_role_arn=guarded.role_arn, iceberg_sts_url=guarded.endpoint_url)
    catalog = service.catalog(service.writer)
    table, other = (catalog.create_table(f"sales.{name}", schema=ROWS.schema) for name in ("a", "b"))
    table.append(ROWS)
    other.append(ROWS)
    own = guarded.client(guarded.service)
    for key in (service.writer, service.reader):
        loaded = service.get(key, "/namespaces/sales/tables/a", **{WAYS: "vended-credentials"})
        assert loaded.headers["cache-control"] == "no-store"
        config = keys_of(loaded.json())
        again = service.get(key, "/namespaces/sales/tables/a/credentials")
        assert keys_of(again.json()) == config
        assert again.headers["cache-control"] == "no-store"
        assert config["client.refresh-credentials-endpoint"] == "v1/namespaces/sales/tables/a/credentials"
        keys = {"key": config["s3.access-key-id"], "secret": config["s3.secret-access-key"]}
        s3 = guarded.client(keys, config["s3.session-token"])
        at = table.metadata_location.removeprefix(f"s3://{BUCKET}/")
        folder, _, _ = at.rpartition("/iceberg/")
        found = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/")["Contents"]
        assert any("/iceberg/data/" in each["Key"] for each in found)
        assert s3.get_object(Bucket=BUCKET, Key=at)["Body"].read()
        foreign = other.metadata_location.removeprefix(f"s3://{BUCKET}/")
        is_reader = key == service.reader
        assert denied(s3.get_object, Bucket=BUCKET, Key=foreign)
        assert denied(s3.list_objects_v2, Bucket=BUCKET, Prefix=f"{foreign.rpartition('/')[0]}/")
        assert denied(s3.list_objects_v2, Bucket=BUCKET, Prefix=folder)  # may be the beginning of others' names
        assert denied(s3.put_object, Bucket=BUCKET, Key=f"{folder}/iceberg/data/mine", Body=b"x") == is_reader
        assert denied(s3.delete_object, Bucket=BUCKET, Key=f"{folder}/iceberg/data/mine") == is_reader
        assert denied(s3.put_object, Bucket=BUCKET, Key=f"{folder}/_ss/mine", Body=b"x")
        assert denied(s3.put_object, Bucket=BUCKET, Key=f"{foreign}x", Body=b"x")
        assert denied(s3.put_object, Bucket="other", Key="x", Body=b"x")
        manifest = next(each["Key"] for each in found if "/_ss/" in each["Key"])
        assert s3.get_object(Bucket=BUCKET, Key=manifest)["Body"].read()
        assert denied(s3.delete_object, Bucket=BUCKET, Key=manifest)
        own.head_object(Bucket=BUCKET, Key=manifest)


def test_locations_outside_the_warehouse_count_only_if_the_settings_list_them(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """A client may move a table's files; its credentials follow as far as the settings allow, not into other tables."""
    service = guarded_service(
        iceberg_role_arn=guarded.role_arn,
        iceberg_sts_url=guarded.endpoint_url,
        allowed_locations=json.dumps({"sales": [f"s3://{BUCKET}/shared"]}),
    )
    catalog = service.catalog(service.writer)
    victim = catalog.create_table("sales.victim", schema=ROWS.schema)
    properties = {
        "write.data.path": f"s3://{BUCKET}/shared/clicks",
        "write.object-storage.path": victim.location(),
        "write.folder-storage.path": service.warehouse,
    }
    table = catalog.create_table("sales.clicks", schema=ROWS.schema)
    table.append(ROWS)
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    catalog.load_table("sales.clicks").append(ROWS)
    assert catalog.load_table("sales.clicks").scan().count() == 20
    found = service.get(service.writer, "/namespaces/sales/tables/clicks", **{WAYS: "vended-credentials"}).json()
    own = table.location().removesuffix("/iceberg")
    prefixes = [each["prefix"] for each in found["storage-credentials"]]
    assert sorted(prefixes) == sorted([f"{own}/", f"s3://{BUCKET}/shared/clicks/"])
    moved = catalog.create_table("sales.moved", schema=ROWS.schema, location=f"s3://{BUCKET}/shared/moved")
    moved.append(ROWS)
    service.catalog(ROOT_KEY).drop_table("sales.moved")
    again = catalog.register_table("sales.again", moved.metadata_location)
    again.append(ROWS)
    assert again.scan().count() == 20


def test_static_keys_are_given_by_role(guarded_service: Callable[..., GuardedService], guarded: GuardedS3) -> None:
    """A reader gets those for reading, which S3 lets write nothing; who does not ask gets none."""
    keys = {"read": guarded.reader, "write": guarded.service}
    service = guarded_service(iceberg_static_keys=json.dumps(keys))
    table = service.catalog(service.writer).create_table("sales.clicks", schema=ROWS.schema)
    table.append(ROWS)
    seen = service.catalog(service.reader).load_table("sales.clicks")
    assert seen.scan().count() == 10
    assert seen.scan().to_arrow().num_rows == 10
    with (
        pytest.raises(OSError, match=r"(?i)access.?denied"),
        seen.io.new_output(f"{table.location()}/x").create() as out,
    ):
        out.write(b"x")
    for key, role in ((service.writer, "write"), (service.reader, "read")):
        requested = service.get(key, "/namespaces/sales/tables/clicks", **{WAYS: "remote-signing, vended-credentials"})
        assert keys_of(requested.json())["s3.access-key-id"] == keys[role]["key"]
        plain = service.get(key, "/namespaces/sales/tables/clicks")
        assert "storage-credentials" not in plain.json()
        assert keys[role]["secret"] not in plain.text
        other = service.get(key, "/namespaces/sales/tables/clicks", **{WAYS: "something"})
        assert keys[role]["secret"] not in other.text
    assert service.get(service.reader, "/namespaces/secret/tables/t/credentials").status_code == 404
    assert keys["write"]["secret"] not in service.server.log_text()


def test_a_role_without_static_keys_gets_none(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """The settings may have keys for reading alone; keys for writing are not given to readers."""
    service = guarded_service(iceberg_static_keys=json.dumps({"write": guarded.service}))
    created = service.post(
        service.writer,
        "/namespaces/sales/tables",
        {"name": "t", "schema": {"type": "struct", "fields": []}},
        **{WAYS: "vended-credentials"},
    )
    assert keys_of(created.json())["s3.access-key-id"] == guarded.service["key"]
    assert created.headers["cache-control"] == "no-store"
    assert service.get(service.reader, "/namespaces/sales/tables/t/credentials").json() == {"storage-credentials": []}


def test_no_credentials_are_given_by_default(guarded_service: Callable[..., GuardedService]) -> None:
    """Whatever a client asks for."""
    service = guarded_service()
    service.catalog(ROOT_KEY)
    made = service.post(
        service.writer, "/namespaces/sales/tables", {"name": "t", "schema": {"type": "struct", "fields": []}}
    )
    assert made.status_code == 200
    ways = {WAYS: "vended-credentials,remote-signing"}
    found = service.get(ROOT_KEY, "/namespaces/sales/tables/t", **ways).json()
    assert "storage-credentials" not in found
    assert not {name for name in found["config"] if "key" in name or "sign" in name}
    assert service.get(ROOT_KEY, "/namespaces/sales/tables/t/credentials").json() == {"storage-credentials": []}


def test_a_refusal_of_the_token_service_is_an_error(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """A client does not find out later, by requests that S3 denies."""
    service = guarded_service(
        iceberg_role_arn="arn:aws:iam::123456789012:role/other",
        iceberg_sts_url=f"{guarded.endpoint_url}/nothing",
    )
    body = {"name": "t", "schema": {"type": "struct", "fields": []}}
    made = service.post(service.writer, "/namespaces/sales/tables", body)
    assert made.status_code == 200
    refused = service.get(service.writer, "/namespaces/sales/tables/t", **{WAYS: "vended-credentials"})
    assert refused.status_code >= 500
    assert "STS" in refused.json()["error"]["message"]


class Log:
    """Takes log lines."""

    def info(self, *_: object, **__: object) -> None:
        """Forget one."""


def test_a_session_is_used_until_shortly_before_its_end() -> None:
    """Then there is a new one; other folders have their own, and a failure is not remembered."""
    now, made, fails = [0], [], [False]

    def assume(name: str, policy: str) -> Session:
        if fails[0]:
            raise StoreError("STS is down")
        made.append((name, policy))
        return Session(Keys(f"k{len(made)}", "s", "t"), now[0] + 3_600_000)

    log: Any = Log()
    sessions = S3Sessions(assume, partition="aws", lifetime_s=3_600, clock=lambda: now[0], log=log)
    read = GrantedFolders(("s3://b/t/",))
    write = GrantedFolders(("s3://b/t/",), ("s3://b/t/",))
    assert sessions.of("t", read).keys.key == "k1"
    now[0] = 2_600_000
    assert sessions.of("t", read).keys.key == "k1"
    assert sessions.of("t", write).keys.key == "k2"
    now[0] = 2_800_000
    fails[0] = True
    with pytest.raises(StoreError, match="down"):
        sessions.of("t", read)
    fails[0] = False
    assert sessions.of("t", read).keys.key == "k3"
    assert [name for name, _ in made] == ["lamella-t"] * 3


def test_the_policy_of_a_session_names_the_folders() -> None:
    """Reading and listing, and writing where the caller may; in the partition of the role."""
    folders = GrantedFolders(("s3://b/t/", "s3://c/x y/"), ("s3://b/t/iceberg/",))
    assert json.loads(session_policy(folders, "aws-cn")) == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": ["arn:aws-cn:s3:::b/t/*", "arn:aws-cn:s3:::c/x y/*"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"],
                "Resource": ["arn:aws-cn:s3:::b/t/iceberg/*"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": ["arn:aws-cn:s3:::b"],
                "Condition": {"StringLike": {"s3:prefix": ["t/*"]}},
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": ["arn:aws-cn:s3:::c"],
                "Condition": {"StringLike": {"s3:prefix": ["x y/*"]}},
            },
        ],
    }
    with pytest.raises(NotExpressible, match="too long"):
        session_policy(GrantedFolders((f"s3://b/{'x' * 2_000}/",)))


@pytest.mark.parametrize(
    "options",
    [
        {"key": "k", "secret": "s", "token": "t"},
        {"client_kwargs": {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_session_token": "t"}},
    ],
)
def test_the_services_own_credentials_are_those_of_its_store(options: dict[str, Any]) -> None:
    """In either form that s3fs takes; they are in no text of the object."""
    found = ServiceKeys(options).current()
    assert found == Keys("k", "s", "t")
    assert repr(found) == "Keys(...)"


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize("options", [{"anon": True, "key": "k", "secret": "s"}, {}])
def test_a_service_without_credentials_gives_none(options: dict[str, Any]) -> None:
    """A store that is read anonymously, and a machine that has none."""
    with pytest.raises(NotSignable, match="no S3 credentials"):
        ServiceKeys(options).current()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iceberg_static_keys": {"read": {"key": "k"}}}, "no 'secret'"),
        (
            {
                "iceberg_static_keys": {"read": {"key": "k", "secret": "s"}},
                "iceberg_role_arn": "arn:aws:iam::123456789012:role/lake",
            },
            "not both",
        ),
    ],
)
def test_settings_of_credentials_that_cannot_be_meant_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    """The service does not start."""
    with pytest.raises(InvalidRequest, match=message):
        create_app(Settings(warehouse=str(tmp_path / "w"), **settings))


def test_a_path_in_the_answer_is_that_of_a_namespace_with_levels(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """Clients send it unchanged."""
    service = guarded_service(iceberg_role_arn=guarded.role_arn, iceberg_sts_url=guarded.endpoint_url)
    catalog = service.catalog(ROOT_KEY)
    catalog.create_namespace("web.eu")
    catalog.create_table("web.eu.t", schema=ROWS.schema)
    levels = quote("web\x1feu")
    found = service.get(ROOT_KEY, f"/namespaces/{levels}/tables/t", **{WAYS: "vended-credentials"}).json()
    path = found["config"]["client.refresh-credentials-endpoint"]
    assert service.get(ROOT_KEY, path.removeprefix("v1")).json()["storage-credentials"] == found["storage-credentials"]
