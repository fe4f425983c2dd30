"""Gradients of poses and weights from those of the votes of fused EM routing, as loops compiled by numba.

Names are those of ``em_gradient``.
"""

from __future__ import annotations

from torchcaps.kernels.numba_support import inner
from torchcaps.kernels.simd import LANES, sum_lanes, transpose_lanes, vload, vload4, vstore, vstore4, zeros


@inner
def add_pose_gradients(gradients, slopes, weights, place):
    """Add dV W^T of one tile of 4 x 4 weights to the gradients of four elements of M."""
    g0, g1, g2, g3 = gradients
    y0, y1, y2, y3 = slopes
    k, j, b, a = place
    g0 += y0 * weights[k, j, b, a, 0] + y1 * weights[k, j, b, a, 1]
    g1 += y0 * weights[k, j, b, a, 4] + y1 * weights[k, j, b, a, 5]
    g2 += y0 * weights[k, j, b, a, 8] + y1 * weights[k, j, b, a, 9]
    g3 += y0 * weights[k, j, b, a, 12] + y1 * weights[k, j, b, a, 13]
    g0 += y2 * weights[k, j, b, a, 2] + y3 * weights[k, j, b, a, 3]
    g1 += y2 * weights[k, j, b, a, 6] + y3 * weights[k, j, b, a, 7]
    g2 += y2 * weights[k, j, b, a, 10] + y3 * weights[k, j, b, a, 11]
    g3 += y2 * weights[k, j, b, a, 14] + y3 * weights[k, j, b, a, 15]
    return g0, g1, g2, g3


@inner
def pose_and_weight_gradients(n, j, poses, weights, kind, dvotes, dposes, dweights):
    """Through V = M W: dM += dV W^T and dW += M^T dV, in tiles of 4 x 4."""
    _, _, row_tiles, tiles, _ = weights.shape
    for i in range(dvotes.shape[0]):
        k = kind[i]
        for b in range(row_tiles):
            for a in range(tiles):
                t00, t01, t02, t03 = zeros(), zeros(), zeros(), zeros()
                t10, t11, t12, t13 = zeros(), zeros(), zeros(), zeros()
                t20, t21, t22, t23 = zeros(), zeros(), zeros(), zeros()
                t30, t31, t32, t33 = zeros(), zeros(), zeros(), zeros()
                for row in range(dvotes.shape[1] // (4 * row_tiles)):
                    y0, y1, y2, y3 = vload4(dvotes, (i, 4 * (row * row_tiles + b)))
                    d = 4 * (row * tiles + a)
                    x0, x1, x2, x3 = vload4(poses, (n, i, d))
                    t00, t01, t02, t03 = t00 + x0 * y0, t01 + x0 * y1, t02 + x0 * y2, t03 + x0 * y3
                    t10, t11, t12, t13 = t10 + x1 * y0, t11 + x1 * y1, t12 + x1 * y2, t13 + x1 * y3
                    t20, t21, t22, t23 = t20 + x2 * y0, t21 + x2 * y1, t22 + x2 * y2, t23 + x2 * y3
                    t30, t31, t32, t33 = t30 + x3 * y0, t31 + x3 * y1, t32 + x3 * y2, t33 + x3 * y3
                    g0, g1, g2, g3 = vload4(dposes, (n, i, d))
                    g0, g1, g2, g3 = add_pose_gradients((g0, g1, g2, g3), (y0, y1, y2, y3), weights, (k, j, b, a))
                    vstore4(dposes, (n, i, d), (g0, g1, g2, g3))
                tile = sum_lanes(
                    (t00, t01, t02, t03, t10, t11, t12, t13, t20, t21, t22, t23, t30, t31, t32, t33)
                )  # fmt: skip
                vstore(dweights, (k, j, b, a), vload(dweights, (k, j, b, a)) + tile)


@inner
def vector_gradients(n, j, poses, weights, kind, dvotes, dposes, dweights):
    """As :func:`pose_and_weight_gradients` for votes that are vectors of 16 numbers: ``dweights`` is (kinds, J, Q, 16).

    A sum over the lanes is as long as the product itself. Instead the vote's gradients are transposed, so that their
    lanes are the columns of W.
    """
    _, _, row_tiles, tiles, _ = weights.shape
    for i in range(dvotes.shape[0]):
        k = kind[i]
        for a in range(tiles):
            g0, g1, g2, g3 = vload4(dposes, (n, i, 4 * a))
            for b in range(row_tiles):
                y0, y1, y2, y3 = vload4(dvotes, (i, 4 * b))
                g0, g1, g2, g3 = add_pose_gradients((g0, g1, g2, g3), (y0, y1, y2, y3), weights, (k, j, b, a))
            vstore4(dposes, (n, i, 4 * a), (g0, g1, g2, g3))
        transpose_lanes(dvotes, (i, 0))
        for q in range(0, 4 * tiles, 4):
            w0, w1, w2, w3 = vload4(dweights, (k, j, q))
            for lane in range(LANES):
                y = vload(dvotes, (i, lane))
                w0 += y * poses[n, i, q, lane]
                w1 += y * poses[n, i, q + 1, lane]
                w2 += y * poses[n, i, q + 2, lane]
                w3 += y * poses[n, i, q + 3, lane]
            vstore4(dweights, (k, j, q), (w0, w1, w2, w3))
