"""URLs that the store signs: botocore's own, for one object each, for a time."""

from __future__ import annotations

import datetime as dt
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from fixtures_s3 import S3Server
from lamella.snapshot.errors import InvalidRequest, NotSignable
from lamella.snapshot.storage import FsspecStore, SigningStore
from lamella.snapshot.storage.s3 import S3Urls
from layout.test_store_behaviour import ODD_NAMES
from support.signature_proxy import SignatureProxy, signature_proxy

KEYS = {"key": "AK", "secret": "a secret/+="}
STORES: list[dict[str, Any]] = [
    {**KEYS, "endpoint_url": "http://127.0.0.1:9000"},
    {**KEYS, "endpoint_url": "https://s3.example.com:443", "token": "a token/+=="},
    {**KEYS, "client_kwargs": {"region_name": "eu-central-1"}},
    {**KEYS, "client_kwargs": {"region_name": "us-east-1"}, "config_kwargs": {"s3": {"addressing_style": "path"}}},
]
#: Anything that can be a key and that no HTTP client changes on its way.
NAMES = st.lists(st.text(min_size=1, max_size=8).map(lambda text: text.replace("/", "_")), min_size=1, max_size=3)


@pytest.fixture(autouse=True)
def _no_credentials_but_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine has must not help."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")


@cache
def urls_of(number: int) -> S3Urls:
    """The signer of a way to reach a bucket."""
    return S3Urls(STORES[number])


@contextmanager
def still_clock() -> Iterator[None]:
    """Two URLs that are signed in here are signed at the same second."""
    with pytest.MonkeyPatch.context() as patch:
        now = dt.datetime(2026, 1, 31, 12, 30, 1)  # noqa: DTZ001  # what botocore works with
        patch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now)
        yield


def by_botocore(urls: S3Urls, bucket: str, key: str) -> str:
    """The URL as the library signs it."""
    (found,), _ = urls._by_botocore(bucket, [key], 900)
    return found


@given(names=NAMES, number=st.sampled_from(range(len(STORES))))
def test_every_url_is_the_one_that_botocore_signs(names: list[str], number: int) -> None:
    """Whatever a key is made of, path, query and signature are the same, letter by letter."""
    key = "/".join(names)
    if any(part in (".", "..") for part in key.split("/")):
        return
    urls = urls_of(number)
    with still_clock():
        assert urls.sign([f"bucket/{key}"], 900).urls == (by_botocore(urls, "bucket", key),)


@pytest.mark.parametrize("number", range(len(STORES)))
def test_buckets_and_odd_names_are_signed_each_for_itself(number: int) -> None:
    """The order is that of the paths, a path may be there twice, and a bucket with dots is addressed as it must be."""
    paths = [f"{bucket}/a folder/{name}" for name in ODD_NAMES for bucket in ("one", "bucket.with.dots")]
    paths.append(paths[0])
    urls = urls_of(number)
    with still_clock():
        signed = urls.sign(paths, 900)
        assert signed.urls == tuple(by_botocore(urls, *path.split("/", 1)) for path in paths)
    assert len({url.partition("?")[0] for url in signed.urls}) == len(paths) - 1


def test_another_kind_of_signature_is_left_to_botocore() -> None:
    """Where a service's options say so, the library signs each URL itself."""
    urls = S3Urls({**STORES[0], "config_kwargs": {"signature_version": "s3"}})
    (url,) = urls.sign(["bucket/a b"], 900).urls
    assert url.startswith("http://127.0.0.1:9000/bucket/a%20b?AWSAccessKeyId=AK&Signature=")


def test_the_endpoint_of_readers_can_be_another_one() -> None:
    """The service's own way to the store may lead through a network that readers do not see."""
    store = FsspecStore({"s3": {**STORES[0], "signed_endpoint_url": "https://data.example.com"}})
    (url,) = store.sign(["s3://bucket/x"], 60).urls
    assert url.startswith("https://data.example.com/bucket/x?")
    assert "X-Amz-Expires=60&" in url


@pytest.mark.parametrize(
    "location", ["s3://bucket/a/../b", "s3://bucket/./b", "s3://bucket/..", "s3://bucket", "s3://bucket/"]
)
def test_a_path_that_clients_change_is_not_signed(location: str) -> None:
    """They would ask for another one than was signed; and a bucket is no object."""
    with pytest.raises(NotSignable):
        FsspecStore({"s3": STORES[0]}).sign([location], 60)


def test_other_stores_sign_nothing() -> None:
    """The error names the first such location, also among others that could be signed."""
    store = FsspecStore({"s3": STORES[0]})
    assert isinstance(store, SigningStore)
    for locations in (["file:///data/x"], ["s3://bucket/x", "memory://y"]):
        with pytest.raises(NotSignable) as caught:
            store.sign(locations, 60)
        assert caught.value.details == {"location": locations[-1]}
    with pytest.raises(InvalidRequest):
        store.sign(["x"], 60)
    assert store.sign([], 60).urls == ()


@pytest.mark.parametrize("options", [{"anon": True}, {}])
def test_without_credentials_nothing_is_signed(options: dict[str, Any]) -> None:
    """A URL without a signature would be of no use to anybody."""
    with pytest.raises(NotSignable, match="credentials"):
        FsspecStore({"s3": {**options, "endpoint_url": "http://127.0.0.1:9000"}}).sign(["s3://bucket/x"], 60)


def test_what_is_signed_stays_out_of_texts() -> None:
    """A log that shows the value shows no URL."""
    signed = FsspecStore({"s3": STORES[0]}).sign(["s3://bucket/x"], 60)
    assert "bucket" not in repr(signed)
    assert "Signature" not in repr(signed)


class Rotating(AioSession):  # type: ignore[misc]  # botocore is untyped
    """A session whose credentials are new each time that they are about to end."""

    def __init__(self, lifetime_s: float) -> None:
        super().__init__()
        self.lifetime_s = lifetime_s
        self.credentials: Any = None
        self.made = 0
        self.ends = dt.datetime.now(dt.UTC)

    async def get_credentials(self) -> AioRefreshableCredentials:
        """Credentials with a session token."""
        if self.credentials is None:
            first = await self._fetch()
            self.credentials = AioRefreshableCredentials.create_from_metadata(
                first, refresh_using=self._fetch, method="test"
            )
        return self.credentials

    def about_to_end(self) -> None:
        """As if their time were nearly over."""
        self.credentials._expiry_time = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)

    async def _fetch(self) -> dict[str, str]:
        self.made += 1
        self.ends = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=self.lifetime_s)
        keys = {"access_key": f"AK{self.made}", "secret_key": f"SK{self.made}", "token": f"token {self.made}"}
        return {**keys, "expiry_time": self.ends.isoformat()}


@pytest.mark.slow
def test_credentials_that_end_end_their_urls_and_are_renewed() -> None:
    """A URL dies with the session that signed it, so its time is the shorter one; the next one has a new session."""
    session = Rotating(lifetime_s=7_200)
    store = FsspecStore({"s3": {"endpoint_url": "http://127.0.0.1:9000", "session": session}})
    assert store.sign(["s3://bucket/x"], 60).expires_ms < int(session.ends.timestamp() * 1000)
    for made in (1, 2, 3):
        signed = store.sign(["s3://bucket/x", "s3://bucket/y"], 36_000)
        assert session.made == made
        assert signed.expires_ms == int(session.ends.timestamp() * 1000)
        assert all(f"X-Amz-Credential=AK{made}%2F" in url for url in signed.urls)
        assert all(f"X-Amz-Security-Token=token%20{made}&" in url for url in signed.urls)
        session.about_to_end()


def test_credentials_that_change_all_the_time_still_sign() -> None:
    """They end so soon that botocore asks for new ones with each URL; each is signed by one that was had."""
    session = Rotating(lifetime_s=60)
    store = FsspecStore({"s3": {"endpoint_url": "http://127.0.0.1:9000", "session": session}})
    signed = store.sign(["s3://bucket/x", "s3://bucket/y"], 3_600)
    for url in signed.urls:
        made = int(url.partition("X-Amz-Credential=AK")[2].partition("%2F")[0])
        assert 1 <= made <= session.made
        assert f"token%20{made}&" in url
    assert signed.expires_ms <= int(session.ends.timestamp() * 1000)


def fetched(url: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """Status and body of a request with nothing but this URL."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=30) as answer:  # noqa: S310  # loopback
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def check_urls(store: FsspecStore, root: str) -> str:
    """One URL reads one object, whole or a part; changed in any way it reads nothing. Gives such a URL back."""
    locations = [store.put(f"{root}/{name}", name.encode()).location for name in [*ODD_NAMES, "other"]]
    signed = store.sign(locations, 600)
    for name, url in zip([*ODD_NAMES, "other"], signed.urls, strict=True):
        data = name.encode()
        assert fetched(url) == (200, data), url
        assert fetched(url, Range="bytes=1-2") == (206, data[1:3])
        assert fetched(url, Range=f"bytes={len(data)}-")[0] == 416
    url = signed.urls[-1]
    bare = url.partition("?")[0]
    (of_missing,) = store.sign([f"{root}/missing"], 600).urls
    assert fetched(of_missing)[0] == 404
    assert fetched(bare)[0] == 403
    for changed in (
        url.replace("/other?", "/othes?"),
        url.replace("X-Amz-Expires=600", "X-Amz-Expires=6000"),
        f"{url}&versionId=x",
        url[:-1] + ("0" if url[-1] != "0" else "1"),
        of_missing.replace("/missing?", "/other?"),
    ):
        assert fetched(changed)[0] == 403, changed
    for method in ("PUT", "DELETE", "HEAD"):
        assert fetched(url, method=method)[0] == 403, method
    assert fetched(url) == (200, b"other")
    return url


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[SignatureProxy]:
    """A server that wants signatures."""
    with signature_proxy(s3.endpoint_url, Credentials("test", "test")) as running:
        yield running


@pytest.mark.s3
def test_a_url_reads_its_object_and_nothing_else(s3: S3Server, proxy: SignatureProxy) -> None:
    """With ranges, for odd names; not with another key, lifetime, query, method or signature; and not too late."""
    store = FsspecStore({"s3": {**s3.storage_options, "signed_endpoint_url": proxy.url}})
    url = check_urls(store, f"{s3.bucket('signed')}/a folder")
    proxy.clock_ahead_s = 599 - 60
    assert fetched(url)[0] == 200
    proxy.clock_ahead_s = 601
    assert fetched(url)[0] == 403


@pytest.mark.s3
@pytest.mark.soak
def test_a_real_server_takes_the_urls_and_ends_them(real_s3: Any) -> None:
    """The same, judged by a server that people run, which refuses whoever shows no signature."""
    store = FsspecStore({"s3": real_s3.storage_options})
    root = f"{real_s3.bucket('signed')}/a folder"
    check_urls(store, root)
    (url,) = store.sign([f"{root}/other"], 2).urls
    assert fetched(url)[0] == 200
    give_up = time.monotonic() + 300
    while fetched(url)[0] == 200 and time.monotonic() < give_up:
        time.sleep(0.2)
    assert fetched(url)[0] == 403
