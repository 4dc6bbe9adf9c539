"""Keys, tokens and grants: the calls. Their methods are in :mod:`lamella.client.http.aio.access`."""

from __future__ import annotations

from lamella.client.http.call import Call, make_call
from lamella.snapshot.wire import (
    CreateKey,
    GrantInfo,
    GrantList,
    GrantRequest,
    KeyInfo,
    KeyList,
    NewKey,
    RotateKey,
    WhoAmI,
    operations,
)
from lamella.snapshot.wire.operation import Nothing


def whoami_call() -> Call[WhoAmI]:
    """The caller's identity, as the service sees it."""
    return make_call(operations.access.WHOAMI)


def keys_call() -> Call[KeyList]:
    """The keys that the caller may see."""
    return make_call(operations.access.LIST_KEYS)


def key_call(name: str) -> Call[KeyInfo]:
    """One key."""
    return make_call(operations.access.GET_KEY, key=name)


def create_key_call(request: CreateKey) -> Call[NewKey]:
    """Make a key."""
    return make_call(
        operations.access.CREATE_KEY,
        body=request,
        once=f"if the key {request.name!r} was created, its text is lost: revoke the key and create it again",
    )


def rotate_key_call(name: str, request: RotateKey) -> Call[NewKey]:
    """Rotate a key: give it a new text."""
    return make_call(
        operations.access.ROTATE_KEY,
        key=name,
        body=request,
        # A second rotation would end the text that is in use: the service keeps only the previous text.
        once=f"if the key {name!r} was rotated, its new text is lost, and the old text stops working after the "
        "overlap: create another key for its users, and revoke this one",
    )


def revoke_key_call(name: str) -> Call[Nothing]:
    """Revoke a key."""
    return make_call(operations.access.REVOKE_KEY, key=name)


def grants_call(principal: str | None) -> Call[GrantList]:
    """The grants that the caller may see."""
    return make_call(operations.access.LIST_GRANTS, query={"principal": principal})


def give_grant_call(request: GrantRequest) -> Call[GrantInfo]:
    """Grant a role."""
    return make_call(operations.access.GIVE_GRANT, body=request)


def take_grant_call(principal: str, namespace: str | None, table: str | None) -> Call[Nothing]:
    """Revoke whatever role is granted."""
    request = GrantRequest(principal=principal, role="read", namespace=namespace, table=table)
    return make_call(operations.access.TAKE_GRANT, body=request)
