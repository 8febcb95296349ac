"""The configuration of `condvne images`: groups of images by published layout, encoders, matching, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from condvne.data.config.scoring import Distinct, Encoder, Evaluation, Kernels
from condvne.data.config.settings import Settings, load_yaml, validate


class _Group(Settings):
    path: str  # a folder or file, or, of npz and webdataset, a glob pattern
    optional: bool = False  # a group that is not there is left out with a note


class ClassFolders(_Group):
    """ImageNet's layout: a folder a class, named by it (n01440764/n01440764_18.JPEG)."""

    layout: Literal["class_folders"]


class DgmEval(_Group):
    """DGM-Eval's layout of generated samples: folders 0, 1, 2, … by class index, images inside."""

    layout: Literal["dgm_eval"]


class ImageTable(_Group):
    """A folder of images and a CSV, TSV or JSONL with one row an image: its file, and its caption or class."""

    layout: Literal["table"]
    table: str
    image_field: str = "file"
    condition_field: str = "caption"


class CocoCaptions(_Group):
    """MS-COCO: a folder of images and a captions JSON; generated folders name images by COCO's file name or id."""

    layout: Literal["coco"]
    annotations: str  # e.g. captions_val2014.json
    captions: Literal["first", "all"] = "first"  # of each image: that of the lowest annotation id, or every one


class SampleBatch(_Group):
    """A sample batch as published for ADM and BigGAN: arr_0 (n, height, width, 3) uint8, arr_1 (n,) class indices."""

    layout: Literal["npz"]
    labels: str | None = None  # a .npy or .npz with the class indices, where the batch holds none


class WebDataset(_Group):
    """WebDataset tars: members of one stem belong together (0001.jpg with 0001.cls, 0001.txt or 0001.json)."""

    layout: Literal["webdataset"]
    condition: str = "cls"  # the suffix of the member that holds the condition
    field: str | None = None  # of a json member


GroupSource = Annotated[
    ClassFolders | DgmEval | ImageTable | CocoCaptions | SampleBatch | WebDataset, Field(discriminator="layout")
]


class Decoding(Settings):
    """What is done with odd files."""

    faulty: Literal["refuse", "drop"] = "refuse"  # unreadable, truncated, too large, …: stop, or leave out with a note
    animated: Literal["refuse", "first_frame"] = "refuse"
    background: Literal["white", "black"] = "white"  # under transparent pixels
    max_pixels: int = Field(default=89_478_485, ge=1, le=89_478_485)  # larger images are refused unread


class Matching(Settings):
    """How images of different groups come to stand under the same conditions."""

    per_condition: int | None = Field(default=None, ge=1)  # images of each condition; default all, equal in all groups
    unbalanced: Literal["refuse", "trim"] = "refuse"  # trim to what all groups have, and report it
    rows: int | None = Field(default=None, ge=2)  # pairs kept, drawn at random; default all


class _ImageEncoder(Settings):
    batch_size: int = Field(default=64, ge=1)
    workers: int | None = Field(default=None, ge=1)  # threads that decode; default the cores there are
    prefetch: int = Field(default=4, ge=1)  # batches decoded ahead of the device


class _Model(_ImageEncoder):
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    normalize: bool = True  # vectors of unit norm


class Dinov2(_Model):
    """DINOv2 through transformers, with the checkpoint's own processing."""

    kind: Literal["dinov2"]
    path: str = "facebook/dinov2-large"
    revision: str | None = None
    pooling: Literal["cls", "mean"] = "cls"  # the class token, or the mean of the patches
    resolution: int | None = Field(default=None, ge=1)  # side of the square that the model sees; default its own


class Siglip(_Model):
    """SigLIP's image tower through transformers."""

    kind: Literal["siglip"]
    path: str = "google/siglip-so400m-patch14-384"
    revision: str | None = None


class Clip(_Model):
    """CLIP through open_clip: a folder with open_clip_config.json, hf-hub:NAME, or a model name with `pretrained`."""

    kind: Literal["clip"]
    path: str = "ViT-L-14-quickgelu"
    pretrained: str | None = None  # a tag or weight file, for model names only, e.g. openai


class ClipText(Settings):
    """CLIP's text tower through open_clip, for captions and class names."""

    kind: Literal["clip"]
    path: str = "ViT-L-14-quickgelu"  # as of `Clip`
    pretrained: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    normalize: bool = True
    batch_size: int = Field(default=64, ge=1)


class Timm(_Model):
    """Any model of timm without its classifier; Inception v3 with TensorFlow's weights by default."""

    kind: Literal["timm"]
    path: str = "timm/inception_v3.tf_in1k"  # a folder with config.json, or a name on the hub
    revision: str | None = None


class Pixels(_ImageEncoder):
    """Raw pixels of small images, in [0, 1]."""

    kind: Literal["pixels"]
    side: int | None = Field(default=None, ge=1, le=64)  # resize to side × side; default: all images have one size
    channels: Literal["gray", "rgb"] = "rgb"
    normalize: bool = False


class OneHot(Settings):
    """Class labels as unit vectors: with the cosine kernel equal labels count 1 and others 0."""

    kind: Literal["one_hot"]


ImageEncoderChoice = Annotated[Dinov2 | Siglip | Clip | Timm | Pixels, Field(discriminator="kind")]
ConditionEncoderChoice = Annotated[OneHot | ClipText | Encoder, Field(discriminator="kind")]


class Pictures(Settings):
    """The contact sheet of the report."""

    size: int = Field(default=1000, ge=2)  # pairs whose joint spectrum is decomposed, at most
    modes: int = Field(default=6, ge=0)  # leading eigenvectors shown for each group
    conditions: int = Field(default=6, ge=0)  # conditions that lose most, shown for each group
    images: int = Field(default=8, ge=1)  # pictures in a row
    thumbnail: int = Field(default=96, ge=8, le=256)  # pixels, the longer side


def _no_text_counts() -> Evaluation:
    return Evaluation(distinct=Distinct(orders=[], unit="words"))


class ImagesConfig(Settings):
    """`condvne images`: groups of images under the same conditions, one of them the reference."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: int = Field(default=0, ge=0)
    device: str = "auto"
    reference: str
    groups: dict[str, GroupSource] = Field(min_length=2)
    classes: str | None = None  # a list of classes, by which indices, synsets and names are matched
    template: str = "{}"  # how a class name becomes a text, e.g. "a photo of a {}"
    decoding: Decoding = Decoding()
    matching: Matching = Matching()
    encoder: ImageEncoderChoice
    condition_encoder: ConditionEncoderChoice
    kernels: Kernels = Kernels()
    evaluation: Evaluation = Field(default_factory=_no_text_counts)
    pictures: Pictures = Pictures()

    @field_validator("evaluation", mode="before")
    @classmethod
    def _without_ngrams(cls, value: object) -> object:
        if isinstance(value, dict):
            if "distinct" in value:
                raise ValueError("distinct counts n-grams of texts; images have none, so leave it out")
            return value | {"distinct": {"orders": [], "unit": "words"}}
        return value

    @field_validator("template")
    @classmethod
    def _has_a_place(cls, value: str) -> str:
        if value.count("{}") != 1:
            raise ValueError('must hold {} once, where the class name goes, e.g. "a photo of a {}"')
        return value

    @model_validator(mode="after")
    def _reference_exists(self) -> ImagesConfig:
        if self.reference not in self.groups:
            raise ValueError(f"reference {self.reference!r} is none of the groups, {', '.join(self.groups)}")
        rows = self.matching.rows
        too_large = [n for n in self.evaluation.sizes if rows is not None and n > rows]
        if too_large:
            raise ValueError(f"evaluation.sizes asks for {too_large[0]} pairs, but matching.rows is {rows}")
        return self


def load_images_config(path: str | Path) -> ImagesConfig:
    """Read and validate a YAML configuration of `condvne images`. Raises ConfigError naming file and key."""
    return validate(ImagesConfig, load_yaml(path), str(path))
