// What the recurrences share: vectors of the machine's width, exp-based functions on them, a register-blocked
// product with packed weights, and threads that live for one call. Needs GCC or Clang (vector extensions).
#pragma once

#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace durnn {

using Index = std::int64_t;

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, max_rows = 12;  // 12 x 2 of 32 registers accumulate
#elif defined(__AVX__)
constexpr int vector_bytes = 32, max_rows = 6;  // 6 x 2 of 16 registers
#elif defined(__aarch64__)
constexpr int vector_bytes = 16, max_rows = 12;
#else
constexpr int vector_bytes = 16, max_rows = 6;
#endif

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
    typedef float V __attribute__((vector_size(vector_bytes)));
    typedef std::int32_t I __attribute__((vector_size(vector_bytes)));
    using Bits = std::int32_t;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;  // high part exact times any exponent
    static constexpr float exp_limit = 87.0f, saturated = 12.0f;
    static constexpr int terms = 7;
};
template <>
struct Lanes<double> {
    typedef double V __attribute__((vector_size(vector_bytes)));
    typedef std::int64_t I __attribute__((vector_size(vector_bytes)));
    using Bits = std::int64_t;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double exp_limit = 700.0, saturated = 24.0;
    static constexpr int terms = 13;
};
template <class T>
using Vector = typename Lanes<T>::V;
template <class T>
constexpr int width = vector_bytes / int(sizeof(T));
template <class T>
constexpr int panel = 2 * width<T>;  // columns of one packed panel

template <class T>
inline Vector<T> broadcast(T value) {
    return value - Vector<T>{};  // x − 0 is x for every x, so this is a bare broadcast
}
template <class T>
inline Vector<T> load(const T* from) {
    Vector<T> v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <class T>
inline void store(T* to, Vector<T> v) {
    std::memcpy(to, &v, sizeof v);
}
// The first `count` lanes; the others are `fill`.
template <class T>
inline Vector<T> load_part(const T* from, Index count, T fill = T(0)) {
    Vector<T> v = broadcast<T>(fill);
    std::memcpy(&v, from, std::size_t(count) * sizeof(T));
    return v;
}
template <class T>
inline void store_part(T* to, Vector<T> v, Index count) {
    std::memcpy(to, &v, std::size_t(count) * sizeof(T));
}
// Calls body(n, lanes) over [0, N); `lanes` is a compile-time full width for all but the last, shorter vector.
struct Full {};
template <class T, class Body>
inline void for_vectors(Index N, Body body) {
    Index n = 0;
    for (; n + width<T> <= N; n += width<T>) body(n, Full{});
    if (n < N) body(n, N - n);
}
template <class T>
inline Vector<T> load(const T* from, Full) {
    return load<T>(from);
}
template <class T>
inline Vector<T> load(const T* from, Index count) {
    return load_part<T>(from, count);
}
template <class T>
inline void store(T* to, Vector<T> v, Full) {
    store<T>(to, v);
}
template <class T>
inline void store(T* to, Vector<T> v, Index count) {
    store_part<T>(to, v, count);
}

// Comparisons are written so that NaN survives: a diverged run must look diverged.
template <class V>
inline V relu(V v) {
    return v < V{} ? V{} : v;
}
template <class V>
inline V where_positive(V y, V g) {
    return y <= V{} ? V{} : g;
}

constexpr double factorial(int k) { return k < 2 ? 1.0 : k * factorial(k - 1); }

// e^x = 2^n e^r, |r| <= ln2/2; returns e^r − 1 by its series and 2^n, so that small x keep their relative accuracy.
template <class T>
inline void exp_parts(Vector<T> x, Vector<T>& expm1_r, Vector<T>& power) {
    using L = Lanes<T>;
    const Vector<T> limit = broadcast<T>(L::exp_limit);
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    // Adding 1.5 * 2^mantissa rounds to the nearest integer, which then sits in the low bits.
    const Vector<T> magic = broadcast<T>(T(1.5) * T(std::int64_t(1) << L::mantissa));
    const Vector<T> shifted = x * T(1.4426950408889634074) + magic;
    const Vector<T> n = shifted - magic;
    const Vector<T> r = (x - n * L::ln2_high) - n * L::ln2_low;
    Vector<T> p = broadcast<T>(T(1 / factorial(L::terms)));
#pragma GCC unroll 16
    for (int k = L::terms - 1; k >= 2; --k) p = p * r + T(1 / factorial(k));
    expm1_r = r + r * r * p;
    typename L::I bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + typename L::Bits(L::bias)) << L::mantissa;
    std::memcpy(&power, &bits, sizeof power);
}
template <class T>
inline Vector<T> sigmoid(Vector<T> x) {
    Vector<T> m, power;
    exp_parts<T>(-x, m, power);
    return T(1) / (T(1) + power + power * m);
}
template <class T>
inline Vector<T> tanh(Vector<T> x) {
    const Vector<T> limit = broadcast<T>(Lanes<T>::saturated);
    x = x > limit ? limit : x;
    x = x < -limit ? -limit : x;
    Vector<T> m, power;
    exp_parts<T>(x + x, m, power);
    const Vector<T> e = power * m + (power - T(1));  // e^2x − 1
    return e / (e + T(2));
}

// Smallest and largest lane, by halves.
template <class T, int Bytes>
inline void extremes(const T* low, const T* high, T& minimum, T& maximum) {
    if constexpr (Bytes > 16) {
        typedef T Half __attribute__((vector_size(Bytes / 2)));
        Half a, b, c, d;
        std::memcpy(&a, low, sizeof a);
        std::memcpy(&b, low + Bytes / 2 / sizeof(T), sizeof b);
        std::memcpy(&c, high, sizeof c);
        std::memcpy(&d, high + Bytes / 2 / sizeof(T), sizeof d);
        a = b < a ? b : a;
        c = d > c ? d : c;
        extremes<T, Bytes / 2>(reinterpret_cast<const T*>(&a), reinterpret_cast<const T*>(&c), minimum, maximum);
    } else {
        minimum = low[0], maximum = high[0];
        for (std::size_t n = 1; n < Bytes / sizeof(T); ++n) {
            minimum = low[n] < minimum ? low[n] : minimum;
            maximum = high[n] > maximum ? high[n] : maximum;
        }
    }
}

// Memory that a step will touch after its product. The product asks for it line by line between its multiplications,
// so that it arrives behind the arithmetic; asked for at once, it would fill the queue and stall.
class Ahead {
  public:
    static constexpr Index line = 64, capacity = 96;  // of streams
    template <class T>
    void add(const T* from, Index count) {
        begin_[streams_] = reinterpret_cast<const char*>(from);
        lines_[streams_++] = (count * Index(sizeof(T)) + line - 1) / line;
        left_ += lines_[streams_ - 1];
    }
    // What the next of `calls` calls should ask for.
    void take(Index calls, const char*& begin, const char*& end) {
        begin = end = nullptr;
        if (left_ == 0) return;
        Index share = (left_ + calls - 1) / calls;
        if (share > lines_[now_]) share = lines_[now_];
        begin = begin_[now_];
        end = begin_[now_] += share * line;
        left_ -= share;
        if ((lines_[now_] -= share) == 0) ++now_;
    }

  private:
    const char* begin_[capacity];
    Index lines_[capacity], streams_ = 0, now_ = 0, left_ = 0;
};

// Cache-line aligned scratch; throws std::bad_alloc.
template <class T>
class Buffer {
  public:
    explicit Buffer(Index count) : raw_(std::size_t(count) * sizeof(T) + 64) {
        auto address = reinterpret_cast<std::uintptr_t>(raw_.data());
        data_ = reinterpret_cast<T*>((address + 63) & ~std::uintptr_t(63));
    }
    T* data() { return data_; }

  private:
    std::vector<unsigned char> raw_;  // zero-initialised
    T* data_;
};

// Row length of scratch matrices: whole panels, plus one vector so that rows do not collide in one cache set.
template <class T>
inline Index padded(Index columns) {
    return (columns + panel<T> - 1) / panel<T> * panel<T> + width<T>;
}

// Weights as panels of `panel<T>` columns, k-major inside a panel, missing columns zero. The right-hand factor is one
// matrix or several below each other; element (k, n) of each is W[k * row + n * column].
template <class T>
class Packed {
  public:
    Packed(std::initializer_list<const T*> matrices, Index rows, Index columns, Index row, Index column)
        : K(rows * Index(matrices.size())),
          panels((columns + panel<T> - 1) / panel<T>),
          buffer_(K * panels * panel<T>) {
        constexpr Index tile = 64;
        for (Index p = 0; p < panels; ++p) {
            T* to = buffer_.data() + p * K * panel<T>;
            const Index count = columns - p * panel<T> < panel<T> ? columns - p * panel<T> : panel<T>;
            for (const T* W : matrices) {
                for (Index k0 = 0; k0 < rows; k0 += tile)
                    for (Index n = 0; n < count; ++n)
                        for (Index k = k0; k < rows && k < k0 + tile; ++k)
                            to[k * panel<T> + n] = W[k * row + (p * panel<T> + n) * column];
                to += rows * panel<T>;
            }
        }
    }
    const T* operator[](Index p) { return buffer_.data() + p * K * panel<T>; }
    const Index K, panels;

  private:
    Buffer<T> buffer_;
};

// R rows times P neighbouring panels, z (R, columns) = x (R, K) w, where w is packed. `Outer`: z += xᵀ w with x (K, R)
// and w (K, columns) as they lie in memory. Every element sums over k in ascending order whatever R and P are, so
// that a product does not depend on how rows are dealt to threads.
template <class T, int R, int P, bool Outer>
void block(const T* x, Index ldx, const T* w, Index ldw, Index K, T* z, Index ldz, const char* ahead,
           const char* ahead_end) {
    constexpr int C = 2 * P;
    Vector<T> sum[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) sum[r][c] = Outer ? load<T>(z + r * ldz + c * width<T>) : Vector<T>{};
    const auto add = [&](Index k) __attribute__((always_inline)) {
        Vector<T> weight[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c)
            weight[c] = load<T>(Outer ? w + k * ldw + c * width<T>
                                      : w + ((c / 2) * K + k) * panel<T> + (c % 2) * width<T>);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Vector<T> value = broadcast<T>(Outer ? x[k * ldx + r] : x[r * ldx + k]);
#pragma GCC unroll 16
            for (int c = 0; c < C; ++c) sum[r][c] += value * weight[c];
        }
    };
    for (Index k = 0; k < K; ++k) {
        if (ahead < ahead_end) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += Ahead::line;
        }
        add(k);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int c = 0; c < C; ++c) store<T>(z + r * ldz + c * width<T>, sum[r][c]);
}

// `block` for R known only now, 1 <= R <= most.
template <class T, int P, bool Outer, int most, class... Rest>
void dispatch_block(Index R, Rest... rest) {
    if constexpr (most == 1)
        block<T, 1, P, Outer>(rest...);
    else if (R == most)
        block<T, most, P, Outer>(rest...);
    else
        dispatch_block<T, P, Outer, most - 1>(R, rest...);
}

// Calls body(first, count) for blocks of [0, rows) of at most max_rows and nearly equal height.
template <class Body>
inline void for_blocks(Index rows, Index blocks, Body body) {
    for (Index b = 0, first = 0; b < blocks; ++b) {
        const Index count = rows / blocks + (b < rows % blocks);
        body(first, count);
        first += count;
    }
}
inline Index blocks_of(Index rows) { return (rows + max_rows - 1) / max_rows; }

// z (rows, columns) = x (rows, K) times the packed weights; z has whole panels of columns.
template <class T>
void product(const T* x, Index ldx, Index rows, Packed<T>& weights, T* z, Index ldz, Ahead& ahead) {
    const Index blocks = blocks_of(rows), K = weights.K;
    // Few rows: two panels at once, to have enough independent sums.
    const Index pairs = rows <= 3 && max_rows > 6 ? weights.panels / 2 : 0;
    Index calls = pairs + (weights.panels - 2 * pairs) * blocks;
    const char *from, *to;
    for (Index p = 0; p < 2 * pairs; p += 2) {
        ahead.take(calls--, from, to);
        dispatch_block<T, 2, false, 3>(rows, x, ldx, weights[p], K, K, z + p * panel<T>, ldz, from, to);
    }
    for (Index p = 2 * pairs; p < weights.panels; ++p)
        for_blocks(rows, blocks, [&](Index r, Index R) {
            ahead.take(calls--, from, to);
            dispatch_block<T, 1, false, max_rows>(R, x + r * ldx, ldx, weights[p], K, K, z + r * ldz + p * panel<T>,
                                                  ldz, from, to);
        });
}

// z (rows, columns) += xᵀ w for x (K, rows) and w (K, columns); w and z have whole panels of columns.
template <class T>
void add_outer(const T* x, Index ldx, Index rows, const T* w, Index ldw, Index columns, Index K, T* z, Index ldz,
               Ahead& ahead) {
    const Index blocks = blocks_of(rows), panels = (columns + panel<T> - 1) / panel<T>;
    Index calls = panels * blocks;
    const char *from, *to;
    for (Index n = 0; n < columns; n += panel<T>)
        for_blocks(rows, blocks, [&](Index r, Index R) {
            ahead.take(calls--, from, to);
            dispatch_block<T, 1, true, max_rows>(R, x + r, ldx, w + n, ldw, K, z + r * ldz + n, ldz, from, to);
        });
}

// Who runs the slabs. By default threads that are started and joined by the call. Where the caller's own OpenMP
// runtime is given, its team: those threads wait by spinning, and would take the cores from threads of ours.
typedef void (*Team)(void (*work)(void*), void* data, unsigned threads, unsigned flags);
inline Team team = nullptr;
inline long team_process = 0;  // a team does not survive fork

// Flushes subnormal numbers to zero while it lives. The gradient of a loss on the last step fades into them within a
// few hundred steps, and multiplying them is many times slower than multiplying anything else.
class FlushSubnormals {
  public:
#if defined(__SSE__)
    FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }  // results and operands
    ~FlushSubnormals() { _mm_setcsr(before_); }

  private:
    unsigned before_;
#elif defined(__aarch64__)
    FlushSubnormals() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
        __asm__ volatile("msr fpcr, %0" : : "r"(before_ | (std::uint64_t(1) << 24)));
    }
    ~FlushSubnormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before_)); }

  private:
    std::uint64_t before_;
#else
    FlushSubnormals() {}
#endif
};

inline Index slab_count(Index B, Index threads) { return std::max(Index(1), std::min(threads, B)); }

// Runs body(slab, first, last) over slabs of [0, B), one per thread, for the whole call.
template <class Body>
void for_slabs(Index B, Index threads, Body body) {
    threads = slab_count(B, threads);
    if (threads == 1) {
        const FlushSubnormals flush;
        return body(Index(0), Index(0), B);
    }
    struct Shared {
        Body& body;
        std::atomic<Index> next;
        const Index B, slabs;
        static void work(void* data) {
            const FlushSubnormals flush;
            Shared& self = *static_cast<Shared*>(data);
            for (Index i; (i = self.next++) < self.slabs;)
                self.body(i, self.B * i / self.slabs, self.B * (i + 1) / self.slabs);
        }
    } shared{body, {0}, B, threads};
    if (team && team_process == long(getpid())) return team(Shared::work, &shared, unsigned(threads), 0);
    std::vector<std::thread> workers;
    workers.reserve(std::size_t(threads));
    try {
        for (Index i = 1; i < threads; ++i) workers.emplace_back(Shared::work, &shared);
    } catch (const std::system_error&) {  // no more threads to be had: those that run take all slabs
    }
    Shared::work(&shared);
    for (auto& worker : workers) worker.join();
}

}  // namespace durnn
