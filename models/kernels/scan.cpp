// The recurrences as plain C functions, called through ctypes. Torch-free, so that compiling takes seconds.

#include "bernoulli/cpu.h"
#include "gru/cpu.h"
#include "indrnn/cpu.h"
#include "lstm/cpu.h"
#include "rnn/cpu.h"
#include "select/cpu.h"

DURNN_C void use_team(void* parallel) {
    durnn::team = reinterpret_cast<durnn::Team>(parallel);
    durnn::team_process = long(getpid());
}

DURNN_C void bernoulli(std::uint64_t seed, std::int32_t most, unsigned char* out, std::int64_t count,
                       std::int64_t threads) {
    durnn::bernoulli(seed, most, out, count, threads);
}
