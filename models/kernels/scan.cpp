// The recurrences as plain C functions, called through ctypes. Torch-free, so that compiling takes seconds.

#include "bernoulli/cpu.h"
#include "gru/cpu.h"
#include "indrnn/cpu.h"
#include "lstm/cpu.h"
#include "normed_lstm/cpu.h"
#include "rnn/cpu.h"
#include "select/cpu.h"
#include "symmetric.h"

DURNN_C void use_team(void* parallel) {
    durnn::team = reinterpret_cast<durnn::Team>(parallel);
    durnn::team_process = long(getpid());
}

DURNN_C void bernoulli(std::uint64_t seed, std::int32_t most, unsigned char* out, std::int64_t count,
                       std::int64_t threads) {
    durnn::bernoulli(seed, most, out, count, threads);
}

#define DURNN_LARGEST(suffix, T)                                                                              \
    DURNN_C std::int64_t largest_##suffix(const T* A, std::int64_t n, double bound, double limit, std::int64_t most, \
                                          T* values, T* vectors) {                                            \
        return durnn::largest(A, n, bound, limit, most, values, vectors);                                     \
    }
DURNN_LARGEST(f32, float)
DURNN_LARGEST(f64, double)
