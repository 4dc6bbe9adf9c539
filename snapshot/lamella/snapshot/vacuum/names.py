"""What the objects below a table's folder are, read off their names. A name that is not understood is nobody's."""

from __future__ import annotations

import re
from typing import Final, Literal
from uuid import UUID

import msgspec

from lamella.snapshot.ids import is_uuid7

Kind = Literal[
    "snapshot", "group", "segment", "pages", "sketch", "index", "block", "temporary", "external", "export", "replaced"
]

_ID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_NAME: Final = re.compile(
    rf"(?P<folder>_ss|_sl|_sg|_ts|_ix|_b|_rf|_tmp)/(?P<id>{_ID})_v(?P<version>[12])\.(?P<kind>[a-z]+)"
)
_TEMPORARY: Final = re.compile(
    rf"(?P<folder>_ss|_sl|_sg|_ts|_ix|_b|_rf|_tmp)/\.(?P<id>{_ID})_v[12]\.[a-z]+\.[0-9a-f]{{32}}\.tmp"
)
#: Files of an export as Iceberg belong to a segment or a snapshot, or to the table as a whole.
_EXPORTED: Final = re.compile(
    rf"_iceberg/metadata/(?:(?P<segment>{_ID})-[0-9a-f]{{8}}\.avro|snap-(?P<snapshot>{_ID})-[0-9a-f]{{8}}\.avro"
    rf"|v[1-9][0-9]*\.metadata\.json|version-hint\.text)"
)
#: What a put of such a file left behind that died.
_UNFINISHED: Final = re.compile(r"_iceberg/metadata/\.[^/]+\.[0-9a-f]{32}\.tmp")
_KINDS: Final[dict[tuple[str, str], Kind]] = {
    ("_ss", "json"): "snapshot",
    ("_ss", "arrow"): "snapshot",
    ("_sl", "json"): "group",
    ("_sl", "arrow"): "group",
    ("_sl", "loc"): "group",
    ("_sg", "json"): "segment",
    ("_sg", "arrow"): "segment",
    ("_sg", "pages"): "pages",
    ("_ts", "hll"): "sketch",
    ("_ix", "part"): "index",
    ("_ix", "dir"): "index",
    ("_b", "parquet"): "block",
    ("_rf", "set"): "replaced",
    ("_tmp", "run"): "temporary",
    ("_tmp", "part"): "temporary",
    ("_tmp", "blocks"): "temporary",
}


class ObjectName(msgspec.Struct, frozen=True):
    """What a name says: the kind, the folder, the v7 id and when (Unix milliseconds) that id was made.

    A file of an export has the folder and id of what it was made of; one that is about the whole table has none.
    """

    kind: Kind
    folder: str
    id: str
    made_ms: int


def object_name(root: str, location: str) -> ObjectName | None:
    """What the object is, by its whole location; None: not below ``root``, or not a name that Lamella gives.

    ``root``: the table's folder, without a slash at its end. A folder that only begins with the same letters
    (``abc-2`` beside ``abc``) is another folder.
    """
    if not location.startswith(root + "/"):
        return None
    below = location[len(root) + 1 :]
    if below.startswith("_iceberg/"):
        return _exported(below)
    found = _NAME.fullmatch(below)
    kind: Kind | None = "temporary"
    if found is not None:
        kind = _KINDS.get((found["folder"], found["kind"]))
    else:  # what a put left behind that died before its file had its name
        found = _TEMPORARY.fullmatch(below)
    if found is None or kind is None or not is_uuid7(found["id"]):
        return None
    return ObjectName(kind, found["folder"], found["id"], UUID(found["id"]).int >> 80)


def _exported(below: str) -> ObjectName | None:
    if _UNFINISHED.fullmatch(below) is not None:
        return ObjectName("temporary", "", "", 0)
    found = _EXPORTED.fullmatch(below)
    if found is None:
        return None
    of = found["segment"] or found["snapshot"]
    if of is None:
        return ObjectName("export", "", "", 0)
    return ObjectName("export", "_sg" if found["segment"] else "_ss", of, UUID(of).int >> 80) if is_uuid7(of) else None
