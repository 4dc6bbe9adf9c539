"""Messages as S3, SNS, EventBridge and MinIO write them, after the examples of their documentation."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.arrivals import FileEvents, data_files, read_message
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.wire import ArrivalsRequest


def record(name: str, key: str, bucket: str = "amzn-s3-demo-bucket", **entity: Any) -> dict[str, Any]:
    """A record of the structure 2.1, with all members that S3 documents."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-west-2",
        "eventTime": "1970-01-01T00:00:00.000Z",
        "eventName": name,
        "userIdentity": {"principalId": "AIDAJDPLRKLG7UEXAMPLE"},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8/IgAtTv8xRjskZQpcI"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "testConfigRule",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"principalId": "A3NL1KOZZKExample"},
                "arn": f"arn:aws:s3:::{bucket}",
            },
            "object": {
                "key": key,
                "size": 1024,
                "eTag": "d41d8cd98f00b204e9800998ecf8427e",
                "versionId": "096fKKXTRTtl3on89fVO.nfljtsv6qko",
                "sequencer": "0055AED6DCD90281E5",
                **entity,
            },
        },
    }


def bridged(kind: str, key: str, bucket: str = "amzn-s3-demo-bucket1") -> dict[str, Any]:
    """An event of EventBridge."""
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": kind,
        "source": "aws.s3",
        "account": "111122223333",
        "time": "2021-11-12T00:00:00Z",
        "region": "ca-central-1",
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": {
            "version": "0",
            "bucket": {"name": bucket},
            "object": {
                "key": key,
                "size": 5,
                "etag": "b1946ac92492d2347c6235b4d2611184",
                "version-id": "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e",
                "sequencer": "617f08299329d189",
            },
            "request-id": "N4N7GDK58NMKJ12R",
            "requester": "123456789012",
            "source-ip-address": "1.2.3.4",
            "reason": "PutObject",
        },
    }


def wrapped(message: Any) -> dict[str, Any]:
    """A notification of SNS."""
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": "arn:aws:sns:us-west-2:123456789012:MyTopic",
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(message),
        "Timestamp": "2012-05-02T00:54:06.655Z",
        "SignatureVersion": "1",
        "Signature": "EXAMPLEw6JRN...",
        "SigningCertURL": "https://sns.us-west-2.amazonaws.com/SimpleNotificationService-f3ecfb7224c7233fe7bb5f59f96de52f.pem",
        "UnsubscribeURL": "https://sns.us-west-2.amazonaws.com/?Action=Unsubscribe",
    }


TEST_EVENT = {
    "Service": "Amazon S3",
    "Event": "s3:TestEvent",
    "Time": "2014-10-13T15:57:02.089Z",
    "Bucket": "amzn-s3-demo-bucket",
    "RequestId": "5582815E1AEA5ADF",
    "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE",
}
#: A message of MinIO's webhook: the names of events begin with "s3:", and the key is there twice.
MINIO = {
    "EventName": "s3:ObjectCreated:Put",
    "Key": "images/a b.parquet",
    "Records": [record("s3:ObjectCreated:Put", "a+b.parquet", "images")],
}
CREATED = FileEvents(created=("s3://amzn-s3-demo-bucket/happyface.parquet",))
VECTORS: dict[str, tuple[Any, FileEvents]] = {
    "put": ({"Records": [record("ObjectCreated:Put", "happyface.parquet")]}, CREATED),
    "multipart upload": (
        {"Records": [record("ObjectCreated:CompleteMultipartUpload", "happyface.parquet")]},
        CREATED,
    ),
    "copy without etag and size": (
        {"Records": [record("ObjectCreated:Copy", "happyface.parquet", size=None)]},
        CREATED,
    ),
    "no version and no sequencer": (
        {
            "Records": [
                {
                    "eventName": "ObjectCreated:Post",
                    "s3": {"bucket": {"name": "amzn-s3-demo-bucket"}, "object": {"key": "happyface.parquet"}},
                }
            ]
        },
        CREATED,
    ),
    "twice in one message": ({"Records": [record("ObjectCreated:Put", "happyface.parquet")] * 2}, CREATED),
    "escaped key": (
        {"Records": [record("ObjectCreated:Put", "day%3D1/red+flower+%2B+%C3%A9%25.parquet", "b")]},
        FileEvents(created=("s3://b/day=1/red flower + é%.parquet",)),
    ),
    "key with characters of globs": (
        {"Records": [record("ObjectCreated:Put", "a%5B1%5D*%3F.parquet", "b")]},
        FileEvents(created=("s3://b/a[1]*?.parquet",)),
    ),
    "delete": (
        {
            "Records": [
                record("ObjectRemoved:Delete", "a.parquet", "b"),
                record("ObjectRemoved:DeleteMarkerCreated", "c", "b"),
            ]
        },
        FileEvents(deleted=("s3://b/a.parquet", "s3://b/c")),
    ),
    "expired": ({"Records": [record("LifecycleExpiration:Delete", "a", "b")]}, FileEvents(deleted=("s3://b/a",))),
    "restored from an archive": (
        {"Records": [record("ObjectRestore:Completed", "a", "b")]},
        FileEvents(ignored={"other_event": 1}),
    ),
    "test event": (TEST_EVENT, FileEvents(ignored={"test": 1})),
    "test event through SNS": (wrapped(TEST_EVENT), FileEvents(ignored={"test": 1})),
    "through SNS": (wrapped({"Records": [record("ObjectCreated:Put", "happyface.parquet")]}), CREATED),
    "EventBridge": (
        bridged("Object Created", "example-key+%20.parquet"),
        FileEvents(created=("s3://amzn-s3-demo-bucket1/example-key+%20.parquet",)),
    ),
    "EventBridge through SNS": (
        wrapped(bridged("Object Created", "x y.parquet", "b")),
        FileEvents(created=("s3://b/x y.parquet",)),
    ),
    "EventBridge, deleted": (bridged("Object Deleted", "x", "b"), FileEvents(deleted=("s3://b/x",))),
    "EventBridge, tags": (bridged("Object Tags Added", "x", "b"), FileEvents(ignored={"other_event": 1})),
    "EventBridge, another service": (
        {"detail-type": "Scheduled Event", "source": "aws.events"},
        FileEvents(ignored={"other_event": 1}),
    ),
    "MinIO": (MINIO, FileEvents(created=("s3://images/a b.parquet",))),
    "no records": ({"Records": []}, FileEvents()),
    "files": ({"files": ["/a//b.parquet", "s3a://b/c"]}, FileEvents(created=("file:///a/b.parquet", "s3://b/c"))),
    "removed files": ({"removed": ["s3://b/c"]}, FileEvents(deleted=("s3://b/c",))),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_message_names_its_files(name: str) -> None:
    """Keys of S3 are escaped as in forms, those of EventBridge are not; other events are counted."""
    message, expected = VECTORS[name]
    assert read_message(json.dumps(message)) == expected
    assert read_message(json.dumps(message).encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "{}",
        '"x"',
        '{"Records": 1}',
        '{"Records": [{"s3": {}}]}',
        '{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}}}]}',
        json.dumps({"Records": [record("ObjectCreated:Put", "%ff.parquet")]}),
        json.dumps({"Records": [record("ObjectCreated:Put", "a%00.parquet")]}),
        json.dumps({"Records": [record("ObjectCreated:Put", "")]}),
        json.dumps({"Records": [record("ObjectCreated:Put", "a" * 3_073)]}),
        json.dumps({"Records": [record("ObjectCreated:Put", "a", "b" * 256)]}),
        json.dumps({"Records": [record("ObjectCreated:Put", "\ud800")]}),
        json.dumps({"Records": [record("ObjectCreated:Put", "a", "b/../c")]}),
        json.dumps(wrapped("not JSON")),
        json.dumps(wrapped(wrapped(wrapped(TEST_EVENT)))),
        json.dumps({"files": ["relative.parquet"]}),
        '{"Type": "SubscriptionConfirmation", "Message": "You have chosen to subscribe", "SubscribeURL": "https://x"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_event_is_refused(text: str) -> None:
    """With one kind of error, whatever it is: the message goes to the dead-letter queue."""
    with pytest.raises(InvalidRequest):
        read_message(text)


def test_no_event_has_a_location_that_a_request_may_not_have() -> None:
    """Otherwise one message could have all those refused that are sent together with it."""
    message = {"Records": [record("ObjectCreated:Put", "a" * 3_072, "b" * 255)]}
    (location,) = read_message(json.dumps(message)).created
    sent = msgspec.json.encode(ArrivalsRequest(files=(location,)))
    assert msgspec.json.decode(sent, type=ArrivalsRequest).files == (location,)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30))
def test_every_key_is_found_again(key: str) -> None:
    """What S3 escapes is the key of the object, and EventBridge has it as it is."""
    location = f"s3://b/{key}"
    assert read_message(json.dumps({"Records": [record("ObjectCreated:Put", quote_plus(key), "b")]})).created == (
        location,
    )
    assert read_message(json.dumps(bridged("Object Created", key, "b"))).created == (location,)


@pytest.mark.parametrize(
    ("location", "prefix", "is_data"),
    [
        ("s3://b/t/a.parquet", None, True),
        ("s3://b/t/day=1/a.parquet", None, True),
        ("s3://b/t/_day=1/a.parquet", None, True),
        ("s3://b/t/a.csv", None, False),
        ("s3://b/t/", None, False),
        ("s3://b/t/_temporary/0/a.parquet", None, False),
        ("s3://b/t/_delta_log/1.checkpoint.parquet", None, False),
        ("s3://b/t/.a.parquet", None, False),
        ("s3://b/t/a.parquet", "s3://b/t/", True),
        ("s3://b/t/a.parquet", "s3://b/t", True),
        ("s3://b/t-2/a.parquet", "s3://b/t", True),
        ("s3://b/t-2/a.parquet", "s3://b/t/", False),
        ("s3://other/t/a.parquet", "s3://b/t/", False),
        ("s3://b/_landing/t/a.parquet", None, False),
        ("s3://b/_landing/t/a.parquet", "s3://b/_landing/", True),
        ("s3://b/_landing/_x/a.parquet", "s3://b/_landing/", False),
        ("s3://b/_landing/_x/a.parquet", "s3://b/_landing/_", False),
        ("file:///lake/_x/.y/a.parquet", None, True),
        ("file:///lake/_x/.y/_a.parquet", None, False),
        ("file:///lake/x/_y/a.parquet", "/lake/x", False),
        ("file:///lake/x/y/a.parquet", "/lake/x/", True),
    ],
)
def test_which_files_are_data_files(location: str, prefix: str | None, is_data: bool) -> None:
    """By Spark's rule for hidden files, in the part of the path below the prefix."""
    assert data_files((location,), prefix=prefix) == (((location,), 0) if is_data else ((), 1))


def test_the_suffix_can_be_another_one() -> None:
    """For files that are named in another way."""
    files = ("s3://b/a.parq", "s3://b/a.parquet")
    assert data_files(files, suffix=".parq") == (("s3://b/a.parq",), 1)
