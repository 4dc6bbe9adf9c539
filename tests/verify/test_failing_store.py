"""A store that fails for a moment: whatever was not looked at for it is a finding, or the part is asked for again."""

from __future__ import annotations

import pytest

from lamella.snapshot.errors import StoreError
from lamella.snapshot.storage import Store
from lamella.snapshot.verify import Deep, Options, Verification
from support.faulty_store import Fault, FaultyStore, Script
from support.lying_writer import TABLE, LyingWriter

OPTIONS = Options(pages=True, history=(4, 100), deep=Deep(sample=0.4, filters=2), workers=1)


@pytest.fixture(scope="module")
def lies() -> LyingWriter:
    """A table with groups and page sidecars."""
    return LyingWriter(grouped=True, pages=True)


def opened(table: LyingWriter, store: Store) -> Verification:
    return Verification(store, table.root, TABLE, table.pointer, OPTIONS, table.read_history)


def test_a_group_that_is_not_given_ends_the_part(lies: LyingWriter) -> None:
    """Each part lists the segments anew; without a group their numbers would be others, and some left out."""
    location = lies.snapshot.groups[0].manifest.location
    store = FaultyStore(lies.store)
    first = opened(lies, store).run(until=lambda done: done == 3)
    store.faults = Script([Fault(how="before", operation="read", within=location)])
    with pytest.raises(StoreError):
        opened(lies, store)
    assert opened(lies, store).steps == first.steps


@pytest.mark.slow
def test_no_failed_call_leaves_a_clean_answer(lies: LyingWriter) -> None:
    """Whichever call of a verification fails: an error or a finding, unless another object says the same."""
    counted = FaultyStore(lies.store, Script([Fault(how="slow", times=1_000_000)]), sleep=lambda _: None)
    clean = opened(lies, counted).run()
    assert clean.is_clean
    silent = []
    for number, (operation, location, _) in enumerate(counted.happened, start=1):
        store = FaultyStore(lies.store, Script([Fault(how="before", nth=number)]))
        try:
            answer = opened(lies, store).run()
        except StoreError:
            continue
        is_sidecar = operation == "read" and "/_sg/" in location and location.endswith(".arrow")  # as the manifest says
        if answer.is_clean and not is_sidecar:
            silent.append((operation, location))
    assert not silent
