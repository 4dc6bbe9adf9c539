"""Session policies in moto, which stores them and does not look at them: an action that the policy of an assumed role's
session does not allow is denied, as on S3."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moto.iam.access_control import AssumedRoleAccessKey, IAMPolicy, PermissionResult, S3IAMRequest
from moto.sts.models import sts_backends

_CHECK = S3IAMRequest.check_action_permitted


def count_session_policies() -> None:
    """Have moto deny what the policy of a session does not allow."""
    setattr(S3IAMRequest, "check_action_permitted", _checked)  # noqa: B010  # as mypy wants it


def _checked(request: Any, resource: str) -> None:
    _CHECK(request, resource)
    if isinstance(request._access_key, AssumedRoleAccessKey):
        policy = json.loads(_policy(request._access_key))
        prefix = parse_qs(urlsplit(request._path).query).get("prefix", [""])[0]
        policy["Statement"] = [_unconditional(each) for each in policy["Statement"] if _holds(each, prefix)]
        found = IAMPolicy(json.dumps(policy)).is_action_permitted(request._action, resource)
        if found is not PermissionResult.PERMITTED:
            request._raise_access_denied()


def _policy(key: Any) -> str:
    for role in sts_backends[key.account_id][key.partition].assumed_roles:
        if role.access_key_id == key._access_key_id:
            return str(role.policy)
    raise AssertionError(key._access_key_id)


def _holds(statement: dict[str, Any], prefix: str) -> bool:
    condition = statement.get("Condition")
    if condition is None:
        return True
    ((operator, keys),) = condition.items()
    assert (operator, list(keys)) == ("StringLike", ["s3:prefix"])
    return any(fnmatchcase(prefix, each) for each in keys["s3:prefix"])


def _unconditional(statement: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in statement.items() if name != "Condition"}
