"""CUDA kernels for CuPy arrays: Push-Sum steps along sparse graphs, random graphs and mini-batches drawn on the device.

    pull                 out_i = Σ_{j ∈ N(i)} W_ij z_j and ω_i likewise, one launch per step; the last one may divide
    OutNeighbours        CSR by receiver of RandomOut and SparseErdosRenyi
    BernoulliEdges       CSR by receiver of RandomDirected and RandomUndirected
    dense_matrices       the same graphs as (S, calls, n, n) matrices, to be multiplied
    draw_batches         instance indices of mini-batches
    linear_product       gradients and Hessian-vector products of linear models, without gathering mini-batches
    tracking_message     what gradient tracking sends
    Sleepers, deliveries which clients sleep, and which messages of `networks.Unreliable` arrive when

What must not change: a receiver adds its senders in increasing order, starting from 0, and every product and every sum
rounds once. `__dmul_rn` and `__dadd_rn` are never contracted to a fused multiply-add. So a step has the bits of
`_kernels.mixing.pull_step`. Graphs and batches are the Philox counters of `_kernels.graphs` and `problems.batches` in
integer arithmetic, so they are equal to those of the host for all seeds and steps. Places in rows are given out by
atomic counters in any order, and rows are sorted afterwards.

The library of the arrays compiles the text below on first use. Nothing here imports it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hgp_ref.backend import Array, Namespace, array_namespace, device, from_host, host_dtype, is_array, is_numpy

# `real` is the dtype of the arrays; the library compiles each text once for every dtype that occurs.
COMMON = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double over(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float over(float a, float b) { return __fdiv_rn(a, b); }

// The thread of item `item` of `items` of graph `graph`, for kernels whose grid covers the items of all graphs.
#define THREAD_OF(item, items, graph, graphs) \
  i64 graph = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / (items), \
      item = blockIdx.x * (i64)blockDim.x + threadIdx.x - graph * (items); \
  if (graph >= (graphs)) return;
"""

MIXING = (
    COMMON
    + r"""
// One step of mixing. Block: receiver i (grid.x) and columns of all runs (grid.y, 65535 at most, hence the loop).
// Run r of z begins at row r z_rows, that of out at row r out_rows + out_row.
extern "C" __global__ void pull(i64 d, i64 runs, i64 z_rows, i64 out_rows, i64 out_row, const i64* indptr,
    const int* senders, const double* weights, const real* z, const double* omega, real* out, double* omega_out,
    i64 divide) {
  i64 i = blockIdx.x, first = indptr[i], last = indptr[i + 1];
  for (i64 q = blockIdx.y * (i64)blockDim.x + threadIdx.x; q < runs * d; q += gridDim.y * (i64)blockDim.x) {
    i64 r = q / d, c = q - r * d;
    const real* from = z + r * z_rows * d + c;
    real total = 0;
    double weight = 0;
    for (i64 e = first; e < last; ++e) {
      total = plus(total, times((real)weights[e], from[senders[e] * d]));
      weight = plus(weight, times(weights[e], omega[senders[e]]));
    }
    out[(r * out_rows + out_row + i) * d + c] = divide ? over(total, (real)weight) : total;
    if (q == 0) omega_out[i] = weight;
  }
}
// What gradient tracking sends: out = (u - step y, y), 2 d columns. Rows of u are `stride` numbers apart.
extern "C" __global__ void tracking_message(i64 rows, i64 d, const real* u, i64 stride, real step, const real* y,
    real* out) {
  THREAD_OF(c, 2 * d, row, rows)
  out[row * 2 * d + c] = c < d ? plus(u[row * stride + c], -times(step, y[row * d + c])) : y[row * d + c - d];
}
"""
)

RANDOM = (
    COMMON
    + r"""
// ---- Philox4x32-10 with the counters of hgp_ref/philox.py
struct Stream { u32 k0, k1, number; };
__device__ __forceinline__ void philox(u64 block, u64 client, u64 step, Stream s, u32* w) {
  u32 c0 = (u32)block, c1 = (u32)client, c2 = (u32)step, c3 = s.number << 24 | (u32)(step >> 32), k0 = s.k0, k1 = s.k1;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0; c1 = l1; c2 = h0 ^ c3 ^ k1; c3 = l0;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  w[0] = c0; w[1] = c1; w[2] = c2; w[3] = c3;
}
__device__ __forceinline__ Stream stream(i64 k0, i64 k1, i64 number) { return {(u32)k0, (u32)k1, (u32)number}; }
__device__ __forceinline__ u64 below(u32 high, u32 low, u64 m) { return (high * m + ((low * m) >> 32)) >> 32; }
__device__ __forceinline__ u64 draw(u64 number, u64 client, u64 step, Stream s, u64 m) {   // the two halves of a block
  u32 w[4];
  philox(number / 2, client, step, s, w);
  return number % 2 ? below(w[2], w[3], m) : below(w[0], w[1], m);
}

// ---- Sparse graphs: 1 + smallest + #{table <= number} receivers of each sender, by Floyd's algorithm.
// Thread: sender j of graph t. degrees (graphs, n); receivers (graphs, n, most) in the order in which they are drawn, j
// last; in_degrees (graphs, n), zero on entry.
extern "C" __global__ void draw_receivers(i64 n, i64 graphs, i64 most, i64 smallest, const u64* table, i64 entries,
    i64 degree_stream, i64 receiver_stream, i64 k0, i64 k1, i64 first, int* receivers, int* degrees, int* in_degrees) {
  THREAD_OF(j, n, t, graphs)
  u64 step = first + t;
  i64 k = smallest;
  if (entries) {
    u32 w[4];
    philox(0, j, step, stream(k0, k1, degree_stream), w);
    u64 number = (u64)w[0] << 32 | w[1];
    i64 low = 0, high = entries;                       // the entries before low are <= number, those from high on above
    while (low < high) {
      i64 middle = (low + high) / 2;
      if (table[middle] <= number) low = middle + 1; else high = middle;
    }
    k += low;
  }
  int* row = receivers + (t * n + j) * most;
  Stream s = stream(k0, k1, receiver_stream);
  for (i64 q = 0; q < k; ++q) {
    int r = (int)draw(q, j, step, s, n - k + q);
    for (i64 e = 0; e < q; ++e) if (row[e] == r) { r = (int)(n - 1 - k + q); break; }
    row[q] = r;
  }
  for (i64 e = 0; e < k; ++e) row[e] += row[e] >= j;   // the others are numbered without j
  row[k] = (int)j;
  degrees[t * n + j] = (int)k + 1;
  for (i64 e = 0; e <= k; ++e) atomicAdd(in_degrees + t * n + row[e], 1);
}
// Thread: sender j of graph t. Puts j into the rows of its receivers; `left` (graphs, n) counts their free places.
extern "C" __global__ void place_senders(i64 n, i64 graphs, i64 most, const int* receivers, const int* degrees,
    const i64* indptr, int* left, int* senders) {
  THREAD_OF(j, n, t, graphs)
  for (int e = 0; e < degrees[t * n + j]; ++e) {
    int i = receivers[(t * n + j) * most + e];
    senders[t * n * most + indptr[t * (n + 1) + i] + atomicSub(left + t * n + i, 1) - 1] = (int)j;
  }
}
// Thread: receiver i of graph t. Sorts its senders, and writes their weights.
extern "C" __global__ void sort_rows(i64 n, i64 graphs, i64 most, const i64* indptr, const int* degrees, int* senders,
    double* weights) {
  THREAD_OF(i, n, t, graphs)
  int* row = senders + t * n * most;
  i64 begin = indptr[t * (n + 1) + i], end = indptr[t * (n + 1) + i + 1];
  for (i64 a = begin; a < end; ++a) {
    int j = row[a];
    i64 b = a;
    for (; b > begin && row[b - 1] > j; --b) row[b] = row[b - 1];
    row[b] = j;
  }
  for (i64 a = begin; a < end; ++a) weights[t * n * most + a] = __ddiv_rn(1.0, (double)degrees[t * n + row[a]]);
}

// ---- Dense graphs: edge j -> i if 32 random bits are at most last[i, j]; number i mod 4 of block i div 4 of client j,
// of the pair (min, max) if symmetric.
__device__ __forceinline__ u32 number_of_pair(i64 i, i64 j, u64 step, Stream s) {
  u32 w[4];
  philox(i / 4, j, step, s, w);
  return w[i % 4];
}
// Thread: sender j.
extern "C" __global__ void draw_rates(i64 n, i64 symmetric, i64 low, i64 span, i64 number, i64 k0, i64 k1, u32* last) {
  THREAD_OF(j, n, t, 1)
  Stream s = stream(k0, k1, number);
  for (i64 i = symmetric ? j : 0; i < n; ++i) {
    u32 rate = i == j ? 0xFFFFFFFFu : (u32)(low - 1 + ((number_of_pair(i, j, 0, s) * (u64)(span + 1)) >> 32));
    last[i * n + j] = rate;
    if (symmetric) last[j * n + i] = rate;
  }
}
// Thread: receivers 4b .. 4b + 3 of graph t, which share their random numbers. Without `senders` it counts edges, with
// `senders` it writes rows; senders come in increasing order.
template <bool place>
__device__ void bernoulli(i64 n, i64 graphs, i64 symmetric, const u32* last, i64 floor, i64 number, i64 k0, i64 k1,
                          i64 first, const i64* indptr, int* degrees, int* in_degrees, int* senders, double* weights) {
  THREAD_OF(b, (n + 3) / 4, t, graphs)
  u64 step = first + t;
  Stream s = stream(k0, k1, number);
  i64 next[4] = {0, 0, 0, 0};
  if (place)
#pragma unroll
    for (int r = 0; r < 4; ++r) if (4 * b + r < n) next[r] = t * n * n + indptr[t * (n + 1) + 4 * b + r];
  for (i64 j = 0; j < n; ++j) {
    u32 w[4];
    philox(b, j, step, s, w);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      i64 i = 4 * b + r;
      if (i >= n) continue;
      u32 bits = symmetric && j > i ? number_of_pair(j, i, step, s) : w[r];
      if ((bits | (u32)floor) > last[i * n + j]) continue;
      if (place) { senders[next[r]] = (int)j; weights[next[r]] = __ddiv_rn(1.0, (double)degrees[t * n + j]); }
      else atomicAdd(degrees + t * n + j, 1);
      ++next[r];
    }
  }
  if (!place)
#pragma unroll
    for (int r = 0; r < 4; ++r) if (4 * b + r < n) in_degrees[t * n + 4 * b + r] = (int)next[r];
}
extern "C" __global__ void count_edges(i64 n, i64 graphs, i64 symmetric, const u32* last, i64 floor, i64 number,
    i64 k0, i64 k1, i64 first, int* degrees, int* in_degrees) {
  bernoulli<false>(n, graphs, symmetric, last, floor, number, k0, k1, first, 0, degrees, in_degrees, 0, 0);
}
extern "C" __global__ void place_edges(i64 n, i64 graphs, i64 symmetric, const u32* last, i64 floor, i64 number,
    i64 k0, i64 k1, i64 first, const i64* indptr, int* degrees, int* senders, double* weights) {
  bernoulli<true>(n, graphs, symmetric, last, floor, number, k0, k1, first, indptr, degrees, 0, senders, weights);
}

// ---- Matrices of the graphs of calls: graph t = c S + s goes to W[s, c], zero on entry.
// Thread: receiver i of graph t.
extern "C" __global__ void scatter_rows(i64 n, i64 graphs, i64 calls, i64 steps, i64 room, const i64* indptr,
    const int* senders, const double* weights, double* W) {
  THREAD_OF(i, n, t, graphs)
  double* row = W + (((t % steps) * calls + t / steps) * n + i) * n;
  senders += t * room; weights += t * room; indptr += t * (n + 1);
  for (i64 e = indptr[i]; e < indptr[i + 1]; ++e) row[senders[e]] = weights[e];
}
// ---- Clients that sleep, as in _kernels/links.py. Thread: client j at step first + t. It sleeps with a probability,
// or during `intervals` (client, first step, last step) if there are any.
extern "C" __global__ void draw_sleepers(i64 n, i64 graphs, i64 intervals, const i64* interval, i64 threshold,
    i64 stretch, i64 number, i64 k0, i64 k1, i64 first, bool* asleep) {
  THREAD_OF(j, n, t, graphs)
  i64 step = first + t;
  bool sleeps = false;
  for (i64 e = 0; e < intervals; ++e)
    sleeps |= interval[3 * e] == j && interval[3 * e + 1] <= step && step <= interval[3 * e + 2];
  if (!intervals) {
    Stream s = stream(k0, k1, number);
    u32 w[4];
    philox(0, j, 0, s, w);
    philox(0, j, (step - 1 + (i64)below(w[0], w[1], stretch)) / stretch + 1, s, w);
    sleeps = (i64)w[0] < threshold;
  }
  asleep[t * n + j] = sleeps;
}
// Thread: receiver i of graph t. Length of its row without sleepers; refused[j] counts the sleepers to whom j sends.
extern "C" __global__ void count_awake(i64 n, i64 graphs, i64 room, const bool* asleep, const i64* indptr,
    const int* senders, int* refused, int* lengths) {
  THREAD_OF(i, n, t, graphs)
  asleep += t * n; indptr += t * (n + 1); senders += t * room; refused += t * n;
  int length = 0;
  for (i64 e = indptr[i]; e < indptr[i + 1]; ++e) {
    if (asleep[senders[e]]) continue;
    if (asleep[i]) atomicAdd(refused + senders[e], 1); else ++length;
  }
  lengths[t * n + i] = asleep[i] ? 1 : length;
}
// Thread: receiver i of graph t. Its row without sleepers; self-loops add what would go to sleepers. All weights of a
// sender are equal, so the order in which they are added does not matter.
extern "C" __global__ void place_awake(i64 n, i64 graphs, i64 room, const bool* asleep, const i64* indptr,
    const int* senders, const double* weights, const int* refused, const i64* next, int* awake, double* shares) {
  THREAD_OF(i, n, t, graphs)
  asleep += t * n; indptr += t * (n + 1); senders += t * room; weights += t * room; refused += t * n;
  i64 place = t * room + next[t * (n + 1) + i];
  if (asleep[i]) { awake[place] = (int)i; shares[place] = 1; return; }
  for (i64 e = indptr[i]; e < indptr[i + 1]; ++e) {
    if (asleep[senders[e]]) continue;
    double share = weights[e];
    for (int k = 0; k < (senders[e] == i ? refused[i] : 0); ++k) share = plus(share, weights[e]);
    awake[place] = senders[e]; shares[place++] = share;
  }
}

// ---- Messages that are lost or late, as in _kernels/links.py. Graph t = c S + s is step s of call c. Shares that do
// not arrive in their call never do. Thread: receiver i of graph t. `arrival` (graphs, room) is the step of each edge.
#define NEVER 0x7FFFFFFF
extern "C" __global__ void draw_arrivals(i64 n, i64 graphs, i64 steps, i64 room, const i64* indptr, const int* senders,
    i64 number, i64 k0, i64 k1, i64 threshold, i64 delays, i64 first, int* arrival) {
  THREAD_OF(i, n, t, graphs)
  i64 s = t % steps;
  indptr += t * (n + 1); senders += t * room; arrival += t * room;
  for (i64 e = indptr[i]; e < indptr[i + 1]; ++e) {
    u32 w[4];
    u64 delay = 0;
    philox(i, senders[e], first + t, stream(k0, k1, number), w);
    bool self = senders[e] == i, lost = !self && (i64)w[0] < threshold;
    if (!self) delay = below(w[1], w[2], delays);
    arrival[e] = lost || delay >= (u64)(steps - s) ? NEVER : (int)(s + (i64)delay);
  }
}
// Running sums: a share arrives with the first message of its edge that was not sent earlier.
extern "C" __global__ void earliest_arrivals(i64 n, i64 graphs, i64 steps, i64 room, const i64* indptr,
    const int* senders, const int* message, int* arrival) {
  THREAD_OF(i, n, t, graphs)
  i64 s = t % steps;
  for (i64 e = indptr[t * (n + 1) + i]; e < indptr[t * (n + 1) + i + 1]; ++e) {
    int j = senders[t * room + e], earliest = message[t * room + e];
    for (i64 r = s + 1; r < steps && r < earliest; ++r) {
      i64 g = t - s + r, low = indptr[g * (n + 1) + i], end = indptr[g * (n + 1) + i + 1], high = end;
      while (low < high) {
        i64 middle = (low + high) / 2;
        if (senders[g * room + middle] < j) low = middle + 1; else high = middle;
      }
      if (low < end && senders[g * room + low] == j && message[g * room + low] < earliest)
        earliest = message[g * room + low];
    }
    arrival[t * room + e] = earliest;
  }
}
// What receiver i adds up at step s of call c: W_ij(r) z_j(r) of the steps r <= s that arrive then, in the order in
// which they were sent. Row s n + i of call c; z_j(r) is row r n + j of the past. Without `senders` it counts.
template <bool place>
__device__ void deliver(i64 n, i64 graphs, i64 steps, i64 room, const i64* indptr, const int* senders,
                        const double* weights, const int* arrival, const i64* next, int* lengths, int* rows,
                        double* shares) {
  THREAD_OF(i, n, t, graphs)
  i64 c = t / steps, s = t % steps, q = place ? c * steps * room + next[c * (steps * n + 1) + s * n + i] : 0;
  for (i64 r = 0; r <= s; ++r) {
    i64 g = c * steps + r;
    for (i64 e = indptr[g * (n + 1) + i]; e < indptr[g * (n + 1) + i + 1]; ++e) {
      if (arrival[g * room + e] != s) continue;
      if (place) { rows[q] = (int)(r * n + senders[g * room + e]); shares[q] = weights[g * room + e]; }
      ++q;
    }
  }
  if (!place) lengths[t * n + i] = (int)q;
}
extern "C" __global__ void count_deliveries(i64 n, i64 graphs, i64 steps, i64 room, const i64* indptr,
    const int* arrival, int* lengths) {
  deliver<false>(n, graphs, steps, room, indptr, 0, 0, arrival, 0, lengths, 0, 0);
}
extern "C" __global__ void place_deliveries(i64 n, i64 graphs, i64 steps, i64 room, const i64* indptr,
    const int* senders, const double* weights, const int* arrival, const i64* next, int* rows, double* shares) {
  deliver<true>(n, graphs, steps, room, indptr, senders, weights, arrival, next, 0, rows, shares);
}
// Step s of all calls for the identity: row (s + 1) n + i of held (calls, (S + 1) n, n). Block: receiver i of call c.
extern "C" __global__ void compose_deliveries(i64 n, i64 steps, i64 room, i64 s, const i64* indptr, const int* rows,
    const double* shares, double* held) {
  i64 c = blockIdx.x / n, row = s * n + blockIdx.x - c * n;
  indptr += c * (steps * n + 1) + row; rows += c * room; shares += c * room; held += c * (steps + 1) * n * n;
  for (i64 k = threadIdx.x; k < n; k += blockDim.x) {
    double total = 0;
    for (i64 e = indptr[0]; e < indptr[1]; ++e) total = plus(total, times(shares[e], held[rows[e] * n + k]));
    held[(row + n) * n + k] = total;
  }
}

// ---- Mini-batches. Thread: client i at step first + m. A Fisher-Yates shuffle of 0 .. count - 1, of which only the
// first b places are needed: place[k] is exchanged with place k at draw k, value[k] is what is put there.
// index (steps, n, b) has instance numbers, flat their rows among those of all clients, mean 1 / (number of instances);
// padding has 0 in index and mean. Steps are `stride` numbers apart.
extern "C" __global__ void draw_batches(i64 n, i64 steps, i64 b, i64 stride, i64 longest, i64 replace,
    const i64* counts, const i64* clients, i64 number, i64 k0, i64 k1, i64 first, i64* flat, i64* index, real* mean,
    i64* place, i64* value) {
  THREAD_OF(i, n, m, steps)
  u64 step = first + m;
  i64 N = counts[i], taken = replace || N > b ? b : N;
  Stream s = stream(k0, k1, number);
  flat += m * stride + i * b; index += m * stride + i * b; mean += m * stride + i * b;
  place += (m * n + i) * b; value += (m * n + i) * b;
  for (i64 k = 0; k < b; ++k) {
    i64 drawn = k < taken ? k : 0;
    if (replace) {
      drawn = (i64)draw(k, clients[i], step, s, N);
    } else if (N > b) {
      i64 p = k + (i64)draw(k, clients[i], step, s, N - k), at_k = k;
      drawn = p;
      for (i64 e = 0; e < k; ++e) {
        if (place[e] == p) drawn = value[e];
        if (place[e] == k) at_k = value[e];
      }
      place[k] = p; value[k] = at_k;
    }
    index[k] = drawn;
    flat[k] = drawn + i * longest;
    mean[k] = k < taken ? (real)__ddiv_rn(1.0, (double)taken) : (real)0;
  }
}
"""
)

COOPERATIVE = (
    COMMON
    + r"""
// Block: graph t. indptr (graphs, n + 1) is the running sum of in_degrees (graphs, n).
extern "C" __global__ void scan_rows(i64 n, const int* in_degrees, i64* indptr) {
  __shared__ i64 tile[256];
  __shared__ i64 before;
  i64 t = blockIdx.x;
  int lane = threadIdx.x;
  if (lane == 0) { before = 0; indptr[t * (n + 1)] = 0; }
  for (i64 begin = 0; begin < n; begin += 256) {
    i64 i = begin + lane;
    tile[lane] = i < n ? in_degrees[t * n + i] : 0;
    __syncthreads();
    for (int gap = 1; gap < 256; gap *= 2) {
      i64 other = lane >= gap ? tile[lane - gap] : 0;
      __syncthreads();
      tile[lane] += other;
      __syncthreads();
    }
    if (i < n) indptr[t * (n + 1) + i + 1] = before + tile[lane];
    __syncthreads();
    if (lane == 0) before += tile[255];
    __syncthreads();
  }
}
// One block: omega[c + 1] = P[c] omega[c] for calls c = 0, 1, ...; omega (calls + 1, n) begins with the weights before.
extern "C" __global__ void carry_weights(i64 n, i64 calls, const double* P, double* omega) {
  for (i64 c = 0; c < calls; ++c) {
    for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
      double total = 0;
      for (i64 j = 0; j < n; ++j) total = plus(total, times(P[(c * n + i) * n + j], omega[c * n + j]));
      omega[(c + 1) * n + i] = total;
    }
    __syncthreads();
  }
}

// Linear models: v_k = weight_k l'(a_k) or weight_k l''_k a_k with the logits a_k = X_k U. Warp: entry k of client i of
// run r, which is row index[k] of X, or row k if all instances are used. `at` has l'' or the targets of all instances.
// VALUE: v_k = weight_k l'_k . a_k at place 0, with l' in `at`.
enum { CURVATURE, BINARY_SLOPE, SQUARED_SLOPE, SOFTMAX_CURVATURE, SOFTMAX_SLOPE, VALUE };
extern "C" __global__ void weigh_logits(i64 runs, i64 n, i64 b, i64 d, i64 C, i64 kind, const real* X, i64 indexed,
    const i64* index, i64 index_run, const void* at, const real* weight, i64 weight_run, const real* u, i64 u_run,
    real* out) {
  i64 row = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= runs * n * b) return;
  i64 r = row / (n * b), entry = row - r * n * b, i = entry / b;
  i64 source = indexed ? index[r * index_run + entry] : entry;
  real* a = out + row * C;
  for (i64 c = 0; c < C; ++c) {
    real total = 0;
    for (i64 j = lane; j < d; j += 32) total += X[source * d + j] * u[r * u_run + (i * d + j) * C + c];
    for (int gap = 16; gap; gap /= 2) total += __shfl_down_sync(0xFFFFFFFFu, total, gap);
    if (lane == 0) a[c] = total;
  }
  if (lane) return;
  real scale = weight[r * weight_run + entry];
  if (kind == CURVATURE) {
    a[0] = scale * ((const real*)at)[source] * a[0];
  } else if (kind == BINARY_SLOPE) {
    real sign = ((const real*)at)[source], t = -sign * a[0], e = exp(-fabs(t));
    a[0] = scale * (-sign * ((t >= 0 ? 1 : e) / (1 + e)));
  } else if (kind == VALUE) {
    real total = 0;
    for (i64 c = 0; c < C; ++c) total += ((const real*)at)[source * C + c] * a[c];
    a[0] = scale * total;
  } else if (kind == SQUARED_SLOPE) {
    a[0] = scale * (a[0] - ((const real*)at)[source]);
  } else if (kind == SOFTMAX_CURVATURE) {   // differences from the b of a class with p > 1/2, see problems/losses.py
    const real* p = (const real*)at + source * C;
    real shift = 0, mean = 0;
    for (i64 c = 0; c < C; ++c) shift += p[c] > (real)0.5 ? a[c] : 0;
    for (i64 c = 0; c < C; ++c) mean += p[c] * (a[c] - shift);
    for (i64 c = 0; c < C; ++c) a[c] = scale * p[c] * (a[c] - shift - mean);
  } else {
    const bool* target = (const bool*)at + source * C;
    real top = a[0], total = 0, wrong = 0;
    for (i64 c = 1; c < C; ++c) top = a[c] > top || a[c] != a[c] ? a[c] : top;
    for (i64 c = 0; c < C; ++c) total += a[c] = exp(a[c] - top);
    for (i64 c = 0; c < C; ++c) { a[c] /= total; wrong += target[c] ? 0 : a[c]; }
    for (i64 c = 0; c < C; ++c) a[c] = scale * (target[c] ? -wrong : a[c]);
  }
}
"""
)

LINEAR = (
    COMMON
    + r"""
// out_i = X_i^T v_i + rate_i u_i. Thread: entry (j, c) of client i of run r.
extern "C" __global__ void add_rows(i64 runs, i64 n, i64 b, i64 d, i64 C, const real* X, i64 indexed, const i64* index,
    i64 index_run, const real* v, real number, i64 rates, const real* rate, i64 rate_run, i64 rate_client,
    i64 rate_column, const real* u, i64 u_run, real* out) {
  THREAD_OF(q, d * C, client, runs * n)
  i64 r = client / n, i = client - r * n, j = q / C, c = q - j * C;
  real total = 0;
  for (i64 k = 0; k < b; ++k) {
    i64 source = indexed ? index[r * index_run + i * b + k] : i * b + k;
    total += v[(client * b + k) * C + c] * X[source * d + j];
  }
  real factor = rates ? rate[r * rate_run + i * rate_client + q * rate_column] : number;
  out[client * d * C + q] = total + factor * u[r * u_run + i * d * C + q];
}
"""
)

NEURAL = (
    COMMON
    + r"""
// Cross-entropy of C logits a: its slope, or its second derivative times b. Thread: one instance.
extern "C" __global__ void softmax_rows(i64 rows, i64 C, i64 slope, const real* a, const bool* target, const real* b,
    real* out) {
  THREAD_OF(zero, 1, row, rows)
  a += row * C; target += row * C; b += row * C; out += row * C;
  real top = a[0], total = 0, sum = 0, shift = 0;
  for (i64 c = 1; c < C; ++c) top = a[c] > top || a[c] != a[c] ? a[c] : top;
  for (i64 c = 0; c < C; ++c) total += out[c] = exp(a[c] - top);
  for (i64 c = 0; c < C; ++c) out[c] /= total;
  if (slope) {
    for (i64 c = 0; c < C; ++c) sum += target[c] ? 0 : out[c];
    for (i64 c = 0; c < C; ++c) out[c] = target[c] ? -sum : out[c];
  } else {   // differences from the b of a class with p > 1/2, see problems/losses.py
    for (i64 c = 0; c < C; ++c) shift += out[c] > (real)0.5 ? b[c] : 0;
    for (i64 c = 0; c < C; ++c) sum += out[c] * (b[c] - shift);
    for (i64 c = 0; c < C; ++c) out[c] *= b[c] - shift - sum;
  }
}
// The windows of images (H, W, C), 0 outside: pixel (i, j) of window (h, w) is pixel (h sh + i - top, w sw + j - left).
// Thread: one number of out (images, Ho, Wo, kh, kw, C).
extern "C" __global__ void gather_windows(i64 images, i64 H, i64 W, i64 C, i64 Ho, i64 Wo, i64 kh, i64 kw, i64 sh,
    i64 sw, i64 top, i64 left, const real* a, real* out) {
  THREAD_OF(q, Ho * Wo * kh * kw * C, image, images)
  i64 c = q % C, j = q / C % kw, i = q / (C * kw) % kh, w = q / (C * kw * kh) % Wo, h = q / (C * kw * kh * Wo);
  i64 y = h * sh + i - top, x = w * sw + j - left;
  bool inside = y >= 0 && y < H && x >= 0 && x < W;
  out[image * Ho * Wo * kh * kw * C + q] = inside ? a[((image * H + y) * W + x) * C + c] : 0;
}
// out[i, k] = a[i, index[i, k]]. Thread: one entry.
extern "C" __global__ void gather_columns(i64 n, i64 b, i64 columns, const real* a, const i64* index, real* out) {
  THREAD_OF(k, b, i, n)
  out[i * b + k] = a[i * columns + index[i * b + k]];
}
// out[i, c] = sum of a[i, k] over the entries with index[i, k] = c, in their order; a[i, k] are `stride` numbers apart,
// and rows of index repeat. Thread: one sum.
extern "C" __global__ void add_columns(i64 rows, i64 b, i64 columns, const real* a, i64 stride, const i64* index,
    i64 index_rows, real* out) {
  THREAD_OF(c, columns, i, rows)
  real total = 0;
  for (i64 k = 0; k < b; ++k) total += index[i % index_rows * b + k] == c ? a[(i * b + k) * stride] : 0;
  out[i * columns + c] = total;
}
"""
)

THREADS = 128
GRID_Y = 65535  # largest grid.y
VALUE = 5  # kind of `weigh_logits`
EDGE_BYTES = 16  # of one edge of `Rows`, and of its receiver while the graph is drawn


def applies(x: Array) -> bool:
    """Whether `x` is an array of a library that compiles CUDA kernels."""
    return not is_numpy(x) and is_array(x) and hasattr(array_namespace(x), "RawModule")


REALS = {"float64": "double", "float32": "float"}


@lru_cache
def _function(xp: Namespace, text: str, name: str, dtype: str) -> Any:
    return xp.RawModule(code=f"#define real {REALS[dtype]}\n{text}").get_function(name)


def _launch(like: Array, text: str, name: str, grid: tuple[int, ...], *arguments: Any,
            threads: int = THREADS, dtype: str = "float64") -> None:  # fmt: skip
    """Launch a kernel of `text` on the device of `like`; integers are passed as 64 bits."""
    if 0 in grid:
        return  # CuPy would launch one block
    with device(like):
        function = _function(array_namespace(like), text, name, dtype)
        function(grid, (threads,), tuple(np.int64(a) if isinstance(a, int) else a for a in arguments))


def _grid(items: int, graphs: int = 1) -> tuple[int]:
    return (-(-items * graphs // THREADS),)


# One step of mixing ---------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Graphs as CSR by receiver on the device: those of graph t are indptr[t] (n + 1), senders[t] and weights[t]."""

    indptr: Array
    senders: Array
    weights: Array

    def at(self, t: int) -> tuple[Array, Array, Array]:
        """Graph t."""
        return self.indptr[t, :], self.senders[t, :], self.weights[t, :]


def send_rows(graphs: list[Any], like: Array) -> Rows:
    """Graphs (indptr, senders, weights) of the host on the device of `like`, in three transfers."""
    ends = np.cumsum([0, *(graph[1].size for graph in graphs)])
    indptr = np.stack([graph[0] + end for graph, end in zip(graphs, ends, strict=False)])
    senders, weights = (np.concatenate([graph[part] for graph in graphs]) for part in (1, 2))
    rows = (from_host(a, like=like) for a in (indptr, senders.astype(np.int32), weights.astype(np.float64)))
    indptr, senders, weights = rows
    every = (len(graphs), int(senders.shape[0]))
    xp = array_namespace(like)
    return Rows(indptr, xp.broadcast_to(senders, every), xp.broadcast_to(weights, every))


def pull(graph: tuple[Array, Array, Array], z: Array, omega: Array, divide: bool = False,
         out: Array | None = None, row: int = 0, after: Array | None = None) -> tuple[Array, Array]:  # fmt: skip
    """(W z, W ω), or (W z / W ω, W ω): z (..., rows, d) contiguous, ω (rows,) in float64.

    The result is written to the rows of `out` from `row` on, W ω to `after`; they may be parts of z and ω that are not
    read.
    """
    xp, (indptr, senders, weights) = array_namespace(z), graph
    n, d = int(indptr.shape[0]) - 1, int(z.shape[-1])
    runs = int(np.prod(z.shape[:-2], dtype=np.int64))
    out = xp.empty((*z.shape[:-2], n, d), dtype=z.dtype, device=device(z)) if out is None else out
    if 0 in z.shape:  # only ω changes
        column = xp.zeros((z.shape[-2], 1), dtype=z.dtype, device=device(z))
        return out, pull(graph, column, omega)[1]
    after = xp.empty(n, dtype=xp.float64, device=device(z)) if after is None else after
    grid = (n, min(GRID_Y, -(-runs * d // THREADS)))
    sizes = (d, runs, int(z.shape[-2]), int(out.shape[-2]), row)
    arrays = (indptr, senders, weights, z, omega, out, after)
    _launch(z, MIXING, "pull", grid, *sizes, *arrays, int(divide), dtype=str(host_dtype(z)))
    return out, after


def tracking_message(u: Array, step: float, y: Array) -> Array:
    """(u − η y, y) along the last axis, in one launch; u may be a part of the columns of a contiguous array."""
    xp, d = array_namespace(y), int(y.shape[-1])
    y, stride = xp.asarray(y, order="C"), int(u.strides[-2]) // u.itemsize
    rows = int(np.prod(y.shape[:-1], dtype=np.int64))
    if u.ndim > 2 or u.strides[-1] != u.itemsize:
        u, stride = xp.asarray(u, order="C"), d
    out = xp.empty((*y.shape[:-1], 2 * d), dtype=y.dtype, device=device(y))
    arguments = (rows, d, u, stride, host_dtype(y).type(step), y, out)
    _launch(y, MIXING, "tracking_message", _grid(2 * d, rows), *arguments, dtype=str(host_dtype(y)))
    return out


# Graphs ---------------------------------------------------------------------------------------------------------------


class Sampler(ABC):
    """Draws the graphs of a network on the device of `like`; graphs are numbered as in the original network."""

    room: int  # edges of one graph at most
    messages: int | None  # of one graph, if all have the same

    def __init__(self, n: int, key: tuple[Any, Any], like: Array) -> None:
        self.n, self.key, self.like = n, (int(key[0]), int(key[1])), like[..., :0]
        self.xp, self.device = array_namespace(like), device(like)

    @abstractmethod
    def rows(self, first: int, graphs: int) -> Rows:
        """Graphs first, first + 1, …"""

    def _empty(self, *shape: int, dtype: Any) -> Array:
        return self.xp.empty(shape, dtype=dtype, device=self.device)

    def _empty_rows(self, graphs: int) -> Rows:
        xp = self.xp
        edges = [self._empty(graphs, self.room, dtype=dtype) for dtype in (xp.int32, xp.float64)]
        return Rows(self._empty(graphs, self.n + 1, dtype=xp.int64), *edges)


class OutNeighbours(NamedTuple):
    """RandomOut (an empty table) and SparseErdosRenyi: 1 + smallest + #{table ≤ number} receivers of each sender."""

    n: int
    smallest: int
    table: np.ndarray
    degree_stream: int
    stream: int
    key: tuple[Any, Any]

    def on(self, like: Array) -> Sampler:
        """A sampler on the device of `like`."""
        return _OutNeighbours(self, like)


class _OutNeighbours(Sampler):
    def __init__(self, rule: OutNeighbours, like: Array) -> None:
        super().__init__(rule.n, rule.key, like)
        self.rule, self.most = rule, 1 + rule.smallest + rule.table.size
        self.room = self.n * self.most
        self.messages = None if rule.table.size else self.n * rule.smallest
        self.table = from_host(rule.table, like=like) if rule.table.size else self._empty(1, dtype=self.xp.uint64)

    def rows(self, first: int, graphs: int) -> Rows:
        xp, n, most, rule, like = self.xp, self.n, self.most, self.rule, self.like
        receivers = self._empty(graphs, n, most, dtype=xp.int32)
        degrees = self._empty(graphs, n, dtype=xp.int32)
        in_degrees = xp.zeros((graphs, n), dtype=xp.int32, device=self.device)
        sent, rows, each = (receivers, degrees), self._empty_rows(graphs), (n, graphs, most)
        degree = (rule.smallest, self.table, rule.table.size, rule.degree_stream)
        draws = (*each, *degree, rule.stream, *self.key, first)
        _launch(like, RANDOM, "draw_receivers", _grid(n, graphs), *draws, *sent, in_degrees)
        _launch(like, COOPERATIVE, "scan_rows", (graphs,), n, in_degrees, rows.indptr, threads=256)
        _launch(like, RANDOM, "place_senders", _grid(n, graphs), *each, *sent, rows.indptr, in_degrees, rows.senders)
        _launch(like, RANDOM, "sort_rows", _grid(n, graphs), *each, rows.indptr, degrees, rows.senders, rows.weights)
        return rows


class BernoulliEdges(NamedTuple):
    """RandomDirected and RandomUndirected; rates are t / 2³² with t uniform on low .. low + span."""

    n: int
    symmetric: bool
    low: int
    span: int
    floor: int
    rate_stream: int
    stream: int
    key: tuple[Any, Any]

    def on(self, like: Array) -> Sampler:
        """A sampler on the device of `like`."""
        return _BernoulliEdges(self, like)


class _BernoulliEdges(Sampler):
    messages = None

    def __init__(self, rule: BernoulliEdges, like: Array) -> None:
        super().__init__(rule.n, rule.key, like)
        self.rule, self.room = rule, self.n * self.n
        self.last = self._empty(self.n, self.n, dtype=self.xp.uint32)
        rates = (int(rule.symmetric), rule.low, rule.span, rule.rate_stream)
        _launch(like, RANDOM, "draw_rates", _grid(self.n), self.n, *rates, *self.key, self.last)

    def rows(self, first: int, graphs: int) -> Rows:
        xp, n, rule, like = self.xp, self.n, self.rule, self.like
        degrees = xp.zeros((graphs, n), dtype=xp.int32, device=self.device)
        in_degrees = self._empty(graphs, n, dtype=xp.int32)
        rows, grid = self._empty_rows(graphs), _grid(-(-n // 4), graphs)
        draws = (n, graphs, int(rule.symmetric), self.last, rule.floor, rule.stream, *self.key, first)
        _launch(like, RANDOM, "count_edges", grid, *draws, degrees, in_degrees)
        _launch(like, COOPERATIVE, "scan_rows", (graphs,), n, in_degrees, rows.indptr, threads=256)
        _launch(like, RANDOM, "place_edges", grid, *draws, rows.indptr, degrees, rows.senders, rows.weights)
        return rows


class Sleepers(NamedTuple):
    """The graphs of `net`, whose weights are 1 / out-degree and which have self-loops, without edges of sleepers.

    `intervals` (k, 3) are (client, first step, last step); if there are none, a client sleeps if 32 random bits of the
    interval of `stretch` steps are below `threshold`.
    """

    net: OutNeighbours | BernoulliEdges
    intervals: np.ndarray
    threshold: int
    stretch: int
    stream: int
    key: tuple[Any, Any]

    @property
    def n(self) -> int:
        """The number of clients."""
        return self.net.n

    def on(self, like: Array) -> Sampler:
        """A sampler on the device of `like`."""
        return _Sleepers(self, like)


class _Sleepers(Sampler):
    messages = None

    def __init__(self, rule: Sleepers, like: Array) -> None:
        super().__init__(rule.n, rule.key, like)
        self.rule, self.whole = rule, rule.net.on(like)
        self.room = self.whole.room
        listed = rule.intervals
        self.intervals = from_host(listed, like=like) if listed.size else self._empty(1, dtype=self.xp.int64)

    def rows(self, first: int, graphs: int) -> Rows:
        n, rule, like, whole = self.n, self.rule, self.like, self.whole.rows(first, graphs)
        asleep, rows = self._empty(graphs, n, dtype=self.xp.bool), self._empty_rows(graphs)
        lengths = self._empty(graphs, n, dtype=self.xp.int32)
        refused = self.xp.zeros((graphs, n), dtype=self.xp.int32, device=self.device)
        draws = (len(rule.intervals), self.intervals, rule.threshold, rule.stretch, rule.stream, *self.key, first)
        grid, sizes = _grid(n, graphs), (n, graphs, self.room, asleep)
        _launch(like, RANDOM, "draw_sleepers", grid, n, graphs, *draws, asleep)
        _launch(like, RANDOM, "count_awake", grid, *sizes, whole.indptr, whole.senders, refused, lengths)
        _launch(like, COOPERATIVE, "scan_rows", (graphs,), n, lengths, rows.indptr, threads=256)
        _launch(like, RANDOM, "place_awake", grid, *sizes, *whole, refused, *rows)
        return rows


DeviceRule = OutNeighbours | BernoulliEdges | Sleepers


def deliveries(sent: Rows, steps: int, first: int, rule: tuple[Any, ...], robust: bool, like: Array) -> Rows:
    """What arrives in calls of `steps` steps from `first` on, over the graphs `sent`: of call c, indptr[c] (S n + 1).

    Row s n + i is what client i adds up at step s of its call; sender r n + j means z_j before step r. `rule` as in
    `_kernels.links`; with `robust`, messages carry running sums.
    """
    xp, (graphs, room), n = array_namespace(like), map(int, sent.senders.shape), int(sent.indptr.shape[1]) - 1
    calls = graphs // steps
    stream, *key, threshold, delays = map(int, rule)
    sizes, grid = (n, graphs, steps, room), _grid(n, graphs)

    def empty(*shape: int, dtype: Any = xp.int32) -> Array:
        return xp.empty(shape, dtype=dtype, device=device(like))

    arrival = empty(graphs, room)
    draws = (stream, *key, threshold, delays, first)
    _launch(like, RANDOM, "draw_arrivals", grid, *sizes, sent.indptr, sent.senders, *draws, arrival)
    if robust:
        message, arrival = arrival, empty(graphs, room)
        _launch(like, RANDOM, "earliest_arrivals", grid, *sizes, sent.indptr, sent.senders, message, arrival)
    lengths, indptr = empty(calls, steps * n), empty(calls, steps * n + 1, dtype=xp.int64)
    _launch(like, RANDOM, "count_deliveries", grid, *sizes, sent.indptr, arrival, lengths)
    _launch(like, COOPERATIVE, "scan_rows", (calls,), steps * n, lengths, indptr, threads=256)
    rows, shares = empty(calls, steps * room), empty(calls, steps * room, dtype=xp.float64)
    _launch(like, RANDOM, "place_deliveries", grid, *sizes, *sent, arrival, indptr, rows, shares)
    return Rows(indptr, rows, shares)


def compose_deliveries(late: Rows, steps: int, n: int, like: Array) -> Array:
    """P of calls over `deliveries`, (calls, n, n) float64."""
    xp, (calls, room) = array_namespace(like), map(int, late.senders.shape)
    held = xp.empty((calls, (steps + 1) * n, n), dtype=xp.float64, device=device(like))
    held[:, :n, :] = xp.eye(n, dtype=xp.float64, device=device(like))
    for s in range(steps):
        _launch(like, RANDOM, "compose_deliveries", (calls * n,), n, steps, room, s, *late, held)
    return held[:, steps * n :, :]


def dense_matrices(rows: Rows, calls: int, steps: int, like: Array) -> Array:
    """W[s, c] of graph c S + s, (S, calls, n, n) float64, from sampled rows."""
    xp, n = array_namespace(like), int(rows.indptr.shape[1]) - 1
    W = xp.zeros((steps, calls, n, n), dtype=xp.float64, device=device(like))
    room = int(rows.senders.shape[1])
    _launch(like, RANDOM, "scatter_rows", _grid(n, calls * steps), n, calls * steps, calls, steps, room, *rows, W)
    return W


def carry_weights(P: Array, omega: Array) -> Array:
    """ω after each of the calls P (calls, n, n) in turn, (calls, n), from ω before the first."""
    xp, (calls, n, _) = array_namespace(P), P.shape
    after = xp.empty((calls + 1, n), dtype=xp.float64, device=device(P))
    after[0, :] = omega
    threads = min(1024, -(-int(n) // 32) * 32)
    _launch(P, COOPERATIVE, "carry_weights", (1,), int(n), int(calls), P, after, threads=threads)
    return after[1:, :]


# Mini-batches ---------------------------------------------------------------------------------------------------------

LARGEST_BATCH = 256  # drawing without replacement takes time b² for each client


def draw_batches(counts: Array, clients: Array, longest: int, replace: bool, first: int, stream: int, key: Any,
                 flat: Array, index: Array, mean: Array) -> None:  # fmt: skip
    """Mini-batches of steps first, first + 1, … into flat, index and mean (steps, n, b) of `instances.PreparedBatch`.

    Clients have `counts` (n,) instances out of `longest` rows each; `clients` (n,) are their numbers in the counters.
    """
    xp = array_namespace(flat)
    steps, n, b = (int(size) for size in flat.shape)
    scratch = [xp.empty((steps, n, b), dtype=xp.int64, device=device(flat)) for _ in range(2)]
    sizes = (n, steps, b, int(flat.strides[0]) // flat.itemsize, longest)
    rule = (int(replace), counts, clients, stream, *map(int, key), first)
    arguments = (*sizes, *rule, flat, index, mean, *scratch)
    _launch(flat, RANDOM, "draw_batches", _grid(n, steps), *arguments, dtype=str(host_dtype(mean)))


# Linear models --------------------------------------------------------------------------------------------------------


class Data(NamedTuple):
    """Features (n, N, d), and which of their n N rows a mini-batch (..., n, b) uses; None for all."""

    features: Array
    rows: Array | None


class _Entries:
    """How the kernels find entry k of client i of run r: in X, the mini-batch, and the `parts` with run axes.

    `lead` is None if the run axes of the parts differ.
    """

    def __init__(self, data: Data, *parts: Array) -> None:
        X, index = data.features, data.rows
        self.n, N, self.d = (int(size) for size in X.shape)
        self.b = N if index is None else int(index.shape[-1])
        parts = parts if index is None else (*parts, index)
        lead = max((tuple(part.shape[:-2]) for part in parts), key=len)
        self.lead: Any = None if any(tuple(part.shape[:-2]) not in ((), lead) for part in parts) else lead
        self.runs = int(np.prod(lead, dtype=np.int64))
        self.X = array_namespace(X).asarray(X, order="C")
        self.index = (0, X, 0) if index is None else (1, *self.of_run(index))

    def of_run(self, part: Array) -> tuple[Array, int]:
        """`part` (..., n, k) contiguous, and the numbers between two runs."""
        stride = self.n * int(part.shape[-1]) if part.ndim > 2 else 0
        return array_namespace(part).asarray(part, order="C"), stride

    def weigh(self, kind: int, at: Array, weight: Array, u: Array, logits: int) -> Array:
        """v of `weigh_logits`, (..., n, b, C)."""
        xp = array_namespace(u)
        v = xp.empty((*self.lead, self.n, self.b, logits), dtype=u.dtype, device=device(u))
        warps = (-(-self.runs * self.n * self.b * 32 // THREADS),)
        sizes = (self.runs, self.n, self.b, self.d, logits, kind)
        point = (xp.asarray(at, order="C"), *self.of_run(weight), *self.of_run(u))
        _launch(u, COOPERATIVE, "weigh_logits", warps, *sizes, self.X, *self.index, *point, v, dtype=str(host_dtype(u)))
        return v


def linear_product(
    loss: Any, kind: str, data: Data | None, at: Array, weight: Array, rate: Any, u: Array
) -> Array | None:
    """X_iᵀ v_i + rate_i u_i with v = weight l'' (X u), or weight l' at the logits X u, in two launches.

    kind is "curvature" or "slope". `at` (n, N, C) has l'' (of softmax: probabilities) or the targets of all instances,
    weight is (..., n, b), u (..., n, d C), and rate a number, (..., n, d C) or (..., n, 1). None if arrays have unequal
    run axes, or without data.  # (..., n, d C)
    """
    if data is None:
        return None
    rates, C, xp = not isinstance(rate, float), loss.logits, array_namespace(u)
    entries = _Entries(data, u, weight, *([rate] if rates else []))
    if entries.lead is None:
        return None
    v = entries.weigh(loss.cuda_slope if kind == "slope" else loss.cuda_curvature, at, weight, u, C)
    runs, n, d = entries.runs, entries.n, entries.d
    out = xp.empty((*entries.lead, n, d * C), dtype=u.dtype, device=device(u))
    per_client: tuple[Any, ...] = (0, u, 0, 0, 0)
    if rates:
        columns = int(rate.shape[-1])
        per_client = (1, *entries.of_run(rate), columns, int(columns > 1))
    number = host_dtype(u).type(0 if rates else rate)
    arguments = (entries.X, *entries.index, v, number, *per_client, *entries.of_run(u), out)
    sizes, dtype = (runs, n, entries.b, d, C), str(host_dtype(u))
    _launch(u, LINEAR, "add_rows", _grid(d * C, runs * n), *sizes, *arguments, dtype=dtype)
    return out


def cross_product(data: Data | None, index: Array, slope: Array, mean: Array, u: Array, columns: int) -> Array | None:
    """The sums of mean_k l'_k · (X_k u) over the entries of a mini-batch with index_k = c, in two launches.

    `slope` (n, N, C) is of all instances; mean and index are (..., n, b), u is (..., n, d C). None as in
    `linear_product`.  # (..., n, columns)
    """
    if data is None:
        return None
    entries = _Entries(data, u, mean)
    if entries.lead is None:
        return None
    C = int(slope.shape[-1])
    v = entries.weigh(VALUE, slope, mean, u, C)
    return _add_columns(v, C, index, (*entries.lead, entries.n, columns))


# Neural networks ------------------------------------------------------------------------------------------------------


def _layout(a: Array) -> tuple[Array, bool, int, int]:
    """Matrices a (n, p, q) for cuBLAS: (a, whether they are transposed, leading dimension, numbers between two)."""
    item, (_, p, q) = a.itemsize, a.shape
    batch, row, column = (int(stride) // a.itemsize for stride in a.strides)
    if a.strides[2] == item and (row >= q or p == 1):
        return a, False, max(row, q), batch
    if a.strides[1] == item and (column >= p or q == 1):
        return a, True, max(column, p), batch
    return array_namespace(a).asarray(a, order="C", copy=True), False, int(q), int(p * q)


def matmul(a: Array, b: Array, onto: Array | None = None) -> Array:
    """a_i b_i for every client, without copies of transposed operands and of parts of a larger array.

    With `onto`, the products are added to this array.  # (n, p, r)
    """
    xp = array_namespace(a)
    (n, p, q), r = a.shape, b.shape[2]
    out = xp.empty((n, p, r), dtype=a.dtype, device=device(a)) if onto is None else onto
    if 0 in (n, p, q, r):
        return out if onto is not None else xp.zeros_like(out)
    a, a_transposed, a_leading, a_batch = _layout(a)
    b, b_transposed, b_leading, b_batch = _layout(b)
    factors = np.array([1, onto is not None], dtype=host_dtype(a))
    one, beta = factors.ctypes.data, factors.ctypes.data + factors.itemsize
    cublas = xp.cuda.cublas
    gemm = cublas.dgemmStridedBatched if factors.itemsize == 8 else cublas.sgemmStridedBatched
    operation = (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T)
    with device(a):  # cuBLAS has columns first: outᵀ = bᵀ aᵀ
        gemm(
            xp.cuda.device.get_cublas_handle(), operation[b_transposed], operation[a_transposed], int(r), int(p),
            int(q), one, b.data.ptr, b_leading, b_batch, a.data.ptr, a_leading, a_batch, beta, out.data.ptr, int(r),
            int(p * r), int(n),
        )  # fmt: skip
    return out


def softmax_slope(a: Array, targets: Array) -> Array:
    """∂CE/∂a of logits a (..., C) in one launch."""
    return _softmax_rows(a, targets, a, True)


def softmax_curvature(a: Array, b: Array) -> Array:
    """(∂²CE/∂a²) b at logits a (..., C) in one launch."""
    return _softmax_rows(a, a, b, False)


def _softmax_rows(a: Array, targets: Array, b: Array, slope: bool) -> Array:
    xp, classes = array_namespace(a), int(a.shape[-1])
    parts = xp.broadcast_arrays(a, targets, b)
    a, targets, b = (xp.asarray(part, order="C") for part in parts)
    out, rows = xp.empty_like(a), a.size // max(classes, 1)
    arguments = (rows, classes, int(slope), a, targets, b, out)
    _launch(a, NEURAL, "softmax_rows", _grid(rows), *arguments, dtype=str(host_dtype(a)))
    return out


def gather_windows(a: Array, windows: Any) -> Array:
    """Every `layers.Windows` of images a (n, N, H, W, C) as one row, (n, N, Ho, Wo, kh kw C), in one launch."""
    xp, (n, N, H, W, C), (Ho, Wo) = array_namespace(a), map(int, a.shape), windows.output
    kh, kw = windows.size
    out = xp.empty((n, N, Ho, Wo, kh * kw * C), dtype=a.dtype, device=device(a))
    sizes = (n * N, H, W, C, Ho, Wo, kh, kw, *windows.stride, *windows.before, xp.asarray(a, order="C"), out)
    _launch(a, NEURAL, "gather_windows", _grid(Ho * Wo * kh * kw * C, n * N), *sizes, dtype=str(host_dtype(a)))
    return out


def gather_columns(a: Array, index: Array) -> Array:
    """a[i, index[i, k]], (n, b)."""
    xp = array_namespace(a)
    a, index = (xp.asarray(part, order="C") for part in (a, index))
    out, (n, b) = xp.empty(index.shape, dtype=a.dtype, device=device(a)), index.shape
    sizes = (int(n), int(b), int(a.shape[1]))
    _launch(a, NEURAL, "gather_columns", _grid(int(b), int(n)), *sizes, a, index, out, dtype=str(host_dtype(a)))
    return out


def add_columns(a: Array, index: Array, columns: int) -> Array:
    """The sums of a[i, k] over the entries with index[i, k] = c, (n, columns)."""
    return _add_columns(array_namespace(a).asarray(a, order="C"), 1, index, (int(a.shape[0]), columns))


def _add_columns(a: Array, stride: int, index: Array, shape: tuple[int, ...]) -> Array:
    """`add_columns` of numbers that are `stride` apart; a may have run axes that index (..., n, b) lacks."""
    xp, b = array_namespace(a), int(index.shape[-1])
    out = xp.empty(shape, dtype=a.dtype, device=device(a))
    rows, index_rows = (int(np.prod(lead, dtype=np.int64)) for lead in (shape[:-1], index.shape[:-1]))
    arguments = (rows, b, shape[-1], a, stride, xp.asarray(index, order="C"), index_rows, out)
    _launch(a, NEURAL, "add_columns", _grid(shape[-1], rows), *arguments, dtype=str(host_dtype(a)))
    return out
