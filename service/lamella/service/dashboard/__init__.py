"""The admin pages at ``/ui``: drawn on the server, readable without a script, and with nothing from elsewhere.

One module a screen; each reads what it shows from the same services that the REST API answers from, and has no state of
its own, so that any process of the service can draw any page. docs/decisions/0035-dashboard.md has the reasons.
"""

from __future__ import annotations

from starlette.routing import Route

from lamella.service.dashboard.access import AccessPages
from lamella.service.dashboard.history import HistoryPages
from lamella.service.dashboard.jobs import JobPages
from lamella.service.dashboard.lab import LabPages
from lamella.service.dashboard.layer_map import MapPages
from lamella.service.dashboard.login import LoginPages
from lamella.service.dashboard.pages import Pages
from lamella.service.dashboard.status import StatusPages
from lamella.service.dashboard.tables import OverviewPages, TablePages
from lamella.service.http.routing import RouteFactory
from lamella.service.services import Services


def dashboard_routes(services: Services, boundary: RouteFactory, secret: bytes) -> list[Route]:
    """The routes of all screens; ``secret`` signs what their forms carry."""
    pages = Pages(services, boundary, secret)
    screens = (OverviewPages, TablePages, MapPages, HistoryPages, LabPages, JobPages, AccessPages, StatusPages)
    found = [page for screen in screens for page in screen(services, pages).pages()]
    return pages.routes([*LoginPages(services, pages, secret).pages(), *found])
