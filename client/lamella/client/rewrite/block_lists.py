"""Commits of more blocks than a request holds: the blocks go ahead, in lists in the table's scratch folder.

Blocks are encoded one after another and leave memory with their list, so that beside the blocks themselves there is
never more than one list of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

import msgspec

from lamella.client.http import Lamella
from lamella.snapshot.block_lists import packed
from lamella.snapshot.errors import AlreadyExists, LamellaError, OutcomeUnknown, StoreError
from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Block
from lamella.snapshot.wire import BlockListSent, CommitAnswer, IndexPartsSent, NoNewMatches

#: Bytes of a list, if the service takes as much.
LIST_BYTES: Final = 16 << 20
#: The part of a request's body that blocks may take; the rest is for what else stands there.
_SHARE: Final = 2


def commit_blocks(
    lake: Lamella,
    name: str,
    blocks: Iterable[Block],
    *,
    store: Store,
    location: str | None = None,
    removed: Sequence[str] = (),
    base_snapshot_id: str | None = None,
    operation: str = "append",
    properties: Mapping[str, str] | None = None,
    index_parts: Sequence[IndexPartsSent] = (),
    no_new_matches: NoNewMatches | None = None,
    idempotency_key: str | None = None,
) -> CommitAnswer:
    """:meth:`lamella.client.Table.commit` of any number of blocks: those that are too many for a request go ahead.

    ``store`` has the table's folder, ``location`` (None: it is asked of the service). Lists are removed at the end,
    unless it is not known whether the commit was made: the same call with the same key needs them then.

    Raises as ``Table.commit``, and StoreError.
    """
    table = lake.table(name)
    most_bytes = min(LIST_BYTES, lake.config().max_body_bytes)
    within, beyond = _divided(blocks, most_bytes // _SHARE)
    lists: list[BlockListSent] = []
    is_over = True
    try:
        if beyond is not None:
            layout = TableLayout(table.info().location if location is None else location)
            for each in packed(layout, beyond, piece_bytes=most_bytes):
                lists.append(each.sent)
                with suppress(AlreadyExists):  # an earlier try left it; its name is that of its content
                    store.put(each.sent.location, each.data)
        is_over = False
        answer = table.commit(
            added=within,
            added_from=lists,
            removed=removed,
            base_snapshot_id=base_snapshot_id,
            operation=operation,
            properties=properties,
            index_parts=index_parts,
            no_new_matches=no_new_matches,
            idempotency_key=idempotency_key,
        )
        is_over = True
    except LamellaError as error:
        is_over = not isinstance(error, OutcomeUnknown)
        raise
    finally:
        if lists and is_over:
            with suppress(StoreError):  # a clean-up of the table's folder removes them
                store.delete_many([each.location for each in lists])
    return answer


def _divided(blocks: Iterable[Block], most_bytes: int) -> tuple[list[msgspec.Raw], Iterator[bytes] | None]:
    """All of the blocks, encoded, if they have at most so many bytes; else none, and all of them to be encoded."""
    encoded = map(msgspec.json.Encoder().encode, blocks)
    begun: list[bytes] = []
    size_bytes = 0
    for block in encoded:
        begun.append(block)
        size_bytes += len(block) + 1
        if size_bytes > most_bytes:
            return [], chain(begun, encoded)
    return [msgspec.Raw(block) for block in begun], None
