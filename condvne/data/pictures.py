"""What the contact sheet of a run with images holds (`pictures.json`): plain numbers, names and small pictures."""

from __future__ import annotations

from pydantic import Field

from condvne.data.results import Result


class Picture(Result):
    """An image as the sheet shows it; `thumbnail` is a key of `ContactSheet.thumbnails`."""

    image: str  # file, tar::member or batch[row]
    condition: str
    thumbnail: str


class Mode(Result):
    """A leading eigenvector of a group's joint density matrix."""

    share: float  # its eigenvalue: of 1, the trace
    pictures: list[Picture]  # the images with most weight on it, heaviest first
    weights: list[float]  # theirs: squares of the eigenvector's entries


class GroupModes(Result):
    """The leading modes of one group."""

    group: str
    n: int  # pairs decomposed
    modes: list[Mode]


class Loss(Result):
    """What one condition contributes to a group's gap."""

    condition: str
    gap: float  # nats; the contributions of all conditions add up to the gap
    count: int  # images of the condition in each group
    pictures: list[Picture]  # of the group
    reference_pictures: list[Picture]


class GroupLosses(Result):
    """The conditions under which a group loses most diversity against the reference."""

    group: str
    reference: str
    n: int  # pairs
    conditions: int  # examined
    below: int  # of these, conditions with a contribution below zero
    gap: float  # H₁(Y|X) minus the reference's over these pairs, in nats
    losses: list[Loss]  # largest loss first


class ContactSheet(Result):
    """Everything that the report's pictures show."""

    modes: list[GroupModes] = Field(default_factory=list)
    losses: list[GroupLosses] = Field(default_factory=list)
    thumbnails: dict[str, str] = Field(default_factory=dict)  # by digest: data URIs of PNG or JPEG
