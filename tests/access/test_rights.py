"""What a principal may do, beside a naive oracle."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lamella.service.access.principal import Rights
from lamella.snapshot.wire import ROLES, Grant, Role

NAMESPACES = ("a", "b", "a.b")
TABLES = ("t", "u", "b.t")
SCOPES: list[tuple[str | None, str | None]] = [
    (None, None),
    *((namespace, None) for namespace in NAMESPACES),
    *product(NAMESPACES, TABLES),
]

grants = st.lists(
    st.builds(
        Grant,
        role=st.sampled_from(ROLES),
        namespace=st.none() | st.sampled_from(NAMESPACES),
        table=st.none() | st.sampled_from(TABLES),
    ),
    max_size=6,
)


def covers(grant: Grant, namespace: str | None, table: str | None) -> bool:
    """Whether a grant is on a scope, or on what holds it; one on a table of no namespace is on nothing."""
    if grant.namespace is None:
        return grant.table is None
    return grant.namespace == namespace and grant.table in (None, table)


def may(granted: list[Grant], role: Role, namespace: str | None, table: str | None) -> bool:
    """The rule, word for word: some grant that covers the scope is of this role, or of one that includes it."""
    return any(covers(each, namespace, table) and ROLES.index(each.role) >= ROLES.index(role) for each in granted)


@given(grants)
def test_nothing_is_allowed_but_what_a_grant_says(granted: list[Grant]) -> None:
    """On every place, and for every role, the answer is that of the rule."""
    rights = Rights(granted)
    for (namespace, table), role in product(SCOPES, ROLES):
        assert rights.may(role, namespace, table) == may(granted, role, namespace, table)


@given(grants)
def test_a_namespace_is_seen_by_whoever_may_do_something_in_it(granted: list[Grant]) -> None:
    """By a grant on everything, on it, or on a table in it."""
    rights = Rights(granted)
    for namespace in (*NAMESPACES, "c"):
        grounds = [
            each for each in granted if each.namespace == namespace or (each.namespace, each.table) == (None, None)
        ]
        assert rights.sees(namespace) == bool(grounds)


@given(grants)
def test_the_scopes_of_a_role_are_those_where_it_may_be_used(granted: list[Grant]) -> None:
    """Listings are made of them, so they say what a check of each place would."""
    rights = Rights(granted)
    for role in ROLES:
        scopes = rights.scopes(role)
        assert (scopes is None) == rights.may(role)
        for namespace, table in product(NAMESPACES, TABLES):
            listed = scopes is None or (namespace, None) in scopes or (namespace, table) in scopes
            assert listed == rights.may(role, namespace, table)


def test_a_namespace_does_not_include_another_one_with_the_same_prefix() -> None:
    """``sales`` is not ``sales.eu``, and a table ``b.t`` is none of namespace ``a.b``."""
    rights = Rights([Grant(role="admin", namespace="sales")])
    assert rights.may("admin", "sales", "eu")
    assert not rights.may("read", "sales.eu")
    assert not rights.may("read", "sales.eu", "orders")
    assert not rights.sees("sales.eu")
    assert not rights.sees("sale")
    assert not rights.may("read")
