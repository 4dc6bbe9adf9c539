"""Who may ask for what: keys and tokens, roles, and the gate that every request comes through.

docs/access.md tells users; docs/decisions/0039-access.md has the reasons.
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
