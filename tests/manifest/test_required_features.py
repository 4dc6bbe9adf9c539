"""Features that manifests require: read only by a release that knows them all."""

from __future__ import annotations

import msgspec
import pytest

from lamella.snapshot.errors import ManifestError, UnsupportedFormat
from lamella.snapshot.manifest import (
    FORMAT_VERSION,
    Block,
    ObjectRef,
    Segment,
    Summary,
    decode_group,
    decode_segment,
    decode_snapshot,
    encode,
)
from lamella.snapshot.manifest.block_key import block_keys
from lamella.snapshot.stats import Bound

_REF = {"location": "memory://w/x", "size_bytes": 1, "sha256": "00"}
_GROUP = {"format_version": 2, "group_id": "g", "segments": []}


def _segment(*features: str) -> bytes:
    segment = Segment(
        format_version=FORMAT_VERSION, segment_id="s", summary=Summary(), blocks=(), required_features=features
    )
    return encode(segment)


def test_a_manifest_that_requires_an_unknown_feature_is_refused() -> None:
    """A release that does not know what a block needs would read wrong rows."""
    assert decode_segment(_segment("constants")).required_features == ("constants",)
    with pytest.raises(UnsupportedFormat) as refused:
        decode_segment(_segment("constants", "deletes_of_tomorrow"))
    assert refused.value.details["features"] == ["deletes_of_tomorrow"]


def test_a_newer_version_is_refused() -> None:
    """Also if nothing in the manifest is new."""
    with pytest.raises(UnsupportedFormat):
        decode_group(msgspec.json.encode({**_GROUP, "format_version": FORMAT_VERSION + 1}))


def test_manifests_before_version_3_have_another_name_for_a_sidecar() -> None:
    """The member is read by its old name there, and only there."""
    entry = {"segment_id": "s", "manifest": _REF, "companion": _REF, "format_version": 1, "summary": {}}
    group = decode_group(msgspec.json.encode({**_GROUP, "segments": [entry]}))
    assert group.segments[0].sidecar == ObjectRef(location="memory://w/x", size_bytes=1, sha256="00")
    with pytest.raises(ManifestError):
        decode_group(msgspec.json.encode({**_GROUP, "format_version": 3, "segments": [entry]}))


@pytest.mark.parametrize("segments", [5, [5], ["companion"], [None], {"companion": 1}, [{"companion": 5}]])
def test_a_damaged_manifest_of_an_old_version_is_an_error_of_its_own(segments: object) -> None:
    """Not one of Python's."""
    with pytest.raises(ManifestError):
        decode_group(msgspec.json.encode({**_GROUP, "segments": segments}))
    with pytest.raises(ManifestError):
        decode_snapshot(msgspec.json.encode({"format_version": 2, "segments": segments}))


def test_constants_are_part_of_what_a_block_is_known_by() -> None:
    """Whatever was found out about a block does not hold for the same file with other constants."""
    plain = Block(location="memory://b", row_count=1, file_size=1)
    blocks = [
        plain,
        msgspec.structs.replace(plain, constants={7: Bound(int64=1)}),
        msgspec.structs.replace(plain, constants={7: Bound(int64=2)}),
        msgspec.structs.replace(plain, constants={7: None}),
        msgspec.structs.replace(plain, constants={8: None}),
        msgspec.structs.replace(plain, schema_id=7),
    ]
    assert len({tuple(key) for key in block_keys(blocks).tolist()}) == len(blocks)
    same = [msgspec.structs.replace(plain, constants=each) for each in ({1: None, 2: None}, {2: None, 1: None})]
    assert len({tuple(key) for key in block_keys(same).tolist()}) == 1
