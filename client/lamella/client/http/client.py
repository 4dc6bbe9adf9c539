"""The client of a Lamella service, and the handle of a table."""

from __future__ import annotations

from lamella.client.http.call import TableName
from lamella.client.http.scan import TableScan
from lamella.client.http.sync.methods import LakeMethods


class Lamella(LakeMethods):
    """A Lamella service: ``lake = Lamella("http://127.0.0.1:8181")``.

    Safe to share between threads. Every method raises a :class:`~lamella.snapshot.errors.LamellaError`: the class
    that the service's answer names, :class:`~lamella.snapshot.errors.Unavailable` when there is no answer after all
    tries, or :class:`~lamella.snapshot.errors.OutcomeUnknown` when a change may have been made all the same. The
    latter carries the ``idempotency_key``; the same call with that key is safe, however often. (Calls whose answer
    holds a secret have none; their message says what to do.)

    ``token``: an API key, or a token of the service's issuer. ``token_file``: a file that holds it, which is read again
    now and then, so that a key can be rotated without a restart. ``timeout_s``: the longest wait for a connection and
    for each next piece of an answer, per try. ``policy``: the tries. ``transport``: another way to send requests (see
    :mod:`lamella.client.http.fake_transport`); it is closed with the client. ``traces``: calls are part of the
    application's OpenTelemetry traces, if it has any. ``sleep``, ``jitter`` and ``ids`` are the outside world, for
    tests.
    """

    def table(self, name: str) -> Table:
        """The handle of ``namespace.name`` (the table is what follows the last dot); asks nothing of the service."""
        return Table(self, TableName.parse(name))


class Table(TableScan):
    """One table of a service; made by :meth:`Lamella.table`. Holds no state but its name."""
