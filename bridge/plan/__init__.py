"""A graph lowered once into a list of steps over numbered slots; backends replay it for every batch."""

from bridge.plan.batch import BatchLayout
from bridge.plan.lower import lower
from bridge.plan.plan import Plan, Product, Result, Slot, Step, product_of

__all__ = ["BatchLayout", "Plan", "Product", "Result", "Slot", "Step", "lower", "product_of"]
