"""The service signs S3 requests of Iceberg clients for a table's files, as far as the client's role allows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape

import httpx2
import pyarrow as pa
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.exceptions import SignError

from lamella.client.http import Lamella
from lamella.service.iceberg.granted import GrantedFolders
from lamella.service.iceberg.s3_requests import S3Requests
from lamella.service.iceberg.s3_sessions import Keys
from lamella.snapshot.errors import InvalidRequest, LocationRefused, PermissionDenied
from lamella.snapshot.iceberg.wire import RequestToSign, SignedRequest
from support.guarded_s3 import BUCKET, REGION, GuardedS3, GuardedService
from support.tenants import ROOT_KEY

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{i}" for i in range(10)]})
WAYS = "X-Iceberg-Access-Delegation"
SIGNED_BY = {f"header.{WAYS}": "remote-signing"}
FOLDERS = GrantedFolders(("s3://lake/t/",), ("s3://lake/t/iceberg/",))
KEYS = Keys("AK", "secret", "token")
NOW_MS = 1_795_000_000_000
HOST = "https://s3.test:9000"


def sign(
    method: str,
    uri: str,
    *,
    may_write: bool = True,
    headers: Mapping[str, tuple[str, ...]] | None = None,
    body: str | None = None,
    region: str = "us-east-1",
    endpoints: tuple[str, ...] = (HOST,),
    provider: str | None = None,
) -> SignedRequest:
    """The signed request."""
    made: Any = method
    request = RequestToSign(
        region=region, uri=uri, method=made, headers=dict(headers or {}), body=body, provider=provider
    )
    return S3Requests(endpoints).signed(request, FOLDERS, KEYS, may_write=may_write, now_ms=NOW_MS)


def test_pyiceberg_works_with_signed_requests(guarded_service: Callable[..., GuardedService]) -> None:
    """It creates, appends and scans without credentials; S3 checks each signature. A reader cannot write."""
    service = guarded_service(iceberg_remote_signing=True)
    catalog = service.catalog(service.writer, **SIGNED_BY)
    table = catalog.create_table("sales.clicks", schema=ROWS.schema)
    table.append(ROWS)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(10))
    with catalog.create_table_transaction("sales.staged", schema=ROWS.schema) as transaction:
        transaction.append(ROWS)
    table.append(ROWS)  # pyiceberg's signers of the two tables are not mixed up
    assert catalog.load_table("sales.staged").scan().to_arrow().num_rows == 10
    seen = service.catalog(service.reader, **SIGNED_BY).load_table("sales.clicks")
    assert sorted(seen.scan("id > 6").to_arrow()["id"].to_pylist()) == [7, 7, 8, 8, 9, 9]
    output = seen.io.new_output(f"{table.location()}/data/x")
    with pytest.raises(SignError, match="403"), output.create() as out:
        out.write(b"x")
    large = table.io.new_output(f"{table.location()}/data/large")
    with large.create() as out:  # s3fs sends it in parts
        out.write(bytes(60 << 20))
    assert len(table.io.new_input(f"{table.location()}/data/large")) == 60 << 20
    with Lamella(service.server.url, token=service.reader) as lake:
        assert lake.table("sales.staged").info().row_count == 10


def test_the_address_of_the_signer_is_given_with_the_table(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """By all names that clients know; it is an endpoint only if the setting is on."""
    service = guarded_service(iceberg_remote_signing=True)
    service.catalog(service.writer).create_table("sales.t", schema=ROWS.schema)
    found = service.get(service.reader, "/namespaces/sales/tables/t", **{WAYS: "vended-credentials,remote-signing"})
    config = found.json()["config"]
    path = "v1/namespaces/sales/tables/t/sign"
    assert (config["s3.signer.endpoint"], config["signer.endpoint"]) == (path, path)
    assert config["s3.remote-signing-enabled"] == "true"
    assert "storage-credentials" not in found.json()
    assert guarded.service["secret"] not in found.text
    endpoint = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/sign"
    assert endpoint in service.get(service.reader, "/config").json()["endpoints"]
    off = guarded_service()
    off.catalog(off.writer).create_table("sales.t", schema=ROWS.schema)
    assert endpoint not in off.get(off.reader, "/config").json()["endpoints"]
    requested = {"region": REGION, "uri": f"{guarded.endpoint_url}/{BUCKET}/x", "method": "GET", "headers": {}}
    assert off.post(off.writer, "/namespaces/sales/tables/t/sign", requested).status_code == 406


def test_a_signature_is_for_the_tables_files(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """S3 accepts it for that request alone; the service gives none for another table, or without the right."""
    service = guarded_service(iceberg_remote_signing=True)
    catalog = service.catalog(service.writer, **SIGNED_BY)
    table, other = (catalog.create_table(f"sales.{name}", schema=ROWS.schema) for name in ("a", "b"))
    root = guarded.endpoint_url

    def requested(key: str, location: str, method: str = "GET", name: str = "a", **more: Any) -> httpx2.Response:
        uri = location.replace("s3://", f"{root}/")
        body = {"region": REGION, "uri": uri, "method": method, "headers": {}, **more}
        return service.post(key, f"/namespaces/sales/tables/{name}/sign", body)

    made = requested(service.reader, table.metadata_location)
    assert made.status_code == 200
    assert made.headers["cache-control"] == "no-cache, no-store"
    assert list(made.json()) == ["uri", "headers"]
    headers = {name: values[0] for name, values in made.json()["headers"].items()}
    assert httpx2.get(made.json()["uri"], headers=headers).status_code == 200
    foreign = other.metadata_location.replace("s3://", f"{root}/")
    assert httpx2.get(foreign, headers=headers).status_code == 403
    assert requested(service.reader, other.metadata_location).status_code == 403
    assert requested(service.writer, other.metadata_location, "DELETE").status_code == 403
    assert requested(service.reader, table.metadata_location, "DELETE").status_code == 403
    assert requested(service.reader, table.metadata_location, name="none").status_code == 404
    assert service.post(service.reader, "/namespaces/secret/tables/a/sign", {}).status_code == 404
    keys = [f"{table.location()}/data/{number}".removeprefix(f"s3://{BUCKET}/") for number in range(3)]
    own = guarded.client(guarded.service)
    for key in keys:
        own.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    body = "<Delete>" + "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys[:2]) + "</Delete>"
    signed = requested(service.writer, f"s3://{BUCKET}/?delete", "POST", body=body)
    headers = {name: values[0] for name, values in signed.json()["headers"].items()}
    assert httpx2.post(f"{root}/{BUCKET}/?delete", content=body, headers=headers).status_code == 200
    left = own.list_objects_v2(Bucket=BUCKET, Prefix=keys[0].rpartition("/")[0])["Contents"]
    assert [each["Key"] for each in left] == [keys[2]]
    assert headers["x-amz-content-sha256"] == hashlib.sha256(body.encode()).hexdigest()


def test_requests_for_a_table_that_is_not_created_yet_need_what_the_service_gave(
    guarded_service: Callable[..., GuardedService], guarded: GuardedS3
) -> None:
    """The address has the folders; it holds for the name that it was given for."""
    service = guarded_service(iceberg_remote_signing=True)
    body = {"name": "new", "schema": {"type": "struct", "fields": []}, "stage-create": True}
    staged = service.post(service.writer, "/namespaces/sales/tables", body, **{WAYS: "remote-signing"}).json()
    endpoint = staged["config"]["s3.signer.endpoint"].removeprefix("v1")
    path, _, query = endpoint.partition("?")
    uri = staged["metadata"]["location"].replace("s3://", f"{guarded.endpoint_url}/") + "/data/x"
    requested = {"region": REGION, "uri": uri, "method": "PUT", "headers": {}}
    assert service.post(service.writer, f"{path}?{query}", requested).status_code == 200
    assert service.post(service.reader, f"{path}?{query}", requested).status_code == 403
    assert service.post(service.writer, path, requested).status_code == 404
    assert service.post(service.writer, f"{path}?{query}x", requested).status_code == 404
    assert service.post(service.writer, f"{path.replace('/new/', '/old/')}?{query}", requested).status_code == 404
    outside = {**requested, "uri": f"{guarded.endpoint_url}/{BUCKET}/x"}
    assert service.post(service.writer, f"{path}?{query}", outside).status_code == 403
    # Another table gets the name: its own folders count.
    assert service.post(ROOT_KEY, "/namespaces/sales/tables", {**body, "stage-create": False}).status_code == 200
    assert service.post(service.writer, f"{path}?{query}", requested).status_code == 403


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", f"{HOST}/lake/t/_ss/a.json"),
        ("HEAD", f"{HOST}/lake/t/iceberg/a%20b"),
        ("GET", "https://lake.s3.test:9000/t/x"),
        ("GET", f"{HOST}/lake?list-type=2&prefix=t%2F&delimiter=%2F&max-keys=1"),
        ("GET", f"{HOST}/lake/?list-type=2&prefix=t%2Ficeberg%2Fdata"),
        ("PUT", f"{HOST}/lake/t/iceberg/x"),
        ("PUT", f"{HOST}/lake/t/iceberg/x?partNumber=1&uploadId=abc"),
        ("POST", f"{HOST}/lake/t/iceberg/x?uploads"),
        ("POST", f"{HOST}/lake/t/iceberg/x?uploads="),
        ("POST", f"{HOST}/lake/t/iceberg/x?uploadId=abc"),
        ("DELETE", f"{HOST}/lake/t/iceberg/x"),
        ("DELETE", f"{HOST}/lake/t/iceberg/x?uploadId=abc"),
        ("GET", f"{HOST}/lake/t/name%3Da%252Fb/x"),  # a partition's folder, as Iceberg names it
    ],
)
def test_requests_of_iceberg_clients_are_signed(method: str, uri: str) -> None:
    """To objects in the folders, listings of them and uploads in parts; as botocore signs them."""
    headers = {"x-amz-meta-owner": ("me",), "Range": ("bytes=0-1",), "User-Agent": ("x",)}
    found = sign(method, uri, headers=headers)
    assert found.uri == uri
    made = {name: value for name, (value,) in found.headers.items()}
    assert sorted(made) == ["Authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"]
    _, _, names = made["Authorization"].partition("SignedHeaders=")
    expected = "host;x-amz-content-sha256;x-amz-date;x-amz-meta-owner;x-amz-security-token"
    assert names.partition(",")[0] == expected
    request = AWSRequest(method, uri, headers={"x-amz-meta-owner": "me", "x-amz-date": made["x-amz-date"]})
    request.headers["X-Amz-Content-SHA256"] = made["x-amz-content-sha256"]
    request.headers["X-Amz-Security-Token"] = "token"
    request.context["timestamp"] = made["x-amz-date"]
    auth = S3SigV4Auth(Credentials("AK", "secret", "token"), "s3", "us-east-1")
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert made["Authorization"].endswith(f"Signature={signature}")


def test_the_header_with_which_java_asks_for_a_checksum_is_signed() -> None:
    """Amazon's SDK for Java sends it with each GET of an object, so without it Java's clients read nothing."""
    found = sign("GET", f"{HOST}/lake/t/iceberg/x", headers={"x-amz-te": ("append-md5",)}).headers
    assert "x-amz-te" in found["Authorization"][0].partition("SignedHeaders=")[2].partition(",")[0].split(";")


#: What must not be signed, by the reason.
REFUSED: dict[str, tuple[str, str]] = {
    "another table": ("GET", f"{HOST}/lake/u/x"),
    "a name that begins like the folder": ("GET", f"{HOST}/lake/t-secret/x"),
    "the folder itself": ("GET", f"{HOST}/lake/t/"),
    "no key": ("GET", f"{HOST}/lake/t"),
    "the parent by dots": ("GET", f"{HOST}/lake/t/../u/x"),
    "dots inside": ("GET", f"{HOST}/lake/t/./x"),
    "encoded dots": ("GET", f"{HOST}/lake/t/%2e%2e/u/x"),
    "dots encoded twice": ("GET", f"{HOST}/lake/t/%252e%252e/u/x"),
    "dots encoded three times": ("GET", f"{HOST}/lake/t/%25252e%25252e/u/x"),
    "encoded slashes": ("GET", f"{HOST}/lake/t%2Fx"),
    "encoded slashes and dots": ("GET", f"{HOST}/lake/t/..%2Fu%2Fx"),
    "a slash encoded twice, after dots": ("GET", f"{HOST}/lake/t/..%252Fu"),
    "a backslash": ("GET", f"{HOST}/lake/t/..\\u"),
    "lower case escapes": ("GET", f"{HOST}/lake/t/a%c3%a4"),
    "an escape that is none": ("GET", f"{HOST}/lake/t/a%zz"),
    "bytes that are no text": ("GET", f"{HOST}/lake/t/a%FF"),
    "characters that are not escaped": ("GET", f"{HOST}/lake/t/ä"),
    "a plus sign": ("GET", f"{HOST}/lake/t/a+b"),
    "a control character": ("GET", f"{HOST}/lake/t/a%0Ab"),
    "a line break": ("GET", f"{HOST}/lake/t/a\nb"),
    "a tab": ("GET", f"{HOST}/lake/t/a\tb"),
    "a space": ("GET", f"{HOST}/lake/t/a b"),
    "two slashes before the bucket": ("GET", f"{HOST}//lake/t/x"),
    "another bucket": ("GET", f"{HOST}/other/t/x"),
    "a bucket that begins alike": ("GET", f"{HOST}/lake2/t/x"),
    "another bucket by its host": ("GET", "https://other.s3.test:9000/t/x"),
    "another bucket by its host, with this one in the path": ("GET", "https://other.s3.test:9000/lake/t/x"),
    "another host": ("GET", "https://evil.test:9000/lake/t/x"),
    "another port": ("GET", "https://s3.test/lake/t/x"),
    "a host that ends alike": ("GET", "https://evil-s3.test:9000/lake/t/x"),
    "a host that begins alike": ("GET", "https://s3.test:9000.evil.test/lake/t/x"),
    "a user in the host": ("GET", "https://s3.test:9000@evil.test/lake/t/x"),
    "another scheme": ("GET", "ftp://s3.test:9000/lake/t/x"),
    "no host": ("GET", "/lake/t/x"),
    "a fragment": ("GET", f"{HOST}/lake/t/x#y"),
    "the acl": ("GET", f"{HOST}/lake/t/x?acl"),
    "setting the acl": ("PUT", f"{HOST}/lake/t/iceberg/x?acl"),
    "the policy of the bucket": ("GET", f"{HOST}/lake/?policy"),
    "setting the policy": ("PUT", f"{HOST}/lake/?policy"),
    "deleting the policy": ("DELETE", f"{HOST}/lake/?policy"),
    "the versions": ("GET", f"{HOST}/lake/?versions&prefix=t%2F"),
    "an older version": ("GET", f"{HOST}/lake/t/x?versionId=1"),
    "deleting a version": ("DELETE", f"{HOST}/lake/t/iceberg/x?versionId=1"),
    "tags": ("PUT", f"{HOST}/lake/t/iceberg/x?tagging"),
    "a retention": ("PUT", f"{HOST}/lake/t/iceberg/x?retention"),
    "restoring": ("POST", f"{HOST}/lake/t/iceberg/x?restore"),
    "a query by SQL": ("POST", f"{HOST}/lake/t/iceberg/x?select&select-type=2"),
    "another content type in the answer": ("GET", f"{HOST}/lake/t/x?response-content-type=text%2Fhtml"),
    "a parameter twice": ("GET", f"{HOST}/lake/?list-type=2&prefix=t%2F&prefix=u%2F"),
    "a listing of everything": ("GET", f"{HOST}/lake/?list-type=2"),
    "a listing with an empty prefix": ("GET", f"{HOST}/lake/?list-type=2&prefix="),
    "a listing of names that begin like the folder": ("GET", f"{HOST}/lake/?list-type=2&prefix=t"),
    "a listing of another table": ("GET", f"{HOST}/lake/?list-type=2&prefix=u%2F"),
    "a listing with dots": ("GET", f"{HOST}/lake/?list-type=2&prefix=t%2F..%2Fu%2F"),
    "a listing with a plus sign": ("GET", f"{HOST}/lake/?list-type=2&prefix=t%2F+"),
    "the first version of listings": ("GET", f"{HOST}/lake/?prefix=t%2F"),
    "listing version 1 by name": ("GET", f"{HOST}/lake/?list-type=1&prefix=t%2F"),
    "all buckets": ("GET", f"{HOST}/"),
    "deleting the bucket": ("DELETE", f"{HOST}/lake/"),
    "creating the bucket": ("PUT", f"{HOST}/lake/"),
    "an upload by a form": ("POST", f"{HOST}/lake/"),
    "a deletion without its body": ("POST", f"{HOST}/lake/?delete"),
    "Lamella's files": ("PUT", f"{HOST}/lake/t/_ss/x"),
    "deleting Lamella's files": ("DELETE", f"{HOST}/lake/t/_ss/x"),
    "a method that S3 does not have": ("PATCH", f"{HOST}/lake/t/iceberg/x"),
    "a question of a browser": ("OPTIONS", f"{HOST}/lake/t/iceberg/x"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_request_is_refused_for(reason: str) -> None:
    """Anything that is not known to be for the table's files."""
    method, uri = REFUSED[reason]
    with pytest.raises(InvalidRequest):
        sign(method, uri)


@pytest.mark.parametrize(
    "name",
    [
        *("x-amz-copy-source", "X-Amz-Copy-Source", "x-amz-copy-source-range", "x-amz-acl", "x-amz-grant-read"),
        *("x-amz-tagging", "x-amz-website-redirect-location", "x-amz-object-lock-mode", "x-amz-mfa"),
        *("x-amz-bypass-governance-retention", "x-amz-rename-source", "x-amz-unknown", "x-amz-"),
    ],
)
@pytest.mark.parametrize("value", ["/lake/t/iceberg/y", "/other/secret"])
def test_headers_that_copy_or_give_rights_are_refused(name: str, value: str) -> None:
    """A copy would read with the service's rights whatever the header names."""
    with pytest.raises(InvalidRequest, match="header"):
        sign("PUT", f"{HOST}/lake/t/iceberg/x", headers={name: (value,)})


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_reader_gets_no_signature_of_a_request_that_writes(method: str) -> None:
    """Nor of an upload in parts, nor of a deletion of many."""
    queries = {"PUT": ("", "?uploadId=x&partNumber=1"), "POST": ("?uploads", "?uploadId=x"), "DELETE": ("",)}
    for each in queries[method]:
        with pytest.raises(PermissionDenied):
            sign(method, f"{HOST}/lake/t/iceberg/x{each}", may_write=False)
    with pytest.raises(PermissionDenied):
        sign("POST", f"{HOST}/lake/?delete", may_write=False, body=deletion("t/iceberg/x"))
    assert sign("GET", f"{HOST}/lake/t/iceberg/x", may_write=False)


def deletion(*keys: str) -> str:
    """The body of a DeleteObjects."""
    return "<Delete>" + "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys) + "</Delete>"


XML = '<?xml version="1.0" encoding="UTF-8"?>'


@pytest.mark.parametrize(
    "body",
    [
        deletion("t/iceberg/a"),
        XML + deletion("t/iceberg/a", "t/iceberg/b&c"),
        deletion("t/iceberg/a").replace("<Delete>", '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'),
        deletion("t/iceberg/a").replace("</Delete>", "<Quiet>true</Quiet></Delete>"),
    ],
)
def test_the_body_of_a_deletion_is_part_of_the_signature(body: str) -> None:
    """So that another body has no valid signature."""
    found = sign("POST", f"{HOST}/lake/?delete", body=body)
    digest = hashlib.sha256(body.encode()).hexdigest()
    assert found.headers["x-amz-content-sha256"] == (digest,)
    other = {"x-amz-content-sha256": ("UNSIGNED-PAYLOAD",)}
    with pytest.raises(InvalidRequest, match="hash of the body"):
        sign("POST", f"{HOST}/lake/?delete", body=body, headers=other)
    same = sign("POST", f"{HOST}/lake/?delete", body=body, headers={"X-Amz-Content-Sha256": (digest,)})
    assert "x-amz-content-sha256" not in same.headers
    assert same.headers["Authorization"] == found.headers["Authorization"]


#: Bodies of deletions that must not be signed.
DELETIONS: dict[str, str] = {
    "a key of another table": deletion("t/iceberg/a", "u/x"),
    "a key of Lamella": deletion("t/_ss/x"),
    "dots": deletion("t/iceberg/../_ss/x"),
    "encoded dots": deletion("t/iceberg/%2e%2e/_ss/x"),
    "dots as character references": deletion("t/iceberg/").replace("iceberg/", "iceberg/&#46;&#x2e;/_ss/x"),
    "an entity": '<!DOCTYPE Delete [<!ENTITY k "u/x">]>' + deletion("t/iceberg/a").replace("iceberg/a", "iceberg/&k;"),
    "a comment in a key": "<Delete><Object><Key>t/iceberg/<!-- -->a</Key></Object></Delete>",
    "CDATA": "<Delete><Object><Key><![CDATA[t/iceberg/a]]></Key></Object></Delete>",
    "an instruction": "<Delete><?x y?><Object><Key>t/iceberg/a</Key></Object></Delete>",
    "another encoding": '<?xml version="1.0" encoding="UTF-16"?>' + deletion("t/iceberg/a"),
    "a version": "<Delete><Object><Key>t/iceberg/a</Key><VersionId>1</VersionId></Object></Delete>",
    "two keys in an object": "<Delete><Object><Key>t/iceberg/a</Key><Key>u/x</Key></Object></Delete>",
    "an element in a key": "<Delete><Object><Key>t/iceberg/a<b/></Key></Object></Delete>",
    "an unknown element": "<Delete><Object><Key>t/iceberg/a</Key></Object><Prefix>u</Prefix></Delete>",
    "an object without a key": "<Delete><Object/></Delete>",
    "an empty key": "<Delete><Object><Key></Key></Object></Delete>",
    "spaces around a key": "<Delete><Object><Key> t/iceberg/a </Key></Object></Delete>",
    "a line break in a key": "<Delete><Object><Key>t/iceberg/a\n</Key></Object></Delete>",
    "another root": "<Remove><Object><Key>t/iceberg/a</Key></Object></Remove>",
    "no objects": "<Delete></Delete>",
    "too many objects": deletion(*["t/iceberg/a"] * 1_001),
    "no XML": "t/iceberg/a",
    "nothing": "",
    "two roots": deletion("t/iceberg/a") + deletion("u/x"),
}


@pytest.mark.parametrize("reason", DELETIONS)
def test_a_deletion_of_many_objects_is_refused_for(reason: str) -> None:
    """A body that names something else, or that two programs could read in two ways."""
    with pytest.raises(InvalidRequest):
        sign("POST", f"{HOST}/lake/?delete", body=DELETIONS[reason])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"headers": {"Host": ("evil.test",)}}, "host"),
        ({"headers": {"x-amz-storage-class": ("A",), "X-Amz-Storage-Class": ("B",)}}, "repeated"),
        ({"headers": {"x-amz-content-sha256": ("abc",)}}, "neither"),
        ({"headers": {"x-amz-meta-a": ("b\nhost:evil",)}}, None),
        ({"region": "us-east-1/s3/aws4_request"}, "region"),
        ({"region": ""}, "region"),
        ({"provider": "gcs"}, "gcs"),
    ],
)
def test_parts_of_a_request_that_would_change_the_signature_are_refused(
    settings: dict[str, Any], message: str | None
) -> None:
    """A line break in a header becomes a space, as HTTP reads it."""
    if message is None:
        assert sign("PUT", f"{HOST}/lake/t/iceberg/x", **settings)
        return
    with pytest.raises(InvalidRequest, match=message):
        sign("PUT", f"{HOST}/lake/t/iceberg/x", **settings)


def test_the_service_sets_the_time_and_its_token() -> None:
    """A client cannot have a request signed for later."""
    given = {"X-Amz-Date": ("20990101T000000Z",), "Authorization": ("x",), "x-amz-security-token": ("y",)}
    found = sign("GET", f"{HOST}/lake/t/x", headers=given)
    assert found.headers["x-amz-date"] == ("20261118T110640Z",)
    assert found.headers["x-amz-security-token"] == ("token",)
    assert found == sign("GET", f"{HOST}/lake/t/x")


def test_without_an_endpoint_the_hosts_of_aws_count() -> None:
    """Those of the region, in both styles."""
    for host in ("s3.eu-central-1.amazonaws.com/lake", "lake.s3.eu-central-1.amazonaws.com", "lake.s3.amazonaws.com"):
        assert sign("GET", f"https://{host}/t/x", endpoints=(), region="eu-central-1")
    for host in (
        *("s3.us-west-2.amazonaws.com/lake", "lake.s3.evil.com", "lake.s3-website.eu-central-1.amazonaws.com"),
        *("s3-control.eu-central-1.amazonaws.com/lake", "other.s3.eu-central-1.amazonaws.com"),
    ):
        with pytest.raises(LocationRefused):
            sign("GET", f"https://{host}/t/x", endpoints=(), region="eu-central-1")


@given(st.text(st.sampled_from("t/u.%2eEfF5c\\+ ?&=#;:@ä\n"), max_size=12), st.sampled_from(["GET", "PUT", "DELETE"]))
def test_what_is_signed_is_in_the_folder_in_every_reading(text: str, method: str) -> None:
    """However a store decodes and resolves the path."""
    uri = f"{HOST}/lake/t/iceberg/{text}"
    try:
        sign(method, uri)
    except InvalidRequest:
        return
    path = uri.removeprefix(HOST)
    for _ in range(4):
        for candidate in (path, path.replace("\\", "/"), path.replace("+", " ")):
            assert str(httpx2.URL("http://h").join(candidate).path).startswith("/lake/t/iceberg/")
        path = json.loads(json.dumps(httpx2.URL(f"http://h{path}").path))
