"""``lamella keys`` and ``lamella whoami``: API keys, and who one is."""

from __future__ import annotations

import secrets

import click
import msgspec

from lamella.client.cli.connection import Session, connected
from lamella.client.cli.job_options import seconds_of
from lamella.client.cli.output import print_table, time_text
from lamella.client.cli.place import complete_role, grants_of, key_argument
from lamella.client.cli.share_profile import profile_text, share_profile_option
from lamella.snapshot.api_key import RANDOM_BYTES, key_sha256, key_text
from lamella.snapshot.wire import KeyInfo, KeyList, NewKey
from lamella.snapshot.wire.place import place_text


@click.group()
def keys() -> None:
    """API keys: what programs show the service."""


@keys.command("new")
@click.option("--json", "as_json", is_flag=True, help="Write them as JSON, and nothing else.")
def new(as_json: bool) -> None:
    """Make a service's first key, here and without a service.

    The service is told its SHA-256 (LAMELLA_ROOT_KEY_SHA256), and nobody but you its text. It may do everything: make
    keys for others with it, and keep it where passwords are kept.
    """
    text = key_text(secrets.token_bytes(RANDOM_BYTES))
    sha256 = key_sha256(text)
    if as_json:
        click.echo(msgspec.json.encode({"key": text, "sha256": sha256}).decode())
    else:
        click.echo(f"key: {text}\nLAMELLA_ROOT_KEY_SHA256={sha256}")


@keys.command("create")
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    metavar="ROLE:PLACE",
    multiple=True,
    shell_complete=complete_role,
    help="What it may do, and where: read:sales.*, write:sales.orders, admin:*; may be repeated.",
)
@click.option("--expires", metavar="TIME", help="How long it holds: 12h, 90d. Default: until it is revoked.")
@click.option(
    "--requests-per-s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="How often it may be used, in place of the service's own limit.",
)
@share_profile_option
@connected()
def create(
    session: Session,
    name: str,
    grants: tuple[str, ...],
    expires: str | None,
    requests_per_s: float | None,
    service_url: str | None,
) -> None:
    """Make a key. Its text is written to stdout, this once: nobody can ask for it again."""
    made = session.lake.keys.create(
        name,
        grants_of(grants),
        expires_s=seconds_of(expires, "--expires"),
        requests_per_s=requests_per_s,
    )
    _tell(session, made, f"key {name} is made; its text, which nobody can ask for again:", service_url)


@keys.command("list")
@connected()
def list_(session: Session) -> None:
    """List the keys that you made; all of them if you are admin of everything."""
    found = session.lake.keys.list()
    if session.as_json:
        session.emit(KeyList(keys=found))
        return
    print_table(
        ["key", "may", "made by", "expires", "last used"],
        [(key.name, _may(key), key.created_by, _time(key.expires_ms), _time(key.used_ms)) for key in found],
    )


@keys.command("show")
@key_argument
@connected()
def show(session: Session, name: str) -> None:
    """Show a key: what it may do, until when, when it was used. Its text is nowhere."""
    key = session.lake.keys.get(name)
    if session.as_json:
        session.emit(key)
        return
    rate = "as the service says" if key.requests_per_s is None else f"{key.requests_per_s:g}"
    print_table(
        ["", ""],
        [
            ("key", key.name),
            ("may", _may(key) or "nothing"),
            ("made", f"{time_text(key.created_ms)} by {key.created_by}"),
            ("expires", _time(key.expires_ms)),
            ("rotated", _time(key.rotated_ms)),
            ("old text holds until", _time(key.old_until_ms)),
            ("last used", _time(key.used_ms)),
            ("requests in a second", rate),
        ],
        headings=False,
    )


@keys.command("rotate")
@key_argument
@click.option(
    "--overlap", metavar="TIME", default="24h", show_default=True, help="How long the old text holds beside the new."
)
@click.option("--expires", metavar="TIME", help="How long the new text holds. Default: as long as the key did before.")
@share_profile_option
@connected()
def rotate(session: Session, name: str, overlap: str, expires: str | None, service_url: str | None) -> None:
    """Give a key a new text, which is written to stdout, this once. What it may do stays."""
    made = session.lake.keys.rotate(
        name, overlap_s=seconds_of(overlap, "--overlap") or 0, expires_s=seconds_of(expires, "--expires")
    )
    until = "" if made.info.old_until_ms is None else f" (the old one holds until {time_text(made.info.old_until_ms)})"
    _tell(session, made, f"key {name} has a new text{until}:", service_url)


@keys.command("revoke")
@key_argument
@connected()
def revoke(session: Session, name: str) -> None:
    """End a key, and take away all that was granted to it."""
    session.lake.keys.revoke(name)
    if session.as_json:
        session.emit({})
    else:
        click.echo(f"key {name} is gone")


@click.command()
@connected()
def whoami(session: Session) -> None:
    """Show who the service takes you to be, and what you may do."""
    found = session.lake.whoami()
    if session.as_json:
        session.emit(found)
        return
    print_table(
        ["", ""],
        [
            ("you are", found.principal),
            ("known by", _KINDS.get(found.kind, found.kind)),
            ("groups", ", ".join(found.groups) or "none"),
            ("until", _time(found.expires_ms)),
        ],
        headings=False,
    )
    print_table(["role", "on"], [(grant.role, place_text(grant)) for grant in found.grants], title="you may")


_KINDS = {
    "open": "nothing: the service asks nobody who they are",
    "root": "the key of LAMELLA_ROOT_KEY_SHA256",
    "key": "an API key",
    "token": "a token of the issuer",
}


def _tell(session: Session, made: NewKey, about: str, service_url: str | None) -> None:
    """The text alone goes to stdout, or the profile that it is in, so that it can be sent into a file."""
    if service_url is not None:
        click.echo(about, err=True)
        click.echo(profile_text(service_url, made))
        return
    if session.as_json:
        session.emit(made)
        return
    click.echo(about, err=True)
    click.echo(made.key)


def _may(key: KeyInfo) -> str:
    return ", ".join(f"{grant.role}:{place_text(grant)}" for grant in key.grants)


def _time(at_ms: int | None) -> str:
    return "never" if at_ms is None else time_text(at_ms)
