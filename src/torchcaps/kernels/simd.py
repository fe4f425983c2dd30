"""A vector of 16 float32 numbers as a type of numba, for loops that compute 16 lanes at a time.

Numba's automatic vectorization checks before every short loop whether its arrays overlap, and keeps sums in memory.
With an explicit vector type neither happens: a variable is a register, and LLVM splits it on processors with shorter
ones. Arrays have the 16 lanes last::

    total = zeros()
    for i in range(values.shape[0]):
        total += vload(weights, (i,)) * vload(values, (i, d))
    vstore(sums, (d,), total)

Operators take two vectors, or a vector and a float32 number.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from torchcaps.kernels.numba_support import FAST_MATH, HALF, ONE, TWO, inner

LANES = 16
ALIGNMENT = 4  # in bytes, of arrays
FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_FLAGS = tuple(sorted(FAST_MATH))
emitted: Any = intrinsic  # a function that emits LLVM instructions


class VectorType(types.Type):
    """The type of a vector."""

    def __init__(self) -> None:
        super().__init__(name=f"float32x{LANES}")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


def constant(number: float) -> ir.Constant:
    return ir.Constant(FLOATS, [number] * LANES)


def spread_number(builder: Any, number: Any) -> Any:
    first = ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), number, first)
    return builder.shuffle_vector(one, ir.Constant(FLOATS, ir.Undefined), ir.Constant(_INTEGERS, [0] * LANES))


def call_intrinsic(builder: Any, name: str, *values: Any) -> Any:
    """Call an LLVM intrinsic of vectors."""
    kind = ir.FunctionType(FLOATS, [FLOATS] * len(values))
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32")
    return builder.call(function, values)


def _define_operator(symbols: tuple[Any, ...], emit: Any) -> None:
    """Define an operator, and its assignment form, of two vectors or of a vector and a number."""
    pairs = [(vector, vector), (vector, types.float32), (types.float32, vector)]

    def lower(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        both = [
            value if kind is vector else spread_number(builder, value)
            for kind, value in zip(sig.args, values, strict=True)
        ]
        return emit(builder, *both)

    for symbol in symbols:
        template = type("_Template", (ConcreteTemplate,), {"cases": [signature(vector, *pair) for pair in pairs]})
        infer_global(symbol)(template)
        for pair in pairs:
            lower_builtin(symbol, *pair)(lower)


_define_operator((operator.add, operator.iadd), lambda builder, a, b: builder.fadd(a, b, flags=_FLAGS))
_define_operator((operator.sub, operator.isub), lambda builder, a, b: builder.fsub(a, b, flags=_FLAGS))
_define_operator((operator.mul, operator.imul), lambda builder, a, b: builder.fmul(a, b, flags=_FLAGS))
_define_operator((operator.truediv,), lambda builder, a, b: builder.fdiv(a, b, flags=_FLAGS))
_define_operator((max,), lambda builder, a, b: builder.select(builder.fcmp_unordered(">", a, b), a, b))
_define_operator((min,), lambda builder, a, b: builder.select(builder.fcmp_unordered("<", a, b), a, b))


def _pointer(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    """Address of the lanes at an index, which is a tuple of all dimensions but the last."""
    array, index = sig.args[:2]
    numbers = [
        context.cast(builder, each, kind, types.intp)
        for each, kind in zip(cgutils.unpack_tuple(builder, values[1]), index, strict=True)
    ]
    numbers.append(context.get_constant(types.intp, 0))
    view = context.make_array(array)(context, builder, values[0])
    address = cgutils.get_item_pointer(context, builder, array, view, numbers, wraparound=False)
    return builder.bitcast(address, FLOATS.as_pointer())


@emitted
def vload(typing: Any, array: Any, index: Any) -> Any:
    """The 16 lanes ``array[index]``, where ``index`` is a tuple."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.load(_pointer(context, builder, sig, values), align=ALIGNMENT)

    return signature(vector, array, index), emit


@emitted
def vstore(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set the 16 lanes ``array[index]``, where ``index`` is a tuple."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        builder.store(values[2], _pointer(context, builder, sig, values), align=ALIGNMENT)
        return context.get_dummy_value()

    return signature(types.none, array, index, vector), emit


@emitted
def vload4(typing: Any, array: Any, index: Any) -> Any:
    """Four consecutive vectors, the first of which is ``array[index]``."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        first = _pointer(context, builder, sig, values)
        places = [builder.gep(first, [ir.Constant(ir.IntType(64), number)]) for number in range(4)]
        return context.make_tuple(builder, sig.return_type, [builder.load(each, align=ALIGNMENT) for each in places])

    return signature(types.UniTuple(vector, 4), array, index), emit


@emitted
def vstore4(typing: Any, array: Any, index: Any, four: Any) -> Any:
    """Set four consecutive vectors, the first of which is ``array[index]``, to those of a tuple."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        first = _pointer(context, builder, sig, values)
        for number, value in enumerate(cgutils.unpack_tuple(builder, values[2])):
            builder.store(value, builder.gep(first, [ir.Constant(ir.IntType(64), number)]), align=ALIGNMENT)
        return context.get_dummy_value()

    return signature(types.none, array, index, types.UniTuple(vector, 4)), emit


@emitted
def splat(typing: Any, number: Any) -> Any:
    """A float32 number in all lanes."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return spread_number(builder, values[0])

    return signature(vector, types.float32), emit


@emitted
def where_below(typing: Any, a: Any, b: Any, value: Any) -> Any:
    """``value`` in the lanes in which ``a`` is below ``b``, and 0 in the others."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", values[0], values[1]), values[2], constant(0.0))

    return signature(vector, vector, vector, vector), emit


@emitted
def magnitude(typing: Any, value: Any) -> Any:
    """Absolute values."""
    return signature(vector, vector), lambda context, builder, sig, values: call_intrinsic(builder, "fabs", *values)


@emitted
def floor(typing: Any, value: Any) -> Any:
    """Largest integers not above the values."""
    return signature(vector, vector), lambda context, builder, sig, values: call_intrinsic(builder, "floor", *values)


@emitted
def power_of_two(typing: Any, exponent: Any) -> Any:
    """2 ** exponent, for integers from -126 to 127."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        biased = builder.add(builder.fptosi(values[0], _INTEGERS), ir.Constant(_INTEGERS, [127] * LANES))
        return builder.bitcast(builder.shl(biased, ir.Constant(_INTEGERS, [23] * LANES)), FLOATS)

    return signature(vector, vector), emit


@emitted
def exponent_of(typing: Any, value: Any) -> Any:
    """The largest integer e with 2 ** e <= value, for positive normal numbers."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        shifted = builder.lshr(builder.bitcast(values[0], _INTEGERS), ir.Constant(_INTEGERS, [23] * LANES))
        return builder.sitofp(builder.sub(shifted, ir.Constant(_INTEGERS, [127] * LANES)), FLOATS)

    return signature(vector, vector), emit


def rearranged(order: list[int]) -> Any:
    """A function that returns a vector whose lane n is lane order[n] of the given one."""

    def rearrange(typing: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            places = ir.Constant(_INTEGERS, order)
            return builder.shuffle_vector(values[0], ir.Constant(FLOATS, ir.Undefined), places)

        return signature(vector, vector), emit

    return emitted(rearrange)


@emitted
def lane_sum(typing: Any, value: Any) -> Any:
    """The sum of all lanes, a number."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        (total,) = values
        for step in (8, 4, 2, 1):
            partner = ir.Constant(_INTEGERS, [lane ^ step for lane in range(LANES)])
            total = builder.fadd(total, builder.shuffle_vector(total, ir.Constant(FLOATS, ir.Undefined), partner))
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return signature(types.float32, vector), emit


@emitted
def sum_lanes(typing: Any, vectors: Any) -> Any:
    """Sum the lanes of each of a tuple of 16 vectors; the sums are the lanes of the result."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        rows = cgutils.unpack_tuple(builder, values[0])
        even, odd = (ir.Constant(_INTEGERS, list(range(start, 2 * LANES, 2))) for start in (0, 1))
        while len(rows) > 1:  # adjacent lanes of each pair of vectors
            rows = [
                builder.fadd(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))
                for a, b in zip(rows[::2], rows[1::2], strict=True)
            ]
        return rows[0]

    return signature(vector, vectors), emit


@emitted
def transpose_lanes(typing: Any, array: Any, index: Any) -> Any:
    """Transpose 16 consecutive vectors in place, the first of which is ``array[index]``."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        first = _pointer(context, builder, sig, values)
        places = [builder.gep(first, [ir.Constant(ir.IntType(64), number)]) for number in range(LANES)]
        rows = [builder.load(each, align=ALIGNMENT) for each in places]
        for step in (8, 4, 2, 1):  # exchange the blocks beside the diagonal, from large to small
            upper = [lane - step + LANES if lane & step else lane for lane in range(LANES)]
            lower = [lane + LANES if lane & step else lane + step for lane in range(LANES)]
            for number in range(LANES):
                if not number & step:
                    pair = rows[number], rows[number + step]
                    rows[number] = builder.shuffle_vector(*pair, ir.Constant(_INTEGERS, upper))
                    rows[number + step] = builder.shuffle_vector(*pair, ir.Constant(_INTEGERS, lower))
        for place, row in zip(places, rows, strict=True):
            builder.store(row, place, align=ALIGNMENT)
        return context.get_dummy_value()

    return signature(types.none, array, index), emit


# exp(x) = 2^k exp(f) with |f| <= ln(2) / 2, and exp(f) by its series.
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST = np.float32(-87.0)
_C2, _C3, _C4, _C5, _C6 = (np.float32(1 / number) for number in (2, 6, 24, 120, 720))
_THIRD, _FIFTH, _SEVENTH, _NINTH = (np.float32(1 / number) for number in (3, 5, 7, 9))
_ROOT_HALF = np.float32(0.5**0.5)


@inner
def zeros():
    return splat(np.float32(0))


@inner
def exponential(x):
    """exp(x) for numbers up to 88; numbers below -87 are taken as -87."""
    x = max(x, _LOWEST)
    k = floor(x * _LOG2_E + HALF)
    f = x - k * _LN2_HIGH - k * _LN2_LOW
    return power_of_two(k) * (ONE + f * (ONE + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6))))))


@inner
def logarithm(x):
    """log(x) for positive normal numbers: log(2^k m) = k log(2) + 2 artanh((m - 1) / (m + 1)), by its series."""
    k = exponent_of(x / _ROOT_HALF)  # m from the root of 1/2 to the root of 2
    m = x * power_of_two(-ONE * k)
    z = (m - ONE) / (m + ONE)
    y = z * z
    series = ONE + y * (_THIRD + y * (_FIFTH + y * (_SEVENTH + y * _NINTH)))
    return k * _LN2_HIGH + (k * _LN2_LOW + TWO * z * series)
