"""docs/gpu.md is what its script makes of the layers' shapes."""

from __future__ import annotations

from pathlib import Path

import gpu_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8") == gpu_page.page()


def test_kernels_trade_operations_for_traffic() -> None:
    """Holds the sentence below the table."""
    pairs = [(gpu_page.compiled_em, gpu_page.fused_em, each) for each in gpu_page.layers("matrix-capsnet")]
    pairs += [(gpu_page.compiled_dynamic, gpu_page.fused_dynamic, each) for each in gpu_page.layers("capsnet")]
    for compiled, fused, layer in pairs:
        before, after = compiled(layer), fused(layer)
        assert 1.5 < after.operations / before.operations < 3
        assert after.memory < before.memory
