"""Triton kernels of fused EM routing: passes over the votes, which are computed in registers and never stored.

Names: C children, P positions, I slots of a position, J parent types. A row n is one of N pairs of an image and a
position. A child's pose is (p, q), W is (q, q', J) for each slot, a vote (D, J) with D = p * q'. ``child`` (P, I) and
``kind`` (I) are the child and the W of each slot, ``offsets`` (I, D) are added to the votes.

A pass handles a tile of rows, (M, D, J), and loops over the slots of a chunk. All rows of a tile use the same W in a
slot, which is read once. Sums over slots are written per chunk, as (chunks, N, ...), and added up by the caller, so
that no result depends on the order in which programs run. Only :func:`em_factor_gradients` has tiles of M slots and
loops over rows, because the gradient of W is a sum over rows. D and J are padded to powers of two.

``mean``, ``inverse`` (1 / variance) and ``base`` (log activation - log deviation) describe the parents: (N, D, J) or
(N, J). ``normalizer`` (B, C) is the logarithm of each child's sum of densities over all its parents. Together they give
the assignments R of the next iteration. The gradient of an M-step with respect to its weights r = R a is

    dr = sum_d (V - center) (dmean + (V - center) dvariance) + bias

where ``center`` is the mean that this M-step computed, and ``dmean`` and ``dvariance`` are divided by the mass.
``lean`` (B, C) is the sum of R dR over all parents of a child, which the gradient of the softmax subtracts.
"""

from __future__ import annotations

import triton
import triton.language as tl

LARGEST_VOTE = tl.constexpr(1e6)
NUMBERS = ["count", "span"]  # differ between batches, which should not compile the kernels again


@triton.jit
def em_lanes(
    types: tl.constexpr, p: tl.constexpr, width: tl.constexpr, p_pad: tl.constexpr, width_pad: tl.constexpr,
    j_pad: tl.constexpr,
):  # fmt: skip
    """Row, place in the pose and existence of padded pose elements (D), padded types (J), and which are real (1, J).

    Padded types repeat the last one, so that only pose elements need a mask, which is constant if D is a power of two.
    """
    element, j = tl.arange(0, p_pad * width_pad), tl.arange(0, j_pad)
    row, column = element // width_pad, element % width_pad
    return row, row * width + column, (row < p) & (column < width), tl.minimum(j, types - 1), (j < types)[None, :]


@triton.jit
def tile_rows(count, positions: tl.constexpr, tile: tl.constexpr):
    """The program's rows, which of them exist, and their images and positions; missing rows repeat the last one."""
    n = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    live = n < count
    n = tl.minimum(n, count - 1)
    return n, live, n // positions, n % positions


@triton.jit
def tile_votes(
    poses, owner, weights, kind, offsets, slot, row, place, valid, j,
    types: tl.constexpr, p: tl.constexpr, q: tl.constexpr, width: tl.constexpr, has_offset: tl.constexpr,
):  # fmt: skip
    """V = M W + offset (M, D, J), for the poses of ``owner`` (M). ``kind`` and ``slot`` are (M) or (1)."""
    pose_at = (owner * (p * q))[:, None] + (row * q)[None, :]
    weight_at = (kind * (q * width * types))[:, None, None] + ((place - row * width)[:, None] * types + j[None, :])[
        None, :, :
    ]
    for k in tl.static_range(q):
        pose = tl.load(poses + pose_at + k, mask=valid[None, :], other=0.0)
        weight = tl.load(weights + weight_at + k * (width * types), mask=valid[None, :, None], other=0.0)
        if k == 0:
            votes = pose[:, :, None] * weight
        else:
            votes += pose[:, :, None] * weight
    if has_offset:
        added_at = (slot * (p * width))[:, None] + place[None, :]
        votes += tl.load(offsets + added_at, mask=valid[None, :], other=0.0)[:, :, None]
    return votes


@triton.jit
def slot_votes(
    i, poses, weights, offsets, child, kind, image, position, row, place, valid, j, slots, children,
    types: tl.constexpr, p: tl.constexpr, q: tl.constexpr, width: tl.constexpr, has_offset: tl.constexpr,
):  # fmt: skip
    """Number of each row's child in slot i (M), counted through all images, and its clamped votes (M, D, J)."""
    slot = i + tl.zeros((1,), tl.int32)
    here = image * children + tl.load(child + position * slots + i)
    votes = tile_votes(
        poses, here, weights, tl.load(kind + slot), offsets, slot, row, place, valid, j, types, p, q, width, has_offset
    )
    return here, tl.minimum(tl.maximum(votes, -LARGEST_VOTE), LARGEST_VOTE)


@triton.jit(do_not_specialize=NUMBERS)
def em_m_step(
    poses, active, weights, offsets, child, kind, first, mean, inverse, base, normalizer,
    masses, means, squares, count, slots, children, span, spread, is_first: tl.constexpr,
    has_offset: tl.constexpr, positions: tl.constexpr, types: tl.constexpr, p: tl.constexpr, q: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr, p_pad: tl.constexpr, width_pad: tl.constexpr, j_pad: tl.constexpr,
):  # fmt: skip
    """Mass (chunks, N, J), mean and sum of weighted squares around it (chunks, N, D, J) of each chunk of slots.

    Means and squares are updated vote by vote (Welford), which loses no precision if the mean is far from zero. In the
    first iteration assignments are ``first`` (C), one over the number of a child's parents. ``spread`` is the part of
    the mass floor that each slot gets.
    """
    n, live, image, position = tile_rows(count, positions, tile)
    row, place, valid, j, real = em_lanes(types, p, width, p_pad, width_pad, j_pad)
    at = n[:, None, None] * (p * width * types) + place[None, :, None] * types + j[None, None, :]
    at_type, mask = n[:, None] * types + j[None, :], valid[None, :, None]
    if not is_first:
        own_mean = tl.load(mean + at, mask=mask, other=0.0)
        own_inverse = tl.load(inverse + at, mask=mask, other=0.0)
        own_base = tl.load(base + at_type)
    mass = tl.zeros((tile, j_pad), tl.float32)
    total = tl.zeros((tile, j_pad), tl.float32)
    new_mean = tl.zeros((tile, p_pad * width_pad, j_pad), tl.float32)
    square = tl.zeros((tile, p_pad * width_pad, j_pad), tl.float32)
    chunk = tl.program_id(1)
    for i in range(chunk * span, tl.minimum((chunk + 1) * span, slots)):
        here, votes = slot_votes(
            i, poses, weights, offsets, child, kind, image, position, row, place, valid, j, slots, children,
            types, p, q, width, has_offset,
        )  # fmt: skip
        activation = tl.load(active + here)
        if is_first:
            share = tl.load(first + here % children)[:, None] + tl.zeros_like(mass)
        else:
            x = votes - own_mean
            log = tl.where(real, own_base - 0.5 * tl.sum(x * x * own_inverse, axis=1), -float("inf"))
            share = tl.exp(log - tl.load(normalizer + here)[:, None])
        weighted = share * activation[:, None]
        mass += weighted
        weighted += spread
        total += weighted
        x = votes - new_mean
        new_mean += x * (weighted / total)[:, None, :]
        square += weighted[:, None, :] * x * (votes - new_mean)
    skipped, type_mask = chunk.to(tl.int64) * count, live[:, None] & real
    mask = type_mask[:, None, :] & valid[None, :, None]
    tl.store(means + skipped * (p * width * types) + at, new_mean, mask=mask)
    tl.store(squares + skipped * (p * width * types) + at, square, mask=mask)
    tl.store(masses + skipped * types + at_type, mass, mask=type_mask)


@triton.jit(do_not_specialize=NUMBERS)
def em_e_step(
    poses, weights, offsets, child, kind, mean, inverse, base, sums, count, slots, children, span,
    has_offset: tl.constexpr, positions: tl.constexpr, types: tl.constexpr, p: tl.constexpr, q: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr, p_pad: tl.constexpr, width_pad: tl.constexpr, j_pad: tl.constexpr,
):  # fmt: skip
    """Logarithm of the sum of densities over the types, for each slot: ``sums`` (N, I)."""
    n, live, image, position = tile_rows(count, positions, tile)
    row, place, valid, j, real = em_lanes(types, p, width, p_pad, width_pad, j_pad)
    at = n[:, None, None] * (p * width * types) + place[None, :, None] * types + j[None, None, :]
    at_type, mask = n[:, None] * types + j[None, :], valid[None, :, None]
    own_mean = tl.load(mean + at, mask=mask, other=0.0)
    own_inverse = tl.load(inverse + at, mask=mask, other=0.0)
    own_base = tl.load(base + at_type)
    chunk = tl.program_id(1)
    for i in range(chunk * span, tl.minimum((chunk + 1) * span, slots)):
        _, votes = slot_votes(
            i, poses, weights, offsets, child, kind, image, position, row, place, valid, j, slots, children,
            types, p, q, width, has_offset,
        )  # fmt: skip
        x = votes - own_mean
        log = tl.where(real, own_base - 0.5 * tl.sum(x * x * own_inverse, axis=1), -float("inf"))
        peak = tl.max(log, axis=1)
        found = peak + tl.log(tl.sum(tl.exp(log - peak[:, None]), axis=1))
        tl.store(sums + n * slots + i, found, mask=live)


@triton.jit(do_not_specialize=NUMBERS)
def em_m_step_backward(
    poses, weights, offsets, child, kind, mean, inverse, base, normalizer, center, dmean, dvariance, bias, felt,
    count, slots, children, span,
    has_offset: tl.constexpr, positions: tl.constexpr, types: tl.constexpr, p: tl.constexpr, q: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr, p_pad: tl.constexpr, width_pad: tl.constexpr, j_pad: tl.constexpr,
):  # fmt: skip
    """Sum over types of R dr for each slot: ``felt`` (N, I), the gradient of the child's activation from this slot."""
    n, live, image, position = tile_rows(count, positions, tile)
    row, place, valid, j, real = em_lanes(types, p, width, p_pad, width_pad, j_pad)
    at = n[:, None, None] * (p * width * types) + place[None, :, None] * types + j[None, None, :]
    at_type, mask = n[:, None] * types + j[None, :], valid[None, :, None]
    own_mean = tl.load(mean + at, mask=mask, other=0.0)
    own_inverse = tl.load(inverse + at, mask=mask, other=0.0)
    own_base = tl.load(base + at_type)
    own_center = tl.load(center + at, mask=mask, other=0.0)
    own_dmean = tl.load(dmean + at, mask=mask, other=0.0)
    own_dvariance = tl.load(dvariance + at, mask=mask, other=0.0)
    own_bias = tl.load(bias + at_type)
    chunk = tl.program_id(1)
    for i in range(chunk * span, tl.minimum((chunk + 1) * span, slots)):
        here, votes = slot_votes(
            i, poses, weights, offsets, child, kind, image, position, row, place, valid, j, slots, children,
            types, p, q, width, has_offset,
        )  # fmt: skip
        x = votes - own_mean
        log = tl.where(real, own_base - 0.5 * tl.sum(x * x * own_inverse, axis=1), -float("inf"))
        share = tl.exp(log - tl.load(normalizer + here)[:, None])
        x = votes - own_center
        dr = tl.sum(x * (own_dmean + x * own_dvariance), axis=1) + own_bias
        tl.store(felt + n * slots + i, tl.sum(share * dr, axis=1), mask=live)


@triton.jit(do_not_specialize=NUMBERS)
def em_e_step_backward(
    poses, active, weights, offsets, child, kind, mean, inverse, base, normalizer, center, dmean, dvariance, bias, lean,
    dbases, dmeans, dinverses, count, slots, children, span,
    has_offset: tl.constexpr, positions: tl.constexpr, types: tl.constexpr, p: tl.constexpr, q: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr, p_pad: tl.constexpr, width_pad: tl.constexpr, j_pad: tl.constexpr,
):  # fmt: skip
    """Gradients of ``base`` (chunks, N, J), ``mean`` and ``inverse`` (chunks, N, D, J), from which R was computed."""
    n, live, image, position = tile_rows(count, positions, tile)
    row, place, valid, j, real = em_lanes(types, p, width, p_pad, width_pad, j_pad)
    at = n[:, None, None] * (p * width * types) + place[None, :, None] * types + j[None, None, :]
    at_type, mask = n[:, None] * types + j[None, :], valid[None, :, None]
    own_mean = tl.load(mean + at, mask=mask, other=0.0)
    own_inverse = tl.load(inverse + at, mask=mask, other=0.0)
    own_base = tl.load(base + at_type)
    own_center = tl.load(center + at, mask=mask, other=0.0)
    own_dmean = tl.load(dmean + at, mask=mask, other=0.0)
    own_dvariance = tl.load(dvariance + at, mask=mask, other=0.0)
    own_bias = tl.load(bias + at_type)
    dbase = tl.zeros((tile, j_pad), tl.float32)
    moved = tl.zeros((tile, p_pad * width_pad, j_pad), tl.float32)
    scaled = tl.zeros((tile, p_pad * width_pad, j_pad), tl.float32)
    chunk = tl.program_id(1)
    for i in range(chunk * span, tl.minimum((chunk + 1) * span, slots)):
        here, votes = slot_votes(
            i, poses, weights, offsets, child, kind, image, position, row, place, valid, j, slots, children,
            types, p, q, width, has_offset,
        )  # fmt: skip
        old = votes - own_mean
        log = tl.where(real, own_base - 0.5 * tl.sum(old * old * own_inverse, axis=1), -float("inf"))
        share = tl.exp(log - tl.load(normalizer + here)[:, None])
        x = votes - own_center
        dr = tl.sum(x * (own_dmean + x * own_dvariance), axis=1) + own_bias
        activation = tl.load(active + here)
        dlog = share * (activation[:, None] * dr - tl.load(lean + here)[:, None])
        dbase += dlog
        moved += dlog[:, None, :] * old
        scaled += dlog[:, None, :] * old * old
    skipped, type_mask = chunk.to(tl.int64) * count, live[:, None] & real
    mask = type_mask[:, None, :] & valid[None, :, None]
    tl.store(dmeans + skipped * (p * width * types) + at, moved * own_inverse, mask=mask)
    tl.store(dinverses + skipped * (p * width * types) + at, -0.5 * scaled, mask=mask)
    tl.store(dbases + skipped * types + at_type, dbase, mask=type_mask)


@triton.jit(do_not_specialize=NUMBERS)
def em_factor_gradients(
    poses, active, weights, offsets, child, kind, first, wide, narrow, by_child,
    dposes, dweights, felt, steps, count, slots, children, span, spread, q_pad: tl.constexpr,
    has_offset: tl.constexpr, positions: tl.constexpr, types: tl.constexpr, p: tl.constexpr, q: tl.constexpr,
    width: tl.constexpr, tile: tl.constexpr, p_pad: tl.constexpr, width_pad: tl.constexpr, j_pad: tl.constexpr,
):  # fmt: skip
    """Gradients of poses and W for M slots and a chunk of rows, from those of the votes in all iterations.

    ``wide`` (N, T, 4, D, J) has means, inverses, dmeans and dvariances of all T = ``steps`` iterations, ``narrow``
    (N, T, 2, J) bases and biases, and ``by_child`` (B, C, T-1, 2) normalizers and leans. Writes ``dposes``
    (N, I, p, q), to be summed over the slots of each child, ``dweights`` (chunks, I, q, q', J), to be summed over
    chunks and the slots of each W, and ``felt`` (N, I) of the first M-step. M divides I.
    """
    slot = tl.program_id(0) * tile + tl.arange(0, tile)
    row, place, valid, j, real = em_lanes(types, p, width, p_pad, width_pad, j_pad)
    k_all, line = tl.arange(0, q_pad), tl.arange(0, p_pad)
    lane, mask = (place[:, None] * types + j[None, :])[None, :, :], valid[None, :, None]
    weight_of_slot = tl.load(kind + slot)
    weight_at = (weight_of_slot * q)[:, None] + k_all[None, :]
    weight_at = weight_at[:, :, None, None] * (width * types) + (place - row * width)[:, None] * types + j[None, :]
    weight_mask = (k_all < q)[None, :, None, None] & valid[None, None, :, None]
    dpose_lane = (line[None, :] * q + k_all[:, None])[None, :, :]
    dpose_mask = (k_all < q)[None, :, None] & (line < p)[None, None, :]
    pose_mask = valid[None, None, :] & (k_all < q)[None, :, None]
    dweight = tl.zeros((tile, q_pad, p_pad * width_pad, j_pad), tl.float32)
    chunk = tl.program_id(1)
    for r in range(chunk * span, tl.minimum((chunk + 1) * span, count)):
        owner = tl.load(child + (r % positions) * slots + slot)
        here = tl.cast(r // positions, tl.int64) * children + owner
        votes = tile_votes(
            poses, here, weights, weight_of_slot, offsets, slot, row, place, valid, j, types, p, q, width, has_offset
        )
        votes = tl.minimum(tl.maximum(votes, -LARGEST_VOTE), LARGEST_VOTE)
        activation = tl.load(active + here)
        # The first M-step, whose assignments are constant.
        n = tl.cast(r, tl.int64)
        at = n * steps * (4 * p * width * types) + lane
        at_type = n * steps * (2 * types) + j[None, :]
        dmean = tl.load(wide + at + 2 * (p * width * types), mask=mask, other=0.0)
        dvariance = tl.load(wide + at + 3 * (p * width * types), mask=mask, other=0.0)
        share = tl.load(first + owner)
        x = votes - tl.load(wide + at, mask=mask, other=0.0)
        dvotes = (share * activation + spread)[:, None, None] * (dmean + 2.0 * x * dvariance)
        dr = tl.sum(x * (dmean + x * dvariance), axis=1)
        dr += tl.load(narrow + at_type + types)
        tl.store(felt + n * slots + slot, share * tl.sum(tl.where(real, dr, 0.0), axis=1))
        for t in range(1, steps):
            old = x  # from the mean of iteration t - 1
            inverse = tl.load(wide + at + (p * width * types), mask=mask, other=0.0)
            base = tl.load(narrow + at_type)
            log = tl.where(real, base - 0.5 * tl.sum(old * old * inverse, axis=1), -float("inf"))
            number = (here * (steps - 1) + t - 1) * 2
            shares = tl.exp(log - tl.load(by_child + number)[:, None])
            at += 4 * p * width * types
            at_type += 2 * types
            dmean = tl.load(wide + at + 2 * (p * width * types), mask=mask, other=0.0)
            dvariance = tl.load(wide + at + 3 * (p * width * types), mask=mask, other=0.0)
            x = votes - tl.load(wide + at, mask=mask, other=0.0)
            dr = tl.sum(x * (dmean + x * dvariance), axis=1)
            dr += tl.load(narrow + at_type + types)
            lean = tl.load(by_child + number + 1)
            dlog = shares * (activation[:, None] * dr - lean[:, None])
            weighted = shares * activation[:, None] + spread
            dvotes += weighted[:, None, :] * (dmean + 2.0 * x * dvariance) - dlog[:, None, :] * old * inverse
        dvotes = tl.where((tl.abs(votes) < LARGEST_VOTE) & real[:, None, :] & mask, dvotes, 0.0)  # none if clamped
        weight = tl.load(weights + weight_at, mask=weight_mask, other=0.0)
        by_element = tl.sum(dvotes[:, None, :, :] * weight, axis=3)  # (M, q, D)
        dpose = tl.sum(tl.reshape(by_element, (tile, q_pad, p_pad, width_pad)), axis=3)
        to = ((n * slots + slot) * (p * q))[:, None, None] + dpose_lane
        tl.store(dposes + to, dpose, mask=dpose_mask)
        pose_at = (here * (p * q))[:, None, None] + (row * q)[None, None, :] + k_all[None, :, None]
        pose = tl.load(poses + pose_at, mask=pose_mask, other=0.0)
        dweight += pose[:, :, :, None] * dvotes[:, None, :, :]
    summed = tl.sum(tl.reshape(dweight, (tile, q_pad, p_pad, width_pad, j_pad)), axis=2)
    column = tl.arange(0, width_pad)
    to = (chunk.to(tl.int64) * slots + slot)[:, None, None, None] * q + k_all[None, :, None, None]
    to = (to * width + column[None, None, :, None]) * types + j[None, None, None, :]
    mask = (k_all < q)[None, :, None, None] & (column < width)[None, None, :, None] & real[:, None, None, :]
    tl.store(dweights + to, summed, mask=mask)
