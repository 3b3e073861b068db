// The loops of reference.py, in one thread: the statistics of a step are those of the whole batch.
// Arguments as declared in op.py; y_{-1} is h0. A step goes through its units by one vector of them after the other,
// since all that a unit's statistics need is in its column.
#pragma once

#include <cmath>

#include "lstm/cpu.h"

namespace durnn {

constexpr double norm_epsilon = 1e-5;  // torch's

// One vector of units, normalised over the batch: (x − mean) ∘ inverse.
template <class T>
struct Normalised {
    Vector<T> mean, inverse;
    Vector<T> operator()(Vector<T> x) const { return (x - mean) * inverse; }
};

template <class T, class L>
Normalised<T> kept_statistics(const T* mean, const T* var, L lanes) {
    Vector<T> inverse = load<T>(var, lanes) + T(norm_epsilon);
    for (int lane = 0; lane < width<T>; ++lane) inverse[lane] = T(1) / std::sqrt(inverse[lane]);
    return {load<T>(mean, lanes), inverse};
}

// Of B rows that lie ld apart. Mean and variance are written to where they are kept, or are `given` there.
template <class T, class L>
Normalised<T> normalise(const T* x, Index ld, Index B, bool given, T* mean, T* var, L lanes) {
    if (!given) {
        Vector<T> sum{}, squares{};
        for (Index b = 0; b < B; ++b) sum += load<T>(x + b * ld, lanes);
        const Vector<T> centre = sum / T(B);
        for (Index b = 0; b < B; ++b) {
            const Vector<T> off = load<T>(x + b * ld, lanes) - centre;
            squares += off * off;
        }
        store<T>(mean, centre, lanes);
        store<T>(var, squares / T(B), lanes);
    }
    return kept_statistics<T>(mean, var, lanes);
}

// What comes back through a norm: with x^ normalised and g the gradient of scale ∘ x^, that of x is
// scale ∘ inverse ∘ (g − share · (Σ g + x^ ∘ Σ g ∘ x^)), and that of scale is Σ g ∘ x^. A sample's share in the
// statistics is 1 / B, or 0 where they were given.
template <class T>
struct NormGradient {
    Vector<T> sum{}, product{};
    void add(Vector<T> g, Vector<T> normalised) {
        sum += g;
        product += g * normalised;
    }
    Vector<T> back(Vector<T> g, Vector<T> normalised, Vector<T> factor, T share) const {
        return factor * (g - (sum + normalised * product) * share);
    }
};
template <class T, class L>
void add_to(T* total, Vector<T> v, L lanes) {
    store<T>(total, load<T>(total, lanes) + v, lanes);
}

template <class T>
void normed_lstm_forward(const T* u, const T* W_rec, const T* b, const T* scales, const T* shift, const T* h0,
                         const T* c0, const Byte* noise, const T* rates, const T* given, T* y, T* y_last, T* c_last,
                         T* statistics, T* gates, T* recurrent, T* cells, Index steps, Index B, Index N, Index) {
    const FlushSubnormals flush;
    const Noise<T> noisy(noise, rates);
    const Index ld = padded<T>(N), ldz = padded<T>(4 * N), W = width<T>;
    Packed<T> weights({{W_rec, N, 1, N}}, 4 * N);
    Buffer<T> state(B * ld), sums(B * ldz), fresh_cells(B * W);
    T *h = state.data(), *z = sums.data(), *fresh = fresh_cells.data();  // y_{t-1}, W_rec y_{t-1}, c~_t of one vector
    if (given) std::memcpy(statistics, given, std::size_t(18 * steps * N) * sizeof(T));
    begin_with(h0, 0, B, N, h, ld);
    for (Index t = 0; t < steps; ++t) {
        T *mean = statistics + 18 * t * N, *var = mean + 9 * N;
        const T *u_t = u + 4 * t * B * N, *before = t ? cells + (t - 1) * B * N : c0;
        Ahead ahead;
        ahead.add(u_t, 4 * B * N);
        product<T>(h, ld, B, weights, z, ldz, ahead);
        for_vectors<T>(N, [&](Index n, auto lanes) {
            Normalised<T> from_x[4], from_h[4];
            Vector<T> scale_x[4], scale_h[4], bias[4];
            for (Index q = 0; q < 4; ++q) {
                const Index k = q * N + n, j = 4 * N + k;
                from_x[q] = normalise<T>(u_t + k, 4 * N, B, given, mean + k, var + k, lanes);
                from_h[q] = normalise<T>(z + k, ldz, B, given, mean + j, var + j, lanes);
                scale_x[q] = load<T>(scales + k, lanes), scale_h[q] = load<T>(scales + j, lanes);
                bias[q] = load<T>(b + k, lanes);
            }
            for (Index s = 0; s < B; ++s) {
                const Index at = (t * B + s) * N + n;
                Vector<T> a[4];
                for (Index q = 0; q < 4; ++q) {
                    const Vector<T> normed = from_h[q](load<T>(z + s * ldz + q * N + n, lanes));
                    store<T>(recurrent + 4 * (t * B + s) * N + q * N + n, normed, lanes);
                    a[q] = scale_x[q] * from_x[q](load<T>(u_t + 4 * s * N + q * N + n, lanes)) + scale_h[q] * normed +
                           bias[q];
                }
                const Vector<T> i = sigmoid<T>(a[0]), f = sigmoid<T>(a[1]), g = tanh<T>(a[2]), o = sigmoid<T>(a[3]);
                T* out = gates + 4 * (t * B + s) * N + n;
                store<T>(out, i, lanes);
                store<T>(out + N, f, lanes);
                store<T>(out + 2 * N, g, lanes);
                store<T>(out + 3 * N, o, lanes);
                store<T>(fresh + s * W, f * load<T>(before + s * N + n, lanes) + noisy.load(at, lanes).m * (i * g));
            }
            const Index k = 8 * N + n;
            const auto of_cell = normalise<T>(fresh, W, B, given, mean + k, var + k, lanes);
            const Vector<T> scale = load<T>(scales + k, lanes), offset = load<T>(shift + n, lanes);
            for (Index s = 0; s < B; ++s) {
                const Index at = (t * B + s) * N + n;
                const auto [d_c, d_h, m] = noisy.load(at, lanes);
                const Vector<T> new_c = load<T>(fresh + s * W), o = load<T>(gates + 4 * (t * B + s) * N + 3 * N + n, lanes);
                const Vector<T> new_h = o * tanh<T>(scale * of_cell(new_c) + offset);
                const Vector<T> out = d_h * load<T>(h + s * ld + n, lanes) + (T(1) - d_h) * new_h;
                store<T>(cells + at, d_c * load<T>(before + s * N + n, lanes) + (T(1) - d_c) * new_c, lanes);
                store<T>(h + s * ld + n, out, lanes);
                store<T>(y + at, out, lanes);
            }
        });
    }
    copy_last(y, steps, B, N, 0, B, y_last);
    copy_last(cells, steps, B, N, 0, B, c_last);
}

// A vector of units is gone through three times: for the gradient of N_c's output, for those of the gates, for what N_x
// and N_h pass on.
template <class T>
void normed_lstm_backward(const T* grad_y, const T* grad_last, const T* grad_c, const T* u, const T* W_rec,
                          const T* scales, const T* shift, const T* h0, const T* c0, const T* y, const T* statistics,
                          const T* gates, const T* recurrent, const T* cells, const Byte* noise, const T* rates,
                          const T* given, T* grad_u, T* grad_W_rec, T* grad_b, T* grad_scales, T* grad_shift,
                          T* grad_h0, T* grad_c0, Index steps, Index B, Index N, Index) {
    const FlushSubnormals flush;
    const Noise<T> noisy(noise, rates);
    const Incoming<T> incoming(grad_y, N);
    const T share = given ? T(0) : T(1) / T(B);
    const Index ld = padded<T>(N), ldg = padded<T>(4 * N), W = width<T>, span = piece_steps(steps, B, 1);
    Packed<T> weights({{W_rec, 4 * N, N, 1}}, N);
    Buffer<T> state(span * B * ldg), befores(span * B * ld), weight_gradient(4 * N * ld);
    Buffer<T> sums(B * ld), past(B * ld), cell_gradient(B * N), vectors(6 * B * W);
    T *dh = sums.data(), *kept = past.data(), *dc = cell_gradient.data();
    T *dn = vectors.data(), *normed_c = dn + B * W, *d_gates = dn + 2 * B * W;  // of one vector of units
    std::memset(grad_b, 0, std::size_t(4 * N) * sizeof(T));
    std::memset(grad_scales, 0, std::size_t(9 * N) * sizeof(T));
    std::memset(grad_shift, 0, std::size_t(N) * sizeof(T));
    begin_with(grad_last, 0, B, N, dh, ld);
    begin_with(grad_c, 0, B, N, dc, N);
    for (Index t = steps - 1; t >= 0; --t) {
        const Index from = t / span * span;  // of the piece
        T *dv = state.data() + (t - from) * B * ldg, *before_t = befores.data() + (t - from) * B * ld;
        const T *mean = statistics + 18 * t * N, *var = mean + 9 * N;
        const T* c_before = t ? cells + (t - 1) * B * N : c0;
        begin_with(t ? y + (t - 1) * B * N : h0, 0, B, N, before_t, ld);
        for_vectors<T>(N, [&](Index n, auto lanes) {
            const auto gate = [&](Index s, Index q) { return load<T>(gates + 4 * (t * B + s) * N + q * N + n, lanes); };
            const Index c_at = 8 * N + n;
            const auto of_cell = kept_statistics<T>(mean + c_at, var + c_at, lanes);
            const Vector<T> scale = load<T>(scales + c_at, lanes), offset = load<T>(shift + n, lanes);
            NormGradient<T> through_c;
            for (Index s = 0; s < B; ++s) {
                const Index row = t * B + s;
                const auto [d_c, d_h, m] = noisy.load(row * N + n, lanes);
                const Vector<T> new_c = gate(s, 1) * load<T>(c_before + s * N + n, lanes) + m * (gate(s, 0) * gate(s, 2));
                const Vector<T> normed = of_cell(new_c), tanh_n = tanh<T>(scale * normed + offset), o = gate(s, 3);
                const Vector<T> all = load<T>(incoming[row] + n, lanes) + load<T>(dh + s * ld + n, lanes) +
                                      load<T>(kept + s * ld + n, lanes);
                store<T>(kept + s * ld + n, d_h * all, lanes);
                const Vector<T> grad = all - d_h * all, g = grad * o * (T(1) - tanh_n * tanh_n);
                store<T>(dn + s * W, g);
                store<T>(normed_c + s * W, normed);
                store<T>(d_gates + (4 * s + 3) * W, grad * tanh_n * o * (T(1) - o));
                through_c.add(g, normed);
            }
            add_to<T>(grad_shift + n, through_c.sum, lanes);
            add_to<T>(grad_scales + c_at, through_c.product, lanes);
            NormGradient<T> through_x[4], through_h[4];
            Normalised<T> from_x[4], from_h[4];
            Vector<T> factor_x[4], factor_h[4];
            for (Index q = 0; q < 4; ++q) {
                const Index k = q * N + n, j = 4 * N + k;
                from_x[q] = kept_statistics<T>(mean + k, var + k, lanes);
                factor_x[q] = load<T>(scales + k, lanes) * from_x[q].inverse;
                factor_h[q] = load<T>(scales + j, lanes) * kept_statistics<T>(mean + j, var + j, lanes).inverse;
            }
            const auto normed_x = [&](Index s, Index q) {
                return from_x[q](load<T>(u + 4 * (t * B + s) * N + q * N + n, lanes));
            };
            const auto normed_h = [&](Index s, Index q) {
                return load<T>(recurrent + 4 * (t * B + s) * N + q * N + n, lanes);
            };
            for (Index s = 0; s < B; ++s) {
                const auto [d_c, d_h, m] = noisy.load((t * B + s) * N + n, lanes);
                const Vector<T> i = gate(s, 0), f = gate(s, 1), g = gate(s, 2);
                const Vector<T> later = load<T>(dc + s * N + n, lanes), before = load<T>(c_before + s * N + n, lanes);
                const Vector<T> d_new = later - d_c * later +
                                        through_c.back(load<T>(dn + s * W), load<T>(normed_c + s * W),
                                                       scale * of_cell.inverse, share);
                store<T>(dc + s * N + n, d_new * f + d_c * later, lanes);
                T* d = d_gates + 4 * s * W;
                store<T>(d, d_new * m * g * i * (T(1) - i));
                store<T>(d + W, d_new * before * f * (T(1) - f));
                store<T>(d + 2 * W, d_new * m * i * (T(1) - g * g));
                for (Index q = 0; q < 4; ++q) {
                    through_x[q].add(load<T>(d + q * W), normed_x(s, q));
                    through_h[q].add(load<T>(d + q * W), normed_h(s, q));
                }
            }
            for (Index q = 0; q < 4; ++q) {
                const Index k = q * N + n;
                add_to<T>(grad_b + k, through_x[q].sum, lanes);
                add_to<T>(grad_scales + k, through_x[q].product, lanes);
                add_to<T>(grad_scales + 4 * N + k, through_h[q].product, lanes);
                for (Index s = 0; s < B; ++s) {
                    const Vector<T> d = load<T>(d_gates + (4 * s + q) * W);
                    store<T>(grad_u + 4 * (t * B + s) * N + k,
                             through_x[q].back(d, normed_x(s, q), factor_x[q], share), lanes);
                    store<T>(dv + s * ldg + k, through_h[q].back(d, normed_h(s, q), factor_h[q], share), lanes);
                }
            }
        });
        Ahead ahead;
        if (t > 0) {
            const Index next = (t - 1) * B * N;
            ahead.add(gates + 4 * next, 4 * B * N);
            ahead.add(u + 4 * next, 4 * B * N);
            ahead.add(recurrent + 4 * next, 4 * B * N);
        }
        product<T>(dv, ldg, B, weights, dh, ld, ahead);
        if (t == from) {
            Ahead nothing;
            add_outer<T>(state.data(), ldg, 4 * N, befores.data(), ld, N, (std::min(from + span, steps) - from) * B,
                         weight_gradient.data(), ld, nothing);
        }
    }
    std::memcpy(grad_c0, dc, std::size_t(B * N) * sizeof(T));
    for (Index s = 0; s < B; ++s)
        for (Index n = 0; n < N; ++n) grad_h0[s * N + n] = dh[s * ld + n] + kept[s * ld + n];
    for (Index k = 0; k < 4 * N; ++k)
        std::memcpy(grad_W_rec + k * N, weight_gradient.data() + k * ld, std::size_t(N) * sizeof(T));
}

}  // namespace durnn

DURNN_EXPORT(normed_lstm_forward)
DURNN_EXPORT(normed_lstm_backward)
