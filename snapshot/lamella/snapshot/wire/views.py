"""Requests and answers about views: queries in Spark's SQL under a name."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lamella.snapshot.wire.limits import MAX_COLUMNS, Properties, Word

#: The text of a query.
Query = Annotated[str, Meta(min_length=1, max_length=262_144)]
#: A struct type in Spark's JSON.
SparkStruct = Annotated[str, Meta(min_length=2, max_length=524_288)]


class ViewDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a view is: ``PUT /v1/namespaces/{ns}/views/{view}``.

    ``sql``: the query, in Spark's dialect. ``schema_json``: its columns with their comments, as a struct type in
    Spark's JSON. ``query_columns``: the names that the query itself gives them. ``default_catalog``,
    ``default_namespace``: where names in the query that have none are looked up; without a catalog in that of the view.
    ``sql_configs``: Spark's settings when the view was made. ``schema_mode``: what happens when the columns of the
    query change (``BINDING``, ``COMPENSATION``, ``TYPE EVOLUTION``, ``EVOLUTION``).
    """

    sql: Query
    schema_json: SparkStruct
    query_columns: Annotated[tuple[Word, ...], Meta(max_length=MAX_COLUMNS)] = ()
    default_catalog: Word | None = None
    default_namespace: Annotated[tuple[Word, ...], Meta(max_length=100)] = ()
    sql_configs: Properties = {}
    schema_mode: Word | None = None
    properties: Properties = {}
    comment: Annotated[str, Meta(max_length=65_536)] | None = None


class CreateView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``POST /v1/namespaces/{ns}/views``."""

    name: Word
    definition: ViewDefinition


class ViewInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A view. ``owner``: who created it. ``version`` counts its definitions from 1."""

    view_id: str
    namespace: str
    name: str
    definition: ViewDefinition
    owner: str
    version: int
    created_at_ms: int
    updated_at_ms: int


class ViewList(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/namespaces/{ns}/views``."""

    views: tuple[str, ...]
