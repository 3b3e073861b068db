// The recurrences as plain C functions on contiguous arrays, called through ctypes. Torch-free, so that compiling
// takes seconds. Arguments as in the headers. Every function returns 0, or 1 if memory ran out.

#include <new>

#include "lstm.h"
#include "recurrences.h"
#include "select.h"

using durnn::Index;

template <class Call>
static int guarded(Call call) {
    try {
        call();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

#define DURNN_C extern "C" __attribute__((visibility("default")))

#define DURNN_EXPORT(T, suffix)                                                                                     \
    DURNN_C int rnn_forward_##suffix(const T* u, const T* W_rec, const T* h0, T* y, Index steps, Index B, Index N,  \
                                     Index tanh, Index threads) {                                                  \
        const auto run = tanh ? durnn::rnn_forward<T, true> : durnn::rnn_forward<T, false>;                         \
        return guarded([&] { run(u, W_rec, h0, y, steps, B, N, threads); });                                        \
    }                                                                                                               \
    DURNN_C int rnn_backward_##suffix(const T* grad_y, const T* W_rec, const T* h0, const T* y, T* grad_u,          \
                                      T* grad_W_rec, T* grad_h0, Index steps, Index B, Index N, Index tanh,         \
                                      Index threads) {                                                              \
        const auto run = tanh ? durnn::rnn_backward<T, true> : durnn::rnn_backward<T, false>;                       \
        return guarded([&] { run(grad_y, W_rec, h0, y, grad_u, grad_W_rec, grad_h0, steps, B, N, threads); });      \
    }                                                                                                               \
    DURNN_C int indrnn_forward_##suffix(const T* u, const T* U, const T* h0, T* y, Index steps, Index B, Index N,   \
                                        Index threads) {                                                           \
        return guarded([&] { durnn::indrnn_forward<T>(u, U, h0, y, steps, B, N, threads); });                       \
    }                                                                                                               \
    DURNN_C int indrnn_backward_##suffix(const T* grad_y, const T* U, const T* h0, const T* y, T* grad_u,           \
                                         T* grad_U, T* grad_h0, Index steps, Index B, Index N, Index threads) {    \
        return guarded(                                                                                             \
            [&] { durnn::indrnn_backward<T>(grad_y, U, h0, y, grad_u, grad_U, grad_h0, steps, B, N, threads); });   \
    }                                                                                                               \
    DURNN_C int select_forward_##suffix(const T* h_short, const T* W_ss, const T* b_s, const T* W_ls, const T* W_s, \
                                        const T* U, const T* b_thre, const T* b_long, const T* h0, T* y, T* S,      \
                                        T* scale, double floor, Index steps, Index B, Index N, Index threads) {     \
        return guarded([&] {                                                                                        \
            durnn::select_forward<T>(h_short, W_ss, b_s, W_ls, W_s, U, b_thre, b_long, h0, y, S, scale, T(floor),   \
                                     steps, B, N, threads);                                                         \
        });                                                                                                         \
    }                                                                                                               \
    DURNN_C int select_backward_##suffix(const T* grad_y, const T* h_short, const T* W_s, const T* U, const T* h0,  \
                                         const T* y, const T* S, const T* scale, T* grad_h_short, T* grad_W_ss,     \
                                         T* grad_b_s, T* grad_W_ls, T* grad_W_s, T* grad_U, T* grad_b_thre,         \
                                         T* grad_b_long, T* grad_h0, Index steps, Index B, Index N, Index threads) {\
        return guarded([&] {                                                                                        \
            durnn::select_backward<T>(grad_y, h_short, W_s, U, h0, y, S, scale, grad_h_short, grad_W_ss, grad_b_s,  \
                                      grad_W_ls, grad_W_s, grad_U, grad_b_thre, grad_b_long, grad_h0, steps, B, N,  \
                                      threads);                                                                     \
        });                                                                                                         \
    }                                                                                                               \
    DURNN_C int lstm_forward_##suffix(const T* u, const T* W_rec, const T* h0, const T* c0, T* y, T* c_last,        \
                                      T* gates, T* cells, Index steps, Index B, Index N, Index threads) {          \
        return guarded([&] {                                                                                        \
            durnn::lstm_forward<T>(u, W_rec, h0, c0, y, c_last, gates, cells, steps, B, N, threads);                \
        });                                                                                                         \
    }                                                                                                               \
    DURNN_C int lstm_backward_##suffix(const T* grad_y, const T* grad_c, const T* W_rec, const T* c0,               \
                                       const T* gates, const T* cells, T* grad_u, T* grad_h0, T* grad_c0,          \
                                       Index steps, Index B, Index N, Index threads) {                             \
        return guarded([&] {                                                                                        \
            durnn::lstm_backward<T>(grad_y, grad_c, W_rec, c0, gates, cells, grad_u, grad_h0, grad_c0, steps, B, N, \
                                    threads);                                                                      \
        });                                                                                                         \
    }

DURNN_EXPORT(float, f32)
DURNN_EXPORT(double, f64)

DURNN_C void use_team(void* parallel) {
    durnn::team = reinterpret_cast<durnn::Team>(parallel);
    durnn::team_process = long(getpid());
}
