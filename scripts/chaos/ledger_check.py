"""Compares the tables with the clients' ledger after the trials: no acknowledged commit is lost or duplicated."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import httpx2
import msgspec

from chaos.load import Ledger
from stack.supervisor import Stack

#: Failed jobs are checked one by one.
_JOBS_MAY_BE: Final = frozenset({"succeeded", "failed"})


class LedgerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the comparison. ``lost``: acknowledged and missing; ``twice``: duplicated; ``unknown``: present but
    never committed; ``refused``: commits that were refused permanently; ``findings``: of a deep verification; ``jobs``:
    number of jobs by state; ``jobs_failed``: jobs that were not accepted, or failed for another reason than the store's
    absence."""

    acknowledged: int
    blocks: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    unknown: tuple[str, ...]
    refused: tuple[str, ...]
    findings: tuple[str, ...]
    jobs: dict[str, int]
    jobs_failed: tuple[str, ...]
    replicas_agree: bool

    @property
    def is_clean(self) -> bool:
        """Whether the comparison found no fault."""
        return not self.wrong()

    def wrong(self) -> list[str]:
        """Return a line for each fault found."""
        lines = [
            f"{what}: {each}"
            for what, found in (
                ("lost", self.lost),
                ("there twice", self.twice),
                ("there, and nobody committed it", self.unknown),
                ("commit refused", self.refused),
                ("finding", self.findings),
                ("job failed", self.jobs_failed),
            )
            for each in found
        ]
        lines += [f"{count} jobs are {state}" for state, count in self.jobs.items() if state not in _JOBS_MAY_BE]
        if not self.replicas_agree:
            lines.append("the replicas list other blocks")
        return lines


def check_ledger(stack: Stack, table: str, ledger: Ledger) -> LedgerCheck:
    """Compare the ledger with the table, as each replica lists it."""
    namespace, _, name = table.partition(".")
    path = f"/v1/namespaces/{namespace}/tables/{name}"
    found: list[list[str]] = []
    headers = {"Authorization": f"Bearer {stack.key}"}
    for number in (1, 2):
        with httpx2.Client(base_url=stack.replica_url(number), headers=headers, timeout=120, trust_env=False) as http:
            found.append(_locations(http, path))
            if number == 1:
                findings = _verify(http, path)
    counted = Counter(found[0])
    return LedgerCheck(
        acknowledged=len(ledger.acknowledged),
        blocks=len(found[0]),
        lost=tuple(sorted(ledger.acknowledged - counted.keys())),
        twice=tuple(sorted(location for location, count in counted.items() if count > 1)),
        unknown=tuple(sorted(counted.keys() - ledger.begun)),
        refused=tuple(ledger.refused),
        findings=tuple(findings),
        jobs=dict(Counter(ledger.jobs.values())),
        jobs_failed=tuple(ledger.jobs_failed),
        replicas_agree=sorted(found[0]) == sorted(found[1]),
    )


def _locations(http: httpx2.Client, path: str) -> list[str]:
    """Return the locations of all blocks, segment by segment, without pruning."""
    info = _answer(http.get(path))
    snapshot = _answer(http.get(f"{path}/snapshots/{info['snapshot_id']}"))
    return [
        block["location"]
        for segment in snapshot["segments"]
        for block in _answer(http.get(f"{path}/segments/{segment['segment_id']}"))["blocks"]
    ]


def _verify(http: httpx2.Client, path: str) -> list[str]:
    """Return the findings of a deep verification, from all pages of the answer."""
    found: list[str] = []
    token: str | None = None
    while True:
        page = _answer(http.post(f"{path}/verify", json={"deep": True, "page_token": token}))
        found += [str(finding) for finding in page.get("findings", ()) if finding["severity"] != "info"]
        token = page.get("next_page_token")
        if token is None:
            return found


def _answer(answer: httpx2.Response) -> Any:
    answer.raise_for_status()
    return answer.json()
