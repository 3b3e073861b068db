// The loops of reference.py, each thread owning a slab of the batch for the whole sequence.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include "exports.h"
#include "gradients.h"

namespace durnn {

// r = σ(u_r + W_r y_{t-1}), z = σ(u_z + W_z y_{t-1}), a = W_n y_{t-1} + b_new, n = tanh(u_n + r ∘ a),
// y_t = (1 − z) ∘ n + z ∘ y_{t-1}
template <class T>
void gru_forward(const T* u, const T* W_rec, const T* b_new, const T* h0, T* y, T* y_last, T* gates, Index steps,
                 Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ldz = padded<T>(3 * N), slabs = slab_count(B, threads);
    Packed<T> weights({{W_rec, N, 1, N}}, 3 * N, threads);
    PerSlab<T> state(slabs, most_rows(B, slabs) * ld), sums(slabs, most_rows(B, slabs) * ldz);
    for_slabs(B, threads, [&, u, b_new, h0, y, y_last, gates](Index slab, Index first, Index last) {
        T *h = state.zeroed(slab), *v = sums.zeroed(slab);
        const Index rows = last - first;
        begin_with(h0, first, rows, N, h, ld);
        for (Index t = 0; t < steps; ++t) {
            Ahead ahead;
            ahead.add(u + 3 * (t * B + first) * N, 3 * rows * N);
            ahead.add(gates + 4 * (t * B + first) * N, 4 * rows * N);
            ahead.add(y + (t * B + first) * N, rows * N);
            product<T>(h, ld, rows, weights, v, ldz, ahead);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = u + 3 * at, *sum = v + b * ldz, *bias = b_new;
                T *out = gates + 4 * at, *state = h + b * ld, *output = y + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const Vector<T> r = sigmoid<T>(load<T>(in + n, lanes) + load<T>(sum + n, lanes));
                    const Vector<T> z = sigmoid<T>(load<T>(in + N + n, lanes) + load<T>(sum + N + n, lanes));
                    const Vector<T> a = load<T>(sum + 2 * N + n, lanes) + load<T>(bias + n, lanes);
                    const Vector<T> candidate = tanh<T>(load<T>(in + 2 * N + n, lanes) + r * a);
                    const Vector<T> h_t = (T(1) - z) * candidate + z * load<T>(state + n, lanes);
                    store<T>(out + n, r, lanes);
                    store<T>(out + N + n, z, lanes);
                    store<T>(out + 2 * N + n, candidate, lanes);
                    store<T>(out + 3 * N + n, a, lanes);
                    store<T>(state + n, h_t, lanes);
                    store<T>(output + n, h_t, lanes);
                });
            }
        }
        copy_last(y, steps, B, N, first, last, y_last);
    });
}

// From dy_t on: the gradients g of the pre-activations that W_rec y_{t-1} enters, [r z a], and of u's, which differ
// from them by the factor r of the third -> grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_b_new = Σ of g's third part
template <class T>
void gru_backward(const T* grad_y, const T* grad_last, const T* W_rec, const T* h0, const T* y, const T* gates,
                  T* grad_u, T* grad_W_rec, T* grad_b_new, T* grad_h0, Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ldg = padded<T>(3 * N), slabs = slab_count(B, threads);
    Packed<T> weights({{W_rec, 3 * N, N, 1}}, N, threads);
    const Index span = piece_steps(steps, B, slabs), most = most_rows(B, slabs);
    PerSlab<T> sums(slabs, most * ld), past(slabs, most * ld), sum_b(slabs, most * N), gradients(slabs, 3 * N * ld);
    PerSlab<T> scratch(slabs, span * most * (ld + ldg));
    const Incoming<T> incoming(grad_y, N);
    for_slabs(B, threads, [&, grad_last, h0, y, gates, grad_u, grad_h0](Index slab, Index first, Index last) {
        const Index rows = last - first;
        T *g = scratch.zeroed(slab), *befores = g + span * rows * ldg, *grad_W = gradients.zeroed(slab);
        T *dh = sums.zeroed(slab), *kept = past.zeroed(slab);  // ∂/∂y_{t-1} by the product and by z
        T* biases = sum_b.zeroed(slab);
        begin_with(grad_last, first, rows, N, dh, ld);
        for (Index to = steps; to > 0; to -= span) {
            const Index from = std::max(to - span, Index(0));
            for (Index t = to - 1; t >= from; --t) {
                T *g_t = g + (t - from) * rows * ldg, *before_t = befores + (t - from) * rows * ld;
                for (Index b = 0; b < rows; ++b) {
                    const Index at = (t * B + first + b) * N;
                    const T *grad = incoming[t * B + first + b], *active = gates + 4 * at, *sum = dh + b * ld;
                    const T* before = t ? y + at - B * N : h0 + (first + b) * N;
                    T *out = grad_u + 3 * at, *state = g_t + b * ldg, *copy = before_t + b * ld, *carried = kept + b * ld;
                    T* bias = biases + b * N;
                    for_vectors<T>(N, [=](Index n, auto lanes) {
                        const Vector<T> r = load<T>(active + n, lanes), z = load<T>(active + N + n, lanes),
                                        candidate = load<T>(active + 2 * N + n, lanes),
                                        a = load<T>(active + 3 * N + n, lanes), h = load<T>(before + n, lanes);
                        const Vector<T> d_h = load<T>(grad + n, lanes) + load<T>(sum + n) + load<T>(carried + n);
                        const Vector<T> d_n = d_h * (T(1) - z) * (T(1) - candidate * candidate), d_a = d_n * r;
                        const Vector<T> d_r = d_n * a * r * (T(1) - r), d_z = d_h * (h - candidate) * z * (T(1) - z);
                        store<T>(state + n, d_r, lanes);
                        store<T>(state + N + n, d_z, lanes);
                        store<T>(state + 2 * N + n, d_a, lanes);
                        store<T>(out + n, d_r, lanes);
                        store<T>(out + N + n, d_z, lanes);
                        store<T>(out + 2 * N + n, d_n, lanes);
                        store<T>(copy + n, h, lanes);
                        store<T>(carried + n, d_h * z);
                        store<T>(bias + n, load<T>(bias + n, lanes) + d_a, lanes);
                    });
                }
                Ahead ahead;
                if (t > 0) {
                    const Index next = ((t - 1) * B + first) * N;
                    ahead.add(gates + 4 * next, 4 * rows * N);
                    ahead.add(grad_u + 3 * next, 3 * rows * N);
                    incoming.add_to(ahead, (t - 1) * B + first, rows);
                    if (t > 1) ahead.add(y + next - B * N, rows * N);
                }
                product<T>(g_t, ldg, rows, weights, dh, ld, ahead);
            }
            Ahead nothing;
            add_outer<T>(g, ldg, 3 * N, befores, ld, N, (to - from) * rows, grad_W, ld, nothing);
        }
        for (Index b = 0; b < rows; ++b)
            for (Index n = 0; n < N; ++n) grad_h0[(first + b) * N + n] = dh[b * ld + n] + kept[b * ld + n];
    });
    sum_samples(sum_b, 0, N, grad_b_new, slabs, B, N);
    sum_slabs(gradients, 0, ld, grad_W_rec, slabs, 3 * N, N);
}

}  // namespace durnn

DURNN_EXPORT(gru_forward)
DURNN_EXPORT(gru_backward)
