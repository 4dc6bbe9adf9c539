"""Authentication and authorization: API keys, tokens, roles, and the check that every request passes.

docs/access.md is for users; docs/decisions/0039-access.md has the reasons.
"""

from lamella.service.access.authenticator import Authenticator
from lamella.service.access.permissions import check, check_decided, check_permission, decided, require, require_sight
from lamella.service.access.principal import Principal, actor_of, is_known, principal_of

__all__ = [
    "Authenticator",
    "Principal",
    "actor_of",
    "check",
    "check_decided",
    "check_permission",
    "decided",
    "is_known",
    "principal_of",
    "require",
    "require_sight",
]
