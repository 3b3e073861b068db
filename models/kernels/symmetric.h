// The eigenvalues of a symmetric matrix above a bound, and their vectors, on one thread: for a matrix that fits into a
// cache.
//
// Reflections make the matrix tridiagonal. The signs of its pivots then say how many eigenvalues are above a number, so
// bisection finds those that are wanted, and inverse iteration their vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "vector.h"

namespace durnn {

// A symmetric matrix in tridiagonal form, and in row k the vector v of the reflection I − scale[k] v vᵀ that led there.
template <class T>
struct Reflected {
    Index n, stride;  // rows are filled up with zeros to whole vectors
    std::vector<T> rows, scale;
    std::vector<double> diagonal, beside;

    T* row(Index k) { return rows.data() + k * stride; }
};

template <class T>
inline T dot(const T* a, const T* b, Index first, Index last) {
    Vector<T> sum{};
    for (Index j = first; j < last; j += width<T>) sum += load<T>(a + j) * load<T>(b + j);
    return sum_lanes<T>(sum);
}

// to += factor · from
template <class T>
inline void add(T* to, T factor, const T* from, Index first, Index last) {
    for (Index j = first; j < last; j += width<T>) store<T>(to + j, load<T>(to + j) + factor * load<T>(from + j));
}

// Of A / unit. A reflection turns A into A − v wᵀ − w vᵀ; that is done in one pass with the product of A and the vector
// of the next reflection.
template <class T>
Reflected<T> tridiagonal(const T* A, Index n, T unit) {
    const Index stride = (n + width<T> - 1) / width<T> * width<T>;
    Reflected<T> result{n, stride, std::vector<T>(n * stride), std::vector<T>(n), std::vector<double>(n),
                        std::vector<double>(n)};
    for (Index i = 0; i < n; ++i)
        std::transform(A + i * n, A + (i + 1) * n, result.row(i), [unit](T entry) { return entry / unit; });
    std::vector<T> old_v(stride), old_w(stride), new_v(stride), product(stride);
    T *v = old_v.data(), *w = old_w.data(), *next = new_v.data(), *p = product.data();
    for (Index k = 0; k < n; ++k) {
        T* row = result.row(k);
        const Index first = k / width<T> * width<T>;
        add(row, -v[k], w, first, stride);
        add(row, -w[k], v, first, stride);
        result.diagonal[k] = row[k];
        std::fill(row, row + k + 1, T(0));
        if (k + 1 == n) break;
        const T length = std::sqrt(dot(row, row, first, stride));
        if (length > std::sqrt(std::numeric_limits<T>::min())) {  // else there is nothing to reflect
            result.beside[k] = row[k + 1] > 0 ? -length : length;
            result.scale[k] = 1 / (length * (length + std::abs(row[k + 1])));
            row[k + 1] -= T(result.beside[k]);
        }
        std::copy(row, row + stride, next);
        std::fill(p, p + stride, T(0));
        for (Index i = k + 1; i < n; ++i) {
            T* below = result.row(i);
            const T vi = v[i], wi = w[i], factor = next[i];
            for (Index j = first; j < stride; j += width<T>) {
                const Vector<T> updated = load<T>(below + j) - vi * load<T>(w + j) - wi * load<T>(v + j);
                store<T>(below + j, updated);
                store<T>(p + j, load<T>(p + j) + factor * updated);
            }
        }
        const T scale = result.scale[k], half = scale * scale / 2 * dot(p, next, first, stride);
        for (Index j = first; j < stride; j += width<T>)
            store<T>(w + j, scale * load<T>(p + j) - half * load<T>(next + j));
        std::fill(w, w + k + 1, T(0));
        std::swap(v, next);
    }
    return result;
}

// How many eigenvalues of a tridiagonal matrix are above each of some numbers: as many as there are positive pivots.
constexpr Index lanes = 8;
template <class T>
void count_above(const Reflected<T>& A, const double* numbers, Index* counts) {
    constexpr double tiny = 1e-290;
    double pivot[lanes], above[lanes] = {};
    std::fill(pivot, pivot + lanes, 1.0);
    double beside = 0;
    for (Index k = 0; k < A.n; ++k) {
        for (Index l = 0; l < lanes; ++l) {
            pivot[l] = A.diagonal[k] - numbers[l] - beside * beside / pivot[l];
            pivot[l] = std::abs(pivot[l]) < tiny ? -tiny : pivot[l];
            above[l] += pivot[l] > 0 ? 1.0 : 0.0;
        }
        beside = A.beside[k];
    }
    for (Index l = 0; l < lanes; ++l) counts[l] = Index(above[l]);
}

// The `count` largest eigenvalues, descending, which lie in (low, high), to a precision.
template <class T>
std::vector<double> largest_values(const Reflected<T>& A, Index count, double low, double high, double precision) {
    std::vector<double> values;
    for (Index first = 0; first < count; first += lanes) {
        double from[lanes], to[lanes], middle[lanes];
        Index above[lanes];
        std::fill(from, from + lanes, low);
        std::fill(to, to + lanes, high);
        for (double gap = high - low; gap > precision; gap /= 2) {
            for (Index l = 0; l < lanes; ++l) middle[l] = (from[l] + to[l]) / 2;
            count_above(A, middle, above);
            for (Index l = 0; l < lanes; ++l) (above[l] > first + l ? from : to)[l] = middle[l];
        }
        for (Index l = 0; l < std::min(lanes, count - first); ++l) values.push_back((from[l] + to[l]) / 2);
    }
    return values;
}

// x := (A − shift)⁻¹ x, by elimination with row exchanges; a vanishing pivot is replaced by a small one.
template <class T>
void solve_shifted(const Reflected<T>& A, double shift, double small, std::vector<double>& x) {
    const Index n = A.n;
    std::vector<double> pivot(n), right(n), far(n);  // of the upper triangle
    double p = A.diagonal[0] - shift, r = A.beside[0];
    for (Index k = 0; k + 1 < n; ++k) {
        const double below = A.beside[k], next = A.diagonal[k + 1] - shift, beyond = A.beside[k + 1];
        if (std::abs(p) >= std::abs(below)) {
            if (std::abs(p) < small) p = small;
            const double factor = below / p;
            pivot[k] = p, right[k] = r, far[k] = 0;
            p = next - factor * r, r = beyond;
            x[k + 1] -= factor * x[k];
        } else {
            const double factor = p / below;
            pivot[k] = below, right[k] = next, far[k] = beyond;
            p = r - factor * next, r = -factor * beyond;
            std::swap(x[k], x[k + 1]);
            x[k + 1] -= factor * x[k];
        }
    }
    pivot[n - 1] = std::abs(p) < small ? small : p;
    for (Index k = n - 1; k >= 0; --k) {
        if (k + 1 < n) x[k] -= right[k] * x[k + 1];
        if (k + 2 < n) x[k] -= far[k] * x[k + 2];
        x[k] /= pivot[k];
    }
}

// The eigenvector of an eigenvalue, at right angles to those before it; empty if there is none within a tolerance.
template <class T>
std::vector<double> vector_of(const Reflected<T>& A, double value, double tolerance,
                              const std::vector<std::vector<double>>& before) {
    const Index n = A.n;
    std::vector<double> y(n);
    for (Index k = 0; k < n; ++k) y[k] = 1 + 0.5 * std::sin(double(k) * double(before.size() + 1));  // in no plane
    double rest = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
        solve_shifted(A, value, tolerance * 1e-5, y);
        const double grown = std::sqrt(std::inner_product(y.begin(), y.end(), y.begin(), 0.0));
        for (double& entry : y) entry /= grown;
        for (const auto& other : before) {
            const double overlap = std::inner_product(y.begin(), y.end(), other.begin(), 0.0);
            for (Index k = 0; k < n; ++k) y[k] -= overlap * other[k];
        }
        const double left = std::sqrt(std::inner_product(y.begin(), y.end(), y.begin(), 0.0));
        for (double& entry : y) entry /= left;
    }
    for (Index k = 0; k < n; ++k) {
        double residual = (A.diagonal[k] - value) * y[k];
        if (k > 0) residual += A.beside[k - 1] * y[k - 1];
        if (k + 1 < n) residual += A.beside[k] * y[k + 1];
        rest += residual * residual;
    }
    return std::sqrt(rest) <= tolerance ? y : std::vector<double>{};
}

// Takes a vector of the tridiagonal form to one of the matrix.
template <class T>
void reflect_back(Reflected<T>& A, T* x) {
    for (Index k = A.n - 2; k >= 0; --k) {
        const Index first = k / width<T> * width<T>;
        add(x, -A.scale[k] * dot(A.row(k), x, first, A.stride), A.row(k), first, A.stride);
    }
}

// Writes the eigenvalues above a bound to `values`, descending, and their vectors to the rows of `vectors`.
// Returns how many; 0 if none is above the limit, −1 if there are more than `most`, A is not finite, a vector is not
// found, or memory is short.
template <class T>
Index largest(const T* A, Index n, double bound, double limit, Index most, T* values, T* vectors) try {
    const T unit = T(bound);
    Reflected<T> reflected = tridiagonal(A, n, unit);
    const double low = bound / unit;
    double high = low;  // Gershgorin's
    for (Index k = 0; k < n; ++k) {
        const double radius = std::abs(reflected.beside[k]) + (k > 0 ? std::abs(reflected.beside[k - 1]) : 0.0);
        if (!std::isfinite(reflected.diagonal[k] + radius)) return -1;
        high = std::max(high, reflected.diagonal[k] + radius);
    }
    const double numbers[lanes] = {low, limit / unit};
    Index above[lanes];
    count_above(reflected, numbers, above);
    if (above[1] == 0) return 0;
    if (above[0] > most) return -1;
    constexpr double of_A = std::numeric_limits<T>::epsilon(), of_vectors = 32 * std::numeric_limits<double>::epsilon();
    const double tolerance = std::max(of_A, of_vectors) * high;
    std::vector<std::vector<double>> found;
    std::vector<T> x(reflected.stride);
    for (double value : largest_values(reflected, above[0], low, high, tolerance / 64)) {
        std::vector<double> y = vector_of(reflected, value, tolerance, found);
        if (y.empty()) return -1;
        std::copy(y.begin(), y.end(), x.begin());
        reflect_back(reflected, x.data());
        std::copy(x.begin(), x.begin() + n, vectors + Index(found.size()) * n);
        values[found.size()] = T(value * unit);
        found.push_back(std::move(y));
    }
    return above[0];
} catch (const std::bad_alloc&) {
    return -1;
}

}  // namespace durnn
