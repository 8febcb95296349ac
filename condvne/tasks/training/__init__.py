"""Entropies as training losses: raise the conditional diversity of a model, or bring it to a value.

    loss = ConditionalEntropyLoss(target=1.4, margin=0.05)      # once
    total = model_loss + 0.1 * loss(conditions, outputs)        # in every step

Each loss is a plain function and a module. A module keeps the bandwidths of its first batch (better: give kernels
fitted on data) and, with `num_features` and `decay`, a sketch of past batches. All of them gather over the processes
of `torch.distributed` with exact gradients, compute in float32 or better whatever autocast says, and may stand inside
a compiled model.
"""

from condvne.tasks.training.losses import (
    ConditionalEntropyLoss,
    RepresentationEntropyLoss,
    conditional_entropy_loss,
    representation_entropy_loss,
)
from condvne.tasks.training.tokens import TokenEntropyLoss, expected_embeddings, token_entropy_surrogate

__all__ = [
    "ConditionalEntropyLoss",
    "RepresentationEntropyLoss",
    "TokenEntropyLoss",
    "conditional_entropy_loss",
    "expected_embeddings",
    "representation_entropy_loss",
    "token_entropy_surrogate",
]
