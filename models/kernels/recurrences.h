// The recurrences of reference.py as loops over time, each thread owning a slab of the batch for the whole sequence;
// rnn and indrnn here.
//
// Shapes: T steps, B samples, N units; sequences are (T, B, N); y_{-1} is h0.
#pragma once

#include "product.h"
#include "slabs.h"

namespace durnn {

// Sum over the batch in ascending order: per-sample sums make it independent of the slabs.
template <class T>
void sum_samples(const T* per_sample, T* total, Index B, Index N) {
    std::memset(total, 0, std::size_t(N) * sizeof(T));
    for (Index b = 0; b < B; ++b)
        for (Index n = 0; n < N; ++n) total[n] += per_sample[b * N + n];
}

// The (N, N) matrices that the slabs added up, in the order of the slabs; parts: (slabs, N, ld)
template <class T>
void sum_slabs(const T* parts, Index ld, T* total, Index slabs, Index N) {
    std::memset(total, 0, std::size_t(N * N) * sizeof(T));
    for (Index row = 0; row < slabs * N; ++row)
        for (Index n = 0; n < N; ++n) total[row % N * N + n] += parts[row * ld + n];
}

// y_t = act(u_t + W_rec y_{t-1})
template <class T, bool Tanh>
void rnn_forward(const T* u, const T* W_rec, const T* h0, T* y, Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N);
    Packed<T> weights({W_rec}, N, N, 1, N);
    Buffer<T> state(B * ld), sums(B * ld);
    for_slabs(B, threads, [&, u, h0, y](Index, Index first, Index last) {
        T *h = state.data() + first * ld, *z = sums.data() + first * ld;
        const Index rows = last - first;
        for (Index b = 0; b < rows; ++b) std::memcpy(h + b * ld, h0 + (first + b) * N, std::size_t(N) * sizeof(T));
        for (Index t = 0; t < steps; ++t) {
            Ahead ahead;
            ahead.add(u + (t * B + first) * N, rows * N);
            ahead.add(y + (t * B + first) * N, rows * N);
            product<T>(h, ld, rows, weights, z, ld, ahead);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = u + at, *sum = z + b * ld;
                T *state = h + b * ld, *out = y + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    Vector<T> v = load<T>(in + n, lanes) + load<T>(sum + n);
                    v = Tanh ? tanh<T>(v) : relu(v);
                    store<T>(state + n, v, lanes);
                    store<T>(out + n, v, lanes);
                });
            }
        }
    });
}

// Steps of a piece of a slab: enough rows for the products of its gradients, few enough for the cache.
inline Index piece_steps(Index steps, Index B, Index slabs) {
    constexpr Index rows = 128;
    return std::min(steps, std::max(Index(1), rows * slabs / std::max(Index(1), B)));
}

// g_t = act'(y_t) ∘ (grad_y_t + W_recᵀ g_{t+1}) -> grad_u = g, grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_h0 = W_recᵀ g_0
template <class T, bool Tanh>
void rnn_backward(const T* grad_y, const T* W_rec, const T* h0, const T* y, T* grad_u, T* grad_W_rec, T* grad_h0,
                  Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), slabs = slab_count(B, threads);
    Packed<T> weights({W_rec}, N, N, N, 1);
    const Index span = piece_steps(steps, B, slabs);
    Buffer<T> sums(B * ld), gradients(slabs * N * ld), scratch(2 * span * B * ld);
    for_slabs(B, threads, [&, grad_y, h0, y, grad_u, grad_h0](Index slab, Index first, Index last) {
        const Index rows = last - first;
        T *g = scratch.data() + 2 * span * first * ld, *befores = g + span * rows * ld, *z = sums.data() + first * ld;
        for (Index to = steps; to > 0; to -= span) {
            const Index from = std::max(to - span, Index(0));
            for (Index t = to - 1; t >= from; --t) {
                T *g_t = g + (t - from) * rows * ld, *before_t = befores + (t - from) * rows * ld;
                for (Index b = 0; b < rows; ++b) {
                    const Index at = (t * B + first + b) * N;
                    const T *in = grad_y + at, *output = y + at, *sum = z + b * ld;
                    const T* before = t ? y + at - B * N : h0 + (first + b) * N;
                    T *state = g_t + b * ld, *copy = before_t + b * ld, *out = grad_u + at;
                    for_vectors<T>(N, [=](Index n, auto lanes) {
                        const Vector<T> value = load<T>(output + n, lanes);
                        Vector<T> v = load<T>(in + n, lanes) + load<T>(sum + n);
                        v = Tanh ? v * (T(1) - value * value) : where_positive(value, v);
                        store<T>(state + n, v, lanes);
                        store<T>(out + n, v, lanes);
                        store<T>(copy + n, load<T>(before + n, lanes), lanes);
                    });
                }
                Ahead ahead;
                if (t > 0) {
                    const Index next = ((t - 1) * B + first) * N;
                    ahead.add(grad_y + next, rows * N);
                    ahead.add(grad_u + next, rows * N);
                    if (t > 1) ahead.add(y + next - B * N, rows * N);
                }
                product<T>(g_t, ld, rows, weights, z, ld, ahead);
            }
            Ahead nothing;
            add_outer<T>(g, ld, N, befores, ld, N, (to - from) * rows, gradients.data() + slab * N * ld, ld, nothing);
        }
        for (Index b = 0; b < rows; ++b)
            std::memcpy(grad_h0 + (first + b) * N, z + b * ld, std::size_t(N) * sizeof(T));
    });
    sum_slabs(gradients.data(), ld, grad_W_rec, slabs, N);
}

// y_t = relu(u_t + U ∘ y_{t-1})
template <class T>
void indrnn_forward(const T* u, const T* U, const T* h0, T* y, Index steps, Index B, Index N, Index threads) {
    for_slabs(B, threads, [=](Index, Index first, Index last) {
        for (Index t = 0; t < steps; ++t)
            for (Index b = first; b < last; ++b) {
                const Index at = (t * B + b) * N;
                const T *in = u + at, *before = t ? y + at - B * N : h0 + b * N, *factor = U;
                T* out = y + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const Vector<T> v = load<T>(factor + n, lanes) * load<T>(before + n, lanes);
                    store<T>(out + n, relu(load<T>(in + n, lanes) + v), lanes);
                });
            }
    });
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

template <class T>
void indrnn_backward(const T* grad_y, const T* U, const T* h0, const T* y, T* grad_u, T* grad_U, T* grad_h0,
                     Index steps, Index B, Index N, Index threads) {
    Buffer<T> sum_U(B * N);
    for_slabs(B, threads, [&, grad_y, U, h0, y, grad_u, grad_h0](Index, Index first, Index last) {
        std::memset(grad_h0 + first * N, 0, std::size_t((last - first) * N) * sizeof(T));
        for (Index t = steps - 1; t >= 0; --t)
            for (Index b = first; b < last; ++b) {
                const Index at = (t * B + b) * N;
                T* out = grad_u + at;
                reverse_step<T>(grad_y + at, U, y + at, t ? y + at - B * N : h0 + b * N, grad_h0 + b * N,
                                sum_U.data() + b * N, static_cast<T*>(nullptr), N,
                                [=](Index n, Vector<T> g, auto lanes) { store<T>(out + n, g, lanes); });
            }
    });
    sum_samples(sum_U.data(), grad_U, B, N);
}

}  // namespace durnn
