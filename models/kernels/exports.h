// How a loop becomes a C function that ctypes can call.
//
// A loop is a template over its number type that takes its inputs (`const T*`, or `const Byte*`; null if they are
// optional and absent), its outputs (`T*`), constants (`T`), and then `Index steps, B, N, threads`, and `I` where
// it projects an input of I columns. `DURNN_EXPORT(name)` makes `name_f32` and `name_f64` of it, which take `Arguments`.
#pragma once

#include <new>
#include <tuple>
#include <type_traits>

#include "vector.h"

namespace durnn {

// As in cpu.py.
struct Arguments {
    Index inputs, outputs, constants;  // how many there are of each
    void* const* tensors;              // inputs, then outputs
    const double* values;              // of the constants
    Index sizes[5];                    // steps, B, N, threads, I
    Index choice;                      // which form, for a loop that has two
};

enum Status { done = 0, out_of_memory = 1, other_arguments = 2 };

// Hands out the arguments of a loop in the order of its parameters.
class Reader {
  public:
    explicit Reader(const Arguments& given) : tensor_(given.tensors), value_(given.values), size_(given.sizes) {}
    template <class P>
    P next() {
        if constexpr (std::is_pointer_v<P>)
            return static_cast<P>(*tensor_++);
        else if constexpr (std::is_floating_point_v<P>)
            return P(*value_++);
        else
            return *size_++;
    }

  private:
    void* const* tensor_;
    const double* value_;
    const Index* size_;
};

// Calls the loop, unless it was declared with other numbers of arguments than it has.
template <class T, class... P>
int run(void (*loop)(P...), const Arguments& given) {
    constexpr Index inputs = (Index(std::is_same_v<P, const T*> || std::is_same_v<P, const Byte*>) + ...);
    constexpr Index outputs = (Index(std::is_same_v<P, T*>) + ...);
    constexpr Index constants = (Index(std::is_same_v<P, T>) + ...), sizes = (Index(std::is_same_v<P, Index>) + ...);
    static_assert(sizes == 4 || sizes == 5, "see the top of exports.h");
    static_assert(inputs + outputs + constants + sizes == sizeof...(P), "see the top of exports.h");
    if (inputs != given.inputs || outputs != given.outputs || constants != given.constants) return other_arguments;
    Reader reader(given);
    std::tuple<P...> arguments{reader.next<P>()...};  // braces: from left to right
    try {
        std::apply(loop, arguments);
        return done;
    } catch (const std::bad_alloc&) {
        return out_of_memory;
    }
}

}  // namespace durnn

#define DURNN_C extern "C" __attribute__((visibility("default")))

#define DURNN_EXPORT(name)                                                                                        \
    DURNN_C int name##_f32(const durnn::Arguments* given) { return durnn::run<float>(durnn::name<float>, *given); } \
    DURNN_C int name##_f64(const durnn::Arguments* given) { return durnn::run<double>(durnn::name<double>, *given); }

// For a loop whose second template parameter is the choice, 0 or 1.
#define DURNN_EXPORT_CHOICES(name)                                                                            \
    DURNN_C int name##_f32(const durnn::Arguments* given) {                                                   \
        return durnn::run<float>(given->choice ? durnn::name<float, 1> : durnn::name<float, 0>, *given);     \
    }                                                                                                         \
    DURNN_C int name##_f64(const durnn::Arguments* given) {                                                   \
        return durnn::run<double>(given->choice ? durnn::name<double, 1> : durnn::name<double, 0>, *given);  \
    }
