"""``lamella keys``, ``lamella whoami``, ``lamella grants``: API keys and their grants."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import cast

import click
from click.shell_completion import CompletionItem

from lamella.client.cli.arguments import seconds_of
from lamella.client.cli.connection import Connect, Session, connect, service_option, target_of, with_session
from lamella.client.cli.output import print_table, time_text
from lamella.client.cli.rows import DataWriter, RowFormat, form_of, output_options
from lamella.client.sharing import profile_text, share_profile_option
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.tokens import RANDOM_BYTES, key_sha256, key_text
from lamella.snapshot.wire import ROLES, Grant, GrantList, KeyInfo, KeyList, NewKey, Role
from lamella.snapshot.wire.access import parse_scope, scope_text

#: Timeout in seconds for completing names in a shell.
_COMPLETION_S = 2.0


def grant_scope(text: str, option: str) -> tuple[str | None, str | None]:
    """Return the namespace and table of a grant's scope; see :func:`~lamella.snapshot.wire.access.parse_scope`. Raises
    BadParameter."""
    try:
        return parse_scope(text)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, param_hint=option) from error


def grants_of(texts: Iterable[str]) -> tuple[Grant, ...]:
    """Parse grants written as ``ROLE:PLACE``; raises BadParameter."""
    found = []
    for text in texts:
        role, colon, place = text.partition(":")
        if not colon or role not in ROLES:
            raise click.BadParameter(
                f"{text!r} is not ROLE:PLACE, where ROLE is {', '.join(ROLES)}", param_hint="--grant"
            )
        namespace, table = grant_scope(place, "--grant")
        found.append(Grant(role=role, namespace=namespace, table=table))
    return tuple(found)


def complete_role(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the role in ``ROLE:PLACE``; nothing once a colon is typed."""
    return [CompletionItem(f"{role}:") for role in ROLES if role.startswith(incomplete)]


def complete_key(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of keys; nothing when the service does not list them."""
    try:
        given = (ctx.params.get(name) for name in ("url", "profile", "token", "token_file"))
        target = target_of(service_option(ctx, *given), _COMPLETION_S)
        make: Connect = connect if ctx.obj is None else ctx.obj
        with make(target) as lake:
            names = [key.name for key in lake.keys.list()]
    except (LamellaError, click.UsageError, KeyError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def key_argument(function: Callable[..., None]) -> Callable[..., None]:
    """Add the argument ``NAME``, the name of an existing key."""
    return click.argument("name", shell_complete=complete_key)(function)


@click.group()
def keys() -> None:
    """API keys, with which programs authenticate to the service."""


@keys.command("new")
@output_options("The same as -o json: both, and nothing else.")
def new_key(output: RowFormat | None, as_json: bool) -> None:
    """Make a service's first key. Runs locally, without a service.

    Give the service the key's SHA-256 (LAMELLA_ROOT_KEY_SHA256), and keep the key itself where you keep passwords. It
    may do everything; make keys for other people with it.
    """
    form = form_of(output, as_json=as_json)
    text = key_text(secrets.token_bytes(RANDOM_BYTES))
    sha256 = key_sha256(text)
    if form != "table":
        DataWriter(form).write({"key": text, "sha256": sha256})
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
@click.option("--expires", metavar="TIME", help="How long it is valid: 12h, 90d. Default: until it is revoked.")
@click.option(
    "--requests-per-s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="Request rate limit of the key, in place of the service's own.",
)
@share_profile_option
@with_session()
def create_key(
    session: Session,
    name: str,
    grants: tuple[str, ...],
    expires: str | None,
    requests_per_s: float | None,
    service_url: str | None,
) -> None:
    """Create a key. Its text is written to stdout once and cannot be shown again."""
    made = session.lake.keys.create(
        name,
        grants_of(grants),
        expires_s=seconds_of(expires, "--expires"),
        requests_per_s=requests_per_s,
    )
    _show_key_text(session, made, f"key {name} is created; its text, which cannot be shown again:", service_url)


@keys.command("list")
@with_session()
def list_keys(session: Session) -> None:
    """List the keys that you created, or all keys if you are admin of the whole service."""
    found = session.lake.keys.list()
    if session.as_data:
        session.emit(KeyList(keys=found))
        return
    print_table(
        ["key", "may", "made by", "expires", "last used"],
        [(key.name, _may(key), key.created_by, _time(key.expires_ms), _time(key.used_ms)) for key in found],
    )


@keys.command("show")
@key_argument
@with_session()
def show_key(session: Session, name: str) -> None:
    """Show a key: its grants, when it expires, when it was last used. Its text is not stored."""
    key = session.lake.keys.get(name)
    if session.as_data:
        session.emit(key)
        return
    rate = "the service's limit" if key.requests_per_s is None else f"{key.requests_per_s:g}"
    print_table(
        ["", ""],
        [
            ("key", key.name),
            ("may", _may(key) or "nothing"),
            ("made", f"{time_text(key.created_ms)} by {key.created_by}"),
            ("expires", _time(key.expires_ms)),
            ("rotated", _time(key.rotated_ms)),
            ("old text valid until", _time(key.old_until_ms)),
            ("last used", _time(key.used_ms)),
            ("requests per second", rate),
        ],
        headings=False,
    )


@keys.command("rotate")
@key_argument
@click.option("--overlap", metavar="TIME", default="24h", show_default=True, help="How long the old text stays valid.")
@click.option("--expires", metavar="TIME", help="How long the new text is valid. Default: as long as the old text.")
@share_profile_option
@with_session()
def rotate_key(session: Session, name: str, overlap: str, expires: str | None, service_url: str | None) -> None:
    """Give a key a new text, written to stdout once. Its grants stay the same."""
    made = session.lake.keys.rotate(
        name, overlap_s=seconds_of(overlap, "--overlap") or 0, expires_s=seconds_of(expires, "--expires")
    )
    until = (
        "" if made.info.old_until_ms is None else f" (the old one is valid until {time_text(made.info.old_until_ms)})"
    )
    _show_key_text(session, made, f"key {name} has a new text{until}:", service_url)


@keys.command("revoke")
@key_argument
@with_session()
def revoke_key(session: Session, name: str) -> None:
    """Revoke a key and remove all its grants."""
    session.lake.keys.revoke(name)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"key {name} is revoked")


@click.command()
@with_session()
def whoami(session: Session) -> None:
    """Show who you are to the service and what you may do."""
    found = session.lake.whoami()
    if session.as_data:
        session.emit(found)
        return
    print_table(
        ["", ""],
        [
            ("you are", found.principal),
            ("known by", _PRINCIPAL_KINDS.get(found.kind, found.kind)),
            ("groups", ", ".join(found.groups) or "none"),
            ("until", _time(found.expires_ms)),
        ],
        headings=False,
    )
    print_table(["role", "on"], [(grant.role, scope_text(grant)) for grant in found.grants], title="you may")


_PRINCIPAL_KINDS = {
    "open": "nothing: the service does not authenticate",
    "root": "the key of LAMELLA_ROOT_KEY_SHA256",
    "key": "an API key",
    "token": "a token of the issuer",
}


def _show_key_text(session: Session, made: NewKey, about: str, service_url: str | None) -> None:
    """Write the text alone (or the profile that contains it) to stdout, so that it can be redirected to a file."""
    if service_url is not None:
        click.echo(about, err=True)
        click.echo(profile_text(service_url, made))
        return
    if session.as_data:
        session.emit(made)
        return
    click.echo(about, err=True)
    click.echo(made.key)


def _may(key: KeyInfo) -> str:
    return ", ".join(f"{grant.role}:{scope_text(grant)}" for grant in key.grants)


def _time(at_ms: int | None) -> str:
    return "never" if at_ms is None else time_text(at_ms)


_KEY = "key:"
_PRINCIPAL_PREFIXES = (_KEY, "user:", "group:")


def complete_principal(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete kinds of principals, and names of keys when the service lists them."""
    if not incomplete.startswith(_KEY):
        return [CompletionItem(kind) for kind in _PRINCIPAL_PREFIXES if kind.startswith(incomplete)]
    found = complete_key(ctx, parameter, incomplete.removeprefix(_KEY))
    return [CompletionItem(_KEY + str(item.value)) for item in found]


@click.group()
def grants() -> None:
    """Show and change grants. A PRINCIPAL is key:NAME, user:SUBJECT or group:NAME; a PLACE is *, NAMESPACE.* or
    NAMESPACE.TABLE."""


@grants.command("list")
@click.option(
    "--principal", metavar="PRINCIPAL", shell_complete=complete_principal, help="Only grants to this principal."
)
@with_session()
def list_grants(session: Session, principal: str | None) -> None:
    """List your own grants, and all grants on what you administer."""
    found = session.lake.grants.list(principal)
    if session.as_data:
        session.emit(GrantList(grants=found))
        return
    print_table(
        ["who", "role", "on", "given", "by"],
        [(each.principal, each.role, scope_text(each), time_text(each.created_ms), each.created_by) for each in found],
    )


@grants.command("give")
@click.argument("principal", shell_complete=complete_principal)
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@click.argument("place")
@with_session()
def give_grant(session: Session, principal: str, role: str, place: str) -> None:
    """Grant a role (read, write, maintain, admin); it replaces the principal's role on the same place."""
    namespace, table = grant_scope(place, "PLACE")
    given = session.lake.grants.give(principal, cast("Role", role), namespace, table)
    if session.as_data:
        session.emit(given)
    else:
        click.echo(f"{given.principal} has the role {given.role} on {scope_text(given)}")


@grants.command("take")
@click.argument("principal", shell_complete=complete_principal)
@click.argument("place")
@with_session()
def take_grant(session: Session, principal: str, place: str) -> None:
    """Revoke the role on one place. Roles granted on other places stay."""
    namespace, table = grant_scope(place, "PLACE")
    session.lake.grants.take(principal, namespace, table)
    if session.as_data:
        session.emit({})
    else:
        click.echo(f"{principal} has no role of its own on {place} any more")
