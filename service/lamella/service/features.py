"""What an optional feature adds to the service; :mod:`lamella.service.extensions` lists those that are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.routing import Route

from lamella.service.catalog import TableRecord
from lamella.service.http.problem import Envelope
from lamella.service.http.routing import RouteFactory, ServedOperation
from lamella.snapshot.wire import (
    AdviceAnswer,
    AdviceRequest,
    AutoLedger,
    AutoPlan,
    AutoRequest,
    CandidatesAnswer,
    CandidatesRequest,
    RecordedList,
    WhatIfAnswer,
    WhatIfRequest,
    WhyNotAnswer,
    WhyNotRequest,
)


class Advisor(Protocol):
    """Advice about a table, for features that show it. Each method raises LamellaError."""

    def advise(self, table: TableRecord, request: AdviceRequest) -> AdviceAnswer:
        """Scores of columns and kinds of indexes."""

    def what_if(self, table: TableRecord, request: WhatIfRequest) -> WhatIfAnswer:
        """What filters would read after a change."""

    def candidates(self, table: TableRecord, request: CandidatesRequest) -> CandidatesAnswer:
        """What could be done for a table."""

    def why_not(self, table: TableRecord, request: WhyNotRequest) -> WhyNotAnswer:
        """Why indexes do not help with a filter."""

    def recorded(self, table: TableRecord) -> RecordedList:
        """The recorded filters of a table."""


class AutoUpkeep(Protocol):
    """Automatic upkeep of a table, for features that show it. Each method raises LamellaError."""

    def ledger(self, table: TableRecord) -> AutoLedger:
        """What was done."""

    def plan(self, table: TableRecord, request: AutoRequest) -> AutoPlan:
        """What would be done now, and why."""


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """What one folder adds."""

    operations: tuple[ServedOperation, ...] = ()
    #: The form of errors below the feature's paths, where it is not that of the service.
    envelopes: tuple[Envelope, ...] = ()
    #: Makes routes that are no operations of the API.
    pages: Callable[[RouteFactory], list[Route]] | None = None
    #: The page that a browser is sent to from ``/``.
    home: str | None = None
    #: What the feature offers to those that are registered after it.
    advisor: Advisor | None = None
    auto: AutoUpkeep | None = None
