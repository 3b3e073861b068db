// The loops of reference.py, each thread owning a slab of the batch for the whole sequence.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include "exports.h"
#include "projected.h"

namespace durnn {

// y_t = act(u_t + W_rec y_{t-1})
template <class T, bool Tanh, class Input>
void rnn_forward_loop(const Input input, const T* W_rec, const T* h0, T* y, T* y_last, Index steps, Index B,
                      Index N, Index threads) {
    const Index ld = padded<T>(N + input.columns()), ldz = padded<T>(N), slabs = slab_count(B, threads);
    std::vector<Matrix<T>> factors{{W_rec, N, 1, N}};
    input.append_to(factors);
    Packed<T> weights(factors, N, threads);
    PerSlab<T> state(slabs, most_rows(B, slabs) * ld), sums(slabs, most_rows(B, slabs) * ldz);
    for_slabs(B, threads, [&, input, h0, y, y_last](Index slab, Index first, Index last) {
        T *h = state.zeroed(slab), *z = sums.zeroed(slab);
        const Index rows = last - first;
        begin_with(h0, first, rows, N, h, ld);
        for (Index t = 0; t < steps; ++t) {
            const Index now = t * B + first;
            Ahead ahead;
            input.add_to(ahead, now, rows);
            ahead.add(y + now * N, rows * N);
            for (Index b = 0; b < rows; ++b) input.put(now + b, h + b * ld + N);
            product<T>(h, ld, rows, weights, z, ldz, ahead);
            for (Index b = 0; b < rows; ++b) {
                const T* sum = z + b * ldz;
                T *state = h + b * ld, *out = y + (now + b) * N;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    Vector<T> v = input.plus(now + b, n, load<T>(sum + n), lanes);
                    v = Tanh ? tanh<T>(v) : relu(v);
                    store<T>(state + n, v, lanes);
                    store<T>(out + n, v, lanes);
                });
            }
        }
        copy_last(y, steps, B, N, first, last, y_last);
    });
}

// g_t = act'(y_t) ∘ (grad_y_t + W_recᵀ g_{t+1}) -> grad_u = g, grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_h0 = W_recᵀ g_0
template <class T, bool Tanh, class Gradient>
void rnn_backward_loop(const T* grad_y, const T* grad_last, const T* W_rec, const T* h0, const T* y, Gradient& gradient,
                       T* grad_W_rec, T* grad_h0, Index steps, Index B, Index N, Index threads) {
    const Incoming<T> incoming(grad_y, N);
    const Index ld = padded<T>(N), slabs = slab_count(B, threads);
    Packed<T> weights({{W_rec, N, N, 1}}, N, threads);
    const Index span = piece_steps(steps, B, slabs), size = most_rows(B, slabs) * ld;
    PerSlab<T> sums(slabs, size), gradients(slabs, N * ld), scratch(slabs, 2 * span * size);
    for_slabs(B, threads, [&, grad_last, h0, y, grad_h0](Index slab, Index first, Index last) {
        const Index rows = last - first;
        gradient.begin(slab);
        T *g = scratch.zeroed(slab), *befores = g + span * rows * ld, *z = sums.zeroed(slab);
        T* grad_W = gradients.zeroed(slab);
        begin_with(grad_last, first, rows, N, z, ld);
        for (Index to = steps; to > 0; to -= span) {
            const Index from = std::max(to - span, Index(0));
            for (Index t = to - 1; t >= from; --t) {
                T *g_t = g + (t - from) * rows * ld, *before_t = befores + (t - from) * rows * ld;
                for (Index b = 0; b < rows; ++b) {
                    const Index at = (t * B + first + b) * N;
                    const T *in = incoming[t * B + first + b], *output = y + at, *sum = z + b * ld;
                    const T* before = t ? y + at - B * N : h0 + (first + b) * N;
                    T *state = g_t + b * ld, *copy = before_t + b * ld;
                    for_vectors<T>(N, [=, &gradient](Index n, auto lanes) {
                        const Vector<T> value = load<T>(output + n, lanes);
                        Vector<T> v = load<T>(in + n, lanes) + load<T>(sum + n);
                        v = Tanh ? v * (T(1) - value * value) : where_positive(value, v);
                        store<T>(state + n, v, lanes);
                        gradient.put(t * B + first + b, n, v, lanes);
                        store<T>(copy + n, load<T>(before + n, lanes), lanes);
                    });
                }
                Ahead ahead;
                if (t > 0) {
                    const Index next = ((t - 1) * B + first) * N;
                    incoming.add_to(ahead, (t - 1) * B + first, rows);
                    gradient.add_to(ahead, (t - 1) * B + first, rows);
                    if (t > 1) ahead.add(y + next - B * N, rows * N);
                }
                product<T>(g_t, ld, rows, weights, z, ld, ahead);
            }
            Ahead nothing;
            add_outer<T>(g, ld, N, befores, ld, N, (to - from) * rows, grad_W, ld, nothing);
            gradient.add_piece(slab, g, ld, from, to, first, rows);
        }
        for (Index b = 0; b < rows; ++b)
            std::memcpy(grad_h0 + (first + b) * N, z + b * ld, std::size_t(N) * sizeof(T));
    });
    sum_slabs(gradients, 0, ld, grad_W_rec, slabs, N, N);
}

// The loops as declared, with the input as a sequence or projected.
template <class T, bool Tanh>
void rnn_forward(const T* u, const T* W_rec, const T* h0, T* y, T* y_last, Index steps, Index B, Index N,
                 Index threads) {
    rnn_forward_loop<T, Tanh>(Sequence<T>{u, N}, W_rec, h0, y, y_last, steps, B, N, threads);
}
template <class T, bool Tanh>
void rnn_backward(const T* grad_y, const T* grad_last, const T* W_rec, const T* h0, const T* y, T* grad_u,
                  T* grad_W_rec, T* grad_h0, Index steps, Index B, Index N, Index threads) {
    SequenceGradient<T> gradient{grad_u, N};
    rnn_backward_loop<T, Tanh>(grad_y, grad_last, W_rec, h0, y, gradient, grad_W_rec, grad_h0, steps, B, N, threads);
}
template <class T, bool Tanh>
void projected_rnn_forward(const T* x, const T* W_in, const T* b, const T* W_rec, const T* h0, T* y, T* y_last,
                        Index steps, Index B, Index N, Index threads, Index I) {
    rnn_forward_loop<T, Tanh>(Projected<T>{x, W_in, b, I}, W_rec, h0, y, y_last, steps, B, N, threads);
}
template <class T, bool Tanh>
void projected_rnn_backward(const T* grad_y, const T* grad_last, const T* x, const T* W_in, const T* W_rec, const T* h0,
                         const T* y, T* grad_x, T* grad_W_in, T* grad_b, T* grad_W_rec, T* grad_h0, Index steps,
                         Index B, Index N, Index threads, Index I) {
    const Index slabs = slab_count(B, threads);
    ProjectionGradient<T> gradient(x, W_in, grad_x, slabs, B, N, I, piece_steps(steps, B, slabs) * most_rows(B, slabs));
    rnn_backward_loop<T, Tanh>(grad_y, grad_last, W_rec, h0, y, gradient, grad_W_rec, grad_h0, steps, B, N, threads);
    gradient.finish(grad_W_in, grad_b);
}

}  // namespace durnn

DURNN_EXPORT_CHOICES(rnn_forward)
DURNN_EXPORT_CHOICES(rnn_backward)
DURNN_EXPORT_CHOICES(projected_rnn_forward)
DURNN_EXPORT_CHOICES(projected_rnn_backward)
