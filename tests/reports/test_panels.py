from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from matplotlib.axes import Axes

from condvne.reports.panels import Sheet, logarithmic, plain_axes, symmetric_logarithmic
from condvne.reports.svg import drawing


def ticks(values: Sequence[float], scale: Callable[[Axes], None]) -> list[str]:
    """The y labels that are seen of a curve of these values."""
    with drawing():
        sheet = Sheet(1, height=1.5, left=0.5, right=0.1)
        axes = sheet.panels[0]
        plain_axes(axes, numbers="y")
        axes.plot(range(len(values)), values)
        scale(axes)
        low, high = axes.get_ylim()
        assert low <= min(values)
        assert high >= max(values)
        sheet.figure.canvas.draw()
        return [label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 3, 40], ["1", "2", "5", "10", "20"]),
        ([1, 30, 9000], ["1", "10", "100", "1,000"]),
    ],
)
def test_effective_numbers_on_a_logarithmic_axis(values: list[float], expected: list[str]) -> None:
    assert [text for text in ticks(values, logarithmic) if text in expected] == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-1e27, -3.0, -1.0], ["−10²⁵", "−10²⁰", "−10¹⁵", "−10¹⁰", "−10⁵", "−1"]),
        ([-500, -2.0, -0.5], ["−100", "−10", "−1", "0"]),
        ([0.0, 0.5, 2e4], ["0", "1", "10", "100", "1,000", "10⁴"]),
        ([-0.5, -0.25], ["0"]),
    ],
)
def test_energies_on_an_axis_with_both_signs(values: list[float], expected: list[str]) -> None:
    assert ticks(values, symmetric_logarithmic) == expected
