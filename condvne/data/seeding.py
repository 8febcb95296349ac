"""Choices that depend on a seed and a name only, so that they do not change with the order in which things come."""

from __future__ import annotations

import hashlib


def seeded_key(seed: int, *parts: str | int) -> int:
    """A pseudo-random integer in [0, 2^128) of a seed and names, the same on every machine and version of Python.

    Sorting things by their keys shuffles them; keeping the k smallest keys draws k of them without replacement.
    """
    # a length before each part keeps ("a", "bc") apart from ("ab", "c")
    encoded = [str(part).encode("utf-8", "surrogatepass") for part in (seed, *parts)]
    data = b"".join(len(item).to_bytes(8, "big") + item for item in encoded)
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "big")
