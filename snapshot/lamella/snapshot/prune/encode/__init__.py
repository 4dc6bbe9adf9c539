"""Large answers as bytes, piece by piece, without a Python object for each location.

Every encoder takes a :class:`~lamella.snapshot.prune.result.Found` and gives an iterator of bytes. It looks at one
segment at a time, so what it holds does not grow with the answer, but for 17 bytes a block where numbers come behind
the locations. An error on the way leaves what was given so far without its end: JSON and MessagePack that do not end,
an Arrow stream without its end mark.
"""

from lamella.snapshot.prune.encode.arrow_form import ARROW_END, arrow_chunks, has_arrow_form
from lamella.snapshot.prune.encode.json_form import SegmentTexts, json_chunks
from lamella.snapshot.prune.encode.msgpack_form import msgpack_chunks

__all__ = ["ARROW_END", "SegmentTexts", "arrow_chunks", "has_arrow_form", "json_chunks", "msgpack_chunks"]
