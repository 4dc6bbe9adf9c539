"""Requests of recipients, their capabilities, and whether they can read a table's rows by column names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.schema.spark_types import spark_schema
from lamella.snapshot.sharing.answers import NTZ, VECTORS, Form

#: The header with a recipient's capabilities, and with those of an answer.
CAPABILITIES: Final = "delta-sharing-capabilities"
#: The header with a table's version.
VERSION: Final = "delta-table-version"

_MEANING: Final = {VECTORS: "files with deleted rows", NTZ: "a column of local times (timestamp_ntz)"}

Version = Annotated[int, Meta(ge=0, le=(1 << 62))]
Hint = Annotated[str, Meta(max_length=1 << 20)]
Token = Annotated[str, Meta(max_length=4_096)]


class ShareQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The body of a query. Hints are used as far as they can be read with certainty; the recipient filters by itself.

    ``predicateHints``: SQL texts, combined with AND; ``jsonPredicateHints``: a JSON text. ``limitHint``: this many rows
    are enough (used without other hints). At most one of ``version`` and ``timestamp`` (ISO 8601, UTC without a zone).
    ``maxFiles``: maximum number of files in an answer, with a ``nextPageToken`` for the others; ``pageToken`` requests
    them. ``includeRefreshToken``: return a ``refreshToken``, which returns new URLs of the same version.
    ``startingVersion``, ``endingVersion``: changes between versions, which are refused.
    """

    predicate_hints: Annotated[tuple[Hint, ...], Meta(max_length=1_000)] = ()
    json_predicate_hints: Hint | None = None
    limit_hint: int | None = None
    version: Version | None = None
    timestamp: Annotated[str, Meta(max_length=64)] | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    max_files: Annotated[int, Meta(ge=1)] | None = None
    page_token: Token | None = None
    include_refresh_token: bool = False
    refresh_token: Token | None = None

    @property
    def has_hints(self) -> bool:
        """Returns whether there is a filter that the recipient applies to the rows."""
        return bool(self.predicate_hints) or self.json_predicate_hints is not None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient's capabilities. ``ends``: answers of files end with a line that marks the end."""

    forms: frozenset[str] = frozenset({"parquet"})
    features: frozenset[str] = frozenset()
    ends: bool = False

    @classmethod
    def of(cls, header: str | None) -> Capabilities:
        """Parses the header: ``responseformat=delta,parquet;readerfeatures=...;includeEndStreamAction=true``."""
        given: dict[str, str] = {}
        for part in (header or "").split(";"):
            name, _, value = part.partition("=")
            given[name.strip().lower()] = value.strip().lower()
        forms = frozenset(filter(None, (each.strip() for each in given.get("responseformat", "").split(","))))
        features = frozenset(each.strip() for each in given.get("readerfeatures", "").split(","))
        ends = given.get("includeendstreamaction") == "true"
        return cls(forms=forms or frozenset({"parquet"}), features=features, ends=ends)

    def form_for(self, features: Sequence[str]) -> Form:
        """Returns the form of an answer about a table for which a recipient needs these features of Delta: Parquet's if
        it suffices.

        Raises:
            NotExpressible: the recipient supports no form that the table has.
        """
        if "parquet" in self.forms and not features:
            return "parquet"
        missing = [name for name in features if name.lower() not in self.features]
        if "delta" in self.forms and not missing:
            return "delta"
        if features:
            raise NotExpressible(
                f"the table has {' and '.join(_MEANING[name] for name in features)}, which requires a recipient that "
                f"reads responseformat=delta with readerfeatures={','.join(features).lower()}"
            )
        raise NotExpressible("responseformat must be parquet or delta")

    def header(self, form: Form) -> str:
        """Returns the capabilities header of an answer."""
        return f"responseformat={form}" + (";includeendstreamaction=true" if self.ends else "")


# Whether recipients, who read a table's files by the names of its columns, find its rows in them.
#
# They read each file as it is: a column that it lacks is null, one that the table does not have is ignored, and no id
# shows that a name once belonged to another column. So a table can be shared if each name has one meaning in all of its
# files, and is refused otherwise: after renames and reused names the files must be rewritten.

_REMEDY: Final = "; rewrite these files (compact)"


def shared_schema(schema: Schema, earlier: Iterable[Schema]) -> str:
    """Returns the columns as Spark's JSON; ``earlier``: the other schemas that files of the snapshot were written with.

    Raises:
        NotExpressible: recipients cannot read a column's type, or would not find a column in every file.
    """
    own = [msgspec.structs.replace(column, write_default=msgspec.UNSET) for column in schema.columns]
    mapped = spark_schema(msgspec.structs.replace(schema, columns=tuple(own)))
    for name, kind in mapped.unreadable.items():
        raise _refused(name, f"has the type {kind}, which the protocol does not have")
    for leaf in schema.leaves():
        if leaf.dtype.name == "variant":
            message = f"the table cannot be shared: column {leaf.name!r} is a variant, which recipients need not know"
            raise NotExpressible(message, column=leaf.name)
    for column in schema.columns:
        if column.default is not None:
            raise _refused(column.name, "has a default, but recipients read nulls from a file without the column")
    for written in earlier:
        for column in schema.columns:
            _check(column, written)
    return mapped.readable


def _check(column: Column, written: Schema) -> None:
    own = next((each for each in written.columns if each.id == column.id), None)
    if own is None:
        other = next((each for each in written.columns if each.name.lower() == column.name.lower()), None)
        if other is not None:
            raise _refused(column.name, f"has a name that older files use for another column{_REMEDY}")
    elif own.name != column.name:
        raise _refused(column.name, f"has the name {own.name!r} in older files{_REMEDY}")
    elif not _reads_as(own, column):
        raise _refused(column.name, f"has another type in older files, and recipients do not convert it{_REMEDY}")


def _reads_as(own: Column, column: Column) -> bool:
    """Returns whether a reader without type information reads values of the older column as those of the newer one."""
    if own.dtype.is_nested or column.dtype.is_nested:
        return bool(_shape(own) == _shape(column))
    before, now = own.dtype, column.dtype
    same_kind = (before.is_integer and now.is_integer) or (before.is_float and now.is_float)
    return before == now or same_kind or before.name == now.name == "decimal"


def _shape(column: Column) -> Any:
    return column.id, column.name, column.dtype, tuple(_shape(each) for each in column.fields)


def _refused(name: str, why: str) -> NotExpressible:
    return NotExpressible(
        f"the table cannot be shared: column {name!r} {why}; rewrite the table (compact)", column=name
    )
