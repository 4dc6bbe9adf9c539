"""The steps of a conversation with the service, for whoever carries them out."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import msgspec

from lamella.client.http.transport import HttpRequest, HttpResponse, TransportFailure

Answer = TypeVar("Answer")


class Send(msgspec.Struct, frozen=True):
    """Send this request; what comes of it is sent back into the generator."""

    request: HttpRequest


class Wait(msgspec.Struct, frozen=True):
    """Wait so long, then go on with None."""

    delay_s: float


Outcome = HttpResponse | TransportFailure
Steps = Generator[Send | Wait, Outcome | None, Answer]
