"""Delta Sharing profiles: the file with which a recipient's tools find the service and authenticate."""

from __future__ import annotations

import datetime as dt
import json
from urllib.parse import urlsplit

import click

from lamella.snapshot.wire import NewKey

share_profile_option = click.option(
    "--share-profile",
    "service_url",
    metavar="URL",
    callback=lambda _context, _parameter, url: _checked(url),
    help="Write a Delta Sharing profile that contains the key, for recipients who reach the service at this URL.",
)


def profile_text(service_url: str, made: NewKey) -> str:
    """Return the profile of a recipient with this key."""
    profile = {
        "shareCredentialsVersion": 1,
        "endpoint": f"{service_url.rstrip('/')}/delta-sharing",
        "bearerToken": made.key,
    }
    if made.info.expires_ms is not None:
        ends = dt.datetime.fromtimestamp(made.info.expires_ms / 1000, dt.UTC)
        profile["expirationTime"] = ends.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return json.dumps(profile, indent=2)


def _checked(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise click.BadParameter(f"{url} is not the URL of a service, such as https://lake.example.com")
    return url
