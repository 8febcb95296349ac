"""The configuration of `condvne profile`: sets of items, how they are represented, which curves are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from condvne.data.config.images import Decoding, ImageEncoderChoice
from condvne.data.config.scoring import Encoder
from condvne.data.config.settings import Settings, load_yaml, validate

Kind = Literal["texts", "images", "smiles"]
Distance = Literal["cosine", "euclidean", "tanimoto"]
FamilyName = Literal["vendi", "magnitude", "circles", "energy"]
USUAL: dict[Kind, Distance] = {"texts": "cosine", "images": "cosine", "smiles": "tanimoto"}


class ItemSource(Settings):
    """One set: a table (JSONL, JSON, CSV, TSV) and its column, a file with an item a line, or a folder of images."""

    path: str
    column: str | None = None  # of a table; a list in it holds several items
    where: dict[str, str] = Field(default_factory=dict)  # rows of a table whose fields have these values


class Fingerprint(Settings):
    """Extended-connectivity fingerprints of molecules (ECFP, by RDKit)."""

    radius: int = Field(default=2, ge=0)  # 2 is ECFP4
    bits: int = Field(default=2048, ge=8)


class ProfileConfig(Settings):
    """`condvne profile`: which of several sets of items is more diverse, and at which parameters."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0)
    device: str = "auto"
    kind: Kind
    sets: dict[str, ItemSource] = Field(min_length=1)
    items: int | None = Field(default=50, ge=3)  # of each set, drawn at random; null for all
    equal_sizes: bool = True  # of larger sets, draw no more than the smallest has: scores grow with the number of items
    encoder: Encoder | None = None  # of texts
    image_encoder: ImageEncoderChoice | None = None
    decoding: Decoding = Decoding()  # of images
    fingerprint: Fingerprint = Fingerprint()  # of molecules
    distance: Distance | None = None  # default: tanimoto for molecules, else cosine
    families: list[FamilyName] = Field(default=["vendi", "magnitude", "circles", "energy"], min_length=1)
    points: int = Field(default=101, ge=2)  # parameters of a curve
    resamples: int = Field(default=100, ge=0)  # half-samples for the bands
    confidence: float = Field(default=0.95, gt=0, lt=1)
    epsilon: float | None = Field(default=None, gt=0)  # least distance in energies; without it copies leave energy out

    @field_validator("sets")
    @classmethod
    def _named(cls, value: dict[str, ItemSource]) -> dict[str, ItemSource]:
        if not all(name.strip() for name in value):
            raise ValueError("a set needs a name")
        return value

    @field_validator("families")
    @classmethod
    def _distinct(cls, value: list[FamilyName]) -> list[FamilyName]:
        if len(set(value)) < len(value):
            raise ValueError("a family comes twice")
        return value

    @model_validator(mode="after")
    def _go_together(self) -> ProfileConfig:
        if self.kind == "texts" and self.encoder is None:
            raise ValueError("texts need an encoder")
        if self.kind == "images" and self.image_encoder is None:
            raise ValueError("images need an image_encoder")
        if (self.kind == "smiles") != (self.metric == "tanimoto"):
            raise ValueError("tanimoto is the distance of molecules' fingerprints, and they have no other")
        return self

    @property
    def metric(self) -> Distance:
        """The distance, the kind's own where none is named."""
        return self.distance or USUAL[self.kind]


def load_profile_config(path: str | Path) -> ProfileConfig:
    """Read and validate a YAML configuration of `condvne profile`. Raises ConfigError naming file and key."""
    return validate(ProfileConfig, load_yaml(path), str(path))
