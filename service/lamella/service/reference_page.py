"""``/docs``: the OpenAPI description as one HTML page, drawn here, with no script and no foreign host."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Any, Final

import msgspec

_STYLE: Final = """
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:0.875rem/1.45 ui-monospace,monospace}
pre{overflow:auto;padding:.75rem;border:1px solid #8884;border-radius:.4rem}
details{border:1px solid #8884;border-radius:.4rem;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
summary b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #8884;padding:.3rem .6rem .3rem 0;text-align:left;vertical-align:top}
"""

#: The page may show its own style and nothing else.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
)


def reference_page(document: dict[str, Any]) -> str:
    """The page for an OpenAPI document."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(method.upper(), path, operation))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in by_tag.items())
    schemas = "".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1><p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="openapi.json">openapi.json</a></p>'
        f"{sections}<h2>Values</h2>{schemas}</body></html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<p>{escape(operation['description'])}</p>"] if "description" in operation else []
    if "parameters" in operation:
        rows = "".join(
            f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
            f"<td>{escape(p['description'])}</td></tr>"
            for p in operation["parameters"]
        )
        parts.append(f"<table><tr><th>parameter</th><th>in</th><th></th></tr>{rows}</table>")
    if "requestBody" in operation:
        parts.append(f"<p>Body: {_content(operation['requestBody'])}</p>")
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td><td>{_content(response)}</td></tr>"
        for status, response in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>status</th><th></th><th>body</th></tr>{rows}</table>")
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><b>{method}</b> <code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary>{''.join(parts)}</details>"
    )


def _content(holder: dict[str, Any]) -> str:
    return ", ".join(
        f"{_link(body['schema'])} <small>{escape(kind)}</small>" for kind, body in holder.get("content", {}).items()
    )


def _link(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#schema-{escape(name)}"><code>{escape(name)}</code></a>' if name else "text"


def _schema(name: str, schema: dict[str, Any]) -> str:
    body = escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())
    title = f"<summary><code>{escape(name)}</code></summary>"
    return f'<details id="schema-{escape(name)}">{title}<pre>{body}</pre></details>'
