"""What guidance costs: agreement with captions and support, on points whose answer is known."""

from __future__ import annotations

import pytest
import torch

from condvne.errors import InputError
from condvne.tasks.guidance.quality import neighbour_agreement, qualities

REAL = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [9.0, 9.0], [9.0, 8.0], [8.0, 9.0]])
CAPTIONS = ["near"] * 3 + ["far"] * 3


def test_agreement_counts_images_among_their_own() -> None:
    made = torch.tensor([[0.2, 0.2], [8.8, 8.8], [0.4, 0.4], [8.6, 8.7]])
    assert neighbour_agreement(REAL, CAPTIONS, made, ["near", "far", "near", "far"], 3) == 1.0
    assert neighbour_agreement(REAL, CAPTIONS, made, ["near", "near", "near", "near"], 3) == 0.5
    with pytest.raises(InputError, match=r"caption 'elsewhere' has no real image to agree with; set agreement: false"):
        neighbour_agreement(REAL, CAPTIONS, made, ["elsewhere"] * 4, 3)


def test_qualities_of_copies_of_one_image_and_of_the_real_ones() -> None:
    groups = {"same": (REAL.clone(), CAPTIONS), "stray": (REAL + 50 * torch.arange(1, 7)[:, None], CAPTIONS)}
    found = qualities(REAL, CAPTIONS, groups, 2, agreement=True)
    assert (found["same"].precision, found["same"].recall, found["same"].agreement) == (1.0, 1.0, 1.0)
    assert (found["stray"].precision, found["stray"].images) == (0.0, 6)
    assert found["stray"].agreement == pytest.approx(0.5)  # all lie nearest to the far ones
    assert qualities(REAL, CAPTIONS, groups, 2, agreement=False)["same"].agreement is None
