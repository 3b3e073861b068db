// The recurrences of reference.py as loops over time, each thread owning a slab of the batch for the whole
// sequence. The weight gradient of the
// lstm, a product over all steps at once, is left to the caller's BLAS.
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

// Rows (steps times samples of a slab) of a piece: enough for the products of its gradients, few enough for the cache.
constexpr Index piece_rows = 128;
inline Index piece_steps(Index steps, Index rows) {
    return std::min(steps, std::max(Index(1), piece_rows / std::max(Index(1), rows)));
}

// g_t = act'(y_t) ∘ (grad_y_t + W_recᵀ g_{t+1}) -> grad_u = g, grad_W_rec = Σ g_t y_{t-1}ᵀ, grad_h0 = W_recᵀ g_0
template <class T, bool Tanh>
void rnn_backward(const T* grad_y, const T* W_rec, const T* h0, const T* y, T* grad_u, T* grad_W_rec, T* grad_h0,
                  Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), slabs = slab_count(B, threads);
    Packed<T> weights({W_rec}, N, N, N, 1);
    Buffer<T> sums(B * ld), gradients(slabs * N * ld);
    for_slabs(B, threads, [&, grad_y, h0, y, grad_u, grad_h0](Index slab, Index first, Index last) {
        const Index rows = last - first, span = piece_steps(steps, rows);
        Buffer<T> scratch(2 * span * rows * ld);
        T *g = scratch.data(), *befores = g + span * rows * ld, *z = sums.data() + first * ld;
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

// S_t = relu(mm(W_ss h~_t + W_ls y_{t-1} + b_s) − b_thre), y_t = relu(W_s (S_t ∘ h~_t) + U ∘ y_{t-1} + b_long)
template <class T>
void select_forward(const T* h_short, const T* W_ss, const T* b_s, const T* W_ls, const T* W_s, const T* U,
                    const T* b_thre, const T* b_long, const T* h0, T* y, T* S, T* scale, T floor, Index steps, Index B,
                    Index N, Index threads) {
    const Index ld = padded<T>(N), ld_both = padded<T>(2 * N);
    Packed<T> into_selection({W_ss, W_ls}, N, N, 1, N), into_long({W_s}, N, N, 1, N);
    Buffer<T> memories(B * ld_both), sums(B * ld), inputs(B * ld);
    for_slabs(B, threads, [&, h_short, b_s, U, b_long, h0, y, S, scale](Index, Index first, Index last) {
        T *both = memories.data() + first * ld_both, *z = sums.data() + first * ld, *i = inputs.data() + first * ld;
        const Index rows = last - first;
        const std::size_t bytes = std::size_t(N) * sizeof(T);
        const T threshold = *b_thre;
        for (Index b = 0; b < rows; ++b) std::memcpy(both + b * ld_both + N, h0 + (first + b) * N, bytes);
        for (Index t = 0; t < steps; ++t) {
            const Index now = (t * B + first) * N;
            for (Index b = 0; b < rows; ++b) std::memcpy(both + b * ld_both, h_short + now + b * N, bytes);
            Ahead ahead;
            ahead.add(S + now, rows * N);
            ahead.add(y + now, rows * N);
            if (t + 1 < steps) ahead.add(h_short + now + B * N, rows * N);
            product<T>(both, ld_both, rows, into_selection, z, ld, ahead);
            for (Index b = 0; b < rows; ++b) {
                const T *bias = b_s, *short_memory = both + b * ld_both;
                T *v = z + b * ld, *selected = i + b * ld, *out = S + now + b * N;
                const T start = v[0] + bias[0];
                Vector<T> low = broadcast<T>(start), high = low;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> sum = load<T>(v + n) + load<T>(bias + n, lanes);
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
            Ahead nothing;
            product<T>(i, ld, rows, into_long, z, ld, nothing);
            for (Index b = 0; b < rows; ++b) {
                const T *sum = z + b * ld, *factor = U, *bias = b_long;
                T *state = both + b * ld_both + N, *out = y + now + b * N;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    Vector<T> v = load<T>(sum + n) + load<T>(factor + n, lanes) * load<T>(state + n, lanes);
                    v = relu(v + load<T>(bias + n, lanes));
                    store<T>(state + n, v, lanes);
                    store<T>(out + n, v, lanes);
                });
            }
        }
    });
}

// g_t as above, d_t = W_sᵀ g_t, e_t = [S_t > 0] ∘ h~_t ∘ d_t, c_t = scale_t ∘ e_t -> grad_h_short = S ∘ d,
// [grad_W_ss grad_W_ls] = Σ c_t [h~_t y_{t-1}]ᵀ, grad_W_s = Σ g_t (S_t ∘ h~_t)ᵀ, grad_b_s = Σ c, grad_U = Σ g_t ∘ y_{t-1},
// grad_b_thre = −Σ e, grad_b_long = Σ g. Nothing but g_t passes from step to step, and that elementwise, so a slab goes
// through pieces of several steps whose scratch stays in the cache; during the products of one the next is fetched.
template <class T>
void select_backward(const T* grad_y, const T* h_short, const T* W_s, const T* U, const T* h0, const T* y, const T* S,
                     const T* scale, T* grad_h_short, T* grad_W_ss, T* grad_b_s, T* grad_W_ls, T* grad_W_s, T* grad_U,
                     T* grad_b_thre, T* grad_b_long, T* grad_h0, Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ld_both = padded<T>(2 * N), slabs = slab_count(B, threads);
    Packed<T> weights({W_s}, N, N, N, 1);
    Buffer<T> sums(4 * B * N), into_selection(slabs * N * ld_both), into_long(slabs * N * ld);
    for_slabs(B, threads, [&](Index slab, Index first, Index last) {
        const Index rows = last - first, span = std::min(piece_steps(steps, rows), Ahead::capacity / 3);
        Buffer<T> scratch(span * rows * (4 * ld + ld_both));
        T *g = scratch.data(), *d = g + span * rows * ld, *i = d + span * rows * ld, *c = i + span * rows * ld;
        T* both = c + span * rows * ld;  // [h~_t y_{t-1}]
        std::memset(grad_h0 + first * N, 0, std::size_t(rows * N) * sizeof(T));  // carries U ∘ g_{t+1} down to t = 0
        for (Index to = steps; to > 0; to -= span) {
            const Index from = std::max(to - span, Index(0)), count = (to - from) * rows;
            for (Index t = to - 1; t >= from; --t)
                for (Index b = 0; b < rows; ++b) {
                    const Index sample = first + b, at = (t * B + sample) * N, row = (t - from) * rows + b;
                    const T* before = t ? y + at - B * N : h0 + sample * N;
                    T *out = g + row * ld, *copy = both + row * ld_both + N;
                    const auto put = [=](Index n, Vector<T> v, auto lanes) {
                        store<T>(out + n, v, lanes);
                        store<T>(copy + n, load<T>(before + n, lanes), lanes);
                    };
                    reverse_step<T>(grad_y + at, U, y + at, before, grad_h0 + sample * N, sums.data() + sample * N,
                                    sums.data() + (B + sample) * N, N, put);
                }
            Ahead now, next;
            for (Index t = to - 1; t >= from; --t) {
                const Index at = (t * B + first) * N;
                now.add(S + at, rows * N);
                now.add(h_short + at, rows * N);
                now.add(grad_h_short + at, rows * N);
            }
            for (Index t = from - 1; t >= std::max(from - span, Index(0)); --t) {
                const Index at = (t * B + first) * N;
                next.add(grad_y + at, rows * N);
                if (t > 0) next.add(y + at - B * N, rows * N);
            }
            product<T>(g, ld, count, weights, d, ld, now);
            for (Index t = to - 1; t >= from; --t)
                for (Index b = 0; b < rows; ++b) {
                    const Index sample = first + b, at = (t * B + sample) * N, row = (t - from) * rows + b;
                    const T inverse = scale[t * B + sample];
                    const T *gate = S + at, *short_memory = h_short + at, *in = d + row * ld;
                    T *sum_e = sums.data() + (2 * B + sample) * N, *sum_c = sums.data() + (3 * B + sample) * N;
                    T *out = grad_h_short + at, *selected = i + row * ld, *before_mm = c + row * ld;
                    T* copy = both + row * ld_both;
                    for_vectors<T>(N, [=](Index n, auto lanes) {
                        const Vector<T> selection = load<T>(gate + n, lanes), v = load<T>(in + n);
                        const Vector<T> short_t = load<T>(short_memory + n, lanes);
                        const Vector<T> e = where_positive(selection, short_t * v), scaled = e * inverse;
                        store<T>(out + n, selection * v, lanes);
                        store<T>(selected + n, selection * short_t, lanes);
                        store<T>(before_mm + n, scaled, lanes);
                        store<T>(copy + n, short_t, lanes);
                        store<T>(sum_e + n, load<T>(sum_e + n, lanes) + e, lanes);
                        store<T>(sum_c + n, load<T>(sum_c + n, lanes) + scaled, lanes);
                    });
                }
            add_outer<T>(c, ld, N, both, ld_both, 2 * N, count, into_selection.data() + slab * N * ld_both, ld_both,
                         next);
            Ahead nothing;
            add_outer<T>(g, ld, N, i, ld, N, count, into_long.data() + slab * N * ld, ld, nothing);
        }
    });
    sum_slabs(into_selection.data(), ld_both, grad_W_ss, slabs, N);
    sum_slabs(into_selection.data() + N, ld_both, grad_W_ls, slabs, N);
    sum_slabs(into_long.data(), ld, grad_W_s, slabs, N);
    Buffer<T> sum_e(N);
    T* totals[] = {grad_U, grad_b_long, sum_e.data(), grad_b_s};
    for (Index k = 0; k < 4; ++k) sum_samples(sums.data() + k * B * N, totals[k], B, N);
    double total = 0;
    for (Index n = 0; n < N; ++n) total += double(sum_e.data()[n]);
    *grad_b_thre = T(-total);
}

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
void lstm_backward(const T* grad_y, const T* grad_c, const T* W_rec, const T* c0, const T* gates, const T* cells,
                   T* grad_u, T* grad_h0, T* grad_c0, Index steps, Index B, Index N, Index threads) {
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
