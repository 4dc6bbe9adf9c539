"""A browser's forms without a browser: read a page, send its form, keep the cookie."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import httpx2

from support.kept_connections import LIMITS
from support.ready_pages import when_ready


class Form(HTMLParser):
    """The fields of the forms of a page that are posted, and the text of the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.names: set[str] = set()
        self.labels: list[str] = []
        self.alerts: list[str] = []
        self.text = ""
        self._posts = False
        self._within: list[str] | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._posts = found.get("method") == "post"
        elif tag in ("input", "select", "textarea") and "name" in found:
            self.names.add(found["name"])
            if self._posts and found.get("type") != "checkbox":
                self.fields[found["name"]] = found.get("value", "")
        if found.get("role") == "alert":
            self.alerts.append("")
            self._within = self.alerts
        elif tag == "label":
            self.labels.append("")
            self._within = self.labels

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "label"):
            self._within = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._within is not None:
            self._within[-1] += data


class Screens:
    """The pages of one service, as one browser sees them."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=120, limits=LIMITS)

    def get(self, path: str, *, expect: int = 200, **query: Any) -> Form:
        """A page."""
        answer = when_ready(self.http, path, {name: str(value) for name, value in query.items()} or None)
        assert answer.status_code == expect, answer.text
        return Form(answer.text)

    def post(self, path: str, form: Form, *, expect: int = 303, **more: Any) -> httpx2.Response:
        """The answer to the page's form, with these fields besides."""
        answer = self.http.post(path, data={**form.fields, **more})
        assert answer.status_code == expect, answer.text
        return answer
