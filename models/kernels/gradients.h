// What the backward loops share: sums over the batch and over slabs, pieces of a sequence, an elementwise reverse step.
#pragma once

#include "product.h"
#include "slabs.h"

namespace durnn {

// Sum over the batch in ascending order: per-sample sums make it independent of the slabs. A slab has its samples' sums
// from `skip` on, (rows, ld).
template <class T>
void sum_samples(PerSlab<T>& sums, Index skip, Index ld, T* total, Index slabs, Index B, Index N) {
    std::memset(total, 0, std::size_t(N) * sizeof(T));
    for (Index slab = 0; slab < slabs; ++slab) {
        const Index rows = slab_begin(B, slabs, slab + 1) - slab_begin(B, slabs, slab);
        for (Index b = 0; b < rows; ++b)
            for (Index n = 0; n < N; ++n) total[n] += sums[slab][skip + b * ld + n];
    }
}

// The (rows, N) matrices that the slabs added up, in the order of the slabs; a slab has its own from `skip` on,
// (rows, ld).
template <class T>
void sum_slabs(PerSlab<T>& parts, Index skip, Index ld, T* total, Index slabs, Index rows, Index N) {
    for_slabs(rows, rows * N < 1 << 18 ? 1 : slabs, [&](Index, Index first, Index last) {
        for (Index row = first; row < last; ++row) {
            std::memset(total + row * N, 0, std::size_t(N) * sizeof(T));
            for (Index slab = 0; slab < slabs; ++slab) {
                const T* part = parts[slab] + skip + row * ld;
                for (Index n = 0; n < N; ++n) total[row * N + n] += part[n];
            }
        }
    });
}

// The gradient of y, (steps, B, N); zeros where it is null. What comes in by the last state is what a loop begins with.
template <class T>
class Incoming {
  public:
    Incoming(const T* grad_y, Index N) : grad_y_(grad_y), N_(N), zeros_(N) {}
    const T* operator[](Index row) const { return grad_y_ ? grad_y_ + row * N_ : zeros_.data(); }
    Index stride(Index rows) const { return grad_y_ ? rows * N_ : 0; }  // between two steps
    void add_to(Ahead& ahead, Index row, Index rows) const {
        if (grad_y_) ahead.add(grad_y_ + row * N_, rows * N_);
    }

  private:
    const T* grad_y_;
    const Index N_;
    Buffer<T> zeros_;
};

// The slab's rows of a state or of its gradient, (B, N), laid into rows of `ld` numbers; nothing where it is null.
template <class T>
void begin_with(const T* state, Index first, Index rows, Index N, T* to, Index ld) {
    if (!state) return;
    for (Index b = 0; b < rows; ++b) std::memcpy(to + b * ld, state + (first + b) * N, std::size_t(N) * sizeof(T));
}
// The slab's rows of the last step of y.
template <class T>
void copy_last(const T* y, Index steps, Index B, Index N, Index first, Index last, T* y_last) {
    std::memcpy(y_last + first * N, y + ((steps - 1) * B + first) * N, std::size_t((last - first) * N) * sizeof(T));
}

// Steps of a piece of a slab: enough rows for the products of its gradients, few enough for the cache.
inline Index piece_steps(Index steps, Index B, Index slabs) {
    constexpr Index rows = 128;
    return std::min(steps, std::max(Index(1), rows * slabs / std::max(Index(1), B)));
}

// One sample's step of g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1}); `carried` holds U ∘ g_{t+1} and then U ∘ g_t.
template <class T, class Store>
inline void reverse_step(const T* grad_y, const T* U, const T* y, const T* before, T* carried, T* sum_U, T* sum_b,
                         Index N, Store put) {
    for_vectors<T>(N, [=](Index n, auto lanes) {
        const Vector<T> in = load<T>(grad_y + n, lanes) + load<T>(carried + n, lanes);
        const Vector<T> g = where_positive(load<T>(y + n, lanes), in);
        store<T>(carried + n, g * load<T>(U + n, lanes), lanes);
        store<T>(sum_U + n, load<T>(sum_U + n, lanes) + g * load<T>(before + n, lanes), lanes);
        if (sum_b) store<T>(sum_b + n, load<T>(sum_b + n, lanes) + g, lanes);
        put(n, g, lanes);
    });
}

}  // namespace durnn
