"""The Triton kernels compile for GPUs that are not there, and spill no registers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="the GPU kernels need the extra 'gpu'")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="interpreted kernels cannot be compiled"),
]

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
# Layers of matrix-capsnet and of capsnet in paper size, the largest tile that is allowed, and odd sizes.
EM_LAYERS: dict[str, dict[str, Any]] = {
    "conv": {"slots": 288, "positions": 36, "types": 32, "p": 4, "q": 4, "width": 4, "has_offset": False},
    "classes": {"slots": 512, "positions": 1, "types": 10, "p": 4, "q": 4, "width": 4, "has_offset": True},
    "largest": {"slots": 288, "positions": 36, "types": 64, "p": 1, "q": 16, "width": 16, "has_offset": False},
    "odd": {"slots": 27, "positions": 9, "types": 5, "p": 2, "q": 3, "width": 3, "has_offset": False},
}
DYNAMIC_LAYERS: dict[str, dict[str, Any]] = {
    "classes": {"count": 1152, "types": 10, "size": 16, "inner": 8},
    "largest": {"count": 1152, "types": 64, "size": 16, "inner": 16},
    "odd": {"count": 45, "types": 7, "size": 12, "inner": 5},
}
EM_KERNELS = ["em_m_step", "em_e_step", "em_m_step_backward", "em_e_step_backward", "em_factor_gradients"]
DYNAMIC_KERNELS = ["dynamic_pass", "dynamic_pass_backward", "dynamic_factor_gradients"]


def compiled(kernel: Any, sizes: dict[str, Any], config: dict[str, int], numbers: str, target: str) -> Any:
    """Compile a kernel. ``numbers`` names its arguments that are integers; other arguments are tensors."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = dict.fromkeys(numbers.split(), "i32") | {"child": "*i32", "kind": "*i32", "spread": "fp32"}
    known = {name: value for name, value in (sizes | config).items() if name in kernel.arg_names and name not in kinds}
    signature = {name: "constexpr" if name in known else kinds.get(name, "*fp32") for name in kernel.arg_names}
    options = {"num_warps": config["num_warps"]}
    return triton.compile(ASTSource(kernel, signature, known), target=GPUTarget(*TARGETS[target]), options=options)


def spilled(program: Any, target: str, folder: Path) -> list[int]:
    """Numbers of spilled registers or bytes that the assembler reports."""
    if target.startswith("gfx"):
        return [int(each) for each in re.findall(r"\.[sv]gpr_spill_count: +(\d+)", program.asm["amdgcn"])]
    source = folder / "kernel.ptx"
    source.write_text(program.asm["ptx"], encoding="utf-8")
    architecture = re.search(r"^\.target (\w+)", program.asm["ptx"], re.MULTILINE)[1]
    command = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name={architecture}", source, "-o", os.devnull]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return [int(each) for each in re.findall(r"(\d+) bytes spill", report)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", EM_KERNELS)
@pytest.mark.parametrize("layer", EM_LAYERS)
def test_em_routing_compiles_without_spills(layer: str, name: str, target: str, tmp_path: Path) -> None:
    from torchcaps.kernels import triton_em, triton_em_kernels

    sizes = EM_LAYERS[layer] | {"is_first": False}
    shape = [sizes[each] for each in ("p", "q", "width", "types")]
    if name == "em_factor_gradients":
        config = triton_em.em_factor_config(sizes["slots"], *shape)
    else:
        config = triton_em.em_tile_config(sizes["p"], sizes["width"], sizes["types"])
    kernel = getattr(triton_em_kernels, name)
    program = compiled(kernel, sizes, config, "count slots children span steps", target)
    assert spilled(program, target, tmp_path) == [0, 0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DYNAMIC_KERNELS)
@pytest.mark.parametrize("layer", DYNAMIC_LAYERS)
def test_dynamic_routing_compiles_without_spills(layer: str, name: str, target: str, tmp_path: Path) -> None:
    from torchcaps.kernels import triton_dynamic, triton_dynamic_kernels

    sizes = DYNAMIC_LAYERS[layer]
    shape = [sizes[each] for each in ("inner", "types", "size")]
    if name == "dynamic_factor_gradients":
        config = triton_dynamic.dynamic_factor_config(sizes["count"], *shape)
    else:
        config = triton_dynamic.dynamic_tile_config(*shape)
    program = compiled(getattr(triton_dynamic_kernels, name), sizes, config, "batch count span steps", target)
    assert spilled(program, target, tmp_path) == [0, 0]
