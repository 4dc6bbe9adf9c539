"""What a client accepts: media types and content codings with their weights (RFC 9110, sections 12.4.2 to 12.5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

Coding = Literal["zstd", "gzip"]

#: The content codings that answers can have, the cheapest first.
CODINGS: Final[tuple[Coding, ...]] = ("zstd", "gzip")


def media_type(accept: str, offered: Sequence[str]) -> str:
    """The media type of ``offered`` that an ``Accept`` header prefers; of equals the first, and also when it has none.

    An answer in a form that was not asked for says so by its ``Content-Type``, which RFC 9110 prefers to refusing.
    """
    if accept in ("", "*/*", offered[0]):
        return offered[0]
    weights = _weights(accept)
    best, best_weight = offered[0], 0.0
    for kind in offered:
        ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
        weight = next((weights[each] for each in ranges if each in weights), 0.0)
        if weight > best_weight:
            best, best_weight = kind, weight
    return best


def coding(accept_encoding: str) -> Coding | None:
    """The coding that an ``Accept-Encoding`` header prefers; None: the answer as it is."""
    if accept_encoding in ("", "identity"):
        return None
    weights = _weights(accept_encoding)
    others = weights.get("*", 0.0)
    best: Coding | None = None
    best_weight = weights.get("identity", 0.0)
    for each in CODINGS:
        weight = weights.get(each, others)
        if weight > 0 and (weight > best_weight or (best is None and weight == best_weight)):
            best, best_weight = each, weight
    return best


def _weights(header: str) -> dict[str, float]:
    """The weight of each element, in lower case; elements that cannot be read are left out."""
    found: dict[str, float] = {}
    for element in header.split(","):
        name, *parameters = (part.strip() for part in element.split(";"))
        weight = _weight(parameters)
        if name and weight is not None:
            found[name.lower()] = weight
    return found


def _weight(parameters: Sequence[str]) -> float | None:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            digits = value.strip()
            if not (digits.isascii() and digits.replace(".", "", 1).isdigit() and len(digits) <= 5):
                return None
            return min(float(digits), 1.0)
    return 1.0
