// Threads that live for one call, each with a slab of the batch.
#pragma once

#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "vector.h"

namespace durnn {

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
inline Index slab_begin(Index B, Index slabs, Index slab) { return B * slab / slabs; }
inline Index most_rows(Index B, Index slabs) { return (B + slabs - 1) / slabs; }  // of a slab

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
                self.body(i, slab_begin(self.B, self.slabs, i), slab_begin(self.B, self.slabs, i + 1));
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
