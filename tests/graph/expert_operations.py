"""Routers, experts with biases and products by head, like the operations of tests/graph/elementwise.py."""

from __future__ import annotations

from tests.graph.elementwise import vectors


def _route(n_used, *, bias=False, scales=False, **attrs):
    def build(b, x, tensors, rng):
        names = {"bias": "b" if bias else None, "scales": "s" if scales else None}
        vectors(tensors, rng, **{name: 12 for name in names.values() if name})
        return b.route(x, n_used, **names, **{"normalise": True} | attrs)

    return 12, build


def _experts_with_biases(b, x, tensors, rng):
    vectors(tensors, rng, router__weight=(6, 32), up__weight=(6, 24, 32), up__bias=(6, 24), down__weight=(6, 32, 24),
            down__bias=(6, 32))
    route = b.route(b.matmul(x, "router", 6), 2, normalise=True)
    return b.combine_experts(b.matmul_experts(b.matmul_experts(x, route, "up", 24), route, "down", 32, per_expert=True), route)


def _heads(type_name):
    def build(b, x, tensors, rng):
        if type_name == "F32":
            vectors(tensors, rng, h__weight=(3, 20, 32))
        else:
            tensors.add_blocks("h.weight", type_name, 3, 20, 32)
        return b.matmul_heads(x, "h", 3, 20)

    return 96, build


CASES = {
    "route by sigmoid": _route(3, gate="sigmoid"),
    "route by sigmoid with a bias": _route(3, gate="sigmoid", bias=True, scale=2.5),
    "route with a bias, not normalised": _route(4, bias=True, normalise=False),
    "route with scales": _route(2, scales=True),
    "route in groups": _route(3, n_group=4, n_group_used=2, normalise=False),
    "route in groups by sigmoid with a bias and scales": _route(3, gate="sigmoid", bias=True, scales=True, scale=0.5,
                                                               n_group=3, n_group_used=2),
    "experts with biases": (32, _experts_with_biases),
    "matmul_heads": _heads("F32"),
    "matmul_heads of blocks": _heads("Q8_0"),
}
