from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from condvne.data.config.images import Decoding
from condvne.data.images.decoding import decode
from condvne.data.images.sources import Source
from condvne.errors import DataError
from tests.images import encoded, pixels, save_image

PLAIN = Decoding()


def decoded(path: Path, settings: Decoding = PLAIN) -> np.ndarray[Any, Any]:
    image = decode(Source(str(path)), settings).image
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def test_png_comes_back_as_it_was(tmp_path: Path) -> None:
    found = decode(Source(str(save_image(tmp_path / "a.png", 3))), PLAIN)
    assert np.array_equal(np.asarray(found.image), pixels(3))
    assert found.conversions == ()


def test_equal_files_have_equal_digests_and_others_not(tmp_path: Path) -> None:
    names = [save_image(tmp_path / f"{k}.png", seed) for k, seed in enumerate((1, 1, 2))]
    digests = [decode(Source(str(name)), PLAIN).digest for name in names]
    assert digests[0] == digests[1] != digests[2]


def test_cmyk_is_converted(tmp_path: Path) -> None:
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "red.jpg")
    found = decode(Source(str(tmp_path / "red.jpg")), PLAIN)
    assert found.conversions == ("CMYK",)
    assert np.abs(np.asarray(found.image).astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / f"grey.{suffix}")
    found = decode(Source(str(tmp_path / f"grey.{suffix}")), PLAIN)
    assert found.conversions == ("16 bits",)
    assert np.abs(np.asarray(found.image)[..., 0] - values / 257).max() <= 0.5


def test_transparent_pixels_show_the_background(tmp_path: Path) -> None:
    values = np.zeros((4, 4, 4), dtype=np.uint8)
    values[:2, :, 3] = 255  # the upper half is black, the lower one transparent
    Image.fromarray(values, "RGBA").save(tmp_path / "half.png")
    white = decode(Source(str(tmp_path / "half.png")), PLAIN)
    assert white.conversions == ("alpha",)
    assert np.asarray(white.image)[[0, 3], 0, 0].tolist() == [0, 255]
    assert decoded(tmp_path / "half.png", Decoding(background="black"))[[0, 3], 0, 0].tolist() == [0, 0]


def test_a_palette_with_a_transparent_colour_counts_as_alpha(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.save(tmp_path / "p.png", transparency=1)
    assert decoded(tmp_path / "p.png")[0].tolist() == [[10, 20, 30], [255, 255, 255]]


def test_exif_rotation_is_made(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    image = Image.new("RGB", (40, 20), "white")
    image.paste((255, 0, 0), (0, 0, 8, 20))
    image.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    found = decode(Source(str(tmp_path / "turned.jpg")), PLAIN)
    assert found.image.size == (20, 40)
    assert found.conversions == ("rotated by EXIF",)
    assert np.asarray(found.image)[2, 10, 1] < 60  # what lay left lies on top


@pytest.mark.parametrize("suffix", ["gif", "png", "webp"])
def test_animations_are_refused_or_give_their_first_frame(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    path = tmp_path / f"moving.{suffix}"
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    with pytest.raises(DataError, match=rf"moving\.{suffix}: has 2 frames"):
        decode(Source(str(path)), PLAIN)
    first = decode(Source(str(path)), Decoding(animated="first_frame"))
    assert first.conversions[0] == "first frame of several"
    assert np.asarray(first.image)[4, 4].tolist() == [255, 0, 0]


def float_tiff() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: b"", "is empty"),
        (lambda: b"<html>not an image</html>", "is no image that can be read"),
        (lambda: encoded(1, "JPEG")[:-200], "damaged or cut off"),
        (lambda: encoded(1, "PNG")[:-200], "damaged or cut off"),
        (lambda: encoded(1, "PNG")[:60] + b"\0" * 40 + encoded(1, "PNG")[100:], "damaged or cut off"),
        (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "is no image that can be read"),
        (float_tiff, "whose white and black are not known"),
    ],
)
def test_what_cannot_be_decoded_is_refused_by_name(tmp_path: Path, content: Callable[[], bytes], message: str) -> None:
    path = tmp_path / "odd.jpg"
    path.write_bytes(content())
    with pytest.raises(DataError, match=rf"odd\.jpg: .*{message}"):
        decode(Source(str(path)), PLAIN)


def test_a_file_that_is_gone_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.png: cannot be read"):
        decode(Source(str(tmp_path / "gone.png")), PLAIN)


def test_decompression_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.png"
    Image.new("1", (30_000, 30_000)).save(bomb)
    assert bomb.stat().st_size < 1_000_000
    with pytest.raises(DataError, match=r"bomb\.png: is refused as a decompression bomb"):
        decode(Source(str(bomb)), PLAIN)
    with pytest.raises(DataError, match=r"small\.png: has 16 × 12 pixels, more than 100"):
        decode(Source(str(save_image(tmp_path / "small.png"))), Decoding(max_pixels=100))
