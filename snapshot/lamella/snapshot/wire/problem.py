"""Errors as they travel."""

from __future__ import annotations

from typing import Any

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem document; ``code`` names the class of :mod:`lamella.snapshot.errors`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    details: dict[str, Any] = {}
