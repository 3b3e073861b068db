// The loops of reference.py, each thread owning a slab of the batch for the whole sequence.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include "exports.h"
#include "projected.h"

namespace durnn {

// The factors of one step, for `width<T>` units: c_t = d_c ∘ c_{t-1} + (1 − d_c) ∘ c~_t, the same with d_h for y, and
// m before the update of c~. Drawn, they are bits of `noise`, 1 for d_c = 1, 2 for d_h = 1, 4 for m = 0; else `rates` are
// what the bits are on average.
template <class T>
class Noise {
  public:
    Noise(const Byte* noise, const T* rates) : noise_(noise) {
        for (int k = 0; k < 3; ++k) {
            off_[k] = noise || !rates ? T(0) : rates[k];
            on_[k] = noise ? T(1) : off_[k];
        }
        off_[2] = T(1) - off_[2], on_[2] = T(1) - on_[2];
    }
    struct Factors {
        Vector<T> d_c, d_h, m;
    };
    template <class L>
    Factors load(Index at, L lanes) const {
        using I = typename Lanes<T>::I;
        const I bits = noise_ ? load_bytes<T>(noise_ + at, lanes) : I{};
        return {pick(bits & 1, 0), pick(bits & 2, 1), pick(bits & 4, 2)};
    }
    void add_to(Ahead& ahead, Index at, Index count) const {
        if (noise_) ahead.add(noise_ + at, count);
    }

  private:
    Vector<T> pick(typename Lanes<T>::I bit, int k) const {
        return bit != 0 ? broadcast<T>(on_[k]) : broadcast<T>(off_[k]);
    }
    const Byte* noise_;
    T off_[3], on_[3];
};
struct NoNoise {};

// [i f g o] = u_t + W_rec y_{t-1}, c~_t = σ(f) ∘ c_{t-1} + m ∘ σ(i) ∘ tanh(g), y~_t = σ(o) ∘ tanh(c~_t)
template <class T, class Input, class Noisy>
void lstm_forward_loop(const Input input, const T* W_rec, const T* h0, const T* c0, const Noisy noise, T* y, T* y_last,
                       T* c_last, T* gates, T* cells, Index steps, Index B, Index N, Index threads) {
    constexpr bool noisy = std::is_same_v<Noisy, Noise<T>>;
    const Index ld = padded<T>(N + input.columns()), ldz = padded<T>(4 * N), slabs = slab_count(B, threads);
    std::vector<Matrix<T>> factors{{W_rec, N, 1, N}};
    input.append_to(factors);
    Packed<T> weights(factors, 4 * N, threads);
    PerSlab<T> state(slabs, most_rows(B, slabs) * ld), sums(slabs, most_rows(B, slabs) * ldz);
    for_slabs(B, threads, [&, input, h0, c0, y, y_last, c_last, gates, cells](Index slab, Index first, Index last) {
        T *h = state.zeroed(slab), *z = sums.zeroed(slab);
        const Index rows = last - first;
        begin_with(h0, first, rows, N, h, ld);
        for (Index t = 0; t < steps; ++t) {
            Ahead ahead;
            input.add_to(ahead, t * B + first, rows);
            ahead.add(gates + 4 * (t * B + first) * N, 4 * rows * N);
            ahead.add(cells + (t * B + first) * N, rows * N);
            ahead.add(y + (t * B + first) * N, rows * N);
            if constexpr (noisy) noise.add_to(ahead, (t * B + first) * N, rows * N);
            for (Index b = 0; b < rows; ++b) input.put(t * B + first + b, h + b * ld + N);
            product<T>(h, ld, rows, weights, z, ldz, ahead);
            for (Index b = 0; b < rows; ++b) {
                const Index row = t * B + first + b, at = row * N;
                const T* v = z + b * ldz;
                const T* before = t ? cells + at - B * N : c0 + (first + b) * N;
                T *out = gates + 4 * at, *cell = cells + at, *state = h + b * ld, *output = y + at;
                for_vectors<T>(N, [=](Index n, auto lanes) {
                    const auto sum = [=](Index q) {
                        return input.plus(row, q * N + n, load<T>(v + q * N + n, lanes), lanes);
                    };
                    const Vector<T> i = sigmoid<T>(sum(0)), f = sigmoid<T>(sum(1)), g = tanh<T>(sum(2)),
                                    o = sigmoid<T>(sum(3));
                    const Vector<T> c_before = load<T>(before + n, lanes);
                    Vector<T> c, out_h;
                    if constexpr (noisy) {
                        const auto [d_c, d_h, m] = noise.load(at + n, lanes);
                        const Vector<T> new_c = f * c_before + m * (i * g), new_h = o * tanh<T>(new_c);
                        c = d_c * c_before + (T(1) - d_c) * new_c;
                        out_h = d_h * load<T>(state + n, lanes) + (T(1) - d_h) * new_h;
                    } else {
                        c = f * c_before + i * g;
                        out_h = o * tanh<T>(c);
                    }
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
        copy_last(y, steps, B, N, first, last, y_last);
        copy_last(cells, steps, B, N, first, last, c_last);
    });
}

// A slab goes through pieces of several steps, of which grad_W_rec is added up.
template <class T, class Gradient, class Noisy>
void lstm_backward_loop(const T* grad_y, const T* grad_last, const T* grad_c, const T* W_rec, const T* h0, const T* c0,
                        const T* y, const T* gates, const T* cells, const Noisy noise, Gradient& gradient,
                        T* grad_W_rec, T* grad_h0, T* grad_c0, Index steps, Index B, Index N, Index threads) {
    constexpr bool noisy = std::is_same_v<Noisy, Noise<T>>;
    const Index ld = padded<T>(N), ldg = padded<T>(4 * N), slabs = slab_count(B, threads);
    const Index span = piece_steps(steps, B, slabs), most = most_rows(B, slabs);
    Packed<T> weights({{W_rec, 4 * N, N, 1}}, N, threads);
    PerSlab<T> state(slabs, span * most * ldg), befores(slabs, span * most * ld), weight_gradients(slabs, 4 * N * ld);
    const Incoming<T> incoming(grad_y, N);
    PerSlab<T> sums(slabs, most * ld), past(slabs, noisy ? most * ld : 0), cell_gradients(slabs, most * N);
    for_slabs(B, threads, [&, grad_last, grad_c, h0, c0, y, gates, cells, grad_h0, grad_c0](Index slab, Index first,
                                                                                           Index last) {
        T *piece = state.zeroed(slab), *before_piece = befores.zeroed(slab), *grad_W = weight_gradients.zeroed(slab);
        T *dh = sums.zeroed(slab), *dc = cell_gradients.zeroed(slab);
        T* kept = past.zeroed(slab);  // ∂/∂y_t by y_{t+1} = d_h ∘ y_t + …
        const Index rows = last - first;
        const std::size_t bytes = std::size_t(rows * N) * sizeof(T);
        gradient.begin(slab);
        begin_with(grad_last, first, rows, N, dh, ld);
        begin_with(grad_c, first, rows, N, dc, N);
        for (Index t = steps - 1; t >= 0; --t) {
            const Index from = t / span * span;  // of the piece
            T *dz = piece + (t - from) * rows * ldg, *before_t = before_piece + (t - from) * rows * ld;
            for (Index b = 0; b < rows; ++b) {
                const Index row = t * B + first + b, at = row * N;
                const T* y_before = t ? y + at - B * N : h0 + (first + b) * N;
                std::memcpy(before_t + b * ld, y_before, std::size_t(N) * sizeof(T));
                const T *in = gates + 4 * at, *before = t ? cells + at - B * N : c0 + (first + b) * N;
                const T *cell = cells + at, *grad = incoming[row], *sum = dh + b * ld;
                T *v = dz + b * ldg, *carried = dc + b * N;
                T* kept_h = kept + b * ld;
                for_vectors<T>(N, [=, &gradient](Index n, auto lanes) {
                    const Vector<T> i = load<T>(in + n, lanes), f = load<T>(in + N + n, lanes),
                                    g = load<T>(in + 2 * N + n, lanes), o = load<T>(in + 3 * N + n, lanes);
                    const Vector<T> c_before = load<T>(before + n, lanes);
                    // Gradients of y~_t and c~_t, and what else reaches c_{t-1}; the update's factor m goes into g and i.
                    Vector<T> c = load<T>(cell + n, lanes), m_g = g, m_i = i, past_c{};
                    Vector<T> d_h = load<T>(grad + n, lanes) + load<T>(sum + n), d_c = load<T>(carried + n, lanes);
                    if constexpr (noisy) {
                        const auto factors = noise.load(at + n, lanes);
                        m_g = factors.m * g, m_i = factors.m * i;
                        c = f * c_before + m_i * g;
                        d_h += load<T>(kept_h + n);
                        store<T>(kept_h + n, factors.d_h * d_h);
                        d_h -= factors.d_h * d_h;
                        past_c = factors.d_c * d_c;
                        d_c -= past_c;
                    }
                    const Vector<T> tanh_c = tanh<T>(c);
                    d_c += d_h * o * (T(1) - tanh_c * tanh_c);
                    const Vector<T> parts[4] = {d_c * m_g * i * (T(1) - i), d_c * c_before * f * (T(1) - f),
                                                d_c * m_i * (T(1) - g * g), d_h * tanh_c * o * (T(1) - o)};
                    for (Index q = 0; q < 4; ++q) {
                        store<T>(v + q * N + n, parts[q], lanes);
                        gradient.put(row, q * N + n, parts[q], lanes);
                    }
                    store<T>(carried + n, noisy ? d_c * f + past_c : d_c * f, lanes);
                });
            }
            Ahead ahead;
            if (t > 0) {
                const Index next = ((t - 1) * B + first) * N;
                ahead.add(gates + 4 * next, 4 * rows * N);
                gradient.add_to(ahead, (t - 1) * B + first, rows);
                ahead.add(t > 1 ? y + next - B * N : h0 + first * N, rows * N);
                incoming.add_to(ahead, (t - 1) * B + first, rows);
                ahead.add(t > 1 ? cells + next - B * N : c0 + first * N, rows * N);
                if constexpr (noisy) noise.add_to(ahead, next, rows * N);
            }
            product<T>(dz, ldg, rows, weights, dh, ld, ahead);
            if (t == from) {
                const Index to = std::min(from + span, steps);
                Ahead nothing;
                add_outer<T>(piece, ldg, 4 * N, before_piece, ld, N, (to - from) * rows,
                             grad_W, ld, nothing);
                gradient.add_piece(slab, piece, ldg, from, to, first, rows);
            }
        }
        std::memcpy(grad_c0 + first * N, dc, bytes);
        for (Index b = 0; b < rows; ++b)
            for (Index n = 0; n < N; ++n)
                grad_h0[(first + b) * N + n] = noisy ? dh[b * ld + n] + kept[b * ld + n] : dh[b * ld + n];
    });
    sum_slabs(weight_gradients, 0, ld, grad_W_rec, slabs, 4 * N, N);
}

// Calls loop(noise) with or without noise.
template <class T, class Loop>
void with_noise(const Byte* noise, const T* rates, Loop loop) {
    if (noise || rates)
        loop(Noise<T>(noise, rates));
    else
        loop(NoNoise());
}

// The loops as declared, with the input as a sequence or projected.
template <class T>
void lstm_forward(const T* u, const T* W_rec, const T* h0, const T* c0, const Byte* noise, const T* rates, T* y,
                  T* y_last, T* c_last, T* gates, T* cells, Index steps, Index B, Index N, Index threads) {
    with_noise<T>(noise, rates, [=](auto noise) {
        lstm_forward_loop<T>(Sequence<T>{u, 4 * N}, W_rec, h0, c0, noise, y, y_last, c_last, gates, cells, steps, B,
                             N, threads);
    });
}
template <class T>
void lstm_backward(const T* grad_y, const T* grad_last, const T* grad_c, const T* W_rec, const T* h0, const T* c0,
                   const T* y, const T* gates, const T* cells, const Byte* noise, const T* rates, T* grad_u,
                   T* grad_W_rec, T* grad_h0, T* grad_c0, Index steps, Index B, Index N, Index threads) {
    SequenceGradient<T> gradient{grad_u, 4 * N};
    with_noise<T>(noise, rates, [=, &gradient](auto noise) {
        lstm_backward_loop<T>(grad_y, grad_last, grad_c, W_rec, h0, c0, y, gates, cells, noise, gradient, grad_W_rec,
                              grad_h0, grad_c0, steps, B, N, threads);
    });
}
template <class T>
void projected_lstm_forward(const T* x, const T* W_in, const T* b, const T* W_rec, const T* h0, const T* c0,
                         const Byte* noise, const T* rates, T* y, T* y_last, T* c_last, T* gates, T* cells, Index steps,
                         Index B, Index N, Index threads, Index I) {
    with_noise<T>(noise, rates, [=](auto noise) {
        lstm_forward_loop<T>(Projected<T>{x, W_in, b, I}, W_rec, h0, c0, noise, y, y_last, c_last, gates, cells, steps, B,
                             N, threads);
    });
}
template <class T>
void projected_lstm_backward(const T* grad_y, const T* grad_last, const T* grad_c, const T* x, const T* W_in,
                          const T* W_rec, const T* h0, const T* c0, const T* y, const T* gates, const T* cells,
                          const Byte* noise, const T* rates, T* grad_x, T* grad_W_in, T* grad_b, T* grad_W_rec,
                          T* grad_h0, T* grad_c0, Index steps, Index B, Index N, Index threads, Index I) {
    const Index slabs = slab_count(B, threads), most = piece_steps(steps, B, slabs) * most_rows(B, slabs);
    ProjectionGradient<T> gradient(x, W_in, grad_x, slabs, B, 4 * N, I, most);
    with_noise<T>(noise, rates, [=, &gradient](auto noise) {
        lstm_backward_loop<T>(grad_y, grad_last, grad_c, W_rec, h0, c0, y, gates, cells, noise, gradient, grad_W_rec,
                              grad_h0, grad_c0, steps, B, N, threads);
    });
    gradient.finish(grad_W_in, grad_b);
}

}  // namespace durnn

DURNN_EXPORT(lstm_forward)
DURNN_EXPORT(lstm_backward)
DURNN_EXPORT(projected_lstm_forward)
DURNN_EXPORT(projected_lstm_backward)
