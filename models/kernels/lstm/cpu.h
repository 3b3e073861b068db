// The loops of reference.py, each thread owning a slab of the batch for the whole sequence. The weight
// gradient, a product over all steps at once, is left to the caller's BLAS.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include "exports.h"
#include "gradients.h"

namespace durnn {

// [i f g o] = u_t + W_rec y_{t-1}, c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g), y_t = σ(o) ∘ tanh(c_t)
template <class T>
void lstm_forward(const T* u, const T* W_rec, const T* h0, const T* c0, T* y, T* c_last, T* gates, T* cells,
                  Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ldz = padded<T>(4 * N);
    Packed<T> weights({W_rec}, N, 4 * N, 1, N);
    Buffer<T> state(B * ld), sums(B * ldz);
    for_slabs(B, threads, [&, u, h0, c0, y, c_last, gates, cells](Index, Index first, Index last) {
        T *h = state.data() + first * ld, *z = sums.data() + first * ldz;
        const Index rows = last - first;
        for (Index b = 0; b < rows; ++b) std::memcpy(h + b * ld, h0 + (first + b) * N, std::size_t(N) * sizeof(T));
        for (Index t = 0; t < steps; ++t) {
            Ahead ahead;
            ahead.add(u + 4 * (t * B + first) * N, 4 * rows * N);
            ahead.add(gates + 4 * (t * B + first) * N, 4 * rows * N);
            ahead.add(cells + (t * B + first) * N, rows * N);
            ahead.add(y + (t * B + first) * N, rows * N);
            product<T>(h, ld, rows, weights, z, ldz, ahead);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = u + 4 * at, *v = z + b * ldz;
                const T* before = t ? cells + at - B * N : c0 + (first + b) * N;
                T *out = gates + 4 * at, *cell = cells + at, *state = h + b * ld, *output = y + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const auto sum = [=](Index q) {
                        return load<T>(in + q * N + n, lanes) + load<T>(v + q * N + n, lanes);
                    };
                    const Vector<T> i = sigmoid<T>(sum(0)), f = sigmoid<T>(sum(1)), g = tanh<T>(sum(2)),
                                    o = sigmoid<T>(sum(3));
                    const Vector<T> c = f * load<T>(before + n, lanes) + i * g, out_h = o * tanh<T>(c);
                    store<T>(out + n, i, lanes);
                    store<T>(out + N + n, f, lanes);
                    store<T>(out + 2 * N + n, g, lanes);
                    store<T>(out + 3 * N + n, o, lanes);
                    store<T>(cell + n, c, lanes);
                    store<T>(state + n, out_h, lanes);
                    store<T>(output + n, out_h, lanes);
                });
            }
        }
        const std::size_t bytes = std::size_t(rows * N) * sizeof(T);
        std::memcpy(c_last + first * N, cells + ((steps - 1) * B + first) * N, bytes);
    });
}

template <class T>
void lstm_backward(const T* grad_y, const T* grad_c, const T* W_rec, const T* /*h0*/, const T* c0, const T* /*y*/,
                   const T* gates, const T* cells, T* grad_u, T* grad_h0, T* grad_c0, Index steps, Index B, Index N,
                   Index threads) {
    const Index ld = padded<T>(N), ldg = padded<T>(4 * N);
    Packed<T> weights({W_rec}, 4 * N, N, N, 1);
    Buffer<T> state(B * ldg), sums(B * ld);
    for_slabs(B, threads, [&, grad_y, grad_c, c0, gates, cells, grad_u, grad_h0, grad_c0](Index, Index first, Index last) {
        T *dz = state.data() + first * ldg, *dh = sums.data() + first * ld;
        const Index rows = last - first;
        const std::size_t bytes = std::size_t(rows * N) * sizeof(T);
        std::memcpy(grad_c0 + first * N, grad_c + first * N, bytes);  // carries ∂/∂c_t down to t = 0
        for (Index t = steps - 1; t >= 0; --t) {
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = gates + 4 * at, *before = t ? cells + at - B * N : c0 + (first + b) * N;
                const T *cell = cells + at, *grad = grad_y + at, *sum = dh + b * ld;
                T *out = grad_u + 4 * at, *v = dz + b * ldg, *carried = grad_c0 + (first + b) * N;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const Vector<T> i = load<T>(in + n, lanes), f = load<T>(in + N + n, lanes),
                                    g = load<T>(in + 2 * N + n, lanes), o = load<T>(in + 3 * N + n, lanes);
                    const Vector<T> tanh_c = tanh<T>(load<T>(cell + n, lanes));
                    const Vector<T> d_h = load<T>(grad + n, lanes) + load<T>(sum + n);
                    const Vector<T> d_c = load<T>(carried + n, lanes) + d_h * o * (T(1) - tanh_c * tanh_c);
                    const Vector<T> parts[4] = {d_c * g * i * (T(1) - i),
                                                d_c * load<T>(before + n, lanes) * f * (T(1) - f),
                                                d_c * i * (T(1) - g * g), d_h * tanh_c * o * (T(1) - o)};
                    for (Index q = 0; q < 4; ++q) {
                        store<T>(v + q * N + n, parts[q], lanes);
                        store<T>(out + q * N + n, parts[q], lanes);
                    }
                    store<T>(carried + n, d_c * f, lanes);
                });
            }
            Ahead ahead;
            if (t > 0) {
                const Index next = ((t - 1) * B + first) * N;
                ahead.add(gates + 4 * next, 4 * rows * N);
                ahead.add(grad_u + 4 * next, 4 * rows * N);
                ahead.add(grad_y + next, rows * N);
                ahead.add(t > 1 ? cells + next - B * N : c0 + first * N, rows * N);
            }
            product<T>(dz, ldg, rows, weights, dh, ld, ahead);
        }
        for (Index b = 0; b < rows; ++b)
            std::memcpy(grad_h0 + (first + b) * N, dh + b * ld, std::size_t(N) * sizeof(T));
    });
}

}  // namespace durnn

DURNN_EXPORT(lstm_forward)
DURNN_EXPORT(lstm_backward)
