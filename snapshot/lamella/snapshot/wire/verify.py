"""Verification: what is asked, what was found, how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lamella.snapshot.wire.bounds import Moment, Token, Word

Severity = Literal["error", "warning", "info"]


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../verify``.

    At most one of ``snapshot_id`` and ``timestamp``, as for a prune. ``files``: look at the blocks' files (that they
    are there, their footers) and not only at what Lamella wrote. ``history``: so many snapshots, the newest first, are
    held against the catalog. ``pages``: every segment should have a page companion; None: as the service builds them.

    ``deep``: read the values of some blocks too: ``blocks`` of them, or the share ``sample``, drawn by ``seed``; of
    each, so many random ``filters`` are answered from statistics and from its rows. ``repair``: write companions and
    page companions again where they are damaged or missing.

    An answer comes after about ``max_ms``; ``page_token`` asks for what follows.
    """

    snapshot_id: Word | None = None
    timestamp: int | Moment | None = None
    files: bool = True
    history: int = 100
    pages: bool | None = None
    deep: bool = False
    sample: float | None = None
    blocks: int | None = None
    seed: int = 0
    filters: int = 20
    repair: bool = False
    max_ms: float | None = None
    page_token: Token | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is not as it should be.

    ``code`` names the check (see ``docs/verify.md``), ``object`` the location that it is about, ``advice`` what to do.
    ``repaired``: it has been put right; ``not_repaired``: why it could not be, when that was asked for.
    """

    code: str
    severity: Severity
    object: str
    message: str
    advice: str
    segment_id: str | None = None
    block: str | None = None
    column: str | None = None
    repaired: bool = False
    not_repaired: str | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """How much was looked at: objects that Lamella wrote, blocks' entries, files, values and filters."""

    snapshots: int = 0
    groups: int = 0
    segments: int = 0
    blocks: int = 0
    files: int = 0
    page_companions: int = 0
    blocks_read: int = 0
    values: int = 0
    filters: int = 0
    filters_left_out: int = 0
    feedback: int = 0
    index_parts: int = 0
    index_filters: int = 0

    def plus(self, other: Checked) -> Checked:
        """Both together."""
        return Checked(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of a verification found.

    ``findings`` hold at most so many of one code for one object; ``counts`` has all of them by code.
    ``steps_done`` of ``steps`` are behind us; the next part begins at ``next_page_token``, None: that was all.
    """

    snapshot_id: str
    steps: int
    steps_done: int
    findings: tuple[Finding, ...] = ()
    counts: dict[str, int] = {}
    checked: Checked = Checked()
    next_page_token: str | None = None

    @property
    def is_clean(self) -> bool:
        """Nothing is wrong, or nothing that was not put right."""
        return all(finding.repaired or finding.severity == "info" for finding in self.findings)


def merged_verification(parts: Sequence[VerifyAnswer]) -> VerifyAnswer:
    """The parts of one verification as one answer."""
    counts: dict[str, int] = {}
    checked = Checked()
    for part in parts:
        checked = checked.plus(part.checked)
        for code, count in part.counts.items():
            counts[code] = counts.get(code, 0) + count
    return msgspec.structs.replace(
        parts[-1], findings=tuple(each for part in parts for each in part.findings), counts=counts, checked=checked
    )
