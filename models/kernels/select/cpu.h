// The loops of reference.py, each thread owning a slab of the batch for the whole sequence.
// Arguments as declared in op.py; y_{-1} is h0.
#pragma once

#include <type_traits>

#include "exports.h"
#include "gradients.h"

namespace durnn {

// S_t = relu(mm(W_ss h~_t + W_ls y_{t-1} + b_s) − b_thre), y_t = relu(W_s (S_t ∘ h~_t) + U ∘ y_{t-1} + b_long)
template <class T>
void select_forward(const T* h_short, const T* W_ss, const T* b_s, const T* W_ls, const T* W_s, const T* U,
                    const T* b_thre, const T* b_long, const T* h0, T* y, T* y_last, T* S, T* scale, T floor,
                    Index steps, Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ld_both = padded<T>(2 * N), slabs = slab_count(B, threads);
    const Index most = most_rows(B, slabs);
    Packed<T> into_selection({{W_ss, N, 1, N}, {W_ls, N, 1, N}}, N, threads), into_long({{W_s, N, 1, N}}, N, threads);
    PerSlab<T> memories(slabs, most * ld_both), sums(slabs, most * ld), inputs(slabs, most * ld);
    for_slabs(B, threads, [&, h_short, b_s, U, b_long, h0, y, y_last, S, scale](Index slab, Index first, Index last) {
        T *both = memories.zeroed(slab), *z = sums.zeroed(slab), *i = inputs.zeroed(slab);
        const Index rows = last - first;
        const std::size_t bytes = std::size_t(N) * sizeof(T);
        const T threshold = *b_thre;
        begin_with(h0, first, rows, N, both + N, ld_both);
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
        copy_last(y, steps, B, N, first, last, y_last);
    });
}

// g_t = [y_t > 0] ∘ (grad_y_t + U ∘ g_{t+1}), d_t = W_sᵀ g_t, e_t = [S_t > 0] ∘ h~_t ∘ d_t, c_t = scale_t ∘ e_t
// -> grad_h_short = S ∘ d, [grad_W_ss grad_W_ls] = Σ c_t [h~_t y_{t-1}]ᵀ, grad_W_s = Σ g_t (S_t ∘ h~_t)ᵀ,
// grad_b_s = Σ c, grad_U = Σ g_t ∘ y_{t-1}, grad_b_thre = −Σ e, grad_b_long = Σ g. Nothing but g_t passes from step to
// step, and that elementwise, so a slab goes through pieces of several steps whose scratch stays in the cache; during
// the products of one the next is fetched.
template <class T>
void select_backward(const T* grad_y, const T* grad_last, const T* h_short, const T* W_s, const T* U, const T* h0,
                     const T* y, const T* S, const T* scale, T* grad_h_short, T* grad_W_ss, T* grad_b_s,
                     T* grad_W_ls, T* grad_W_s, T* grad_U, T* grad_b_thre, T* grad_b_long, T* grad_h0, Index steps,
                     Index B, Index N, Index threads) {
    const Index ld = padded<T>(N), ld_both = padded<T>(2 * N), slabs = slab_count(B, threads);
    const Index span = std::min(piece_steps(steps, B, slabs), Ahead::capacity / 3), most = most_rows(B, slabs);
    Packed<T> weights({{W_s, N, N, 1}}, N, threads);
    PerSlab<T> into_selection(slabs, N * ld_both), into_long(slabs, N * ld);
    PerSlab<T> scratch(slabs, span * most * (4 * ld + ld_both)), carried(slabs, most * N);  // U ∘ g_{t+1}
    const Incoming<T> incoming(grad_y, N);
    PerSlab<T> sums(slabs, 4 * most * N);  // of each sample, for U, b_long, b_thre and b_s
    for_slabs(B, threads, [&](Index slab, Index first, Index last) {
        const Index rows = last - first, size = span * rows * ld;
        T *g = scratch.zeroed(slab), *d = g + size, *i = d + size, *c = i + size;
        T* both = c + size;  // [h~_t y_{t-1}]
        T *grad_selection = into_selection.zeroed(slab), *grad_long = into_long.zeroed(slab);
        T* back = carried.zeroed(slab);
        begin_with(grad_last, first, rows, N, back, N);
        T *sum_U = sums.zeroed(slab), *sum_g = sum_U + most * N, *sum_e = sum_g + most * N, *sum_c = sum_e + most * N;
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
                    reverse_step<T>(incoming[t * B + sample], U, y + at, before, back + b * N, sum_U + b * N, sum_g + b * N,
                                    N, put);
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
                incoming.add_to(next, t * B + first, rows);
                if (t > 0) next.add(y + at - B * N, rows * N);
            }
            product<T>(g, ld, count, weights, d, ld, now);
            for (Index t = to - 1; t >= from; --t)
                for (Index b = 0; b < rows; ++b) {
                    const Index sample = first + b, at = (t * B + sample) * N, row = (t - from) * rows + b;
                    const T inverse = scale[t * B + sample];
                    const T *gate = S + at, *short_memory = h_short + at, *in = d + row * ld;
                    T *total_e = sum_e + b * N, *total_c = sum_c + b * N;
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
                        store<T>(total_e + n, load<T>(total_e + n, lanes) + e, lanes);
                        store<T>(total_c + n, load<T>(total_c + n, lanes) + scaled, lanes);
                    });
                }
            add_outer<T>(c, ld, N, both, ld_both, 2 * N, count, grad_selection, ld_both, next);
            Ahead nothing;
            add_outer<T>(g, ld, N, i, ld, N, count, grad_long, ld, nothing);
        }
        std::memcpy(grad_h0 + first * N, back, std::size_t(rows * N) * sizeof(T));
    });
    sum_slabs(into_selection, 0, ld_both, grad_W_ss, slabs, N, N);
    sum_slabs(into_selection, N, ld_both, grad_W_ls, slabs, N, N);
    sum_slabs(into_long, 0, ld, grad_W_s, slabs, N, N);
    Buffer<T> all_e(N);
    T* totals[] = {grad_U, grad_b_long, all_e.data(), grad_b_s};
    for (Index k = 0; k < 4; ++k) sum_samples(sums, k * most * N, N, totals[k], slabs, B, N);
    double total = 0;
    for (Index n = 0; n < N; ++n) total += double(all_e.data()[n]);
    *grad_b_thre = T(-total);
}

}  // namespace durnn

DURNN_EXPORT(select_forward)
DURNN_EXPORT(select_backward)
