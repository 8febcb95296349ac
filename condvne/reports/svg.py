"""A matplotlib figure as one inline `<svg>` that follows the page's colours, or as PNG bytes."""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from condvne.reports.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VARIABLES = {color: f"var(--{name})" for name, color in LIGHT.items()}
_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.0,
    "text.usetex": False,
    "text.parse_math": False,  # a group may be named "$x$"
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["soft"],
    "axes.labelcolor": LIGHT["soft"],
    "xtick.color": LIGHT["soft"],
    "ytick.color": LIGHT["soft"],
    "axes.linewidth": 0.6,
    "axes.unicode_minus": True,
    "path.simplify": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "condvne",
}


@contextmanager
def drawing() -> Iterator[None]:
    """The settings every figure is made and saved under; the caller's own matplotlib settings come back after.

    A name in a script that the figure's font lacks is drawn with boxes in the PNG (the page uses the reader's fonts),
    which is no reason to stop.
    """
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*[Gg]lyph.*missing from.*font")
        yield


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as PNG on white, the same bytes for the same figure."""
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure, prefix: str, label: str) -> str:
    """The figure as an `<svg>` element to put into HTML.

    Transparent, with text as text, palette colours as CSS variables, identifiers that start with `prefix` (several
    drawings share one page) and `label` as what a screen reader says. Nothing in it refers to another place.
    """
    buffer = io.StringIO()
    with drawing():
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    root = ET.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        # the drawing's own style sheet would apply to the whole page
        for child in [c for c in parent if _local(c.tag) in ("style", "metadata")]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(k): _value(_local(k), v, prefix) for k, v in element.attrib.items()}
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-label": label,
        "style": "stroke-linejoin:round;stroke-linecap:butt",
    }
    return ET.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return re.sub(r"^#", f"#{prefix}-", value)
    value = re.sub(r"url\(#", f"url(#{prefix}-", value)
    if name == "style":
        value = re.sub(r"#[0-9a-f]{6}", lambda m: _VARIABLES.get(m[0], m[0]), value)
    return value
