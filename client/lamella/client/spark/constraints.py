"""CHECK constraints of tables, as Spark gives and takes them. Spark has them from version 4.1 on.

Spark itself refuses rows that violate a constraint (``CHECK_CONSTRAINT_VIOLATION``). The writer of blocks checks every
row again, in the time zone in which the constraint was added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Check

_CONSTRAINTS: Final = CONNECTOR + "catalog.constraints."
_OTHERS: Final = {"PrimaryKey": "PRIMARY KEY", "ForeignKey": "FOREIGN KEY", "Unique": "UNIQUE"}


def check_of(gateway: Gateway, constraint: Any) -> Check:
    """Return a constraint of a statement; dates and times in it are of the session's time zone.

    Raises:
        InvalidRequest: a constraint of another kind, or one that is not enforced.
    """
    kind = str(constraint.getClass().getSimpleName())
    name = str(constraint.name())
    if kind != "Check":
        raise InvalidRequest(
            f"constraint {name} is a {_OTHERS.get(kind, kind)}, which nothing enforces; a table has CHECK constraints"
            " and NOT NULL columns"
        )
    if not constraint.enforced():
        raise InvalidRequest(f"constraint {name} is NOT ENFORCED: every writer of a table checks its constraints")
    return Check(name=name, condition=str(constraint.predicateSql()), time_zone=gateway.time_zone())


def checks_array(gateway: Gateway, checks: Iterable[Check]) -> Any:
    """Return a ``Constraint[]``."""
    checks = tuple(checks)
    if not checks:
        return gateway.empty_array(_CONSTRAINTS + "Constraint")
    valid = gateway.constant(_CONSTRAINTS + "Constraint$ValidationStatus", "VALID")
    make = gateway.static(_CONSTRAINTS + "Constraint", "check")
    made = [
        make(check.name).predicateSql(check.condition).enforced(True).validationStatus(valid).build()
        for check in checks
    ]
    return gateway.array(_CONSTRAINTS + "Constraint", made)
