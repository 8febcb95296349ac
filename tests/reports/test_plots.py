from __future__ import annotations

import io
import itertools
from collections.abc import Callable

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from condvne.data.results import Scores
from condvne.reports.palette import look
from condvne.reports.plots import _apart, gap_difference_plot, gap_plot, needs_legend, swatch
from condvne.reports.svg import to_png
from tests.reports import examples


def image(figure: Figure) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with Image.open(io.BytesIO(to_png(figure))) as png:
        assert png.format == "PNG"
        return np.asarray(png.convert("RGB"))


@pytest.mark.parametrize(
    "make",
    [
        examples.scores,
        examples.without_reference,
        examples.single_size,
        examples.single_group,
        examples.hostile,
    ],
)
def test_the_png_is_whole_and_not_blank(make: Callable[[], Scores]) -> None:
    pixels = image(gap_plot(make()))
    height, width, _ = pixels.shape
    assert 1000 < width < 1400
    assert 200 < height < 2000
    drawn = np.asarray((pixels < 250).any(axis=2))
    assert 0.005 < drawn.mean() < 0.5
    half = height // 2
    for quarter in (drawn[:half, : width // 2], drawn[:half, width // 2 :], drawn[half:, : width // 2]):
        assert quarter.mean() > 0.003


def test_curves_go_through_the_means_in_the_group_colours() -> None:
    scores = examples.scores()
    figure = gap_plot(scores)
    assert len(figure.axes) == len(scores.metrics)
    for axes, metric in zip(figure.axes, scores.metrics, strict=True):
        assert axes.get_xscale() == "log"
        assert [t.get_text() for t in axes.get_xticklabels()] == ["250", "500", "1,000", "2,000"]
        lines = {to_hex(str(line.get_color())): line for line in axes.get_lines()}
        assert len(lines) == len(scores.groups)
        assert len({str(line.get_marker()) for line in lines.values()}) == len(scores.groups)
        for group in scores.groups:
            line = lines[look(scores, group).color]
            means = [scores.cell(group, metric.key, n).mean for n in scores.sizes]  # type: ignore[union-attr]
            assert list(np.asarray(line.get_ydata())) == means
        assert len(axes.collections) == len(scores.groups)  # one band each


def test_bands_reach_one_standard_deviation() -> None:
    scores = examples.scores()
    band = gap_plot(scores, ["distinct_2"]).axes[0].collections[0]
    cell = scores.cell(scores.groups[0], "distinct_2", 250)
    assert cell is not None
    assert cell.std is not None
    path = np.asarray(band.get_paths()[0].vertices)
    ends = path[path[:, 0] == 250][:, 1]
    assert ends.min() == pytest.approx(cell.mean - cell.std)
    assert ends.max() == pytest.approx(cell.mean + cell.std)


def test_no_deviation_no_band() -> None:
    figure = gap_plot(examples.scores(repeats=1))
    assert all(not axes.collections for axes in figure.axes)
    assert all(len(axes.get_lines()) == 4 for axes in figure.axes)


def test_near_sizes_stay_on_a_linear_axis() -> None:
    assert gap_plot(examples.scores(sizes=[400, 500, 600])).axes[0].get_xscale() == "linear"


def test_one_size_gives_points_with_bars() -> None:
    scores = examples.single_size()
    axes = gap_plot(scores, ["conditional_vendi"]).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == scores.groups
    assert "1,500" in axes.get_xlabel()
    points = [float(np.asarray(line.get_xdata())[0]) for line in axes.get_lines() if line.get_marker() != "None"]
    means = [scores.cell(g, "conditional_vendi", 1500).mean for g in scores.groups]  # type: ignore[union-attr]
    assert sorted(set(points)) == sorted(means)


def test_undefined_metric_is_said() -> None:
    everyone = frozenset((g, "distinct_3") for g in examples.GROUPS)
    for sizes in ([500, 1000], [500]):
        axes = gap_plot(examples.scores(sizes=sizes, undefined=everyone)).axes[3]
        assert "undefined" in [t.get_text() for t in axes.texts]


def test_short_names_stand_beside_curves_and_long_ones_in_a_legend() -> None:
    short, long = examples.scores(), examples.crowded()
    assert not needs_legend(short)
    figure = gap_plot(short, ["conditional_rke"])
    assert not figure.legends
    assert set(short.groups) <= {t.get_text() for t in figure.axes[0].texts}
    assert needs_legend(long)
    figure = gap_plot(long, ["conditional_rke"])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == long.groups
    assert not set(long.groups[1:]) & {t.get_text() for t in figure.axes[0].texts}
    assert not gap_plot(long, ["conditional_rke"], legend=False).legends


def test_ten_groups_look_different() -> None:
    scores = examples.crowded()
    looks = {(s.color, s.line, s.filled) for s in (look(scores, g) for g in scores.groups)}
    assert len(looks) == 10
    assert len({look(scores, g).marker for g in scores.groups}) == 10


@pytest.mark.parametrize("wanted", [[0.5], [0.5, 0.5, 0.5], [0.1, 0.11, 0.5, 0.9, 0.91, 0.92], [0.0, 0.2]])
def test_labels_are_pushed_apart_in_order(wanted: list[float]) -> None:
    placed = _apart(wanted, 0.1)
    assert all(b - a >= 0.1 - 1e-12 for a, b in itertools.pairwise(placed))
    assert sum(placed) == pytest.approx(sum(wanted))
    assert max(abs(a - b) for a, b in zip(placed, wanted, strict=True)) <= 0.05 * len(wanted)


def test_differences_show_estimates_intervals_and_marks() -> None:
    scores = examples.scores()
    axes = gap_difference_plot(scores, ["conditional_vendi"]).axes[0]
    cells = [c for c in scores.cells if c.metric == "conditional_vendi" and c.gap]
    drawn = [tuple(np.asarray(line.get_xdata(), dtype=float)) for line in axes.get_lines()]
    assert (0.0, 0.0) in [tuple(x) for x in drawn]  # the line of no difference
    for cell in cells:
        assert cell.gap is not None
        assert (cell.gap.estimate,) in drawn
        assert (cell.gap.low, cell.gap.high) in drawn
    texts = [t.get_text() for t in axes.texts]
    assert {"greedy", "nucleus", "ancestral", "−16.13"} <= set(texts)
    marks = {"below": "▼", "above": "▲", "undecided": "·"}
    assert [t for t in texts if t in marks.values()] == [
        marks[c.gap.direction] for g in scores.groups for c in cells if c.group == g and c.gap
    ]


def test_differences_without_intervals_are_points() -> None:
    axes = gap_difference_plot(examples.scores(repeats=1), ["conditional_vendi"]).axes[0]
    assert all(len(np.asarray(line.get_xdata())) == 1 for line in axes.get_lines()[1:])


def test_differences_png() -> None:
    assert (image(gap_difference_plot(examples.single_size())) < 250).any()


def test_dollars_in_names_are_text() -> None:
    scores = examples.scores({"training": 1.0, "$x_1$ $\\frac": 0.5})
    assert (image(gap_plot(scores, ["conditional_vendi"])) < 250).any()


def test_the_callers_settings_are_left_alone() -> None:
    before = dict(matplotlib.rcParams)
    to_png(gap_plot(examples.scores(sizes=[500])))
    assert dict(matplotlib.rcParams) == before


def test_equal_scores_give_equal_bytes() -> None:
    scores = examples.single_size()
    assert to_png(gap_plot(scores)) == to_png(gap_plot(scores))


def test_swatch() -> None:
    scores = examples.scores()
    assert to_hex(str(swatch(scores, "greedy").axes[0].get_lines()[0].get_color())) == look(scores, "greedy").color
