"""Minimum-Bayes-risk decoding: one output for each input, chosen among its candidates (arXiv 2609.02275, 6.7)."""

from condvne.tasks.mbr.decode import decode

__all__ = ["decode"]
