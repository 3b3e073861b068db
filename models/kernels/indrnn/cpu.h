// The loops of reference.py, each thread owning a slab of the batch for the whole sequence.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include "exports.h"
#include "projected.h"

namespace durnn {

// y_t = relu(u_t + U ∘ y_{t-1})
template <class T>
void indrnn_forward(const T* u, const T* U, const T* h0, T* y, T* y_last, Index steps, Index B, Index N,
                    Index threads) {
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
        copy_last(y, steps, B, N, first, last, y_last);
    });
}

// Steps that one sample goes back before the next one does. A constant: where sums leave the registers decides how they
// are rounded, and that must not depend on the number of threads.
constexpr Index reverse_span = 8;

// The steps [from, to) of one sample, backwards: g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1}), handed to put(t, n, g_t,
// lanes). Sequences begin at the sample's first row; y has `stride` numbers from step to step and grad_y `grad_stride`;
// `before` is y_{from-1}, `carried` holds U ∘ g_{t+1} on the way in and U ∘ g_t on the way out. The steps to come
// are fetched meanwhile.
template <class T, class Put>
inline void reverse_steps(const T* grad_y, Index grad_stride, const T* U, const T* y, const T* before, T* carried,
                          T* sum_U, Index from, Index to, Index stride, Index N, Put put) {
    for_vectors<T>(N, [=](Index n, auto lanes) {
        const Vector<T> factor = load<T>(U + n, lanes);
        Vector<T> back = load<T>(carried + n, lanes), total = load<T>(sum_U + n, lanes);
        Vector<T> y_t = load<T>(y + (to - 1) * stride + n, lanes);
        for (Index t = to - 1; t >= from; --t) {
            const Index at = t * stride + n;
            if (t >= reverse_span) {
                __builtin_prefetch(grad_y + (t - reverse_span) * grad_stride + n, 0, 2);
                __builtin_prefetch(y + at - reverse_span * stride, 0, 2);
            }
            const Vector<T> y_before = load<T>(t > from ? y + at - stride : before + n, lanes);
            const Vector<T> g = where_positive(y_t, load<T>(grad_y + t * grad_stride + n, lanes) + back);
            back = g * factor;
            total += g * y_before;
            y_t = y_before;
            put(t, n, g, lanes);
        }
        store<T>(carried + n, back, lanes);
        store<T>(sum_U + n, total, lanes);
    });
}

// g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1}) -> grad_u = g, grad_U = Σ g_t ∘ y_{t-1}, grad_h0 = U ∘ g_0
template <class T>
void indrnn_backward(const T* grad_y, const T* grad_last, const T* U, const T* h0, const T* y, T* grad_u, T* grad_U,
                     T* grad_h0, Index steps, Index B, Index N, Index threads) {
    const Incoming<T> incoming(grad_y, N);
    const Index slabs = slab_count(B, threads);
    PerSlab<T> sum_U(slabs, most_rows(B, slabs) * N), carried(slabs, most_rows(B, slabs) * N);
    for_slabs(B, threads, [&, grad_last, U, h0, y, grad_u, grad_h0](Index slab, Index first, Index last) {
        T *back = carried.zeroed(slab), *total = sum_U.zeroed(slab);
        begin_with(grad_last, first, last - first, N, back, N);
        for (Index to = steps; to > 0; to -= reverse_span) {
            const Index from = std::max(to - reverse_span, Index(0));
            for (Index b = first; b < last; ++b) {
                const T* before = from ? y + ((from - 1) * B + b) * N : h0 + b * N;
                T* out = grad_u + b * N;
                const Index row = (b - first) * N;
                reverse_steps<T>(incoming[b], incoming.stride(B), U, y + b * N, before, back + row, total + row,
                                 from, to, B * N, N, [=](Index t, Index n, Vector<T> g, auto lanes) {
                                     store<T>(out + t * B * N + n, g, lanes);
                                 });
            }
        }
        std::memcpy(grad_h0 + first * N, back, std::size_t((last - first) * N) * sizeof(T));
    });
    sum_samples(sum_U, 0, N, grad_U, slabs, B, N);
}

// y_t = relu(W_in x_t + b + U ∘ y_{t-1}), for more than a few columns of x
template <class T>
void indrnn_forward_by_products(const T* x, const T* W_in, const T* b, const T* U, const T* h0, T* y, Index steps,
                              Index B, Index N, Index threads, Index I) {
    const Index ld = padded<T>(N), slabs = slab_count(B, threads);
    Packed<T> weights({{W_in, I, 1, I}}, N, threads);
    PerSlab<T> sums(slabs, most_rows(B, slabs) * ld);
    for_slabs(B, threads, [&, x, b, U, h0, y](Index slab, Index first, Index last) {
        T* z = sums.zeroed(slab);
        const Index rows = last - first;
        for (Index t = 0; t < steps; ++t) {
            Ahead ahead;
            ahead.add(y + (t * B + first) * N, rows * N);
            if (t + 1 < steps) ahead.add(x + ((t + 1) * B + first) * I, rows * I);
            product<T>(x + (t * B + first) * I, I, rows, weights, z, ld, ahead);
            for (Index sample = first; sample < last; ++sample) {
                const Index row = t * B + sample;
                const T *in = z + (sample - first) * ld, *before = t ? y + (row - B) * N : h0 + sample * N;
                T* out = y + row * N;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const Vector<T> v = load<T>(in + n) + load<T>(b + n, lanes);
                    store<T>(out + n, relu(v + load<T>(U + n, lanes) * load<T>(before + n, lanes)), lanes);
                });
            }
        }
    });
}

// y_t = relu(W_in x_t + b + U ∘ y_{t-1})
template <class T>
void projected_indrnn_forward(const T* x, const T* W_in, const T* b, const T* U, const T* h0, T* y, T* y_last, Index steps,
                           Index B, Index N, Index threads, Index I) {
    if (I > few_columns) {
        indrnn_forward_by_products(x, W_in, b, U, h0, y, steps, B, N, threads, I);
        return copy_last(y, steps, B, N, Index(0), B, y_last);
    }
    const Index ld = padded<T>(N);
    Buffer<T> transposed(I * ld);
    for (Index i = 0; i < I; ++i)
        for (Index n = 0; n < N; ++n) transposed.data()[i * ld + n] = W_in[n * I + i];
    const T* W = transposed.data();
    for_slabs(B, threads, [=](Index, Index first, Index last) {
        for (Index t = 0; t < steps; ++t)
            for (Index sample = first; sample < last; ++sample) {
                const Index row = t * B + sample;
                const T *in = x + row * I, *before = t ? y + (row - B) * N : h0 + sample * N;
                T* out = y + row * N;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    Vector<T> v = load<T>(b + n, lanes);
                    for (Index i = 0; i < I; ++i) v += in[i] * load<T>(W + i * ld + n);
                    store<T>(out + n, relu(v + load<T>(U + n, lanes) * load<T>(before + n, lanes)), lanes);
                });
            }
        copy_last(y, steps, B, N, first, last, y_last);
    });
}

// As indrnn_backward, with the gradients of x, W_in and b in the place of grad_u.
template <class T>
void projected_indrnn_backward(const T* grad_y, const T* grad_last, const T* x, const T* W_in, const T* U, const T* h0,
                            const T* y, T* grad_x, T* grad_W_in, T* grad_b, T* grad_U, T* grad_h0, Index steps, Index B,
                            Index N, Index threads, Index I) {
    const Incoming<T> incoming(grad_y, N);
    const Index ld = padded<T>(N), span = std::min(steps, reverse_span), slabs = slab_count(B, threads);
    const Index most = most_rows(B, slabs);
    ProjectionGradient<T> gradient(x, W_in, grad_x, slabs, B, N, I, span * most);
    const Index group = gradient.few() ? 1 : most;  // samples whose g are kept for the sums, or for products
    PerSlab<T> sum_U(slabs, most * N), carried(slabs, most * N), scratch(slabs, span * group * ld);
    for_slabs(B, threads, [&, grad_last, U, h0, y, grad_h0](Index slab, Index first, Index last) {
        T *g = scratch.zeroed(slab), *back = carried.zeroed(slab), *total = sum_U.zeroed(slab);
        begin_with(grad_last, first, last - first, N, back, N);
        gradient.begin(slab);
        for (Index to = steps; to > 0; to -= span) {
            const Index from = std::max(to - span, Index(0));
            for (Index of = first; of < last; of += group) {
                const Index rows = std::min(group, last - of);
                for (Index b = of; b < of + rows; ++b) {
                    const T* before = from ? y + ((from - 1) * B + b) * N : h0 + b * N;
                    const Index row = (b - first) * N;
                    T* out = g + (b - of) * ld - from * rows * ld;  // of this sample at t = 0
                    reverse_steps<T>(incoming[b], incoming.stride(B), U, y + b * N, before, back + row, total + row,
                                     from, to, B * N, N, [=](Index t, Index n, Vector<T> v, auto lanes) {
                                         store<T>(out + t * rows * ld + n, v, lanes);
                                     });
                }
                gradient.add_piece(slab, g, ld, from, to, of, rows);
            }
        }
        std::memcpy(grad_h0 + first * N, back, std::size_t((last - first) * N) * sizeof(T));
    });
    gradient.finish(grad_W_in, grad_b);
    sum_samples(sum_U, 0, N, grad_U, slabs, B, N);
}

}  // namespace durnn

DURNN_EXPORT(indrnn_forward)
DURNN_EXPORT(indrnn_backward)
DURNN_EXPORT(projected_indrnn_forward)
DURNN_EXPORT(projected_indrnn_backward)
