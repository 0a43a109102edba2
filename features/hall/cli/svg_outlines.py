"""Reads the shapes of a drawing (SVG), with their names and the transformations around them, and outlines of sections.

A shape is called by its id, or as a drawing program shows it. Of outlines polygons, rectangles and paths are read; a
curve counts as a line to its end.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from onsale.errors import OperatorError

SIZE_MIN, SIZE_MAX, POINTS_MAX = 1_000, 32_767, 100
NAMES_KEPT_MAX = 1_024
_number = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_step = re.compile(r"([MmLlHhVvZzCcSsQqTtAa])([^MmLlHhVvZzCcSsQqTtAa]*)")
_transform = re.compile(r"(matrix|translate|scale|rotate)\s*\(([^)]*)\)")
OUTLINES = {"polygon", "polyline", "rect", "path"}
_DOTS = {"circle": ("cx", "cy"), "ellipse": ("cx", "cy"), "use": ("x", "y")}
_UNREAD = {"circle", "ellipse", "line", "text", "image", "use"}
_NOT_DRAWN = {"defs", "clipPath", "mask", "symbol", "pattern", "marker", "metadata"}
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{2,5})_")  # as Adobe Illustrator writes what an id cannot have
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


class Shape(NamedTuple):
    """A shape that is drawn, and the groups around it from within; `places` are its corners, or its middle alone."""

    element: ET.Element
    around: tuple[ET.Element, ...]
    places: list[Place]

    @property
    def tag(self) -> str:
        return tag_of(self.element)

    @property
    def middle(self) -> Place:
        xs, ys = zip(*self.places, strict=True)
        return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


class Drawing(NamedTuple):
    """A drawing: its size in the map's coordinates, and its shapes."""

    root: ET.Element
    size: tuple[int, int]
    shapes: list[Shape]

    @property
    def title(self) -> str:
        """What the drawing is called."""
        return next((each.text or "" for each in self.root if tag_of(each) == "title"), "").strip()


def read_drawing(text: str) -> Drawing:
    """Raises `OperatorError`."""
    if "<!ENTITY" in text:
        raise OperatorError("the drawing declares entities, which are not read")
    try:
        root = ET.fromstring(text)  # noqa: S314 - without entities it is as long as the file
    except ET.ParseError as broken:
        raise OperatorError(f"not an SVG file: {broken}") from broken
    left, top, width, height = _view(root)
    scale = min(max(1.0, SIZE_MIN / max(width, height)), SIZE_MAX / max(width, height))
    view = Matrix(a=scale, d=scale, e=-left * scale, f=-top * scale)
    return Drawing(root, (math.floor(width * scale), math.floor(height * scale)), list(_shapes(root, view, ())))


def tag_of(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


@lru_cache(NAMES_KEPT_MAX)
def names_of(element: ET.Element) -> tuple[str, ...]:
    """What an element is called: its id, its label in a drawing program, its title. Kept, because each seat asks for
    the names of the groups around it, and a group may have 50,000 seats.
    """
    own = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    title = next((each.text or "" for each in element if tag_of(each) == "title"), "")
    names = (own.get("id", ""), own.get("label", ""), own.get("data-name", ""), title)
    read = (_ESCAPED.sub(lambda code: chr(int(code[1], 16)), name).strip() for name in names if name)
    return tuple(dict.fromkeys(read))


def named_shapes(shapes: Iterable[Shape]) -> dict[str, Shape]:
    """The outlines by name; a group is called like its first. An id goes before a label."""
    found: dict[tuple[bool, str], Shape] = {}
    for shape in shapes:
        if shape.tag in OUTLINES:
            for element in (shape.element, *shape.around):
                for name in names_of(element):
                    found.setdefault((name != element.get("id"), name), shape)
    return {name: shape for (_, name), shape in sorted(found.items(), key=lambda each: each[0][0], reverse=True)}


def outline_of(section_id: str, shape: Shape) -> list[list[int]]:
    """Raises `OperatorError`."""
    points = [[round(x), round(y)] for x, y in shape.places]
    outline = [point for n, point in enumerate(points) if point != points[n - 1]]
    if not 3 <= len(outline) <= POINTS_MAX:
        raise OperatorError(f"the outline of {section_id} has {len(outline)} corners; it needs 3 to {POINTS_MAX}")
    return outline


def stage_of(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The field `stage` of a map, if the drawing has the shape."""
    if "stage" not in shapes:
        return {}
    xs, ys = zip(*shapes["stage"].places, strict=True)
    x, y = shapes["stage"].middle
    return {"stage": {"at": [round(x), round(y)], "size": [round(max(xs) - min(xs)), round(max(ys) - min(ys))]}}


def left_out(drawing: Drawing, used: Mapping[str, Shape], seats: Collection[ET.Element]) -> Iterator[str]:
    """Shapes that are neither section nor seat, parts of outlines that are made straight, and what is no outline."""
    of_seats = {id(part) for seat in seats for part in seat.iter()}
    shapes = [shape for shape in drawing.shapes if id(shape.element) not in of_seats and shape.tag in OUTLINES]
    inside = Counter(id(group) for shape in shapes for group in shape.around)
    taken = {id(shape.element) for shape in used.values()}
    for name, shape in used.items():
        yield from _simplified(name, shape.element.get("d", ""))
        group = next((each for each in shape.around if name in names_of(each)), None)
        if group is not None:
            taken.add(id(group))
            if inside[id(group)] > 1:
                yield f"{name}: only the first of the group's {inside[id(group)]} shapes is kept"
    rest = [shape for shape in shapes if taken.isdisjoint(map(id, (shape.element, *shape.around)))]
    others = [names[0] for names in map(names_of, (shape.element for shape in rest)) if names]
    if others:
        yield f"shapes that are no section are not kept: {', '.join(others[:20])}{', …' if others[20:] else ''}"
    unread = Counter(
        tag for each in drawing.root.iter() if id(each) not in of_seats and (tag := tag_of(each)) in _UNREAD
    )
    if unread:
        counts = ", ".join(f"{n} {tag}" for tag, n in sorted(unread.items()))
        yield f"not kept, as only outlines and seats are: {counts}"


def _simplified(name: str, path: str) -> Iterator[str]:
    verbs = [verb.upper() for verb, _ in _step.findall(path)]
    if set(verbs) & set("CSQTA"):
        yield f"{name}: curves of its outline are kept as straight lines"
    if verbs.count("M") > 1:
        yield f"{name}: only the first part of its outline is kept"


def _view(root: ET.Element) -> tuple[float, float, float, float]:
    numbers = _numbers(root.get("viewBox", ""))
    if len(numbers) != 4:
        numbers = [0.0, 0.0, *(_length(root, name) for name in ("width", "height"))]
    if min(numbers[2:]) <= 0:
        raise OperatorError("the drawing has no size: it needs a viewBox, or width and height")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _shapes(element: ET.Element, outer: Matrix, around: tuple[ET.Element, ...]) -> Iterator[Shape]:
    if tag_of(element) in _NOT_DRAWN:
        return
    matrix = outer
    for name, values in _transform.findall(element.get("transform", "")):
        matrix = matrix.after(_matrix(name, _numbers(values)))
    if places := [matrix.of(place) for place in _corners(element)]:
        yield Shape(element, around, places)
    for child in element:
        yield from _shapes(child, matrix, (element, *around))


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
    match tag_of(element):
        case "polygon" | "polyline":
            numbers = _numbers(element.get("points", ""))
            return list(zip(numbers[::2], numbers[1::2], strict=False))
        case "rect":
            x, y, width, height = (_length(element, name) for name in ("x", "y", "width", "height"))
            return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        case "path":
            return list(_ends(element.get("d", "")))
        case tag if tag in _DOTS:
            x, y = (_length(element, name) for name in _DOTS[tag])
            return [(x, y)]
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


def _length(element: ET.Element, name: str) -> float:
    return (_numbers(element.get(name, "")) or [0.0])[0]


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _number.findall(text)]
