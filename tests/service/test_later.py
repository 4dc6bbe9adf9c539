"""Work that a thread does soon: once for all who asked, again after a failure, never after the end."""

from __future__ import annotations

import threading

import pytest

from lamella.service.process.threads import Debouncer


def test_it_is_done_once_for_all_requests_meanwhile() -> None:
    """And again for those who ask while it is being done, which may have begun too early for them."""
    began, go, done = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)
    times: list[str] = []

    def work() -> None:
        began.release()
        assert go.acquire(timeout=60)
        times.append(threading.current_thread().name)
        done.release()

    debouncer = Debouncer(work, 0.0, "worker")
    states = [debouncer.is_due]
    debouncer.soon()
    assert began.acquire(timeout=60)
    for _ in range(100):
        debouncer.soon()
    states.append(debouncer.is_due)
    for _ in range(2):
        go.release()
        assert done.acquire(timeout=60)
    debouncer.close()
    assert states == [False, True]
    assert not debouncer.is_due
    assert times == ["worker", "worker"]


def test_a_failure_is_logged_and_the_next_one_who_asks_has_it_done(caplog: pytest.LogCaptureFixture) -> None:
    """The thread lives on."""
    done = threading.Semaphore(0)
    errors = [ValueError("first")]

    def work() -> None:
        try:
            if errors:
                raise errors.pop()
        finally:
            done.release()

    debouncer = Debouncer(work, 0.0, "worker")
    for _ in range(2):
        debouncer.soon()
        assert done.acquire(timeout=60)
    debouncer.close()
    assert [record.getMessage() for record in caplog.records] == ["worker failed"]


def test_nothing_is_done_once_it_is_closed() -> None:
    """What was asked for right before is left to whoever closes it."""
    times: list[int] = []
    debouncer = Debouncer(lambda: times.append(1), 3_600.0, "worker")
    debouncer.soon()
    debouncer.close()
    debouncer.soon()
    debouncer.close()
    assert times == []
    Debouncer(lambda: None, 0.0, "never asked").close()


def test_its_thread_ends_when_it_is_closed_just_before_the_work_begins() -> None:
    """The thread has waited its time, and clears the wake-up with which it is closed."""
    debouncer = Debouncer(lambda: None, 0.0, "worker")
    closing = threading.Thread(target=debouncer.close, daemon=True)

    class ClosingEvent(threading.Event):
        def clear(self) -> None:
            if not closing.is_alive():
                closing.start()
                assert debouncer._closed.wait(60)
                with debouncer._lock:  # by then it has told the thread
                    super().clear()

    debouncer._wake = ClosingEvent()
    debouncer.soon()
    assert debouncer._thread is not None
    debouncer._thread.join(timeout=60)
    assert not debouncer._thread.is_alive()
    closing.join(timeout=60)


@pytest.mark.parametrize("death", [SystemExit, KeyboardInterrupt])
def test_the_thread_outlives_whatever_its_work_raises(death: type[BaseException]) -> None:
    """Callers were told that it does what they ask for."""
    done = threading.Semaphore(0)
    errors = [death()]

    def work() -> None:
        try:
            if errors:
                raise errors.pop()
        finally:
            done.release()

    debouncer = Debouncer(work, 0.0, "worker")
    for _ in range(2):
        debouncer.soon()
        assert done.acquire(timeout=60)
    debouncer.close()


def test_a_thread_that_cannot_start_is_started_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked meanwhile is not failed by it, and closing waits for nothing."""

    def cannot(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done = threading.Semaphore(0)
    debouncer, never = Debouncer(done.release, 0.0, "worker"), Debouncer(done.release, 0.0, "never")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        debouncer.soon()
        never.soon()
    never.close()
    assert not debouncer.is_due
    debouncer.soon()
    assert done.acquire(timeout=60)
    debouncer.close()
