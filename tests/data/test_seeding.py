"""Keys of names: fixed for all time, apart for different names, even over their range."""

from __future__ import annotations

from condvne.data.seeding import seeded_key


def test_keys_never_change() -> None:
    assert seeded_key(0, "pair", "a") == 288718073999972618546021771816290560268


def test_keys_tell_parts_apart() -> None:
    keys = {seeded_key(0, "a", "bc"), seeded_key(0, "ab", "c"), seeded_key(1, "a", "bc"), seeded_key(0, "a", "bc", "")}
    assert len(keys) == 4
    assert seeded_key(0, "\ud800") != seeded_key(0, "\ud801")


def test_smallest_keys_draw_uniformly() -> None:
    hits = [0] * 10
    for seed in range(2000):
        for index in sorted(range(10), key=lambda i: seeded_key(seed, "doc", i))[:3]:
            hits[index] += 1
    expected = 2000 * 3 / 10
    statistic = sum((hit - expected) ** 2 / (expected * (1 - 3 / 10)) for hit in hits) * 9 / 10
    assert statistic < 27.9  # chi-square with 9 degrees of freedom, 0.1 % point
