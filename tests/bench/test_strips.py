"""Pictures of many values: every value is a point, and where it is says how large it is."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from strips import Row, svg

SVG = "{http://www.w3.org/2000/svg}"


def test_each_value_is_a_point_where_its_size_says() -> None:
    """A row for each group, a strip for each series, twice as much as far to the right everywhere."""
    rows = [
        Row("one & more", {"ours": [1.0, 2.0, 4.0], "theirs": [8.0]}, {"ours": 2.0}),
        Row("two", {"ours": [0.5], "theirs": []}, {}),
    ]
    picture = ET.fromstring(svg("A < B", rows, "times as long", even=1))  # noqa: S314  # of our own making
    assert [text.text for text in picture.iter(f"{SVG}text")][:1] == ["A < B"]
    assert {"one & more", "two", "ours", "theirs", "times as long", "1"} <= {t.text for t in picture.iter(f"{SVG}text")}
    points = [circle for circle in picture.iter(f"{SVG}circle") if circle.get("r") == "3"]
    assert len(points) == 5
    xs = [float(point.get("cx", "0")) for point in points]
    ys = [float(point.get("cy", "0")) for point in points]
    assert xs[0] < xs[1] < xs[2] < xs[3]
    assert abs((xs[1] - xs[0]) - (xs[2] - xs[1])) < 0.2
    assert ys[0] == ys[1] == ys[2] < ys[3] < ys[4]
    marks = [line for line in picture.iter(f"{SVG}line") if line.get("stroke-width") == "3"]
    assert [line.get("x1") for line in marks] == [points[1].get("cx")]
    assert [line.get("stroke") for line in picture.iter(f"{SVG}line")].count("#888888") == 1
