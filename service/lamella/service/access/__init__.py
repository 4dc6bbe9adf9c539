"""Who may ask for what: keys and tokens, roles, and the gate that every request comes through.

docs/access.md tells users; docs/decisions/0039-access.md has the reasons.
"""

from lamella.service.access.authenticator import Authenticator
from lamella.service.access.permissions import (
    ANYBODY,
    ASKED,
    NOBODY,
    Permission,
    check,
    decided,
    on_namespace,
    on_server,
    on_table,
    require,
    require_sight,
)
from lamella.service.access.principal import Principal, actor_of, is_known, principal_of

__all__ = [
    "ANYBODY",
    "ASKED",
    "NOBODY",
    "Authenticator",
    "Permission",
    "Principal",
    "actor_of",
    "check",
    "decided",
    "is_known",
    "on_namespace",
    "on_server",
    "on_table",
    "principal_of",
    "require",
    "require_sight",
]
