"""Reads outlines of sections from a drawing (SVG): a shape whose id is a section's id is the section's outline.

Polygons, rectangles and paths are read, with the transformations around them; a curve counts as a line to its end.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from onsale.errors import OperatorError

SIZE_MIN, SIZE_MAX, POINTS_MAX = 1_000, 32_767, 100
_number = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_step = re.compile(r"([MmLlHhVvZzCcSsQqTtAa])([^MmLlHhVvZzCcSsQqTtAa]*)")
_transform = re.compile(r"(matrix|translate|scale|rotate)\s*\(([^)]*)\)")
_OUTLINES = {"polygon", "polyline", "rect", "path"}
_UNREAD = {"circle", "ellipse", "line", "text", "image", "use"}
_ARGUMENTS = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "A": 7}
Place = tuple[float, float]


class Matrix(NamedTuple):
    """An affine map: x·a + y·c + e, x·b + y·d + f."""

    a: float = 1
    b: float = 0
    c: float = 0
    d: float = 1
    e: float = 0
    f: float = 0

    def of(self, place: Place) -> Place:
        x, y = place
        return x * self.a + y * self.c + self.e, x * self.b + y * self.d + self.f

    def after(self, inner: "Matrix") -> "Matrix":
        """First `inner`, then this one."""
        (a, b), (c, d) = (self.of(axis) for axis in ((inner.a, inner.b), (inner.c, inner.d)))
        e, f = self.of((inner.e, inner.f))
        return Matrix(a=a - self.e, b=b - self.f, c=c - self.e, d=d - self.f, e=e, f=f)


class ImportedOutlines(NamedTuple):
    """The map of an event file, and what the drawing has besides, in sentences."""

    hall_map: dict[str, Any]
    left_out: list[str]


def import_outlines(text: str, section_ids: Collection[str]) -> ImportedOutlines:
    """The map of an event file with these sections. Raises `OperatorError`."""
    if "<!ENTITY" in text:
        raise OperatorError("the drawing declares entities, which are not read")
    try:
        root = ET.fromstring(text)  # noqa: S314 - without entities it is as long as the file
    except ET.ParseError as broken:
        raise OperatorError(f"not an SVG file: {broken}") from broken
    left, top, width, height = _view(root)
    scale = min(max(1.0, SIZE_MIN / max(width, height)), SIZE_MAX / max(width, height))
    view = Matrix(a=scale, d=scale, e=-left * scale, f=-top * scale)
    shapes = dict(_shapes(root, view))
    if missing := sorted(set(section_ids) - shapes.keys()):
        raise OperatorError(f"the drawing has no shape with the id {', '.join(missing[:5])}")
    outlines = {section_id: _outline(section_id, shapes[section_id]) for section_id in section_ids}
    hall_map: dict[str, Any] = {"size": [math.floor(width * scale), math.floor(height * scale)]}
    if "stage" in shapes:
        xs, ys = zip(*shapes["stage"], strict=True)
        hall_map["stage"] = {
            "at": [round((min(xs) + max(xs)) / 2), round((min(ys) + max(ys)) / 2)],
            "size": [round(max(xs) - min(xs)), round(max(ys) - min(ys))],
        }
    hall_map["sections"] = {section_id: {"outline": outline} for section_id, outline in outlines.items()}
    return ImportedOutlines(hall_map, list(_left_out(root, {*section_ids, "stage"} & shapes.keys())))


def _left_out(root: ET.Element, used: Collection[str]) -> Iterator[str]:
    """Shapes that are no section, parts of outlines that are made straight, and what is no outline at all."""
    others, unread = list[str](), Counter[str]()
    for element in root.iter():
        tag, name = element.tag.rpartition("}")[2], element.get("id", "")
        if tag in _OUTLINES and name in used:
            yield from _simplified(name, element.get("d", ""))
        elif tag in _OUTLINES and name:
            others.append(name)
        elif tag in _UNREAD:
            unread[tag] += 1
    for group in (e for e in root.iter() if e.tag.rpartition("}")[2] == "g" and e.get("id") in used):
        shapes = [e for e in group.iter() if e.tag.rpartition("}")[2] in _OUTLINES]
        if not shapes:
            continue
        others = [name for name in others if name != shapes[0].get("id")]
        yield from _simplified(group.get("id", ""), shapes[0].get("d", ""))
        if len(shapes) > 1:
            yield f"{group.get('id')}: only the first of the group's {len(shapes)} shapes is kept"
    if others:
        yield f"shapes that are no section are not kept: {', '.join(others[:20])}{', …' if others[20:] else ''}"
    if unread:
        yield f"not kept, as only outlines are: {', '.join(f'{n} {tag}' for tag, n in sorted(unread.items()))}"


def _simplified(name: str, path: str) -> Iterator[str]:
    verbs = [verb.upper() for verb, _ in _step.findall(path)]
    if set(verbs) & set("CSQTA"):
        yield f"{name}: curves of its outline are kept as straight lines"
    if verbs.count("M") > 1:
        yield f"{name}: only the first part of its outline is kept"


def _view(root: ET.Element) -> tuple[float, float, float, float]:
    numbers = _numbers(root.get("viewBox", ""))
    if len(numbers) != 4:
        numbers = [0.0, 0.0, *(float((_numbers(root.get(name, "")) or [0])[0]) for name in ("width", "height"))]
    if min(numbers[2:]) <= 0:
        raise OperatorError("the drawing has no size: it needs a viewBox, or width and height")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _shapes(element: ET.Element, outer: Matrix) -> Iterator[tuple[str, list[Place]]]:
    """Each shape with an id, and its corners; a group with an id is its first shape."""
    matrix = outer
    for name, values in _transform.findall(element.get("transform", "")):
        matrix = matrix.after(_matrix(name, _numbers(values)))
    corners = [matrix.of(place) for place in _corners(element)]
    if corners:
        yield element.get("id", ""), corners
    named = element.get("id") if element.tag.rpartition("}")[2] == "g" else None
    for child in element:
        for shape_id, places in _shapes(child, matrix):
            yield shape_id, places
            if named:
                yield named, places
                named = None


def _matrix(name: str, values: list[float]) -> Matrix:
    match name, values:
        case "matrix", [_, _, _, _, _, _]:
            return Matrix(*values)
        case "translate", [x, *y]:
            return Matrix(e=x, f=y[0] if y else 0)
        case "scale", [x, *y]:
            return Matrix(a=x, d=y[0] if y else x)
        case "rotate", [degrees, *around]:
            cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            left, top = (around[0], around[1]) if len(around) == 2 else (0.0, 0.0)
            return Matrix(e=left, f=top).after(Matrix(cos, sin, -sin, cos)).after(Matrix(e=-left, f=-top))
    raise OperatorError(f"the drawing has a transformation that is not read: {name}{tuple(values)}")


def _corners(element: ET.Element) -> list[Place]:
    match element.tag.rpartition("}")[2]:
        case "polygon" | "polyline":
            numbers = _numbers(element.get("points", ""))
            return list(zip(numbers[::2], numbers[1::2], strict=False))
        case "rect":
            x, y, width, height = (
                float((_numbers(element.get(n, "")) or [0])[0]) for n in ("x", "y", "width", "height")
            )
            return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        case "path":
            return list(_ends(element.get("d", "")))
    return []


def _ends(path: str) -> Iterator[Place]:
    """The end of each step of the path's first part."""
    x = y = 0.0
    for n, (verb, text) in enumerate(_step.findall(path)):
        if verb in "Zz" or (verb in "Mm" and n):
            return
        numbers, size = _numbers(text), _ARGUMENTS[verb.upper()]
        for at in range(0, len(numbers) - size + 1, size):
            *_, before, last = [0.0, *numbers[at : at + size]]
            origin = (x, y) if verb.islower() else (0.0, 0.0)
            if verb.upper() == "H":
                x = origin[0] + last
            elif verb.upper() == "V":
                y = origin[1] + last
            else:
                x, y = origin[0] + before, origin[1] + last
            yield x, y


def _outline(section_id: str, places: list[Place]) -> list[list[int]]:
    points = [[round(x), round(y)] for x, y in places]
    outline = [point for n, point in enumerate(points) if point != points[n - 1]]
    if not 3 <= len(outline) <= POINTS_MAX:
        raise OperatorError(f"the outline of {section_id} has {len(outline)} corners; it needs 3 to {POINTS_MAX}")
    return outline


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _number.findall(text)]
