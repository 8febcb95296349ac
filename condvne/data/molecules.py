"""Molecules as fingerprints: SMILES to bits, by RDKit (pip install "condvne[molecules]")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from condvne.data.config.profile import Fingerprint
from condvne.data.items import Item
from condvne.data.listing import listed
from condvne.errors import ConfigError, DataError


def fingerprints(items: Sequence[Item], settings: Fingerprint) -> torch.Tensor:
    """Extended-connectivity fingerprints of SMILES, (n, bits), zeros and ones, float32.

    Raises:
        ConfigError: RDKit is not installed.
        DataError: a text is no molecule (all such are named).
    """
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem import rdFingerprintGenerator
    except ImportError as error:
        raise ConfigError('kind smiles needs RDKit; pip install "condvne[molecules]".') from error
    with rdBase.BlockLogs():  # what cannot be parsed is told below
        molecules = [Chem.MolFromSmiles(item.text) for item in items]
    faulty = [
        f"{item.where} ({item.text[:40]})" for item, molecule in zip(items, molecules, strict=True) if molecule is None
    ]
    if faulty:
        raise DataError(f"RDKit reads no SMILES in {listed(faulty)} ({len(faulty)} in all); mend or remove them.")
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=settings.radius, fpSize=settings.bits)
    rows = np.stack([generator.GetFingerprintAsNumPy(molecule) for molecule in molecules])
    return torch.from_numpy(rows.astype(np.float32))
