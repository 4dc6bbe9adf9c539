"""Whether deleting rows of a block writes a deletion vector or rewrites the block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

import msgspec

from lamella.snapshot.errors import InvalidRequest

#: Properties of a table.
DELETE_MODE: Final = "write.delete.mode"
MAX_DELETED_SHARE: Final = "write.delete.max_deleted_share"

#: "copy-on-write" always rewrites blocks, "merge-on-read" never does; "auto" decides by the share of deleted rows.
DeleteMode = Literal["auto", "copy-on-write", "merge-on-read"]


class DeletePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How rows of a table are deleted. ``max_deleted_share``: with "auto", a block with a larger share of deleted rows
    is rewritten.

    By default a quarter: then a reader of all rows decodes at most a third more of them than it returns.
    """

    mode: DeleteMode = "auto"
    max_deleted_share: float = 0.25

    def keeps_file(self, deleted: int, row_count: int) -> bool:
        """Returns whether a block of ``row_count`` rows stays when ``deleted`` of them are deleted."""
        if self.mode == "auto":
            return deleted <= self.max_deleted_share * row_count
        return self.mode == "merge-on-read"


def delete_policy_of(properties: Mapping[str, str], *, mode: DeleteMode | None = None) -> DeletePolicy:
    """Returns the policy that a table's properties set. ``mode``: replaces that of the properties.

    Raises:
        InvalidRequest: a property, or ``mode``, has an invalid value.
    """
    policy = DeletePolicy()
    if mode is None:
        mode = _mode(properties.get(DELETE_MODE, policy.mode), f"property {DELETE_MODE}", property=DELETE_MODE)
    else:
        mode = _mode(mode, "mode")
    text = properties.get(MAX_DELETED_SHARE)
    share = policy.max_deleted_share if text is None else _share(text)
    return msgspec.structs.replace(policy, mode=mode, max_deleted_share=share)


def _mode(given: str, where: str, **details: str) -> DeleteMode:
    if given not in get_args(DeleteMode):
        raise InvalidRequest(f"{where} is one of {', '.join(get_args(DeleteMode))}, not {given[:100]!r}", **details)
    return cast("DeleteMode", given)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise InvalidRequest(
            f"property {MAX_DELETED_SHARE} is a number from 0 to 1, not {text[:100]!r}", property=MAX_DELETED_SHARE
        )
    return share
