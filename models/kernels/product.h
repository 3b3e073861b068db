// A register-blocked product with packed weights, its outer counterpart for gradients, and scratch memory for both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "vector.h"

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

// Cache-line aligned scratch; throws std::bad_alloc.
template <class T>
class Buffer {
  public:
    explicit Buffer(Index count) : raw_(std::size_t(count) * sizeof(T) + 64) {
        auto address = reinterpret_cast<std::uintptr_t>(raw_.data());
        data_ = reinterpret_cast<T*>((address + 63) & ~std::uintptr_t(63));
    }
    T* data() { return data_; }

  private:
    std::vector<unsigned char> raw_;  // zero-initialised
    T* data_;
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
    Packed(const std::vector<Matrix<T>>& matrices, Index columns)
        : K(rows_of(matrices)), panels((columns + panel<T> - 1) / panel<T>), buffer_(K * panels * panel<T>) {
        constexpr Index tile = 64;
        for (Index p = 0; p < panels; ++p) {
            T* to = buffer_.data() + p * K * panel<T>;
            const Index count = columns - p * panel<T> < panel<T> ? columns - p * panel<T> : panel<T>;
            for (const auto& [W, rows, row, column] : matrices) {
                for (Index k0 = 0; k0 < rows; k0 += tile)
                    for (Index n = 0; n < count; ++n)
                        for (Index k = k0; k < rows && k < k0 + tile; ++k)
                            to[k * panel<T> + n] = W[k * row + (p * panel<T> + n) * column];
                to += rows * panel<T>;
            }
        }
    }
    const T* operator[](Index p) { return buffer_.data() + p * K * panel<T>; }
    const Index K, panels;

  private:
    static Index rows_of(const std::vector<Matrix<T>>& matrices) {
        Index rows = 0;
        for (const auto& matrix : matrices) rows += matrix.rows;
        return rows;
    }
    Buffer<T> buffer_;
};

// R rows times P neighbouring panels, z (R, columns) = x (R, K) w, where w is packed. `Outer`: z += xᵀ w with x (K, R)
// and w (K, columns) as they lie in memory. Every element sums over k in ascending order whatever R and P are, so
// that a product does not depend on how rows are dealt to threads.
template <class T, int R, int P, bool Outer>
void block(const T* x, Index ldx, const T* w, Index ldw, Index K, T* z, Index ldz, const char* ahead,
           const char* ahead_end) {
    constexpr int C = 2 * P;
    Vector<T> sum[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) sum[r][c] = Outer ? load<T>(z + r * ldz + c * width<T>) : Vector<T>{};
    const auto add = [&](Index k) __attribute__((always_inline)) {
        Vector<T> weight[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c)
            weight[c] = load<T>(Outer ? w + k * ldw + c * width<T>
                                      : w + ((c / 2) * K + k) * panel<T> + (c % 2) * width<T>);
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

// Calls body(first, count) for blocks of [0, rows) of at most max_rows and nearly equal height.
template <class Body>
inline void for_blocks(Index rows, Index blocks, Body body) {
    for (Index b = 0, first = 0; b < blocks; ++b) {
        const Index count = rows / blocks + (b < rows % blocks);
        body(first, count);
        first += count;
    }
}
inline Index blocks_of(Index rows) { return (rows + max_rows - 1) / max_rows; }

// z (rows, columns) = x (rows, K) times the packed weights; z has whole panels of columns.
template <class T>
void product(const T* x, Index ldx, Index rows, Packed<T>& weights, T* z, Index ldz, Ahead& ahead) {
    const Index blocks = blocks_of(rows), K = weights.K;
    // Few rows: two panels at once, to have enough independent sums.
    const Index pairs = rows <= 3 && max_rows > 6 ? weights.panels / 2 : 0;
    Index calls = pairs + (weights.panels - 2 * pairs) * blocks;
    const char *from, *to;
    for (Index p = 0; p < 2 * pairs; p += 2) {
        ahead.take(calls--, from, to);
        dispatch_block<T, 2, false, 3>(rows, x, ldx, weights[p], K, K, z + p * panel<T>, ldz, from, to);
    }
    for (Index p = 2 * pairs; p < weights.panels; ++p)
        for_blocks(rows, blocks, [&](Index r, Index R) {
            ahead.take(calls--, from, to);
            dispatch_block<T, 1, false, max_rows>(R, x + r * ldx, ldx, weights[p], K, K, z + r * ldz + p * panel<T>,
                                                  ldz, from, to);
        });
}

// z (rows, columns) += xᵀ w for x (K, rows) and w (K, columns); w and z have whole panels of columns.
template <class T>
void add_outer(const T* x, Index ldx, Index rows, const T* w, Index ldw, Index columns, Index K, T* z, Index ldz,
               Ahead& ahead) {
    // Where x does not stay in the cache, it is read once for as many panels of w as do.
    constexpr Index cached = 1 << 17;  // bytes
    const Index in_cache = K * rows * Index(sizeof(T)) <= 2 * cached ? 1 : cached / (K * panel<T> * Index(sizeof(T)));
    const Index tile = std::max(Index(1), in_cache) * panel<T>;
    const Index blocks = blocks_of(rows), panels = (columns + panel<T> - 1) / panel<T>;
    Index calls = panels * blocks;
    const char *from, *to;
    for (Index n0 = 0; n0 < columns; n0 += tile)
        for_blocks(rows, blocks, [&](Index r, Index R) {
            for (Index n = n0; n < std::min(columns, n0 + tile); n += panel<T>) {
                ahead.take(calls--, from, to);
                dispatch_block<T, 1, true, max_rows>(R, x + r, ldx, w + n, ldw, K, z + r * ldz + n, ldz, from, to);
            }
        });
}

}  // namespace durnn
