#pragma once

#include <cstdint>

namespace dynapipe {

/// The padded shape of a micro-batch: `rows` rows, each padded to `input` tokens (what the encoder, or a decoder-only
/// model, reads) and to `target` tokens (what the decoder of an encoder-decoder reads; 0 for decoder-only models).
struct shape {
  std::int64_t rows = 0;
  std::int64_t input = 0;
  std::int64_t target = 0;

  friend constexpr bool operator==(const shape&, const shape&) = default;
};

}  // namespace dynapipe
