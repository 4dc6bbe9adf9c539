"""The columnar companion: zone maps of one layer as arrays, built from manifests, stored as Arrow IPC."""

from lamella.snapshot.columnar.companion import Companion, build_blocks, build_segments
from lamella.snapshot.columnar.joined import JoinedCompanion
from lamella.snapshot.columnar.keys import BytesKeys, Keys, NumberKeys, WideKeys
from lamella.snapshot.columnar.zones import Zones, zones_of

__all__ = [
    "BytesKeys",
    "Companion",
    "JoinedCompanion",
    "Keys",
    "NumberKeys",
    "WideKeys",
    "Zones",
    "build_blocks",
    "build_segments",
    "zones_of",
]
