// The recurrences of reference.py as loops over time, each thread owning a slab of the batch for the whole
// sequence. Products over all steps at once (weight gradients) are left to the caller's BLAS.
//
// Shapes: T steps, B samples, N units; sequences are (T, B, N); y_{-1} is h0.
#pragma once

#include "vector.h"

namespace durnn {

// Sum over the batch in ascending order: per-sample sums make it independent of the slabs.
template <class T>
void sum_samples(const T* per_sample, T* total, Index B, Index N) {
    std::memset(total, 0, std::size_t(N) * sizeof(T));
    for (Index b = 0; b < B; ++b)
        for (Index n = 0; n < N; ++n) total[n] += per_sample[b * N + n];
}

// y_t = act(u_t + W_rec y_{t-1})
template <class T, bool Tanh>
void rnn_forward(const T* u, const T* W_rec, const T* h0, T* y, Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N);
    Packed<T> weights(W_rec, N, N, 1, N);
    Buffer<T> state(B * ld), sums(B * ld);
    for_slabs(B, threads, [&, u, h0, y](Index first, Index last) {
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

// g_t = act'(y_t) ∘ (grad_y_t + W_recᵀ g_{t+1})
template <class T, bool Tanh>
void rnn_backward(const T* grad_y, const T* W_rec, const T* y, T* grad_u, T* grad_h0, Index steps, Index B, Index N,
                  Index threads) {
    const Index ld = padded<T>(N);
    Packed<T> weights(W_rec, N, N, N, 1);
    Buffer<T> state(B * ld), sums(B * ld);
    for_slabs(B, threads, [&, grad_y, y, grad_u, grad_h0](Index first, Index last) {
        T *g = state.data() + first * ld, *z = sums.data() + first * ld;
        const Index rows = last - first;
        for (Index t = steps - 1; t >= 0; --t) {
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = grad_y + at, *output = y + at, *sum = z + b * ld;
                T *state = g + b * ld, *out = grad_u + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const Vector<T> value = load<T>(output + n, lanes);
                    Vector<T> v = load<T>(in + n, lanes) + load<T>(sum + n);
                    v = Tanh ? v * (T(1) - value * value) : where_positive(value, v);
                    store<T>(state + n, v, lanes);
                    store<T>(out + n, v, lanes);
                });
            }
            Ahead ahead;
            if (t > 0) {
                const Index next = ((t - 1) * B + first) * N;
                ahead.add(grad_y + next, rows * N);
                ahead.add(y + next, rows * N);
                ahead.add(grad_u + next, rows * N);
            }
            product<T>(g, ld, rows, weights, z, ld, ahead);
        }
        for (Index b = 0; b < rows; ++b)
            std::memcpy(grad_h0 + (first + b) * N, z + b * ld, std::size_t(N) * sizeof(T));
    });
}

// y_t = relu(u_t + U ∘ y_{t-1})
template <class T>
void indrnn_forward(const T* u, const T* U, const T* h0, T* y, Index steps, Index B, Index N, Index threads) {
    for_slabs(B, threads, [=](Index first, Index last) {
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
    for_slabs(B, threads, [&, grad_y, U, h0, y, grad_u, grad_h0](Index first, Index last) {
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

// S_t = relu(mm(a_t + W_ls y_{t-1}) − b_thre), y_t = relu(W_s (S_t ∘ h~_t) + U ∘ y_{t-1} + b_long)
template <class T>
void select_forward(const T* h_short, const T* a, const T* W_ls, const T* W_s, const T* U, const T* b_thre,
                    const T* b_long, const T* h0, T* y, T* S, T* scale, T floor, Index steps, Index B, Index N,
                    Index threads) {
    const Index ld = padded<T>(N);
    Packed<T> from_long(W_ls, N, N, 1, N), from_selected(W_s, N, N, 1, N);
    Buffer<T> state(B * ld), sums(B * ld), inputs(B * ld);
    for_slabs(B, threads, [&, h_short, a, U, b_long, h0, y, S, scale](Index first, Index last) {
        T *h = state.data() + first * ld, *z = sums.data() + first * ld, *i = inputs.data() + first * ld;
        const Index rows = last - first;
        const T threshold = *b_thre;
        for (Index b = 0; b < rows; ++b) std::memcpy(h + b * ld, h0 + (first + b) * N, std::size_t(N) * sizeof(T));
        for (Index t = 0; t < steps; ++t) {
            Ahead ahead;
            ahead.add(a + (t * B + first) * N, rows * N);
            ahead.add(h_short + (t * B + first) * N, rows * N);
            ahead.add(S + (t * B + first) * N, rows * N);
            product<T>(h, ld, rows, from_long, z, ld, ahead);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = a + at, *short_memory = h_short + at;
                T *v = z + b * ld, *selected = i + b * ld, *out = S + at;
                const T start = v[0] + in[0];
                Vector<T> low = broadcast<T>(start), high = low;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> sum = load<T>(v + n) + load<T>(in + n, lanes);
                    store<T>(v + n, sum);
                    if constexpr (std::is_same_v<decltype(lanes), Full>) {
                        low = sum < low ? sum : low;
                        high = sum > high ? sum : high;
                    } else {
                        const Vector<T> part = load_part<T>(v + n, lanes, start);
                        low = part < low ? part : low;
                        high = part > high ? part : high;
                    }
                });
                T minimum, maximum;
                extremes<T, vector_bytes>(reinterpret_cast<const T*>(&low), reinterpret_cast<const T*>(&high), minimum,
                                          maximum);
                const T range = maximum - minimum, inverse = T(1) / (range < floor ? floor : range);
                scale[t * B + first + b] = inverse;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    Vector<T> mm = (load<T>(v + n) - minimum) * inverse;
                    mm = mm > T(1) ? broadcast<T>(1) : mm;  // v == maximum gives exactly 1 or less, as a division does
                    const Vector<T> selection = relu(mm - threshold);
                    store<T>(out + n, selection, lanes);
                    store<T>(selected + n, selection * load<T>(short_memory + n, lanes), lanes);
                });
            }
            Ahead later;
            later.add(y + (t * B + first) * N, rows * N);
            product<T>(i, ld, rows, from_selected, z, ld, later);
            for (Index b = 0; b < rows; ++b) {
                const T *sum = z + b * ld, *factor = U, *bias = b_long;
                T *state = h + b * ld, *out = y + (t * B + first + b) * N;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    Vector<T> v = load<T>(sum + n) + load<T>(factor + n, lanes) * load<T>(state + n);
                    v = relu(v + load<T>(bias + n, lanes));
                    store<T>(state + n, v, lanes);
                    store<T>(out + n, v, lanes);
                });
            }
        }
    });
}

// Steps [from, to) of the backward, last to first: g_t as above, d_t = W_sᵀ g_t, e = [S > 0] ∘ h~ ∘ d ->
// grad_h_short = S ∘ d, grad_a = scale ∘ e. For the caller's weight gradients g_t and i_t = S_t ∘ h~_t are left in g
// and i (steps counted from `from`). `sums` (3, B, N) adds up g ∘ y_{t-1}, g, e; `carried` (B, N) links the pieces.
template <class T>
void select_backward(const T* grad_y, const T* h_short, const T* W_s, const T* U, const T* h0, const T* y, const T* S,
                     const T* scale, T* g, T* i, T* grad_h_short, T* grad_a, T* carried, T* sums, Index from, Index to,
                     Index B, Index N, Index threads) {
    const Index ld = padded<T>(N);
    Packed<T> weights(W_s, N, N, N, 1);
    Buffer<T> inputs(B * ld), products(B * ld);
    for_slabs(B, threads, [&](Index first, Index last) {
        T *x = inputs.data() + first * ld, *d = products.data() + first * ld;
        const Index rows = last - first;
        for (Index t = to - 1; t >= from; --t) {
            for (Index b = 0; b < rows; ++b) {
                const Index sample = first + b, at = (t * B + sample) * N, piece = ((t - from) * B + sample) * N;
                const T *selection = S + at, *short_memory = h_short + at;
                T *out = g + piece, *input = i + piece, *state = x + b * ld;
                const auto put = [=](Index n, Vector<T> v, auto lanes) {
                    store<T>(out + n, v, lanes);
                    store<T>(state + n, v, lanes);
                    store<T>(input + n, load<T>(selection + n, lanes) * load<T>(short_memory + n, lanes), lanes);
                };
                reverse_step<T>(grad_y + at, U, y + at, t ? y + at - B * N : h0 + sample * N, carried + sample * N,
                                sums + sample * N, sums + (B + sample) * N, N, put);
            }
            Ahead ahead;
            ahead.add(grad_h_short + (t * B + first) * N, rows * N);
            ahead.add(grad_a + (t * B + first) * N, rows * N);
            if (t > 0) {
                const Index next = ((t - 1) * B + first) * N;
                ahead.add(grad_y + next, rows * N);
                ahead.add(t > 1 ? y + next - B * N : h0 + first * N, rows * N);
                ahead.add(S + next, rows * N);
                ahead.add(h_short + next, rows * N);
            }
            product<T>(x, ld, rows, weights, d, ld, ahead);
            for (Index b = 0; b < rows; ++b) {
                const Index sample = first + b, at = (t * B + sample) * N;
                const T inverse = scale[t * B + sample];
                const T *gate = S + at, *short_memory = h_short + at, *in = d + b * ld;
                T *sum = sums + (2 * B + sample) * N, *out_short = grad_h_short + at, *out_a = grad_a + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const Vector<T> selection = load<T>(gate + n, lanes), v = load<T>(in + n);
                    const Vector<T> e = where_positive(selection, load<T>(short_memory + n, lanes) * v);
                    store<T>(out_short + n, selection * v, lanes);
                    store<T>(out_a + n, e * inverse, lanes);
                    store<T>(sum + n, load<T>(sum + n, lanes) + e, lanes);
                });
            }
        }
    });
}

// [i f g o] = u_t + W_rec y_{t-1}, c_t = σ(f) ∘ c_{t-1} + σ(i) ∘ tanh(g), y_t = σ(o) ∘ tanh(c_t)
template <class T>
void lstm_forward(const T* u, const T* W_rec, const T* h0, const T* c0, T* y, T* c_last, T* gates, T* cells,
                  Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ldz = padded<T>(4 * N);
    Packed<T> weights(W_rec, N, 4 * N, 1, N);
    Buffer<T> state(B * ld), sums(B * ldz);
    for_slabs(B, threads, [&, u, h0, c0, y, c_last, gates, cells](Index first, Index last) {
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
void lstm_backward(const T* grad_y, const T* grad_c, const T* W_rec, const T* c0, const T* gates, const T* cells,
                   T* grad_u, T* grad_h0, T* grad_c0, Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ldg = padded<T>(4 * N);
    Packed<T> weights(W_rec, 4 * N, N, N, 1);
    Buffer<T> state(B * ldg), sums(B * ld);
    for_slabs(B, threads, [&, grad_y, grad_c, c0, gates, cells, grad_u, grad_h0, grad_c0](Index first, Index last) {
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
