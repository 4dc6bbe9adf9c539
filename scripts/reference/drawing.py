"""Draws shapes and text as SVG, with its own background, so that it is readable on light and dark pages."""

from __future__ import annotations

from html import escape

_STYLE = """
    .ground{fill:#fff}.kept{fill:#1f7a5c}.out{fill:#c9ced6}.part{fill:#dcebe5;stroke:#1f7a5c}
    .frame{fill:none;stroke:#8a93a1;stroke-width:1.5}.line{stroke:#1f7a5c;stroke-width:2;fill:none}
    .dash{stroke:#8a93a1;stroke-width:1.5;stroke-dasharray:5 4;fill:none}.tip{fill:#1f7a5c}
    text{fill:#333b47}.small{font-size:12px;fill:#5b6572}.on{fill:#fff}.strong{font-weight:600}
    @media (prefers-color-scheme:dark){.ground{fill:#171b22}text{fill:#e3e7ee}.small{fill:#aab3c0}.out{fill:#49515e}
      .part{fill:#21362f;stroke:#3f9c7c}.frame,.dash{stroke:#6d7684}.line{stroke:#3f9c7c}.tip{fill:#3f9c7c}.on{fill:#fff}}
"""


class Drawing:
    """Collects shapes; :meth:`text_of` returns the file."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self._size = (width, height)
        self._labels = (title, description)
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "frame", label: str = "") -> None:
        """Add a rectangle with a centred label."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{kind}"/>')
        if label:
            self.text(x + width / 2, y + height / 2 + 5, label, "on" if kind == "kept" else "", middle=True)

    def text(self, x: float, y: float, text: str, kind: str = "", *, middle: bool = False) -> None:
        """Add a line of text; ``y`` is its baseline."""
        anchor = ' text-anchor="middle"' if middle else ""
        named = f' class="{kind}"' if kind else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{anchor}{named}>{escape(text)}</text>')

    def line(self, *points: tuple[float, float], kind: str = "line", arrow: bool = False) -> None:
        """Add a line through points, with an arrowhead."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="{path}"/>')
        if arrow:
            (x0, y0), (x, y) = points[-2], points[-1]
            if x == x0:
                s = 8 if y > y0 else -8
                tip = f"{x:g},{y:g} {x - 5:g},{y - s:g} {x + 5:g},{y - s:g}"
            else:
                s = 8 if x > x0 else -8
                tip = f"{x:g},{y:g} {x - s:g},{y - 5:g} {x - s:g},{y + 5:g}"
            self._parts.append(f'<polygon class="tip" points="{tip}"/>')

    def text_of(self) -> str:
        """Return the whole file."""
        width, height = self._size
        title, description = self._labels
        shapes = "\n  ".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="system-ui, sans-serif" font-size="14" role="img" aria-labelledby="t d">\n'
            f'  <title id="t">{escape(title)}</title>\n'
            f'  <desc id="d">{escape(description)}</desc>\n  <style>{_STYLE}  </style>\n'
            f'  <rect width="{width}" height="{height}" rx="8" class="ground"/>\n  {shapes}\n</svg>\n'
        )
