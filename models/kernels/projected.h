// An input u_t = W_in x_t + b that is computed where it is used (x_t has I numbers, u_t M), so that it is never stored:
// the loops then take x, W_in (M, I) and b (M) instead of u (steps, B, M). `Sequence` and `Projected` are what a loop sees of
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
struct Projected {
    const T *x, *W_in, *b;
    Index I;
    Index columns() const { return I + 1; }
    void append_to(std::vector<Matrix<T>>& factors) const {
        factors.push_back({W_in, I, 1, I});
        factors.push_back({b, 1, 0, 1});
    }
    void put(Index row, T* to) const {
        std::memcpy(to, x + row * I, std::size_t(I) * sizeof(T));
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

// Inputs up to this width have their gradients summed vector by vector, wider ones by products.
constexpr Index few_columns = 4;

// … or, a piece of a slab at a time, into grad_x = W_inᵀ g, grad_W_in = Σ g xᵀ and grad_b = Σ g. Sums over few columns
// are kept by sample and run against time whatever the pieces are, so that they do not depend on the slabs. Without
// W_in, grad_x is not wanted, and zero.
template <class T>
class ProjectionGradient {
  public:
    // `most`: rows of a piece at the most
    ProjectionGradient(const T* x, const T* W_in, T* grad_x, Index slabs, Index B, Index M, Index I, Index most)
        : x_(x), grad_x_(grad_x), slabs_(slabs), B_(B), M_(M), I_(I), few_(I <= few_columns), ld_(padded<T>(M)),
          ld_x_(padded<T>(I)), skip_(most_rows(B, slabs) * ld_), sums_(slabs, (few_ ? I + 1 : 1) * skip_),
          wanted_(W_in), columns_(few_ ? I * ld_ : 0),
          weights_({{W_in, few_ || !wanted_ ? 0 : M, I, 1}}, few_ || !wanted_ ? 0 : I, slabs),
          totals_(slabs, few_ ? 0 : M * ld_x_), pieces_(slabs, few_ ? 0 : 2 * most * ld_x_) {
        for (Index i = 0; few_ && wanted_ && i < I; ++i)
            for (Index n = 0; n < M; ++n) columns_.data()[i * ld_ + n] = W_in[n * I + i];
    }
    bool few() const { return few_; }
    template <class L>
    void put(Index, Index, Vector<T>, L) const {}
    void add_to(Ahead&, Index, Index) const {}

    void begin(Index slab) {
        sums_.zeroed(slab);
        totals_.zeroed(slab);
        pieces_.zeroed(slab);
    }
    // g: (to − from, rows, ld), of the steps [from, to) and the slab's samples from `first` on; zero beyond M
    void add_piece(Index slab, const T* g, Index ld, Index from, Index to, Index first, Index rows) {
        if (!few_) add_products(slab, g, ld, from, to, first, rows);
        for (Index b = 0; b < rows; ++b) {
            const T* from_b = g + b * ld - from * rows * ld;  // of this sample at t = 0
            T* sums = sums_[slab] + (first + b - slab_begin(B_, slabs_, slab)) * ld_;  // of this sample
            for (Index n = 0; n < M_; n += width<T>) {
                Vector<T> bias = load<T>(sums + n);
                for (Index t = to - 1; t >= from; --t) bias += load<T>(from_b + t * rows * ld + n);
                store<T>(sums + n, bias);
            }
            if (few_) add_columns(x_ + (first + b) * I_, from_b, rows * ld, sums + skip_, from, to, first + b);
        }
    }
    void finish(T* grad_W_in, T* grad_b) {
        sum_samples(sums_, 0, ld_, grad_b, slabs_, B_, M_);
        if (!few_) return sum_slabs(totals_, 0, ld_x_, grad_W_in, slabs_, M_, I_);
        for (Index i = 0; i < I_; ++i) {
            T* column = columns_.data() + i * ld_;
            sum_samples(sums_, (i + 1) * skip_, ld_, column, slabs_, B_, M_);
            for (Index n = 0; n < M_; ++n) grad_W_in[n * I_ + i] = column[n];
        }
    }

  private:
    // x and g: of one sample at t = 0, with `stride` numbers of g from step to step
    void add_columns(const T* x, const T* g, Index stride, T* sums, Index from, Index to, Index sample) {
        for (Index i = 0; i < I_; ++i) {
            T* sum = sums + i * skip_;
            for (Index n = 0; n < M_; n += width<T>) {
                Vector<T> total = load<T>(sum + n);
                for (Index t = to - 1; t >= from; --t) total += x[t * B_ * I_ + i] * load<T>(g + t * stride + n);
                store<T>(sum + n, total);
            }
            for (Index t = from; t < to; ++t)
                grad_x_[(t * B_ + sample) * I_ + i] =
                    wanted_ ? dot(g + t * stride, columns_.data() + i * ld_) : T(0);
        }
    }
    void add_products(Index slab, const T* g, Index ld, Index from, Index to, Index first, Index rows) {
        const Index count = (to - from) * rows;
        T *x = pieces_[slab], *out = x + count * ld_x_;
        Ahead nothing;
        const auto for_rows = [&](auto body) {
            for (Index t = from; t < to; ++t)
                for (Index b = 0; b < rows; ++b)
                    body(((t - from) * rows + b) * ld_x_, (t * B_ + first + b) * I_);
        };
        const std::size_t bytes = std::size_t(I_) * sizeof(T);
        for_rows([&](Index row, Index at) { std::memcpy(x + row, x_ + at, bytes); });
        add_outer<T>(g, ld, M_, x, ld_x_, I_, count, totals_[slab], ld_x_, nothing);
        if (wanted_) product<T>(g, ld, count, weights_, out, ld_x_, nothing);
        for_rows([&](Index row, Index at) {
            wanted_ ? std::memcpy(grad_x_ + at, out + row, bytes) : std::memset(grad_x_ + at, 0, bytes);
        });
    }
    T dot(const T* g, const T* w) const {
        Vector<T> total{};
        for (Index n = 0; n < M_; n += width<T>) total += load<T>(g + n) * load<T>(w + n);
        return sum_lanes<T>(total);
    }
    const T* x_;
    T* grad_x_;
    const Index slabs_, B_, M_, I_;
    const bool few_;
    const Index ld_, ld_x_, skip_;
    PerSlab<T> sums_;  // (1 + I, rows, ld): for b, and for few columns of W_in one by one
    const bool wanted_;
    Buffer<T> columns_;
    Packed<T> weights_;
    PerSlab<T> totals_, pieces_;  // (M, ld_x), for W_in; (2, most, ld_x), of x and of its gradient
};

}  // namespace durnn
