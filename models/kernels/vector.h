// Vectors of the machine's width and functions on them. Needs GCC or Clang (vector extensions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace durnn {

using Index = std::int64_t;
using Byte = std::uint8_t;

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
    typedef Byte Bytes __attribute__((vector_size(vector_bytes / 4)));
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
    typedef Byte Bytes __attribute__((vector_size(vector_bytes / 8)));
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
// One byte for each lane, as an integer of the lane's size.
template <class T>
inline typename Lanes<T>::I load_bytes(const Byte* from, Full) {
    typename Lanes<T>::Bytes v;
    std::memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, typename Lanes<T>::I);
}
template <class T>
inline typename Lanes<T>::I load_bytes(const Byte* from, Index count) {
    typename Lanes<T>::Bytes v{};
    std::memcpy(&v, from, std::size_t(count));
    return __builtin_convertvector(v, typename Lanes<T>::I);
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

// Sum of the lanes, by halves.
template <class T, int Bytes = vector_bytes, class V>
inline T sum_lanes(V v) {
    if constexpr (Bytes > 16) {
        typedef T Half __attribute__((vector_size(Bytes / 2)));
        Half a, b;
        std::memcpy(&a, &v, sizeof a);
        std::memcpy(&b, reinterpret_cast<const char*>(&v) + sizeof a, sizeof b);
        return sum_lanes<T, Bytes / 2>(a + b);
    } else {
        T sum = v[0];
        for (std::size_t n = 1; n < Bytes / sizeof(T); ++n) sum += v[n];
        return sum;
    }
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

}  // namespace durnn
