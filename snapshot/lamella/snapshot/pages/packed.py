"""Arrays of integers in few bytes: the least of them, and each one's distance from it in as many bytes as needed."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lamella.snapshot.errors import ManifestError

_HEAD: Final = struct.Struct("<qB")
_HEAD_UNSIGNED: Final = struct.Struct("<QB")
_WIDTHS: Final = ((0, None), (1, "<u1"), (2, "<u2"), (4, "<u4"), (8, "<u8"))


def pack(values: npt.NDArray[Any]) -> bytes:
    """An array of int64 or uint64."""
    if not len(values):
        return b""
    least, most = int(values.min()), int(values.max())
    width, code = next(each for each in _WIDTHS if most - least < 1 << (8 * each[0]))
    head = _HEAD_UNSIGNED if values.dtype == np.uint64 else _HEAD
    if code is None:
        return head.pack(least, 0)
    distances = values.astype(np.uint64) - np.uint64(least % (1 << 64))  # modulo 2^64, for either sign
    return head.pack(least, width) + distances.astype(code).tobytes()


def unpack(data: bytes, count: int, *, unsigned: bool = False) -> npt.NDArray[Any]:
    """``count`` numbers as :func:`pack` made them; raises ManifestError when the bytes are not those."""
    dtype = np.uint64 if unsigned else np.int64
    if not count:
        if data:
            raise ManifestError("packed numbers where none should be")
        return np.empty(0, dtype=dtype)
    head = _HEAD_UNSIGNED if unsigned else _HEAD
    if len(data) < head.size:
        raise ManifestError("packed numbers are cut off")
    least, width = head.unpack_from(data)
    code = dict(_WIDTHS).get(width, "")
    if code == "" or len(data) != head.size + width * count:
        raise ManifestError("packed numbers have another length")
    if code is None:
        return np.full(count, least, dtype=dtype)
    distances = np.frombuffer(data, dtype=code, offset=head.size).astype(np.uint64)
    return (distances + np.uint64(least % (1 << 64))).astype(dtype)
