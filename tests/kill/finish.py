"""What is asked of a service when a load is over: the last clean-up, and a verification of everything."""

from __future__ import annotations

import time
from collections.abc import Iterable

import httpx2
import msgspec

from kill.ledger import Ledger
from lamella.snapshot.wire import VacuumAnswer, VerifyAnswer

_VACUUM = msgspec.json.Decoder(VacuumAnswer)
_VERIFY = msgspec.json.Decoder(VerifyAnswer)
#: By then nothing is young any more.
_OLD_S = 60


def clean_up_all(urls: Iterable[str], ledger: Ledger) -> None:
    """Clean up each table until nothing in it is too young and nothing more is deleted."""
    with httpx2.Client(timeout=120) as http:
        for url in urls:
            give_up = time.monotonic() + _OLD_S
            while not _clean_up(http, url, ledger):
                assert time.monotonic() < give_up, f"there is still something to clean up in {url}"
                time.sleep(0.1)


def _clean_up(http: httpx2.Client, url: str, ledger: Ledger) -> bool:
    answer = http.post(f"{url}/vacuum", json={"execute": True, "older_than": "0s"})
    assert answer.status_code == 200, answer.text
    part = _VACUUM.decode(answer.content)
    ledger.cleaned(part)
    assert part.next_page_token is None
    assert not part.left, part.left
    retained = sum(not disposition.expires for disposition in part.snapshots)
    return retained == 1 and not part.deleted.objects and not part.young.objects


def verify_all(urls: Iterable[str]) -> dict[str, int]:
    """Verify each table down to the values of some blocks; there may be no finding. Returns what was looked at."""
    findings = blocks = values = 0
    with httpx2.Client(timeout=120) as http:
        for url in urls:
            request: dict[str, object] = {"deep": True, "blocks": 20, "filters": 5, "page_token": None}
            while True:
                answer = http.post(f"{url}/verify", json=request)
                assert answer.status_code == 200, answer.text
                part = _VERIFY.decode(answer.content)
                assert not part.findings, part.findings
                findings += sum(part.counts.values())
                blocks += part.checked.blocks
                values += part.checked.values
                if part.next_page_token is None:
                    break
                request["page_token"] = part.next_page_token
    return {"findings": findings, "blocks verified": blocks, "values verified": values}
