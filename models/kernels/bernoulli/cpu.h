// The loop of reference.py.
#pragma once

#include "slabs.h"

namespace durnn {

typedef std::uint64_t Words __attribute__((vector_size(vector_bytes)));

// Steele, Lea, Flood 2014: the bijection that makes SplitMix64's outputs of equidistant states.
template <class W>
inline W mixed(W z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// out[k] = whether half k % 2 of word k / 2, low half first, is at most `most` as a signed number.
inline void bernoulli(std::uint64_t seed, std::int32_t most, unsigned char* out, Index count, Index threads) {
    constexpr std::uint64_t gamma = 0x9E3779B97F4A7C15u;
    constexpr Index words = vector_bytes / 8, block = 2 * words;
    typedef std::int32_t Halves __attribute__((vector_size(vector_bytes)));
    typedef signed char Bytes __attribute__((vector_size(block)));
    for_slabs((count + block - 1) / block, threads, [=](Index, Index first, Index last) {
        Words state;
        for (Index w = 0; w < words; ++w) state[w] = seed + gamma * std::uint64_t(first * words + w + 1);
        for (Index k = first * block; k < last * block; k += block, state += gamma * words) {
            const Words z = mixed(state);
            Halves halves;
            std::memcpy(&halves, &z, sizeof halves);
            const Bytes bits = -__builtin_convertvector(halves <= most, Bytes);
            std::memcpy(out + k, &bits, std::size_t(std::min(block, count - k)));
        }
    });
}

}  // namespace durnn
