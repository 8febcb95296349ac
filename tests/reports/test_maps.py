from __future__ import annotations

import io

import numpy as np
from matplotlib.patches import Rectangle
from PIL import Image

from condvne.data.results import RobustnessMap
from condvne.reports.maps import bandwidths_plot, differing, robustness_plot
from condvne.reports.svg import to_png
from tests.reports import examples

MIXED = RobustnessMap(
    group="nucleus",
    n=500,
    orders=[0.5, 1.0, "inf"],
    multipliers=[0.5, 1.0],
    gaps=[[-0.3, -0.1], [-0.2, -0.00004], [0.0, 0.25]],
    verdict="undecided",
    sentence="nucleus is below training at some orders and bandwidths and above it at others.",
)


def test_every_cell_prints_its_number_and_sign() -> None:
    scores = examples.scores().model_copy(update={"robustness": [MIXED]})
    axes = robustness_plot(scores).axes[0]
    texts = [t.get_text() for t in axes.texts]
    for text in ("−0.30", "−0.10", "−0.20", "−0.000040", "0", "+0.25"):
        assert text in texts
    assert [t.get_text() for t in axes.get_xticklabels()] == ["×0.5", "×1"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0.5", "1", "∞"]
    assert any("nucleus, n = 500" in t for t in texts)


def test_colour_is_centred_on_zero_and_frames_mark_other_signs() -> None:
    scores = examples.scores().model_copy(update={"robustness": [MIXED]})
    patches = [p for p in robustness_plot(scores).axes[0].patches if isinstance(p, Rectangle)]
    cells = [p for p in patches if p.get_fill()]
    frames = [p for p in patches if not p.get_fill()]
    alpha = [p.get_alpha() or 0.0 for p in cells]
    gaps = [g for row in MIXED.gaps for g in row]
    assert alpha[gaps.index(0.0)] == 0
    assert max(alpha) == alpha[0]
    assert np.argsort(alpha).tolist() == np.argsort(np.abs(gaps)).tolist()
    colours = {g > 0: p.get_facecolor()[:3] for g, p in zip(gaps, cells, strict=True) if g}
    assert len(set(colours.values())) == 2
    assert len(frames) == 2
    assert differing(MIXED) == [(2, 0), (2, 1)]


def test_no_frame_without_a_usual_cell() -> None:
    assert differing(MIXED.model_copy(update={"orders": [0.5, 2.0, "inf"]})) == []
    assert differing(MIXED.model_copy(update={"multipliers": [0.5, 2.0]})) == []


def test_groups_choose_panels_on_one_scale() -> None:
    scores = examples.scores()
    whole, one = robustness_plot(scores), robustness_plot(scores, ["nucleus"])
    assert len(whole.axes) == 3
    assert len(one.axes) == 1
    alphas = [[p.get_alpha() for p in axes.patches] for axes in (whole.axes[1], one.axes[0])]
    assert alphas[0] == alphas[1]


def test_equal_entropies_give_an_empty_colour_and_zeros() -> None:
    flat = MIXED.model_copy(update={"gaps": [[0.0, -1e-15], [1e-15, 1e-15], [0.0, 0.0]]})
    scores = examples.scores().model_copy(update={"robustness": [flat]})
    axes = robustness_plot(scores).axes[0]
    assert {p.get_alpha() for p in axes.patches} == {0.0}
    assert [t.get_text() for t in axes.texts].count("0") == 6
    assert differing(flat) == []


def test_png() -> None:
    with Image.open(io.BytesIO(to_png(robustness_plot(examples.scores())))) as png:
        assert (np.asarray(png.convert("L")) < 200).mean() > 0.01


def test_both_bandwidths_have_a_panel_for_each_order() -> None:
    planes = [[[-0.3, 0.5], [-0.2, -0.1]], [[-0.2, -0.1], [-0.4, -0.00004]], [[0.0, 0.1], [-0.2, 0.25]]]
    both = MIXED.model_copy(update={"separate": planes})
    figure = bandwidths_plot(both)
    assert figure is not None
    assert len(figure.axes) == 3
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["×0.5", "×1"]
    assert [t.get_text() for t in figure.axes[0].texts if t.get_text() in ("−0.30", "+0.50")] == ["−0.30", "+0.50"]
    frames = [sum(not p.get_fill() for p in axes.patches if isinstance(p, Rectangle)) for axes in figure.axes]
    assert frames == [1, 0, 3]  # of the sign at order 1 and ×1, below
    assert bandwidths_plot(MIXED) is None
