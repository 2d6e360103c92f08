"""Trees against a slow reference that walks prefixes one by one."""

from __future__ import annotations

import pytest
import torch

from tuner.engines.redrafter.tree import build_tree, root_only


def reference(beams: list[list[int]]) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """Return the distinct prefixes in order of first sight, and the node of every cell."""
    order: list[tuple[int, ...]] = []
    cells = []
    for beam in beams:
        row = []
        for end in range(1, len(beam) + 1):
            prefix = tuple(beam[:end])
            if prefix not in order:
                order.append(prefix)
            row.append(order.index(prefix))
        cells.append(row)
    return order, cells


@pytest.mark.parametrize(
    ("width", "length", "vocab"), [(1, 2, 9), (4, 5, 2), (16, 6, 3), (3, 4, 50)]
)
def test_tree_equals_the_reference(width, length, vocab):
    torch.manual_seed(width * length)
    beams = torch.randint(vocab, (5, width, length))
    beams[..., 0] = torch.arange(5).unsqueeze(1)  # the true token opens every beam
    tree = build_tree(beams)
    sizes = []
    for b in range(5):
        order, cells = reference(beams[b].tolist())
        sizes.append(len(order))
        assert int(tree.count[b]) == len(order)
        assert tree.node_of[b].tolist() == cells
        for node, prefix in enumerate(order):
            assert int(tree.tokens[b, node]) == prefix[-1]
            assert int(tree.depth[b, node]) == len(prefix) - 1
            seen = {i for i in range(len(order)) if bool(tree.sees[b, node, i])}
            ancestors = {i for i, other in enumerate(order) if prefix[: len(other)] == other}
            assert seen == ancestors
    assert tree.tokens.shape[1] == max(sizes)


def test_beams_without_a_common_prefix_are_not_merged():
    beams = torch.tensor([[[7, 1, 2], [7, 3, 4]]])
    tree = build_tree(beams)
    assert tree.tokens.tolist() == [[7, 1, 2, 3, 4]]
    assert tree.count.tolist() == [5]


def test_equal_beams_collapse_to_one_path():
    tree = build_tree(torch.tensor([[[7, 1, 2]] * 4]))
    assert tree.tokens.tolist() == [[7, 1, 2]]


def test_root_only_is_a_tree_without_drafts():
    tree = root_only(torch.tensor([5, 6]))
    again = build_tree(torch.tensor([[[5]], [[6]]]))
    assert tree.tokens.tolist() == again.tokens.tolist() == [[5], [6]]
    assert tree.count.tolist() == again.count.tolist() == [1, 1]
    assert tree.sees.tolist() == again.sees.tolist()


def test_an_empty_batch_makes_an_empty_tree():
    assert root_only(torch.empty(0, dtype=torch.long)).tokens.shape == (0, 1)
