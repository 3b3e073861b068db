// A register-blocked product with packed weights, its outer counterpart for gradients, and scratch memory for both.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "slabs.h"

namespace durnn {

// Memory that a step will touch after its product. The product asks for it line by line between its multiplications,
// so that it arrives behind the arithmetic; asked for at once, it would fill the queue and stall.
class Ahead {
  public:
    static constexpr Index line = 64, capacity = 96;  // of streams
    template <class T>
    void add(const T* from, Index count) {
        begin_[streams_] = reinterpret_cast<const char*>(from);
        lines_[streams_++] = (count * Index(sizeof(T)) + line - 1) / line;
        left_ += lines_[streams_ - 1];
    }
    // What the next of `calls` calls should ask for.
    void take(Index calls, const char*& begin, const char*& end) {
        begin = end = nullptr;
        if (left_ == 0) return;
        Index share = (left_ + calls - 1) / calls;
        if (share > lines_[now_]) share = lines_[now_];
        begin = begin_[now_];
        end = begin_[now_] += share * line;
        left_ -= share;
        if ((lines_[now_] -= share) == 0) ++now_;
    }

  private:
    const char* begin_[capacity];
    Index lines_[capacity], streams_ = 0, now_ = 0, left_ = 0;
};

// Memory that the next block will read, pieces of `bytes` that lie `stride` apart, asked for one after the other.
struct Next {
    const char *now = nullptr, *end = nullptr;
    Index stride = 0;
    template <class T>
    static Next of(const T* first, Index count, Index ld) {
        const char* begin = reinterpret_cast<const char*>(first);
        return {begin, begin + count * ld * Index(sizeof(T)), ld * Index(sizeof(T))};
    }
    template <Index bytes>
    void ask() {
        if (now == end) return;
        for (Index at = 0; at < bytes; at += Ahead::line) __builtin_prefetch(now + at, 0, 2);
        now += stride;
    }
};

// Cache-line aligned scratch, zero at first unless that is not needed; throws std::bad_alloc. A large one asks for
// large pages, since a product walks through more of the usual ones than the processor remembers.
template <class T>
class Buffer {
  public:
    explicit Buffer(Index count, bool zero = true) {
        constexpr std::size_t line = 64, page = 1 << 21;
        const std::size_t bytes = std::size_t(count) * sizeof(T), alignment = bytes < 2 * page ? line : page;
        raw_ = zero ? std::calloc(bytes + alignment, 1) : std::malloc(bytes + alignment);
        if (!raw_) throw std::bad_alloc();
        const auto address = reinterpret_cast<std::uintptr_t>(raw_);
        data_ = reinterpret_cast<T*>((address + alignment - 1) & ~std::uintptr_t(alignment - 1));
#if defined(MADV_HUGEPAGE)
        if (alignment == page) madvise(data_, bytes & ~(page - 1), MADV_HUGEPAGE);  // a wish, which may be refused
#endif
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { std::free(raw_); }
    T* data() const { return data_; }

  private:
    void* raw_;
    T* data_;
};

// Scratch for each slab, to be zeroed by whoever works on it, and far from that of the others: a core fetches ahead of
// what it reads, some pages even, and would take lines from another core's cache at every step.
template <class T>
class PerSlab {
  public:
    PerSlab(Index slabs, Index count)
        : count_(count), stride_((count + line - 1) / line * line + gap), buffer_(slabs * stride_, false) {}
    T* operator[](Index slab) { return buffer_.data() + slab * stride_; }
    T* zeroed(Index slab) {
        return static_cast<T*>(std::memset((*this)[slab], 0, std::size_t(count_) * sizeof(T)));
    }

  private:
    static constexpr Index line = 64 / sizeof(T), gap = (1 << 16) / sizeof(T);
    const Index count_, stride_;
    Buffer<T> buffer_;
};

// Row length of scratch matrices: whole panels, plus one vector so that rows do not collide in one cache set.
template <class T>
inline Index padded(Index columns) {
    return (columns + panel<T> - 1) / panel<T> * panel<T> + width<T>;
}

// A matrix as it lies in memory: element (k, n) is W[k * row + n * column].
template <class T>
struct Matrix {
    const T* W;
    Index rows, row, column;
};

// Weights as panels of `panel<T>` columns, k-major inside a panel, missing columns zero. The right-hand factor is one
// matrix or several below each other.
template <class T>
class Packed {
  public:
    Packed(const std::vector<Matrix<T>>& matrices, Index columns, Index threads = 1)
        : K(rows_of(matrices)), panels((columns + panel<T> - 1) / panel<T>), buffer_(K * panels * panel<T>, false) {
        constexpr Index tile = 64;
        for_slabs(panels, large() ? threads : 1, [&](Index, Index first, Index last) {
            for (Index p = first; p < last; ++p) {
                T* to = buffer_.data() + p * K * panel<T>;
                const Index count = std::min(Index(panel<T>), columns - p * panel<T>);
                if (count < panel<T>) std::memset(to, 0, std::size_t(K * panel<T>) * sizeof(T));
                for (const auto& [W, rows, row, column] : matrices) {
                    for (Index k0 = 0; k0 < rows; k0 += tile)
                        for (Index n = 0; n < count; ++n)
                            for (Index k = k0; k < rows && k < k0 + tile; ++k)
                                to[k * panel<T> + n] = W[k * row + (p * panel<T> + n) * column];
                    to += rows * panel<T>;
                }
            }
        });
    }
    const T* operator[](Index p) { return buffer_.data() + p * K * panel<T>; }
    // Do not stay in a core's own caches from step to step.
    bool large() const { return K * panels * panel<T> * Index(sizeof(T)) > 1 << 20; }
    const Index K, panels;

  private:
    static Index rows_of(const std::vector<Matrix<T>>& matrices) {
        Index rows = 0;
        for (const auto& matrix : matrices) rows += matrix.rows;
        return rows;
    }
    Buffer<T> buffer_;
};

// R rows times P neighbouring panels, z (R, columns) = x (R, K) w, or z += x w, where w is packed, ldw from panel to
// panel. `Outer`: x is (K, R), and w (K, columns) with ldw from row to row. Every element sums over k in ascending
// order whatever R and P are, so that a product does not depend on how rows are dealt to threads.
template <class T, int R, int P, bool Outer>
void block(const T* x, Index ldx, const T* w, Index ldw, Index K, bool add_to_z, T* z, Index ldz, const char* ahead,
           const char* ahead_end, Next next) {
    constexpr int C = 2 * P;
    Vector<T> sum[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) sum[r][c] = add_to_z ? load<T>(z + r * ldz + c * width<T>) : Vector<T>{};
    const auto add = [&](Index k) __attribute__((always_inline)) {
        Vector<T> weight[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c)
            weight[c] = load<T>(Outer ? w + k * ldw + c * width<T>
                                      : w + (c / 2) * ldw + k * panel<T> + (c % 2) * width<T>);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Vector<T> value = broadcast<T>(Outer ? x[k * ldx + r] : x[r * ldx + k]);
#pragma GCC unroll 16
            for (int c = 0; c < C; ++c) sum[r][c] += value * weight[c];
        }
    };
    for (Index k = 0; k < K; ++k) {
        if (ahead < ahead_end) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += Ahead::line;
        }
        next.ask<Index(C * vector_bytes)>();
        add(k);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) store<T>(z + r * ldz + c * width<T>, sum[r][c]);
}

// `block` for R known only now, 1 <= R <= most.
template <class T, int P, bool Outer, int most, class... Rest>
void dispatch_block(Index R, Rest... rest) {
    if constexpr (most == 1)
        block<T, 1, P, Outer>(rest...);
    else if (R == most)
        block<T, most, P, Outer>(rest...);
    else
        dispatch_block<T, P, Outer, most - 1>(R, rest...);
}

// Calls body(first, count) for blocks of [0, rows) of nearly equal height.
template <class Body>
inline void for_blocks(Index rows, Index blocks, Body body) {
    for (Index b = 0, first = 0; b < blocks; ++b) {
        const Index count = rows / blocks + (b < rows % blocks);
        body(first, count);
        first += count;
    }
}
inline Index blocks_of(Index rows) { return (rows + max_rows - 1) / max_rows; }

// z (rows, columns) = x (rows, K) times the packed weights; z has whole panels of columns. Sums are added up over
// pieces of K, of which a panel's part stays in the nearest cache for all rows, and for as many panels as let z stay
// in the next one.
template <class T>
void product(const T* x, Index ldx, Index rows, Packed<T>& weights, T* z, Index ldz, Ahead& ahead) {
    constexpr Index depth = 256, cached = 1 << 19;  // largest piece of K, bytes of z
    const Index pieces = (weights.K + depth - 1) / depth, blocks = blocks_of(rows), ldw = weights.K * panel<T>;
    // Few rows: two panels at once, to have enough independent sums.
    const Index pairs = rows <= 3 && max_rows > 6 ? weights.panels / 2 : 0;
    const Index group = std::max(Index(1), cached / (std::max(Index(1), rows) * panel<T> * Index(sizeof(T))));
    Index calls = pieces * (pairs + (weights.panels - 2 * pairs) * blocks);
    const char *from, *to;
    for (Index p = 0; p < 2 * pairs; p += 2)
        for_blocks(weights.K, pieces, [&](Index k, Index K) {
            ahead.take(calls--, from, to);
            dispatch_block<T, 2, false, 3>(rows, x + k, ldx, weights[p] + k * panel<T>, ldw, K, k > 0,
                                           z + p * panel<T>, ldz, from, to, Next());
        });
    for (Index begin = 2 * pairs; begin < weights.panels; begin += group) {
        const Index end = std::min(begin + group, weights.panels);
        for_blocks(weights.K, pieces, [&](Index k, Index K) {
            for (Index p = begin; p < end; ++p) {
                const T* piece = weights[p] + k * panel<T>;
                const bool ask = weights.large() && p + 1 < end;
                for_blocks(rows, blocks, [&](Index r, Index R) {
                    // A block's share of the next panel.
                    const Index first = K * r / rows, last = K * (r + R) / rows;
                    const Next next = ask ? Next::of(piece + ldw + first * panel<T>, last - first, panel<T>) : Next();
                    ahead.take(calls--, from, to);
                    dispatch_block<T, 1, false, max_rows>(R, x + r * ldx + k, ldx, piece, ldw, K, k > 0,
                                                          z + r * ldz + p * panel<T>, ldz, from, to, next);
                });
            }
        });
    }
}

// z (rows, columns) += xᵀ w for x (K, rows) and w (K, columns); w and z have whole panels of columns.
template <class T>
void add_outer(const T* x, Index ldx, Index rows, const T* w, Index ldw, Index columns, Index K, T* z, Index ldz,
               Ahead& ahead) {
    constexpr Index cached = 1 << 18;  // bytes
    const Index blocks = blocks_of(rows), panels = (columns + panel<T> - 1) / panel<T>;
    Index calls = panels * blocks;
    const char *from, *to;
    if (K * rows * Index(sizeof(T)) <= cached) {
        for (Index n = 0; n < columns; n += panel<T>)
            for_blocks(rows, blocks, [&](Index r, Index R) {
                ahead.take(calls--, from, to);
                dispatch_block<T, 1, true, max_rows>(R, x + r, ldx, w + n, ldw, K, true, z + r * ldz + n, ldz, from, to,
                                                     Next());
            });
        return;
    }
    // Where x does not stay in the cache, as many panels of w as do are copied there, and each block of x for them.
    const Index tile = std::max(Index(1), cached / (K * panel<T> * Index(sizeof(T))));
    constexpr Index ld_block = (max_rows + width<T> - 1) / width<T> * width<T>;
    Buffer<T> w_tile(tile * K * panel<T>, false), x_block(K * ld_block, false);
    for (Index first = 0; first < panels; first += tile) {
        const Index count = std::min(tile, panels - first);
        for (Index p = 0; p < count; ++p)
            for (Index k = 0; k < K; ++k)
                std::memcpy(w_tile.data() + (p * K + k) * panel<T>, w + k * ldw + (first + p) * panel<T>,
                            sizeof(T) * panel<T>);
        for_blocks(rows, blocks, [&](Index r, Index R) {
            for (Index k = 0; k < K; ++k)
                for (Index i = 0; i < R; i += width<T>)
                    store<T>(x_block.data() + k * ld_block + i, load<T>(x + k * ldx + r + i));
            for (Index p = 0; p < count; ++p) {
                T* target = z + r * ldz + (first + p) * panel<T>;
                const Next next = p + 1 < count ? Next::of(target + panel<T>, R, ldz) : Next();
                ahead.take(calls--, from, to);
                dispatch_block<T, 1, true, max_rows>(R, x_block.data(), ld_block, w_tile.data() + p * K * panel<T>,
                                                     panel<T>, K, true, target, ldz, from, to, next);
            }
        });
    }
}

}  // namespace durnn
