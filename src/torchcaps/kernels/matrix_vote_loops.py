"""Loops of the votes of 4x4 matrices, compiled by numba: poses (R, I, 16), votes (R, I, J, 16), R = batch * positions.

The 16 lanes of a vector are the elements of a 4x4 matrix, row by row. A product of two matrices is the sum over k of
column k of the left one, repeated in all columns, times row k of the right one, repeated in all rows. ``BLOCK`` rows
are processed at once, so that a child's matrices stay in the processor's cache.
"""

from __future__ import annotations

from torchcaps.kernels.numba_support import compiled
from torchcaps.kernels.simd import rearranged, vload, vstore, zeros

BLOCK = 8
# Column k in all columns; row k in all rows; and row k, turned into a column, in all columns.
column_0, column_1, column_2, column_3 = (rearranged([4 * (lane // 4) + k for lane in range(16)]) for k in range(4))
row_0, row_1, row_2, row_3 = (rearranged([4 * k + lane % 4 for lane in range(16)]) for k in range(4))
turned_0, turned_1, turned_2, turned_3 = (rearranged([4 * k + lane // 4 for lane in range(16)]) for k in range(4))


@compiled
def multiply_poses(poses, weight, votes, first, last):
    """votes[i, j] = poses[i] times the matrix whose rows are weight[i, j], (I, J, 4, 16)."""
    for start in range(first, last, BLOCK):
        for i in range(poses.shape[1]):
            for r in range(start, min(start + BLOCK, last)):
                pose = vload(poses, (r, i))
                a, b, c, d = column_0(pose), column_1(pose), column_2(pose), column_3(pose)
                for j in range(votes.shape[2]):
                    near = a * vload(weight, (i, j, 0)) + b * vload(weight, (i, j, 1))
                    far = c * vload(weight, (i, j, 2)) + d * vload(weight, (i, j, 3))
                    vstore(votes, (r, i, j), near + far)


@compiled
def pose_gradients(slopes, weight, result, first, last):
    """result[i] = sum over j of slopes[i, j] times the matrix whose rows are weight[i, j], (I, J, 4, 16)."""
    for start in range(first, last, BLOCK):
        for i in range(result.shape[1]):
            for r in range(start, min(start + BLOCK, last)):
                near, far = zeros(), zeros()
                for j in range(slopes.shape[2]):
                    slope = vload(slopes, (r, i, j))
                    near += column_0(slope) * vload(weight, (i, j, 0)) + column_1(slope) * vload(weight, (i, j, 1))
                    far += column_2(slope) * vload(weight, (i, j, 2)) + column_3(slope) * vload(weight, (i, j, 3))
                vstore(result, (r, i), near + far)


@compiled
def add_weight_gradients(poses, slopes, result, first, last):
    """Add poses[i] transposed times slopes[i, j] of every row to result (I, J, 16)."""
    for start in range(first, last, BLOCK):
        for i in range(poses.shape[1]):
            for r in range(start, min(start + BLOCK, last)):
                pose = vload(poses, (r, i))
                a, b, c, d = turned_0(pose), turned_1(pose), turned_2(pose), turned_3(pose)
                for j in range(slopes.shape[2]):
                    slope = vload(slopes, (r, i, j))
                    total = a * row_0(slope) + b * row_1(slope) + c * row_2(slope) + d * row_3(slope)
                    vstore(result, (i, j), vload(result, (i, j)) + total)
