from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from condvne.data.images.arrays import map_member
from condvne.data.images.batches import list_batch
from condvne.errors import DataError
from tests.images import pixels

IMAGES = np.stack([pixels(seed) for seed in range(4)])
LABELS = np.array([3, 1, 1, 0])


def batch(folder: Path, *arrays: Any, **named: Any) -> Path:
    path = folder / "samples_4x12x16x3.npz"
    np.savez(path, *arrays, **named)
    return path


def test_rows_stand_under_their_class_and_are_mapped(tmp_path: Path) -> None:
    path = batch(tmp_path, IMAGES, LABELS)
    listing = list_batch(path, None)
    assert [image.condition for image in listing.images] == ["3", "1", "1", "0"]
    assert listing.images[2].source.name == f"{path}[2]"
    content = listing.images[2].source.content()
    assert np.array_equal(content, IMAGES[2])
    mapped = map_member(path, "arr_0")
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable


@pytest.mark.parametrize("form", ["npy", "npz", "one-hot"])
def test_class_indices_may_lie_in_a_file_of_their_own(tmp_path: Path, form: str) -> None:
    path = batch(tmp_path, IMAGES)
    if form == "npy":
        np.save(tmp_path / "labels.npy", LABELS)
    else:
        np.savez(tmp_path / "labels.npz", labels=np.eye(5, dtype=np.int64)[LABELS] if form == "one-hot" else LABELS)
    labels = tmp_path / ("labels.npy" if form == "npy" else "labels.npz")
    assert [image.condition for image in list_batch(path, labels).images] == ["3", "1", "1", "0"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([IMAGES.astype(np.float32), LABELS], r"must hold images, uint8 of shape .* not float32"),
        ([IMAGES[..., 0], LABELS], r"not uint8 of shape \(4, 12, 16\)"),
        ([IMAGES, LABELS[:3]], r"has 4 images but class indices of shape \(3,\)"),
        ([IMAGES, LABELS.astype(float)], "class indices must be integers, not float64"),
        ([IMAGES], r"holds no class indices \(arr_1\)"),
    ],
)
def test_batches_of_another_form_are_refused(tmp_path: Path, arrays: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list_batch(batch(tmp_path, *arrays), None)


def test_compressed_pickled_and_foreign_files_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "c.npz", IMAGES, LABELS)
    with pytest.raises(DataError, match=r"array 'arr_0' is compressed .* numpy\.savez"):
        list_batch(tmp_path / "c.npz", None)
    np.savez(tmp_path / "o.npz", np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="holds pickled objects"):
        list_batch(tmp_path / "o.npz", None)
    with pytest.raises(DataError, match="has no array 'arr_0'; its arrays are x"):
        list_batch(batch(tmp_path, x=IMAGES), None)
    (tmp_path / "t.npz").write_bytes(batch(tmp_path, IMAGES, LABELS).read_bytes()[:500])
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        list_batch(tmp_path / "t.npz", None)
