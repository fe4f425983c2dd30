"""Products of small matrices as tiles that stay in registers, for loops compiled by numba.

A tile is a few rows by one, two or four vectors of columns. Its sums are kept in registers over the whole inner
dimension, which brings a product of a few dozen rows close to the processor's peak, without the calls of a library.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature

from torchcaps.kernels.numba_support import inner
from torchcaps.kernels.simd import ALIGNMENT, FLOATS, LANES, call_intrinsic, constant, emitted, spread_number


def _number(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


class _Matrix:
    """A matrix in the instructions of a tile: the address of its first number in the tile, and its strides."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any, row: Any, column: Any) -> None:
        view = context.make_array(kind)(context, builder, value)
        self.builder = builder
        self.base = cgutils.get_item_pointer(context, builder, kind, view, [row, column], wraparound=False)
        self.down, self.across = (
            builder.sdiv(stride, _number(4)) for stride in cgutils.unpack_tuple(builder, view.strides, 2)
        )
        self.length = builder.extract_value(view.shape, 0)

    def number(self, row: Any, column: Any) -> Any:
        """Address of a number."""
        builder = self.builder
        return builder.gep(self.base, [builder.add(builder.mul(row, self.down), builder.mul(column, self.across))])

    def lanes(self, row: Any, vector: int) -> Any:
        """Address of 16 columns."""
        place = self.builder.gep(self.base, [self.builder.mul(row, self.down)])
        place = self.builder.gep(place, [_number(vector * LANES)])
        return self.builder.bitcast(place, FLOATS.as_pointer())


def _define_tile(rows: int, vectors: int) -> Any:
    def tile(typing: Any, left: Any, right: Any, result: Any, row: Any, column: Any, added: Any) -> Any:
        """One tile of :func:`multiply`."""
        whole = signature(types.none, left, right, result, types.intp, types.intp, types.intp)
        places = [(r, v) for r in range(rows) for v in range(vectors)]

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            zero = _number(0)
            factors = _Matrix(context, builder, sig.args[0], values[0], values[3], zero)
            others = _Matrix(context, builder, sig.args[1], values[1], zero, values[4])
            target = _Matrix(context, builder, sig.args[2], values[2], values[3], values[4])
            keep = builder.icmp_signed("!=", values[5], zero)
            sums = {place: cgutils.alloca_once(builder, FLOATS) for place in places}
            for r, v in places:
                before = builder.load(target.lanes(_number(r), v), align=ALIGNMENT)
                builder.store(builder.select(keep, before, constant(0.0)), sums[r, v])
            with cgutils.for_range(builder, others.length) as loop:
                shared = [builder.load(others.lanes(loop.index, v), align=ALIGNMENT) for v in range(vectors)]
                for r in range(rows):
                    factor = spread_number(builder, builder.load(factors.number(_number(r), loop.index)))
                    for v in range(vectors):
                        total = call_intrinsic(builder, "fma", factor, shared[v], builder.load(sums[r, v]))
                        builder.store(total, sums[r, v])
            for r, v in places:
                builder.store(builder.load(sums[r, v]), target.lanes(_number(r), v), align=ALIGNMENT)
            return context.get_dummy_value()

        return whole, emit

    return emitted(tile)


_tile_4x4, _tile_8x2, _tile_8x1 = _define_tile(4, 4), _define_tile(8, 2), _define_tile(8, 1)


@inner
def multiply(left, right, result, rows, added):
    """result = left @ right for ``rows`` rows, rounded up to a multiple of 8; with ``added`` 1, add to the result.

    All three are arrays of two dimensions. The rows of ``right`` and of the result are contiguous, and have a multiple
    of 16 columns.
    """
    columns = result.shape[1]
    if columns % 64 == 0:
        for row in range(0, rows, 4):
            for column in range(0, columns, 64):
                _tile_4x4(left, right, result, row, column, added)
    elif columns % 32 == 0:
        for row in range(0, rows, 8):
            for column in range(0, columns, 32):
                _tile_8x2(left, right, result, row, column, added)
    else:
        for row in range(0, rows, 8):
            for column in range(0, columns, 16):
                _tile_8x1(left, right, result, row, column, added)
