"""What recipients ask, and what they say that they can read."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.sharing.lines import NTZ_FEATURE, Form

#: The header in which recipients say what they can read, and answers what they are.
CAPABILITIES: Final = "delta-sharing-capabilities"
#: The header with a table's version.
VERSION: Final = "delta-table-version"

Version = Annotated[int, Meta(ge=0, le=(1 << 62))]
Hint = Annotated[str, Meta(max_length=1 << 20)]
Token = Annotated[str, Meta(max_length=4_096)]


class ShareQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The body of a query. Hints are used as far as they can be read for certain; the recipient filters by itself.

    ``predicateHints``: SQL texts that all hold; ``jsonPredicateHints``: a JSON text. ``limitHint``: so many rows are
    enough (used without other hints). At most one of ``version`` and ``timestamp`` (ISO 8601, UTC without a zone).
    ``maxFiles``: at most so many files in an answer, and a ``nextPageToken`` for the others; ``pageToken`` asks for
    them. ``includeRefreshToken``: answer a ``refreshToken``, which has the same version's URLs signed anew.
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
        """Whether there is a filter that the recipient applies to the rows."""
        return bool(self.predicate_hints) or self.json_predicate_hints is not None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a recipient can read. ``ends``: answers of files end with a line that says so."""

    forms: frozenset[str] = frozenset({"parquet"})
    features: frozenset[str] = frozenset()
    ends: bool = False

    @classmethod
    def of(cls, header: str | None) -> Capabilities:
        """Read the header: ``responseformat=delta,parquet;readerfeatures=...;includeEndStreamAction=true``."""
        given: dict[str, str] = {}
        for part in (header or "").split(";"):
            name, _, value = part.partition("=")
            given[name.strip().lower()] = value.strip().lower()
        forms = frozenset(filter(None, (each.strip() for each in given.get("responseformat", "").split(","))))
        features = frozenset(each.strip() for each in given.get("readerfeatures", "").split(","))
        ends = given.get("includeendstreamaction") == "true"
        return cls(forms=forms or frozenset({"parquet"}), features=features, ends=ends)

    def form_for(self, *, has_ntz: bool) -> Form:
        """The form of an answer about a table: Parquet's where that will do.

        Raises:
            NotExpressible: the recipient reads none that the table has.
        """
        if "parquet" in self.forms and not has_ntz:
            return "parquet"
        if "delta" in self.forms and (not has_ntz or NTZ_FEATURE in self.features):
            return "delta"
        if has_ntz:
            raise NotExpressible(
                "the table has a column of local times (timestamp_ntz), which takes a recipient that reads "
                "responseformat=delta with readerfeatures=timestampntz"
            )
        raise NotExpressible("answers have responseformat=parquet or responseformat=delta")

    def header(self, form: Form) -> str:
        """What an answer says of itself."""
        return f"responseformat={form}" + (";includeendstreamaction=true" if self.ends else "")
