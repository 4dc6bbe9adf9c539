"""Keys, grants, and who the caller is."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    AlreadyExists,
    BodyTooLarge,
    InvalidRequest,
    KeyNotFound,
    NamespaceNotFound,
    PermissionDenied,
    TableNotFound,
    Unavailable,
)
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
)
from lamella.snapshot.wire.operation import AUTHENTICATED, Nothing, Operation, Parameter

_KEYS: Final = "/v1/keys"
_KEY: Final = "/v1/keys/{key}"

_GRANTS: Final = "/v1/grants"
_TAG: Final = "Access"

_OF_A_GRANT: Final = (InvalidRequest, BodyTooLarge, PermissionDenied, NamespaceNotFound, TableNotFound, Unavailable)

WHOAMI: Final = Operation(
    name="whoami",
    method="GET",
    path="/v1/whoami",
    permission=AUTHENTICATED,
    summary="Get the caller's identity",
    tag=_TAG,
    answer_type=WhoAmI,
)

LIST_KEYS: Final = Operation(
    name="list_keys",
    method="GET",
    path=_KEYS,
    permission=AUTHENTICATED,
    summary="List API keys",
    tag=_TAG,
    description="Lists the keys that the caller created; all keys for an admin of the whole service.",
    answer_type=KeyList,
    errors=(Unavailable,),
)

CREATE_KEY: Final = Operation(
    name="create_key",
    method="POST",
    path=_KEYS,
    permission=AUTHENTICATED,
    summary="Create an API key",
    tag=_TAG,
    description="The text of the key is only in this answer. The caller must be `admin` of every scope that the key "
    "gets a grant on; for a key without grants, of the whole service.",
    request_type=CreateKey,
    answer_type=NewKey,
    status=201,
    errors=(*_OF_A_GRANT, AlreadyExists),
    resend="never",
)

GET_KEY: Final = Operation(
    name="get_key",
    method="GET",
    path=_KEY,
    permission=AUTHENTICATED,
    summary="Get an API key",
    tag=_TAG,
    answer_type=KeyInfo,
    errors=(KeyNotFound, Unavailable),
)

ROTATE_KEY: Final = Operation(
    name="rotate_key",
    method="POST",
    path=_KEY + "/rotate",
    permission=AUTHENTICATED,
    summary="Rotate an API key",
    tag=_TAG,
    description="The key gets a new text. The old text stays valid for `overlap_s` seconds, so that users can switch "
    "one by one.",
    request_type=RotateKey,
    answer_type=NewKey,
    errors=(*_OF_A_GRANT, KeyNotFound),
    resend="never",
)

REVOKE_KEY: Final = Operation(
    name="revoke_key",
    method="DELETE",
    path=_KEY,
    permission=AUTHENTICATED,
    summary="Revoke an API key",
    tag=_TAG,
    description="Its grants are removed too. Other replicas apply it within `auth_cache_s`.",
    answer_type=Nothing,
    status=204,
    errors=(KeyNotFound, Unavailable),
    resend="reported",
)

LIST_GRANTS: Final = Operation(
    name="list_grants",
    method="GET",
    path=_GRANTS,
    permission=AUTHENTICATED,
    summary="List grants",
    tag=_TAG,
    description="Lists the caller's grants, and all grants on what the caller is `admin` of.",
    answer_type=GrantList,
    own_parameters=(Parameter(name="principal", description="Only grants to this principal, such as `user:ann`."),),
    errors=(Unavailable,),
)

GIVE_GRANT: Final = Operation(
    name="give_grant",
    method="PUT",
    path=_GRANTS,
    permission=AUTHENTICATED,
    summary="Grant a role",
    tag=_TAG,
    description="Replaces another role of the principal on the same scope. The caller must be `admin` of the scope.",
    request_type=GrantRequest,
    answer_type=GrantInfo,
    errors=(*_OF_A_GRANT, KeyNotFound),
    resend="reported",
)

TAKE_GRANT: Final = Operation(
    name="take_grant",
    method="POST",
    path=_GRANTS + "/take",
    permission=AUTHENTICATED,
    summary="Revoke a role",
    tag=_TAG,
    description="Revokes whatever role the principal has on the scope; no error if it has none.",
    request_type=GrantRequest,
    answer_type=Nothing,
    status=204,
    errors=_OF_A_GRANT,
    resend="reported",
)
