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
    summary="Who the service takes this request to be from",
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
    description="Those that the caller made; all of them for an admin of everything.",
    answer_type=KeyList,
    errors=(Unavailable,),
)

CREATE_KEY: Final = Operation(
    name="create_key",
    method="POST",
    path=_KEYS,
    permission=AUTHENTICATED,
    summary="Make an API key",
    tag=_TAG,
    description="Its text is in this answer and nowhere else. The caller must be `admin` of every place "
    "that the key is granted something on; of everything, for a key without grants.",
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
    summary="Look at an API key",
    tag=_TAG,
    answer_type=KeyInfo,
    errors=(KeyNotFound, Unavailable),
)

ROTATE_KEY: Final = Operation(
    name="rotate_key",
    method="POST",
    path=_KEY + "/rotate",
    permission=AUTHENTICATED,
    summary="Give an API key a new text",
    tag=_TAG,
    description="The old one holds for `overlap_s` longer, so that users can be changed over one by one.",
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
    description="With all that was granted to it. Other replicas notice within `auth_cache_s`.",
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
    description="The caller's own, and those on what the caller is `admin` of.",
    answer_type=GrantList,
    own_parameters=(Parameter(name="principal", description="Only those to this one: `user:ann`."),),
    errors=(Unavailable,),
)

GIVE_GRANT: Final = Operation(
    name="give_grant",
    method="PUT",
    path=_GRANTS,
    permission=AUTHENTICATED,
    summary="Give a role",
    tag=_TAG,
    description="In place of another role on the same. The caller must be `admin` of the place.",
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
    summary="Take a role away",
    tag=_TAG,
    description="Whatever role it is. One that was not given is taken away already.",
    request_type=GrantRequest,
    answer_type=Nothing,
    status=204,
    errors=_OF_A_GRANT,
    resend="reported",
)
