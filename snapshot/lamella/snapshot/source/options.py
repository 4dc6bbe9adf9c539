"""Converts the service's own storage options for the libraries that read other formats' logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: fsspec storage options by scheme.
StoreOptions = Mapping[str, Mapping[str, Any]]

#: Option names of s3fs (ours), delta-rs and pyiceberg.
_S3: Final = (
    ("key", "AWS_ACCESS_KEY_ID", "s3.access-key-id"),
    ("secret", "AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
    ("token", "AWS_SESSION_TOKEN", "s3.session-token"),
    ("endpoint_url", "AWS_ENDPOINT_URL", "s3.endpoint"),
    ("region_name", "AWS_REGION", "s3.region"),
)


def delta_options(scheme: str, options: StoreOptions) -> dict[str, str]:
    """Returns the storage options for ``DeltaTable``."""
    if scheme != "s3":
        return {}
    given = _s3(options)
    found = {theirs: given[ours] for ours, theirs, _ in _S3 if ours in given}
    if given.get("endpoint_url", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    if options.get("s3", {}).get("anon"):
        found["AWS_SKIP_SIGNATURE"] = "true"
    return found


def iceberg_properties(options: StoreOptions) -> dict[str, str]:
    """Returns the properties for pyiceberg's file access."""
    given = _s3(options)
    found = {theirs: given[ours] for ours, _, theirs in _S3 if ours in given}
    if options.get("s3", {}).get("anon"):
        found["s3.anonymous"] = "true"
    return found


def _s3(options: StoreOptions) -> dict[str, str]:
    s3 = options.get("s3", {})
    return {name: str(value) for name, value in {**s3.get("client_kwargs", {}), **s3}.items() if value is not None}
