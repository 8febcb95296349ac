"""What a run was made with."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = (
    *("condvne", "torch", "transformers", "sentence-transformers", "datasets", "numpy", "scipy", "scikit-learn"),
    *("open_clip_torch", "timm", "torchvision", "pillow"),  # they decode, prepare and encode images
)


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that take part in a score; packages that are absent are left out."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
