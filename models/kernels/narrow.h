// An input u_t = W_in x_t + b so narrow (x_t has I numbers, u_t M) that storing it costs more than computing it: the
// loops then take x, W_in (M, I) and b (M) instead of u (steps, B, M). `Sequence` and `Narrow` are what a loop sees of
// either; both leave u out of the state's product or put it in. Rows are those of (steps, B), t * B + b.
#pragma once

#include <vector>

#include "gradients.h"

namespace durnn {

template <class T>
struct Sequence {
    const T* u;
    Index M;
    Index columns() const { return 0; }
    void append_to(std::vector<Matrix<T>>&) const {}
    void put(Index, T*) const {}
    void add_to(Ahead& ahead, Index row, Index rows) const { ahead.add(u + row * M, rows * M); }
    template <class L>
    Vector<T> plus(Index row, Index n, Vector<T> sum, L lanes) const {
        return load<T>(u + row * M + n, lanes) + sum;
    }
};

// [h_{t-1} x_t 1] times [W_rec W_in b]ᵀ: the columns and the factors that the product of a step gets besides.
template <class T>
struct Narrow {
    const T *x, *W_in, *b;
    Index I;
    Index columns() const { return I + 1; }
    void append_to(std::vector<Matrix<T>>& factors) const {
        factors.push_back({W_in, I, 1, I});
        factors.push_back({b, 1, 0, 1});
    }
    void put(Index row, T* to) const {
        for (Index i = 0; i < I; ++i) to[i] = x[row * I + i];
        to[I] = T(1);
    }
    void add_to(Ahead&, Index, Index) const {}
    template <class L>
    Vector<T> plus(Index, Index, Vector<T> sum, L) const {
        return sum;
    }
};

// Where the gradients g of u go: to memory …
template <class T>
struct SequenceGradient {
    T* grad_u;
    Index M;
    template <class L>
    void put(Index row, Index n, Vector<T> g, L lanes) const {
        store<T>(grad_u + row * M + n, g, lanes);
    }
    void add_to(Ahead& ahead, Index row, Index rows) const { ahead.add(grad_u + row * M, rows * M); }
    void begin(Index) const {}
    void add_piece(Index, const T*, Index, Index, Index, Index, Index) const {}
};

// … or, a piece of a slab at a time, into grad_x = W_inᵀ g, grad_W_in = Σ g xᵀ and grad_b = Σ g. The sums are kept by
// sample and run against time whatever the pieces are, so that they do not depend on the slabs.
template <class T>
class NarrowGradient {
  public:
    NarrowGradient(const T* x, const T* W_in, T* grad_x, Index slabs, Index B, Index M, Index I)
        : x_(x), grad_x_(grad_x), slabs_(slabs), B_(B), M_(M), I_(I), ld_(padded<T>(M)),
          skip_(most_rows(B, slabs) * ld_), sums_(slabs, (I + 1) * skip_), columns_(I * ld_) {
        for (Index i = 0; i < I; ++i)
            for (Index n = 0; n < M; ++n) columns_.data()[i * ld_ + n] = W_in[n * I + i];
    }
    template <class L>
    void put(Index, Index, Vector<T>, L) const {}
    void add_to(Ahead&, Index, Index) const {}

    void begin(Index slab) { sums_.zeroed(slab); }
    // g: (to − from, rows, ld), of the steps [from, to) and the slab's samples from `first` on; zero beyond M
    void add_piece(Index slab, const T* g, Index ld, Index from, Index to, Index first, Index rows) {
        for (Index b = 0; b < rows; ++b) {
            const T* x = x_ + (first + b) * I_;
            const T* from_b = g + b * ld - from * rows * ld;  // of this sample at t = 0
            T* sums = sums_[slab] + (first + b - slab_begin(B_, slabs_, slab)) * ld_;  // of this sample
            T* sum_b = sums + I_ * skip_;
            for (Index i = 0; i < I_; ++i) {
                T* sum = sums + i * skip_;
                for (Index n = 0; n < M_; n += width<T>) {
                    Vector<T> total = load<T>(sum + n), bias = load<T>(sum_b + n);
                    for (Index t = to - 1; t >= from; --t) {
                        const Vector<T> g_t = load<T>(from_b + t * rows * ld + n);
                        total += x[t * B_ * I_ + i] * g_t;
                        bias += g_t;
                    }
                    store<T>(sum + n, total);
                    if (i == 0) store<T>(sum_b + n, bias);
                }
                for (Index t = from; t < to; ++t)
                    grad_x_[(t * B_ + first + b) * I_ + i] = dot(from_b + t * rows * ld, columns_.data() + i * ld_);
            }
        }
    }
    void finish(T* grad_W_in, T* grad_b) {
        sum_samples(sums_, I_ * skip_, ld_, grad_b, slabs_, B_, M_);
        for (Index i = 0; i < I_; ++i) {
            T* column = columns_.data() + i * ld_;
            sum_samples(sums_, i * skip_, ld_, column, slabs_, B_, M_);
            for (Index n = 0; n < M_; ++n) grad_W_in[n * I_ + i] = column[n];
        }
    }

  private:
    T dot(const T* g, const T* w) const {
        Vector<T> total{};
        for (Index n = 0; n < M_; n += width<T>) total += load<T>(g + n) * load<T>(w + n);
        return sum_lanes<T>(total);
    }
    const T* x_;
    T* grad_x_;
    const Index slabs_, B_, M_, I_, ld_, skip_;
    PerSlab<T> sums_;  // (I + 1, rows, ld): for W_in column by column, and for b
    Buffer<T> columns_;
};

}  // namespace durnn
