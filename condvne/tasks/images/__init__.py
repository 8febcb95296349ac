"""Groups of images under the same conditions: records, embeddings, scores and pictures (paper A, 6.4 and D.2)."""

from condvne.tasks.images.measure import measure_images
from condvne.tasks.images.plan import GroupPlan, Plan, plan_images

__all__ = ["GroupPlan", "Plan", "measure_images", "plan_images"]
