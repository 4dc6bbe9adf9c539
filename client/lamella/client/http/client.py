"""The client of a Lamella service, and the handle of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamella.client.http.call import TableName
from lamella.client.http.constraints import TableConstraints
from lamella.client.http.lake import Lake
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.html_tables import html_facts

if TYPE_CHECKING:
    from lamella.client.http.transaction import Transaction


class Lamella(Lake):
    """A Lamella service: ``lake = Lamella("http://127.0.0.1:8181")``.

    Safe to share between threads. Errors are :class:`~lamella.snapshot.errors.LamellaError`: the class named by the
    service's response, :class:`~lamella.snapshot.errors.Unavailable` when all attempts failed, or
    :class:`~lamella.snapshot.errors.OutcomeUnknown` when all attempts failed but a change may have been made. The
    latter carries the ``idempotency_key``; it is safe to repeat the call with that key any number of times. (Calls that
    return a secret have no key; their message says what to do.)

    Without ``url``, the service is that of ``profile``, of the variables ``LAMELLA_URL`` and ``LAMELLA_PROFILE``, or of
    the profile "default", with the key that belongs to it; see ``docs/python.md#connection``. With ``url``, the
    environment is not looked at.

    ``token``: an API key, or a token from the service's issuer. ``token_file``: a file with the token; it is read again
    periodically, so a key can be rotated without a restart. ``timeout_s``: the maximum wait in seconds, per attempt,
    for a connection and for each part of a response. ``policy``: how requests are retried. ``transport``: another way
    to send requests (see :mod:`lamella.client.http.fake_transport`); it is closed with the client. ``traces``: add
    calls to the application's OpenTelemetry traces, if it has any. ``sleep``, ``jitter`` and ``ids`` can be replaced in
    tests.
    """

    def table(self, name: str) -> Table:
        """The handle of ``namespace.name`` (the table name follows the last dot); sends no request.

        Example:
            >>> lake.table("shop.orders").name
            'orders'
        """
        return Table(self, TableName.parse(name))

    def transaction(self) -> Transaction[Table]:
        """Changes of several tables that happen together or not at all, committed at the end of a ``with`` block.

        Example:
            >>> with lake.transaction() as tx:
            ...     appended = tx.table("shop.rates").append({"country": ["US"], "vat": [0]})
            ...     deleted = tx.table("shop.orders").delete("country = 'US'")
        """
        from lamella.client.http.transaction import Transaction

        return Transaction(self)


class Table(TableConstraints):
    """One table of a service; made by :meth:`Lamella.table`. Holds no state but its name."""

    def _repr_html_(self) -> str:
        """The current state of the table, for notebooks; if the service gives none, its name and the error."""
        try:
            return self.info()._repr_html_()
        except LamellaError as error:
            return html_facts(f"Table {self}", [("error", f"{error.message} [{error.code}]")])
