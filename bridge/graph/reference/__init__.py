"""The numpy interpreter of graphs: float32 throughout, slow, and the truth that the backends are tested against."""

from bridge.graph.reference.session import OPERATIONS, Batch, ReferenceSession

__all__ = ["OPERATIONS", "Batch", "ReferenceSession"]
