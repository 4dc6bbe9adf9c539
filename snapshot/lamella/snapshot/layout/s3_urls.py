"""Signed URLs of S3 objects: AWS Signature Version 4 in the query string.

botocore signs one URL for each bucket of a request; it knows the endpoint, the region, how the bucket is addressed, the
credentials and their session token. The others differ from it in the key alone, so their signatures are made here, in
a fraction of botocore's time. Whether that is right is seen each time: what is made here for the first URL must be
botocore's own signature, else botocore signs all of them.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs, quote

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from fsspec.asyn import sync

from lamella.snapshot.errors import NotSignable, StoreError
from lamella.snapshot.layout.store import SignedUrls

#: The key of the URL that botocore signs for us; every character of it stands in a URL as it is.
_SAMPLE: Final = "lamella-sample-key"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_URL: Final = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[^/?#]+))(?P<folder>/[^?#]*)"
    + _SAMPLE
    + r"\?(?P<query>[^#]*)&X-Amz-Signature=(?P<signature>[0-9a-f]{64})"
)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
#: Credentials may change between the sample and the look at them.
_TRIES: Final = 2
_FAILURES: Final = (OSError, BotoCoreError, ClientError, aiohttp.ClientError)


class S3Urls:
    """Signs for the store of scheme ``s3``. ``options`` are those of :class:`s3fs.S3FileSystem`.

    ``endpoint_url``: the endpoint as readers reach it, where it is another than the service's own.
    """

    def __init__(self, options: dict[str, Any], endpoint_url: str | None = None) -> None:
        given = {**options, **({} if endpoint_url is None else {"endpoint_url": endpoint_url})}
        config = {"signature_version": "s3v4", **given.get("config_kwargs", {})}
        if not given.get("endpoint_url") and not given.get("client_kwargs", {}).get("endpoint_url"):
            # botocore would take the endpoint of all regions, which may redirect, and a redirect is not signed.
            config["s3"] = {"addressing_style": "virtual", **config.get("s3", {})}
        self._files = s3fs.S3FileSystem(
            **{"skip_instance_cache": True, "use_listings_cache": False, **given, "config_kwargs": config}
        )

    def sign(self, paths: Sequence[str], expires_s: int) -> SignedUrls:
        """URLs that answer a GET of each of these ``bucket/key`` paths, in their order.

        Raises:
            NotSignable: there are no credentials, or a path is one that HTTP clients change.
            StoreError: the credentials cannot be had.
        """
        keys: dict[str, dict[str, None]] = {}
        for path in paths:
            bucket, _, key = path.partition("/")
            if not key or any(part in (".", "..") for part in key.split("/")):
                raise NotSignable(
                    f"no URL can be signed for s3://{path}: HTTP clients change it", location=f"s3://{path}"
                )
            keys.setdefault(bucket, {})[key] = None
        signed = {bucket: self._signed(bucket, list(of_bucket), expires_s) for bucket, of_bucket in keys.items()}
        urls = {f"{bucket}/{key}": url for bucket, (found, _) in signed.items() for key, url in found.items()}
        until = [ends_ms for _, ends_ms in signed.values()]
        return SignedUrls(urls=tuple(urls[path] for path in paths), expires_ms=min(until, default=_now_ms()))

    def _signed(self, bucket: str, keys: Sequence[str], expires_s: int) -> tuple[dict[str, str], int]:
        """The URLs of a bucket's keys, and until when they hold (Unix milliseconds)."""
        ends_ms = _now_ms() + expires_s * 1000
        try:
            for _ in range(_TRIES):
                (sample,), credentials = self._by_botocore(bucket, [_SAMPLE], expires_s)
                if "Signature=" not in sample:
                    raise _no_credentials(bucket)
                expiry = getattr(credentials, "_expiry_time", None)
                if expiry is not None:
                    ends_ms = min(ends_ms, int(expiry.timestamp() * 1000))
                frame = _Frame.of(sample, self._secret(credentials))
                if frame is not None:
                    return {key: frame.url(key) for key in keys}, ends_ms
            urls, _ = self._by_botocore(bucket, keys, expires_s)
        except NoCredentialsError as error:
            raise _no_credentials(bucket) from error
        except _FAILURES as error:
            raise StoreError(f"s3://{bucket}: no URL can be signed: {error}", location=f"s3://{bucket}") from error
        return dict(zip(keys, urls, strict=True)), ends_ms

    def _by_botocore(self, bucket: str, keys: Sequence[str], expires_s: int) -> tuple[list[str], Any]:
        """URLs as botocore signs them, and the credentials that it has."""

        async def sign() -> tuple[list[str], Any]:
            await self._files.set_session()
            client = await self._files.get_s3(bucket)
            urls = [
                await client.generate_presigned_url(
                    "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=expires_s
                )
                for key in keys
            ]
            return urls, client._request_signer._credentials  # botocore shows them nowhere else

        found: tuple[list[str], Any] = sync(self._files.loop, sign)
        return found

    def _secret(self, credentials: Any) -> str:
        frozen = sync(self._files.loop, credentials.get_frozen_credentials)
        return str(frozen.secret_key)


class _Frame:
    """What the URLs of one bucket that are signed at one time have in common."""

    def __init__(self, match: re.Match[str], secret: str) -> None:
        query = match["query"]
        self._origin, self._folder, self._query = match["origin"], match["folder"], query
        given = {name: values[0] for name, values in parse_qs(query).items()}
        _, day, region, service, terminator = given["X-Amz-Credential"].rsplit("/", 4)
        host = match["host"].removesuffix(_DEFAULT_PORTS[match["scheme"]])
        sorted_query = "&".join(sorted(query.split("&")))
        self._behind_path = f"\n{sorted_query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD".encode()
        scope = f"{day}/{region}/{service}/{terminator}"
        self._before_hash = f"{_ALGORITHM}\n{given['X-Amz-Date']}\n{scope}\n"
        key = f"AWS4{secret}".encode()
        for part in (day, region, service, terminator):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key

    @classmethod
    def of(cls, sample: str, secret: str) -> _Frame | None:
        """The frame of a URL that botocore signed; None when its signature cannot be made here."""
        match = _URL.fullmatch(sample)
        if match is None:
            return None
        try:
            frame = cls(match, secret)
        except (KeyError, ValueError):  # signed in another way
            return None
        return frame if frame._signature(match["folder"] + _SAMPLE) == match["signature"] else None

    def url(self, key: str) -> str:
        """The URL of one key."""
        path = self._folder + quote(key, safe="/~")
        return f"{self._origin}{path}?{self._query}&X-Amz-Signature={self._signature(path)}"

    def _signature(self, path: str) -> str:
        request = hashlib.sha256(b"GET\n" + path.encode("ascii") + self._behind_path).hexdigest()
        return hmac.digest(self._key, (self._before_hash + request).encode(), "sha256").hex()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _no_credentials(bucket: str) -> NotSignable:
    return NotSignable(f"s3://{bucket}: the service has no credentials to sign URLs with", location=f"s3://{bucket}")
