"""A browser without scripts in which somebody has logged in to the console."""

from __future__ import annotations

import re
from typing import Final

from support.app_client import AppClient
from support.tenants import Tenants

_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


def logged_in(tenants: Tenants, key: str) -> AppClient:
    """A browser of the owner of a key; it follows no redirect."""
    browser = AppClient(tenants.app.app, follow_redirects=False)
    hidden = dict(_HIDDEN.findall(browser.get("/ui/login").text))
    assert browser.post("/ui/login", data={**hidden, "key": key, "next": "/ui"}).status_code == 303
    return browser
