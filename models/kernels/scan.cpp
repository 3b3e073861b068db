// The recurrences as plain C functions, called through ctypes. Torch-free, so that compiling takes seconds.

#include "indrnn/cpu.h"
#include "lstm/cpu.h"
#include "rnn/cpu.h"
#include "select/cpu.h"

DURNN_C void use_team(void* parallel) {
    durnn::team = reinterpret_cast<durnn::Team>(parallel);
    durnn::team_process = long(getpid());
}
