from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from condvne.data.config.images import Decoding, Pixels
from condvne.data.embeddings import embed
from condvne.data.images.decoding import decode
from condvne.data.images.encoding import ContentEncoder, default_workers
from condvne.data.images.models import PixelValues
from condvne.data.images.sources import Source
from condvne.errors import DataError
from tests.images import pixels, save_image


def places(folder: Path, seeds: list[int]) -> dict[str, Source]:
    """Images of these seeds, by digest."""
    found = [Source(str(save_image(folder / f"{seed}.png", seed))) for seed in seeds]
    return {decode(source, Decoding()).digest: source for source in found}


def encoder(held: dict[str, Source], **options: Any) -> ContentEncoder:
    options = {"batch_size": 4, "workers": 3, "normalize": False} | options
    return ContentEncoder(PixelValues(Pixels(kind="pixels")), held, Decoding(), **options)


@pytest.mark.parametrize(("batch_size", "workers", "prefetch"), [(1, 1, 1), (4, 3, 1), (4, 3, 4), (64, 2, 2)])
def test_vectors_stand_in_the_order_of_the_digests(
    tmp_path: Path, batch_size: int, workers: int, prefetch: int
) -> None:
    held = places(tmp_path, list(range(11)))
    order = list(held)[::-1]
    found = encoder(held, batch_size=batch_size, workers=workers, prefetch=prefetch).encode(order)
    expected = np.stack([pixels(seed).reshape(-1) / 255 for seed in range(10, -1, -1)])
    assert torch.allclose(found, torch.from_numpy(expected).float(), atol=1e-6)


def test_no_more_is_decoded_ahead_than_asked_for(tmp_path: Path) -> None:
    held = places(tmp_path, list(range(12)))
    started: list[str] = []
    lock = threading.Lock()

    class Noting(PixelValues):
        def prepare(self, image: Any) -> torch.Tensor:
            with lock:
                started.append("image")
            return super().prepare(image)

    coder = ContentEncoder(
        Noting(Pixels(kind="pixels")), held, Decoding(), batch_size=2, workers=2, prefetch=2, normalize=False
    )
    batches = coder.batches(list(held))
    next(batches)
    assert 2 <= len(started) <= 6  # the batch that was asked for, and two ahead
    batches.close()
    assert len(started) <= 6


def test_vectors_of_unit_norm(tmp_path: Path) -> None:
    held = places(tmp_path, [1, 2, 3])
    plain, unit = encoder(held), encoder(held, normalize=True)
    assert torch.allclose(unit.encode(list(held)).norm(dim=1), torch.ones(3))
    assert plain.name != unit.name
    assert encoder(held).encode([]).shape == (0, plain.dimension)


def test_what_decoding_does_to_odd_files_is_part_of_the_identity(tmp_path: Path) -> None:
    held = places(tmp_path, [1])
    model = PixelValues(Pixels(kind="pixels"))
    names = {ContentEncoder(model, held, Decoding(background=ground)).name for ground in ("white", "black")}
    assert len(names) == 2


def test_a_file_that_changes_between_check_and_use_is_refused(tmp_path: Path) -> None:
    held = places(tmp_path, [1, 2])
    save_image(tmp_path / "2.png", 3)
    with pytest.raises(DataError, match=r"2\.png: has changed since this run was begun"):
        encoder(held).encode(list(held))


def test_images_of_several_sizes_are_refused_by_name(tmp_path: Path) -> None:
    from PIL import Image

    held = places(tmp_path, [1, 2])
    Image.fromarray(pixels(9, 4, 4)).save(tmp_path / "small.png")
    odd = Source(str(tmp_path / "small.png"))
    held[decode(odd, Decoding()).digest] = odd
    with pytest.raises(DataError, match=r"small\.png: gives \(48,\) values and .*1\.png \(576,\)"):
        encoder(held).encode(list(held))


def test_the_cache_of_embeddings_encodes_equal_images_once_and_goes_on(tmp_path: Path) -> None:
    held = places(tmp_path / "images", list(range(6)))
    digests = [*held, *held]

    class Counting(ContentEncoder):
        seen = 0

        def encode(self, texts: Any) -> torch.Tensor:
            if self.seen >= 4:
                raise KeyboardInterrupt
            self.seen += len(texts)
            return super().encode(texts)

    options: dict[str, Any] = {"batch_size": 2, "workers": 2, "normalize": False}
    model = PixelValues(Pixels(kind="pixels"))
    with pytest.raises(KeyboardInterrupt):
        embed(digests, Counting(model, held, Decoding(), **options), tmp_path / "cache", block=2)
    again = Counting(model, held, Decoding(), **options)
    found = embed(digests, again, tmp_path / "cache", block=2)
    assert found.distinct == 6
    assert again.seen == 2  # the first four were on disk
    assert torch.equal(found.tensor, encoder(held).encode(digests))


def test_as_many_workers_as_cores() -> None:
    assert default_workers() >= 1
