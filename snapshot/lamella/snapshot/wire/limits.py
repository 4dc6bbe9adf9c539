"""Size limits of request members. The service refuses larger ones and names the limit; docs/limits.md lists them all.

They are generous: they bound the memory and time of requests, and no reasonable use reaches them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

#: Columns in one request.
MAX_COLUMNS: Final = 20_000
#: Files, blocks or segments in one request.
MAX_LOCATIONS: Final = 1_000_000
#: Values of join keys.
MAX_KEYS: Final = 1_000_000
#: Properties of a namespace, a table or a snapshot.
MAX_PROPERTIES: Final = 1_000

#: Names, ids, kinds, hashes.
Word = Annotated[str, Meta(max_length=255)]
#: A namespace and a table.
TableText = Annotated[str, Meta(max_length=300)]
#: Time zones, times, durations.
Moment = Annotated[str, Meta(max_length=64)]
Token = Annotated[str, Meta(max_length=4_096)]
Location = Annotated[str, Meta(max_length=4_096)]
ColumnPath = Annotated[str, Meta(max_length=4_096)]
#: The text of a partition's value.
PartitionText = Annotated[str, Meta(max_length=4_096)]
#: The maximum length of a filter in SQL.
Expression = Annotated[str, Meta(max_length=262_144)]
#: A bloom filter of 128 MiB in Base64.
BloomText = Annotated[str, Meta(max_length=180_000_000)]

ColumnPaths = Annotated[tuple[ColumnPath, ...], Meta(max_length=MAX_COLUMNS)]
#: For a cluster key, an order, join keys.
FewPaths = Annotated[tuple[ColumnPath, ...], Meta(max_length=100)]
Locations = Annotated[tuple[Location, ...], Meta(max_length=MAX_LOCATIONS)]
#: What a reader supports beyond plain files: see docs/reader-features.md.
ReaderFeatures = Annotated[tuple[Word, ...], Meta(max_length=100)]
Words = Annotated[tuple[Word, ...], Meta(max_length=10_000)]
Keys = Annotated[tuple[Any, ...], Meta(max_length=MAX_KEYS)]
KeyRanges = Annotated[tuple[tuple[Any, Any], ...], Meta(max_length=100_000)]
Filters = Annotated[tuple[Any, ...], Meta(max_length=1_000)]
Options = Annotated[dict[Word, Any], Meta(max_length=1_000)]
Properties = Annotated[dict[Word, Annotated[str, Meta(max_length=65_536)]], Meta(max_length=MAX_PROPERTIES)]
