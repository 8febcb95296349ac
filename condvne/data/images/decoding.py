"""From an image's bytes to RGB pixels: odd files are converted, or refused by name."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from condvne.data.config.images import Decoding
from condvne.data.images.sources import Source, content_digest
from condvne.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

# Formats that hold photographs; others would start foreign programs (EPS) or are no images.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_PLAIN = ("RGB", "L", "P", "1")


@dataclass(frozen=True)
class Decoded:
    """An image as every encoder gets it.

    Attributes:
        image: RGB, upright.
        digest: of the encoded file, or of a batch's pixels.
        conversions: what was changed beside the file's compression, e.g. "CMYK", "16 bits", "alpha", "rotated".
    """

    image: Image
    digest: str
    conversions: tuple[str, ...]


def decode(source: Source, settings: Decoding) -> Decoded:
    """Read and decode one image.

    CMYK becomes RGB; 16-bit grey values are scaled to 8 bits, not clipped; transparent pixels are laid over the
    background; EXIF's rotation is made; of an animation, where it is not refused, the first frame counts.

    Raises DataError naming the image: unreadable or truncated, more pixels than `max_pixels` (found before they are
    unpacked), animated, or of a pixel type without a known range.
    """
    content = source.content()
    digest = content_digest(content)
    if not isinstance(content, bytes):
        return Decoded(_of_pixels(content), digest, ())
    image, conversions = _decoded(source, content, settings)
    return Decoded(image, digest, conversions)


def _of_pixels(pixels: np.ndarray[Any, Any]) -> Image:
    import numpy
    from PIL import Image

    return Image.fromarray(numpy.array(pixels))


def _decoded(source: Source, content: bytes, settings: Decoding) -> tuple[Image, tuple[str, ...]]:
    from PIL import Image, UnidentifiedImageError

    if not content:
        raise DataError(f"{source.name}: is empty; restore or remove the file.")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)  # reads the header only
        _check_size(source, image, settings)
        conversions = _check_frames(source, image, settings)
        image.load()
        return _rgb(source, image, settings, conversions)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{source.name}: is refused as a decompression bomb ({error}).") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{source.name}: is no image that can be read ({', '.join(FORMATS)}).") from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError, OverflowError) as error:
        # Pillow's decoders raise any of these on damaged files.
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise DataError(f"{source.name}: is damaged or cut off ({reason}); restore or remove the file.") from error


def _check_size(source: Source, image: Image, settings: Decoding) -> None:
    if image.width * image.height > settings.max_pixels:
        raise DataError(
            f"{source.name}: has {image.width} × {image.height} pixels, more than {settings.max_pixels:,}; shrink it, "
            "or raise decoding.max_pixels."
        )


def _check_frames(source: Source, image: Image, settings: Decoding) -> list[str]:
    frames = getattr(image, "n_frames", 1)
    if frames == 1 or image.format == "MPO":  # cameras store previews beside the photograph
        return []
    if settings.animated == "refuse":
        raise DataError(
            f"{source.name}: has {frames} frames; an image has one, so remove it, or set decoding.animated: "
            "first_frame."
        )
    image.seek(0)
    return ["first frame of several"]


def _rgb(source: Source, image: Image, settings: Decoding, conversions: list[str]) -> tuple[Image, tuple[str, ...]]:
    from PIL import Image as Images
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    if image.getexif().get(0x0112, 1) not in (0, 1):
        conversions.append("rotated by EXIF")
    if upright.mode.startswith("I") or upright.mode == "F":
        upright = _eight_bits(source, upright)
        conversions.append("16 bits")
    if upright.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in upright.info:
        over = upright.convert("RGBA")
        if over.getchannel("A").getextrema() != (255, 255):
            conversions.append("alpha")
        ground = Images.new("RGBA", over.size, settings.background)
        return Images.alpha_composite(ground, over).convert("RGB"), tuple(conversions)
    if upright.mode not in _PLAIN:
        conversions.append(upright.mode)
    return upright.convert("RGB"), tuple(conversions)


def _eight_bits(source: Source, image: Image) -> Image:
    """Grey values of 16 bits scaled to 8; Pillow's own conversion clips them at 255."""
    import numpy
    from PIL import Image as Images

    values = numpy.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        raise DataError(
            f"{source.name}: holds values from {values.min():g} to {values.max():g}, whose white and black are not "
            "known; save it with 8 or 16 bits."
        )
    return Images.fromarray(((values.astype(numpy.uint32) + 128) // 257).astype(numpy.uint8))
