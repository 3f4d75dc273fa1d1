#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// One sample of a global batch, in tokens as the data has it: a prompt or document, and the answer to learn (0 for a
/// plain document).
struct sample {
  std::int64_t input = 0;
  std::int64_t target = 0;

  friend constexpr bool operator==(const sample&, const sample&) = default;
};

/// Tokens that a model reads of a sample (`input`: encoder, or the whole sequence of a decoder-only model; `target`:
/// decoder, 0 for decoder-only), and its loss tokens.
struct sample_lengths {
  std::int64_t input = 0;
  std::int64_t target = 0;
  std::int64_t loss = 0;

  friend constexpr bool operator==(const sample_lengths&, const sample_lengths&) = default;
};

/// Padded rows, or one row of concatenated samples without padding.
enum class batch_layout : std::uint8_t { padded, varlen };

inline constexpr name_table<batch_layout, 2> batch_layout_names{
    {{batch_layout::padded, "padded"}, {batch_layout::varlen, "varlen"}}};

[[nodiscard]] constexpr std::string_view to_string(batch_layout value) { return name_in(batch_layout_names, value); }

/// The samples of one global batch, as a model reads them and as policies left them.
struct batch_samples {
  std::vector<sample_lengths> lengths;    ///< by sample id
  std::vector<std::int64_t> source_rows;  ///< data row of each; pieces of a sample share it
  std::vector<sample_id> dropped;         ///< not to be planned
  std::vector<sample_id> alone;           ///< each to be a micro-batch of its own
  /// Orders to cut, each of all ids, such as those of `candidate_orders`; empty: the planner's.
  std::vector<std::vector<sample_id>> orders{};
};

/// How lengths become shapes.
struct shape_options {
  std::int64_t padding_multiple = 8;      ///< padded lengths are multiples of it, and at least one
  std::int64_t separator_tokens = 1;      ///< between two samples packed into one row
  std::int64_t extra_decoder_tokens = 2;  ///< that an encoder-decoder's decoder reads beyond the target
  std::int64_t sequence_offset = 1;  ///< that a decoder-only model reads less than the sequence (the shifted label)

  friend constexpr bool operator==(const shape_options&, const shape_options&) = default;
};

/// The longest length that plans accept, in tokens.
inline constexpr std::int64_t longest_length = std::int64_t{1} << 31;

/// What `model` reads of `s`, at least one token wherever it reads. A decoder-only model reads input and target as one
/// sequence, less the offset; its loss tokens are the target's, or, without a target, all but the first of the
/// sequence.
///
/// @throws error where a length is negative, above 2^31, or both are 0; `number` names the sample.
[[nodiscard]] inline sample_lengths lengths_read(const model_spec& model, const sample& s, const shape_options& options,
                                                 std::size_t number) {
  const auto fail = [&](const std::string& what) {
    throw error{"sample " + std::to_string(number) + " (input " + std::to_string(s.input) + ", target " +
                std::to_string(s.target) + "): " + what};
  };
  if (s.input < 0 || s.target < 0) fail("a length is negative");
  if (s.input > longest_length || s.target > longest_length) fail("a length is above 2^31 tokens");
  if (s.input == 0 && s.target == 0) fail("it has no token");
  if (model.encoder_decoder())
    return {s.input, std::max<std::int64_t>(1, s.target + options.extra_decoder_tokens), s.target};
  const std::int64_t sequence = s.input + s.target;
  return {std::max<std::int64_t>(1, sequence - options.sequence_offset), 0, s.target > 0 ? s.target : sequence - 1};
}

/// A length as padded in a shape: the least multiple that holds it, at least one.
[[nodiscard]] inline std::int64_t padded_length(std::int64_t length, const shape_options& options) {
  return std::max(options.padding_multiple, round_up(length, options.padding_multiple));
}

/// The smallest padded shape: that of a dummy micro-batch.
[[nodiscard]] inline shape smallest_shape(const model_spec& model, const shape_options& options) {
  return {1, options.padding_multiple, model.encoder_decoder() ? options.padding_multiple : 0};
}

/// A group of samples that a pipeline runs at once. In the padded layout a row holds one sample, or several where they
/// are packed; in the varlen layout there is one row of concatenated samples.
struct micro_batch {
  std::vector<sample_id> samples;     ///< row after row
  std::vector<std::size_t> row_ends;  ///< where each row ends in `samples`; empty: one sample a row
  shape padded;
  varlen_shape packed{};  ///< without padding: what its samples cost; without a sample, padded rows
  std::int64_t loss_tokens = 0;
  bool dummy = false;

  [[nodiscard]] work_shape work() const { return {padded, packed}; }

  friend bool operator==(const micro_batch&, const micro_batch&) = default;
};

/// Checks shape options. @throws error naming the option where one is out of range.
inline void require_sound(const shape_options& options) {
  const auto within = [](std::int64_t value, std::int64_t least, const char* name) {
    if (value < least || value > longest_length)
      throw error{std::string{name} + " must lie in " + std::to_string(least) + "..2^31, it is " +
                  std::to_string(value)};
  };
  within(options.padding_multiple, 1, "padding_multiple");
  within(options.separator_tokens, 0, "separator_tokens");
  within(options.extra_decoder_tokens, 0, "extra_decoder_tokens");
  within(options.sequence_offset, 0, "sequence_offset");
}

}  // namespace dynapipe
