"""Commit requests by themselves: what must hold before a table or a file is looked at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from lamella.service.intake import refuse_doubled
from lamella.service.part_check import MOST_COMMIT_PARTS, require_distinct
from lamella.snapshot.advice.recording import check_recording
from lamella.snapshot.cluster.block_sizes import block_target_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.feedback import check_feedback
from lamella.snapshot.layout.location import normal
from lamella.snapshot.manifest import Block
from lamella.snapshot.source import refuse_properties
from lamella.snapshot.vacuum import check_retention
from lamella.snapshot.wire import BlockListSent, CommitRequest, IndexPartsSent, NoNewMatches

_OPERATION: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class CheckedRequest(msgspec.Struct, frozen=True):
    """What a commit request asks for beside blocks: locations in the one spelling, members that are there or None."""

    removed: tuple[str, ...]
    lists: tuple[BlockListSent, ...]
    index_parts: tuple[IndexPartsSent, ...]
    part_locations: tuple[str, ...]
    no_new_matches: NoNewMatches | None


def check_request(request: CommitRequest) -> CheckedRequest:
    """Raises InvalidRequest: nothing to do, a member that cannot be, or two that do not go together."""
    lists = () if request.added_from is msgspec.UNSET else request.added_from
    if not (request.added or lists or request.removed or request.properties):
        raise InvalidRequest("the commit adds, removes and sets nothing")
    check_retention(request.properties)
    refuse_properties(request.properties)
    check_feedback(request.properties)
    check_recording(request.properties)
    block_target_of(request.properties)
    if _OPERATION.fullmatch(request.operation) is None:
        raise InvalidRequest(f"{request.operation!r} is not an operation: a word such as 'append' or 'compact'")
    removed = [normal(location) for location in request.removed]
    refuse_doubled("removed", removed, InvalidRequest)
    parts = () if request.index_parts is msgspec.UNSET else request.index_parts
    locations: list[str] = []
    if parts:
        if not (request.added or lists):
            raise InvalidRequest("index_parts are about added blocks, and there are none")
        locations = require_distinct([part for of_index in parts for part in of_index.parts], MOST_COMMIT_PARTS)
    unwanted = None if request.no_new_matches is msgspec.UNSET else request.no_new_matches
    if unwanted is not None and request.base_snapshot_id is None:
        raise InvalidRequest("no_new_matches is about what came since base_snapshot_id: give it")
    return CheckedRequest(tuple(removed), lists, parts, tuple(locations), unwanted)


def spelled(blocks: Sequence[Block]) -> list[str]:
    """The locations of blocks in the one spelling; those that have none are refused where blocks are checked."""
    found = []
    for block in blocks:
        with suppress(InvalidRequest):
            found.append(normal(block.location))
    return found
