"""Functions of text. Bounds are bytes and may be cut inside a character; only whole characters are used."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamella.snapshot.columnar.keys import BytesKeys, bytes_keys
from lamella.snapshot.columnar.zones import HIGH_KNOWN, LOW_KNOWN, Zones
from lamella.snapshot.function.base import Span, Vector, fails_of, result, strict, strict_flags, text_of, unbounded
from lamella.snapshot.schema import parse_type

_INT: Final = parse_type("int32")
_TEXT: Final = parse_type("string")
_BYTES: Final = pa.large_binary()
_BLANK: Final = 0x20
NOT_UTF8: Final = "bytes that are not UTF-8"
#: Letters whose case changed in Unicode 16 and 17.
_NEWER_CASE: Final = frozenset("\u019b\u0264\ua7d3\ua7d5")
_Bounds = tuple[bytes | None, bytes | None]


class FirstCharacters(msgspec.Struct, frozen=True, gc=False):
    """``left(text, count)``: preserves the order of texts, since cutting a common prefix cannot reverse it."""

    count: int

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the prefixes."""
        return _each(arguments[0], self._bounds)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the prefixes; bytes that are not UTF-8 have none."""
        text, broken = text_of(arguments[0])
        cut = pc.utf8_slice_codeunits(text, 0, self.count).cast(pa.large_binary())
        return strict(cut, arguments, failed=broken, reason=NOT_UTF8)

    def _bounds(self, low: bytes | None, high: bytes | None) -> _Bounds:
        below = None if low is None else characters(low)[: self.count].encode()
        if high is None:
            return below, None
        whole = characters(high)
        if len(whole) >= self.count:
            return below, whole[: self.count].encode()
        return below, high  # a prefix is never greater than the text itself


class ChangedCase(msgspec.Struct, frozen=True, gc=False):
    """``lower(text)`` or ``upper(text)``: of ASCII letters only, whose case does not depend on their context.

    The letters i and I are excluded: in a Turkish locale, which a Java machine may have, they map to other letters.
    """

    to: Literal["lower", "upper"]

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the converted texts: all begin with the converted common prefix."""
        return _each(arguments[0], self._bounds)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the converted texts, as in every locale except Turkish, Azeri and Lithuanian.

        Spark uses ICU. Python and Spark 4.3 agree on every character that both know, except for four letters; text with
        one of those, or with a character that this Python does not know, has failed.
        """
        text, broken = text_of(arguments[0])
        if pc.all(pc.string_is_ascii(text)).as_py() is not False:
            changed = (pc.ascii_lower if self.to == "lower" else pc.ascii_upper)(text)
        else:
            words = text.to_pylist()
            broken = broken | np.fromiter((_is_new(word) for word in words), bool, len(words))
            fold = str.lower if self.to == "lower" else str.upper
            changed = pa.array([fold(word) for word in words], pa.large_string())
        return strict(
            changed.cast(pa.large_binary()),
            arguments,
            failed=broken,
            reason=f"{self.to} of {NOT_UTF8}, or of letters added by newer versions of Unicode",
        )

    def _bounds(self, low: bytes | None, high: bytes | None) -> _Bounds:
        if low is None or high is None:
            return None, None
        shared = shared_beginning(low, high)
        length = 0
        while length < len(shared) and shared[length] < 0x80 and shared[length] not in b"iI":
            length += 1
        # among ASCII letters only i and I depend on what follows (a dot above), or on the locale
        whole = length == len(low) == len(high)
        start = shared[:length]
        changed = start.lower() if self.to == "lower" else start.upper()
        return (changed, changed) if whole else (changed, _after(changed))


class Length(msgspec.Struct, frozen=True, gc=False):
    """``length(text)`` in characters."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the lengths: at least that of the texts' common prefix."""
        (zones,) = arguments
        low, high = np.zeros(len(zones), dtype=np.int64), np.zeros(len(zones), dtype=np.int64)
        exact = np.zeros(len(zones), dtype=bool)
        if isinstance(zones.low, BytesKeys) and isinstance(zones.high, BytesKeys):
            for index in np.flatnonzero(zones.has(LOW_KNOWN) & zones.has(HIGH_KNOWN)):
                first, last = zones.low.at(int(index)), zones.high.at(int(index))
                low[index] = len(characters(shared_beginning(first, last)))
                if first == last and is_text(first):
                    high[index], exact[index] = low[index], True
        return result(_INT, Span(low, high, np.ones(len(zones), dtype=bool), exact), arguments)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the lengths; bytes that are not UTF-8 have none."""
        text, broken = text_of(arguments[0])
        lengths = pc.utf8_length(text).to_numpy(zero_copy_only=False).astype(np.int64)
        return strict(lengths, arguments, failed=broken, reason=NOT_UTF8)


class Concatenation(msgspec.Struct, frozen=True, gc=False):
    """``concat(a, b, ...)`` of texts."""

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the whole texts, from the bounds of the first argument with several values: each text
        begins with the values before it, and is not less than them and its lower bound."""
        flags, count = strict_flags(arguments), len(arguments[0])
        sides = [_sides(zones) for zones in arguments]
        lows, highs = [b""] * count, [b""] * count
        known = np.zeros((2, count), dtype=bool)
        for at in range(count):
            low, high = _joined([(lows_[at], highs_[at]) for lows_, highs_ in sides])
            known[0, at], known[1, at] = low is not None, high is not None
            lows[at], highs[at] = low or b"", high or b""
        flags = flags | known[0] * np.uint8(LOW_KNOWN) | known[1] * np.uint8(HIGH_KNOWN)
        return Zones(bytes_keys(lows), bytes_keys(highs), flags, fails_of(arguments))

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the whole texts."""
        return strict(
            pc.binary_join_element_wise(*(each.values for each in arguments), pa.scalar(b"", _BYTES)), arguments
        )


class Trimmed(msgspec.Struct, frozen=True, gc=False):
    """``trim(text)``, ``ltrim(text)`` or ``rtrim(text)``: without the blanks (no other white space) at its ends."""

    side: Literal["both", "left", "right"]

    def zones(self, *arguments: Zones) -> Zones:
        """Returns zone maps of the trimmed texts, where no text begins with a blank."""
        return _each(arguments[0], self._bounds)

    def rows(self, *arguments: Vector) -> Vector:
        """Returns the trimmed texts."""
        made = [self._trimmed(value) for value in arguments[0].values.to_pylist()]
        return strict(pa.array(made, _BYTES), arguments)

    def _trimmed(self, value: bytes) -> bytes:
        if self.side != "right":
            value = value.lstrip(b" ")
        return value if self.side == "left" else value.rstrip(b" ")

    def _bounds(self, low: bytes | None, high: bytes | None) -> _Bounds:
        if low is not None and low == high:
            only = self._trimmed(low)
            return only, only
        if self.side != "right" and (not low or low[0] <= _BLANK):
            return None, None  # a text may begin with a blank
        if low is None or self.side == "left":
            return low, high
        # A text that loses blanks is not less than the lower bound up to its first blank or control character.
        end = next((at for at, byte in enumerate(low) if byte <= _BLANK), len(low))
        return low[:end], high


def characters(data: bytes) -> str:
    """Returns the whole characters at the beginning of bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return data[: error.start].decode("utf-8")


def shared_beginning(left: bytes, right: bytes) -> bytes:
    """Returns the common prefix of both."""
    length = min(len(left), len(right))
    for at in range(length):
        if left[at] != right[at]:
            return left[:at]
    return left[:length]


def is_text(data: bytes) -> bool:
    """Returns whether bytes consist of whole characters."""
    return len(characters(data).encode()) == len(data)


def _is_new(text: str) -> bool:
    """Returns whether a character may have another case than this Python knows."""
    return not text.isascii() and any(
        character in _NEWER_CASE or unicodedata.category(character) == "Cn" for character in text
    )


def _after(prefix: bytes) -> bytes | None:
    """Returns a text greater than all with an ASCII prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix else None


def _sides(zones: Zones) -> tuple[list[bytes | None], list[bytes | None]]:
    """Returns both bounds of each entry, None where there is none."""
    sides: list[list[bytes | None]] = []
    for keys, bit in ((zones.low, LOW_KNOWN), (zones.high, HIGH_KNOWN)):
        if isinstance(keys, BytesKeys):
            sides.append([keys.at(at) if known else None for at, known in enumerate(zones.has(bit).tolist())])
        else:
            sides.append([None] * len(zones))
    return sides[0], sides[1]


def _joined(parts: Sequence[tuple[bytes | None, bytes | None]]) -> _Bounds:
    """Returns bounds of the texts made of a value from each range."""
    start = b""
    for at, (low, high) in enumerate(parts):
        if low is not None and low == high:
            start += low
            continue
        below = start + (low or b"")
        if high is None:
            return below, _following(start)
        if at == len(parts) - 1:
            return below, start + high
        return below, _following(start + shared_beginning(low or b"", high))
    return start, start


def _following(prefix: bytes) -> bytes | None:
    """Returns a text greater than all that begin with a prefix; None if there is none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else None


def _each(zones: Zones, bounds: Callable[[bytes | None, bytes | None], _Bounds]) -> Zones:
    lows, highs = zones.low, zones.high
    if not isinstance(lows, BytesKeys) or not isinstance(highs, BytesKeys):
        return unbounded([zones], _TEXT)
    has_low, has_high = zones.has(LOW_KNOWN).tolist(), zones.has(HIGH_KNOWN).tolist()
    made = [
        bounds(lows.at(i) if low else None, highs.at(i) if high else None)
        for i, (low, high) in enumerate(zip(has_low, has_high, strict=True))
    ]
    flags = strict_flags([zones])
    for bit, side in ((LOW_KNOWN, 0), (HIGH_KNOWN, 1)):
        flags = flags | np.array([pair[side] is not None for pair in made], dtype=bool) * np.uint8(bit)
    low, high = (bytes_keys([pair[side] or b"" for pair in made]) for side in (0, 1))
    return Zones(low, high, flags, zones.fails)
