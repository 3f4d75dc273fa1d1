#pragma once

#include <algorithm>
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

/// The shape of a micro-batch without padding: samples concatenated, each attending to itself alone (a document mask).
///
/// `squares` counts what attention pairs: for a sample of s tokens s^2, and under a sliding window of w < s tokens
/// s^2 - (s - w)^2. `cross_pairs` is the sum over samples of input x target. The sums are independent of one another,
/// so that padded rows which hold several documents are such a shape too: `tokens` with padding, `squares` of the
/// documents.
struct varlen_shape {
  std::int64_t tokens = 0;
  std::int64_t squares = 0;
  std::int64_t samples = 0;
  std::int64_t target_tokens = 0;
  std::int64_t target_squares = 0;
  std::int64_t cross_pairs = 0;

  friend constexpr bool operator==(const varlen_shape&, const varlen_shape&) = default;
};

/// Twice the pairs that a causal mask leaves of `length` tokens, counted as half a square, when each token sees
/// `window` tokens at most (0: all). For lengths up to 2^31. O(1), never throws.
[[nodiscard]] constexpr std::int64_t seen_squares(std::int64_t length, std::int64_t window = 0) {
  const std::int64_t hidden = window > 0 ? std::max<std::int64_t>(0, length - window) : 0;
  return length * length - hidden * hidden;
}

/// `packed` with one sample more, of `input` and `target` tokens up to 2^31; `window` as the model has it. The window
/// is that of decoder-only models; encoders and the two lengths of an encoder-decoder are paired in full. O(1).
[[nodiscard]] constexpr varlen_shape with_sample(varlen_shape packed, std::int64_t input, std::int64_t target = 0,
                                                 std::int64_t window = 0) {
  packed.tokens += input;
  packed.squares += seen_squares(input, window);
  packed.samples += 1;
  packed.target_tokens += target;
  packed.target_squares += seen_squares(target, window);
  packed.cross_pairs += input * target;
  return packed;
}

/// What a micro-batch is to a pipeline: the padded shape that its buffers have and, where its samples are concatenated
/// without padding, what they cost. `packed` without a sample means padded rows.
struct work_shape {
  shape padded;
  varlen_shape packed{};

  constexpr work_shape() = default;
  /// Padded rows are a micro-batch as they stand.
  constexpr work_shape(const shape& rows) : padded{rows} {}  // NOLINT(google-explicit-constructor)
  /// A micro-batch without padding: one row of all its tokens.
  constexpr work_shape(const varlen_shape& v)  // NOLINT(google-explicit-constructor)
      : padded{1, v.tokens, v.target_tokens}, packed{v} {}
  constexpr work_shape(const shape& rows, const varlen_shape& cost) : padded{rows}, packed{cost} {}

  [[nodiscard]] constexpr bool varlen() const { return packed.samples > 0; }

  friend constexpr bool operator==(const work_shape&, const work_shape&) = default;
};

}  // namespace dynapipe
