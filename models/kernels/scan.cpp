// The recurrences of reference.py as loops over time, each thread owning a slab of the batch for the whole
// sequence. Torch-free: plain C functions on contiguous arrays, called through ctypes. Products over all steps at
// once (weight gradients) are left to the caller's BLAS. Every function returns 0, or 1 if memory ran out.
//
// Shapes: T steps, B samples, N units; sequences are (T, B, N); y_{-1} is h0.

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
            product<T>(h, ld, rows, weights, z, ld);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    Vector<T> v = load<T>(u + at + n, lanes) + load<T>(z + b * ld + n);
                    v = Tanh ? tanh<T>(v) : relu(v);
                    store<T>(h + b * ld + n, v, lanes);
                    store<T>(y + at + n, v, lanes);
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
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> out = load<T>(y + at + n, lanes);
                    Vector<T> v = load<T>(grad_y + at + n, lanes) + load<T>(z + b * ld + n);
                    v = Tanh ? v * (T(1) - out * out) : where_positive(out, v);
                    store<T>(g + b * ld + n, v, lanes);
                    store<T>(grad_u + at + n, v, lanes);
                });
            }
            product<T>(g, ld, rows, weights, z, ld);
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
                const T* before = t ? y + at - B * N : h0 + b * N;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> v = load<T>(U + n, lanes) * load<T>(before + n, lanes);
                    store<T>(y + at + n, relu(load<T>(u + at + n, lanes) + v), lanes);
                });
            }
    });
}

// g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1}); grad_b (may be null) is Σ g_t, product (may be null) is S ∘ h~.
template <class T>
void reverse_scan(const T* grad_y, const T* U, const T* h0, const T* y, T* g, T* grad_U, T* grad_b, T* grad_h0,
                  Index steps, Index B, Index N, Index threads) {
    Buffer<T> sum_U(B * N), sum_b(B * N);
    for_slabs(B, threads, [&, grad_y, U, h0, y, g, grad_h0](Index first, Index last) {
        for (Index t = steps - 1; t >= 0; --t)
            for (Index b = first; b < last; ++b) {
                const Index at = (t * B + b) * N;
                const T* before = t ? y + at - B * N : h0 + b * N;
                T *sU = sum_U.data() + b * N, *sb = sum_b.data() + b * N, *carried = grad_h0 + b * N;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    Vector<T> v = load<T>(grad_y + at + n, lanes);
                    if (t + 1 < steps) v += load<T>(carried + n, lanes);
                    v = where_positive(load<T>(y + at + n, lanes), v);
                    store<T>(g + at + n, v, lanes);
                    store<T>(carried + n, v * load<T>(U + n, lanes), lanes);
                    store<T>(sU + n, load<T>(sU + n, lanes) + v * load<T>(before + n, lanes), lanes);
                    store<T>(sb + n, load<T>(sb + n, lanes) + v, lanes);
                });
            }
    });
    sum_samples(sum_U.data(), grad_U, B, N);
    if (grad_b) sum_samples(sum_b.data(), grad_b, B, N);
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
            product<T>(h, ld, rows, from_long, z, ld);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                T* v = z + b * ld;
                const T start = v[0] + a[at];
                Vector<T> low = broadcast<T>(start), high = low;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> sum = load<T>(v + n) + load<T>(a + at + n, lanes);
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
                T minimum = low[0], maximum = high[0];
                for (int n = 1; n < width<T>; ++n) {
                    minimum = low[n] < minimum ? low[n] : minimum;
                    maximum = high[n] > maximum ? high[n] : maximum;
                }
                const T range = maximum - minimum, inverse = T(1) / (range < floor ? floor : range);
                scale[t * B + first + b] = inverse;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    Vector<T> mm = (load<T>(v + n) - minimum) * inverse;
                    mm = mm > T(1) ? broadcast<T>(1) : mm;  // v == maximum gives exactly 1 or less, as a division does
                    const Vector<T> selection = relu(mm - threshold);
                    store<T>(S + at + n, selection, lanes);
                    store<T>(i + b * ld + n, selection * load<T>(h_short + at + n, lanes), lanes);
                });
            }
            product<T>(i, ld, rows, from_selected, z, ld);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    Vector<T> v = load<T>(z + b * ld + n) + load<T>(U + n, lanes) * load<T>(h + b * ld + n);
                    v = relu(v + load<T>(b_long + n, lanes));
                    store<T>(h + b * ld + n, v, lanes);
                    store<T>(y + at + n, v, lanes);
                });
            }
        }
    });
}

// i = S ∘ h~, over all steps
template <class T>
void select_inputs(const T* h_short, const T* S, T* i, Index count, Index threads) {
    for_slabs(count, threads, [=](Index first, Index last) {
        for_vectors<T>(last - first, [&](Index n, auto lanes) {
            store<T>(i + first + n, load<T>(S + first + n, lanes) * load<T>(h_short + first + n, lanes), lanes);
        });
    });
}

// d = W_sᵀ g arrives in grad_h_short and leaves as S ∘ d; grad_a = scale ∘ e, grad_b_thre = −Σ e, e = [S > 0] ∘ h~ ∘ d
template <class T>
void select_pointwise(const T* h_short, const T* S, const T* scale, T* grad_h_short, T* grad_a, T* grad_b_thre,
                      Index steps, Index B, Index N, Index threads) {
    Buffer<T> sums(B * N), total(N);
    for_slabs(B, threads, [&, h_short, S, scale, grad_h_short, grad_a](Index first, Index last) {
        for (Index t = 0; t < steps; ++t)
            for (Index b = first; b < last; ++b) {
                const Index at = (t * B + b) * N;
                const T inverse = scale[t * B + b];
                T* sum = sums.data() + b * N;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> selection = load<T>(S + at + n, lanes), d = load<T>(grad_h_short + at + n, lanes);
                    const Vector<T> e = where_positive(selection, load<T>(h_short + at + n, lanes) * d);
                    store<T>(grad_h_short + at + n, selection * d, lanes);
                    store<T>(grad_a + at + n, e * inverse, lanes);
                    store<T>(sum + n, load<T>(sum + n, lanes) + e, lanes);
                });
            }
    });
    sum_samples(sums.data(), total.data(), B, N);
    T sum = 0;
    for (Index n = 0; n < N; ++n) sum -= total.data()[n];
    *grad_b_thre = sum;
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
            product<T>(h, ld, rows, weights, z, ldz);
            for (Index b = 0; b < rows; ++b) {
                const Index at = (t * B + first + b) * N;
                const T *in = u + 4 * at, *v = z + b * ldz;
                const T* before = t ? cells + at - B * N : c0 + (first + b) * N;
                T* out = gates + 4 * at;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const auto sum = [&](Index q) {
                        return load<T>(in + q * N + n, lanes) + load<T>(v + q * N + n, lanes);
                    };
                    const Vector<T> i = sigmoid<T>(sum(0)), f = sigmoid<T>(sum(1)), g = tanh<T>(sum(2)),
                                    o = sigmoid<T>(sum(3));
                    const Vector<T> c = f * load<T>(before + n, lanes) + i * g, out_h = o * tanh<T>(c);
                    store<T>(out + n, i, lanes);
                    store<T>(out + N + n, f, lanes);
                    store<T>(out + 2 * N + n, g, lanes);
                    store<T>(out + 3 * N + n, o, lanes);
                    store<T>(cells + at + n, c, lanes);
                    store<T>(h + b * ld + n, out_h, lanes);
                    store<T>(y + at + n, out_h, lanes);
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
                T *out = grad_u + 4 * at, *v = dz + b * ldg, *carried = grad_c0 + (first + b) * N;
                for_vectors<T>(N, [&](Index n, auto lanes) {
                    const Vector<T> i = load<T>(in + n, lanes), f = load<T>(in + N + n, lanes),
                                    g = load<T>(in + 2 * N + n, lanes), o = load<T>(in + 3 * N + n, lanes);
                    const Vector<T> tanh_c = tanh<T>(load<T>(cells + at + n, lanes));
                    const Vector<T> d_h = load<T>(grad_y + at + n, lanes) + load<T>(dh + b * ld + n);
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
            product<T>(dz, ldg, rows, weights, dh, ld);
        }
        for (Index b = 0; b < rows; ++b)
            std::memcpy(grad_h0 + (first + b) * N, dh + b * ld, std::size_t(N) * sizeof(T));
    });
}

template <class Call>
int guarded(Call call) {
    try {
        call();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

}  // namespace durnn

using durnn::guarded;
using durnn::Index;

#define DURNN_C extern "C" __attribute__((visibility("default")))

#define DURNN_EXPORT(T, suffix)                                                                                    \
    DURNN_C int rnn_forward_##suffix(const T* u, const T* W_rec, const T* h0, T* y, Index steps, Index B,       \
                                        Index N, Index tanh, Index threads) {                                     \
        return guarded([&] {                                                                                       \
            (tanh ? durnn::rnn_forward<T, true> : durnn::rnn_forward<T, false>)(u, W_rec, h0, y, steps, B, N,      \
                                                                                threads);                         \
        });                                                                                                        \
    }                                                                                                              \
    DURNN_C int rnn_backward_##suffix(const T* grad_y, const T* W_rec, const T* y, T* grad_u, T* grad_h0,       \
                                         Index steps, Index B, Index N, Index tanh, Index threads) {              \
        return guarded([&] {                                                                                       \
            (tanh ? durnn::rnn_backward<T, true> : durnn::rnn_backward<T, false>)(grad_y, W_rec, y, grad_u,        \
                                                                                  grad_h0, steps, B, N, threads); \
        });                                                                                                        \
    }                                                                                                              \
    DURNN_C int indrnn_forward_##suffix(const T* u, const T* U, const T* h0, T* y, Index steps, Index B,        \
                                           Index N, Index threads) {                                              \
        return guarded([&] { durnn::indrnn_forward<T>(u, U, h0, y, steps, B, N, threads); });                      \
    }                                                                                                              \
    DURNN_C int reverse_scan_##suffix(const T* grad_y, const T* U, const T* h0, const T* y, T* g, T* grad_U,    \
                                         T* grad_b, T* grad_h0, Index steps, Index B, Index N, Index threads) {   \
        return guarded(                                                                                            \
            [&] { durnn::reverse_scan<T>(grad_y, U, h0, y, g, grad_U, grad_b, grad_h0, steps, B, N, threads); }); \
    }                                                                                                              \
    DURNN_C int select_forward_##suffix(const T* h_short, const T* a, const T* W_ls, const T* W_s, const T* U,  \
                                           const T* b_thre, const T* b_long, const T* h0, T* y, T* S, T* scale,   \
                                           double floor, Index steps, Index B, Index N, Index threads) {          \
        return guarded([&] {                                                                                       \
            durnn::select_forward<T>(h_short, a, W_ls, W_s, U, b_thre, b_long, h0, y, S, scale, T(floor), steps,   \
                                     B, N, threads);                                                              \
        });                                                                                                        \
    }                                                                                                              \
    DURNN_C int select_inputs_##suffix(const T* h_short, const T* S, T* i, Index count, Index threads) {       \
        return guarded([&] { durnn::select_inputs<T>(h_short, S, i, count, threads); });                           \
    }                                                                                                              \
    DURNN_C int select_pointwise_##suffix(const T* h_short, const T* S, const T* scale, T* grad_h_short,        \
                                             T* grad_a, T* grad_b_thre, Index steps, Index B, Index N,            \
                                             Index threads) {                                                     \
        return guarded([&] {                                                                                       \
            durnn::select_pointwise<T>(h_short, S, scale, grad_h_short, grad_a, grad_b_thre, steps, B, N,          \
                                       threads);                                                                  \
        });                                                                                                        \
    }                                                                                                              \
    DURNN_C int lstm_forward_##suffix(const T* u, const T* W_rec, const T* h0, const T* c0, T* y, T* c_last,    \
                                         T* gates, T* cells, Index steps, Index B, Index N, Index threads) {      \
        return guarded([&] {                                                                                       \
            durnn::lstm_forward<T>(u, W_rec, h0, c0, y, c_last, gates, cells, steps, B, N, threads);               \
        });                                                                                                        \
    }                                                                                                              \
    DURNN_C int lstm_backward_##suffix(const T* grad_y, const T* grad_c, const T* W_rec, const T* c0,           \
                                          const T* gates, const T* cells, T* grad_u, T* grad_h0, T* grad_c0,      \
                                          Index steps, Index B, Index N, Index threads) {                         \
        return guarded([&] {                                                                                       \
            durnn::lstm_backward<T>(grad_y, grad_c, W_rec, c0, gates, cells, grad_u, grad_h0, grad_c0, steps, B,   \
                                    N, threads);                                                                  \
        });                                                                                                        \
    }

DURNN_EXPORT(float, f32)
DURNN_EXPORT(double, f64)

DURNN_C void use_team(void* parallel) {
    durnn::team = reinterpret_cast<durnn::Team>(parallel);
    durnn::team_process = long(getpid());
}
