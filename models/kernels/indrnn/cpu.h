// The loops of reference.py, each thread owning a slab of the batch for the whole sequence.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include "exports.h"
#include "gradients.h"

namespace durnn {

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

// g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1}) -> grad_u = g, grad_U = Σ g_t ∘ y_{t-1}, grad_h0 = U ∘ g_0
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

DURNN_EXPORT(indrnn_forward)
DURNN_EXPORT(indrnn_backward)
