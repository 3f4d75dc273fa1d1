#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/names.hpp>

namespace dynapipe {

/// What becomes of a sample that is too long for any micro-batch.
enum class overlong_policy : std::uint8_t {
  error,     ///< the batch is refused
  alone,     ///< it is kept, for a micro-batch of its own
  drop,      ///< it is left out
  truncate,  ///< it is cut to the largest length that fits
  split      ///< a plain document becomes pieces; what has a prompt or a target is truncated
};

inline constexpr name_table<overlong_policy, 5> overlong_policy_names{{{overlong_policy::error, "error"},
                                                                       {overlong_policy::alone, "alone"},
                                                                       {overlong_policy::drop, "drop"},
                                                                       {overlong_policy::truncate, "truncate"},
                                                                       {overlong_policy::split, "split"}}};

[[nodiscard]] constexpr std::string_view to_string(overlong_policy value) {
  return name_in(overlong_policy_names, value);
}

/// What was done to over-long samples. Samples: `over_long` is the sum of the next four. Tokens are those read, input
/// and target.
struct overlong_counts {
  std::int64_t over_long = 0;
  std::int64_t alone = 0;
  std::int64_t dropped = 0;
  std::int64_t truncated = 0;
  std::int64_t split = 0;
  std::int64_t pieces = 0;            ///< that split samples became
  std::int64_t tokens_lost = 0;       ///< in dropped and truncated samples
  std::int64_t loss_tokens_lost = 0;  ///< the same, and those no longer predictable at the borders of pieces

  friend constexpr bool operator==(const overlong_counts&, const overlong_counts&) = default;
};

/// Samples of which all may be cut into micro-batches. Those given = those dropped + those with a position in
/// `lengths`; the tokens of both sides differ by `tokens_lost`, the loss tokens by `loss_tokens_lost`.
struct overlong_result {
  std::vector<sample_lengths> lengths;  ///< samples and pieces, in the order of the samples given
  std::vector<sample_id> source;        ///< of each: the sample that it is, or is a part of
  std::vector<std::int64_t> begin;      ///< of each: its first input token, counted in the source
  std::vector<std::size_t> alone;       ///< positions in `lengths` that take a micro-batch of their own
  std::vector<std::size_t> lossless;    ///< positions in `lengths` whose loss tokens were all lost
  std::vector<sample_id> dropped;
  overlong_counts counts;
};

namespace detail {

/// The largest length in [least, most] that fits, least - 1 if none does. O(log(most - least)) calls.
template <class Fits>
std::int64_t longest_fitting(std::int64_t least, std::int64_t most, Fits&& fits) {
  std::int64_t below = least - 1;
  while (below < most) {
    const std::int64_t middle = below + (most - below + 1) / 2;
    if (fits(middle)) {
      below = middle;
    } else {
      most = middle - 1;
    }
  }
  return below;
}

/// A decoder-only sample whose loss is on all that the model can predict: no prompt, no target.
[[nodiscard]] inline bool is_plain_document(const sample_lengths& s, const shape_options& shapes) {
  return s.target == 0 && s.loss >= s.input + shapes.sequence_offset - 1;
}

/// Loss tokens of a decoder-only sample whose last or first tokens are cut off, so that it reads `input`.
[[nodiscard]] inline std::int64_t loss_within(const sample_lengths& s, std::int64_t input,
                                              const shape_options& shapes) {
  return std::min(s.loss, input + std::max(shapes.sequence_offset - 1, s.loss - s.input));
}

/// The sample that `truncate` leaves; 0 tokens where nothing fits.
template <class Fits>
sample_lengths truncated(const sample_lengths& s, const shape_options& shapes, Fits& fits) {
  const auto with_input = [&](std::int64_t input) {
    return sample_lengths{input, s.target, s.target > 0 ? s.loss : loss_within(s, input, shapes)};
  };
  const std::int64_t least = std::min<std::int64_t>(1, s.input);
  const std::int64_t input = longest_fitting(least, s.input, [&](std::int64_t k) { return fits(with_input(k)); });
  if (input >= least) return with_input(input);
  const auto with_target = [&](std::int64_t target) {
    return sample_lengths{least, target, std::max<std::int64_t>(0, s.loss - (s.target - target))};
  };
  const std::int64_t target = longest_fitting(1, s.target, [&](std::int64_t k) { return fits(with_target(k)); });
  if (target < 1) return {};
  // A target alone may be what is too long: then the input stays as long as it can.
  const std::int64_t beside =
      longest_fitting(least, s.input, [&](std::int64_t k) { return fits(sample_lengths{k, target, 0}); });
  return {beside, target, with_target(target).loss};
}

/// Carries a policy out, sample by sample.
template <class Fits>
class overlong_pass {
 public:
  overlong_pass(const shape_options& shapes, Fits& fits) : shapes_{shapes}, fits_{fits} {}

  void keep(const sample_lengths& s, std::size_t number, std::int64_t begin = 0) {
    result.lengths.push_back(s);
    result.source.push_back(to_id<sample_id>(number));
    result.begin.push_back(begin);
  }

  /// False where the policy does not help: nothing of the sample fits, or the policy is `error`.
  [[nodiscard]] bool take(const sample_lengths& s, std::size_t number, overlong_policy policy) {
    switch (policy) {
      case overlong_policy::error: return false;
      case overlong_policy::alone:
        ++result.counts.alone;
        result.alone.push_back(result.lengths.size());
        keep(s, number);
        break;
      case overlong_policy::drop:
        ++result.counts.dropped;
        result.dropped.push_back(to_id<sample_id>(number));
        lose(s, {});
        break;
      case overlong_policy::truncate:
      case overlong_policy::split: {
        const sample_lengths left = truncated(s, shapes_, fits_);
        if (left.input + left.target == 0) return false;
        if (policy == overlong_policy::split && is_plain_document(s, shapes_)) {
          split(s, number, left.input);
        } else {
          truncate(s, number, left);
        }
        break;
      }
    }
    ++result.counts.over_long;
    return true;
  }

  overlong_result result;

 private:
  void lose(const sample_lengths& from, const sample_lengths& left) {
    result.counts.tokens_lost += from.input + from.target - left.input - left.target;
    result.counts.loss_tokens_lost += from.loss - left.loss;
  }

  void note_lossless(const sample_lengths& from, const sample_lengths& left) {
    if (from.loss > 0 && left.loss == 0) result.lossless.push_back(result.lengths.size());
  }

  void truncate(const sample_lengths& s, std::size_t number, const sample_lengths& left) {
    ++result.counts.truncated;
    lose(s, left);
    note_lossless(s, left);
    const bool from_the_front = s.target == 0 && !is_plain_document(s, shapes_);
    keep(left, number, from_the_front ? s.input - left.input : 0);
  }

  void split(const sample_lengths& s, std::size_t number, std::int64_t length) {
    ++result.counts.split;
    const std::int64_t lost_at_border = shapes_.sequence_offset == 0 ? 1 : 0;
    std::int64_t rest_loss = s.loss;
    for (std::int64_t begin = 0; begin < s.input; begin += length) {
      const bool last = s.input - begin <= length;
      sample_lengths piece{std::min(length, s.input - begin), 0, 0};
      piece.loss = last ? rest_loss : piece.input - lost_at_border;
      // What a prompt-less sample predicts of its first token.
      if (begin == 0 && !last) piece.loss += s.loss - (s.input + shapes_.sequence_offset - 1);
      rest_loss -= piece.loss + (last ? 0 : lost_at_border);
      result.counts.loss_tokens_lost += last ? 0 : lost_at_border;
      ++result.counts.pieces;
      note_lossless(s, piece);
      keep(piece, number, begin);
    }
  }

  const shape_options& shapes_;
  Fits& fits_;
};

template <class Lazy = void>
std::string overlong_sample_text(std::size_t number, const sample_lengths& s, const shape_options& shapes) {
  const auto lengths = [](std::int64_t input, std::int64_t target) {
    return "input " + std::to_string(input) + (target > 0 ? ", target " + std::to_string(target) : "");
  };
  return "sample " + std::to_string(number) + " (" + lengths(s.input, s.target) +
         "; padded: " + lengths(padded_length(s.input, shapes), s.target > 0 ? padded_length(s.target, shapes) : 0) +
         " tokens) ";
}

}  // namespace detail

/// Applies a policy to the samples that fit no micro-batch, before they are cut into micro-batches.
///
/// `fits(sample_lengths)` says whether a sample may stand in a micro-batch of its own; where it does, a shorter one
/// must too. `what` ends the message of an error: the limit, and the knob that would help.
///
/// - `truncate` finds the largest length that fits, by bisection. A plain document loses its end. A decoder-only sample
///   with a prompt loses the front of its prompt first, so that the answer stays, and of the answer only what is too
///   long alone. An encoder-decoder's sample loses the end of its input, and the end of its target only where that does
///   not fit beside one input token.
/// - `split` cuts a plain document into pieces in order, all of that largest length but the last. With a
///   `sequence_offset` of 1 or more a piece's last token still has the next one, which the next piece reads first, as
///   its label: no loss token is lost. With an offset of 0 labels end with the piece: the first token of each piece but
///   the first is read, and not predicted. What has a prompt or a target is truncated instead: a piece of a prompt
///   alone would learn nothing.
///
/// A sample keeps at least one token wherever it had one. One that loses all its loss tokens is kept, and listed in
/// `lossless`. Guarantee: the identities of `overlong_result`. O(n + pieces) time, and O(log length) calls of `fits`
/// for each over-long sample. @throws error naming the sample where the policy is `error`, or nothing of it fits.
template <class Fits>
[[nodiscard]] overlong_result apply_overlong(std::span<const sample_lengths> lengths, const shape_options& shapes,
                                             overlong_policy policy, Fits&& fits, const std::string& what) {
  detail::overlong_pass pass{shapes, fits};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (fits(lengths[i])) {
      pass.keep(lengths[i], i);
    } else if (!pass.take(lengths[i], i, policy)) {
      const char* const cannot = policy == overlong_policy::error ? "is over-long: " : "is over-long however short: ";
      throw error{detail::overlong_sample_text(i, lengths[i], shapes) + cannot + what};
    }
  }
  return std::move(pass.result);
}

/// The same for a largest length in tokens. It holds for the input as read, and for the target of an encoder-decoder;
/// a length counts as padded, to a multiple of `padding_multiple`. @throws error as above, or where `longest` is below
/// the padding multiple.
template <class Lazy = void>
[[nodiscard]] overlong_result apply_overlong(std::span<const sample_lengths> lengths, const shape_options& shapes,
                                             overlong_policy policy, std::int64_t longest) {
  if (longest < shapes.padding_multiple)
    throw error{"max-length must be at least padding_multiple, " + std::to_string(shapes.padding_multiple) +
                ", it is " + std::to_string(longest)};
  const auto fits = [&](const sample_lengths& s) {
    return padded_length(s.input, shapes) <= longest && (s.target == 0 || padded_length(s.target, shapes) <= longest);
  };
  return apply_overlong(lengths, shapes, policy, fits,
                        "the padded length is above the limit of " + std::to_string(longest) +
                            " tokens; raise --max-length, lower padding_multiple, or choose --overlong "
                            "alone|drop|truncate|split");
}

/// The samples that a policy left, ready to be planned: those dropped stand last, with their ids in `dropped`.
template <class Lazy = void>
[[nodiscard]] batch_samples with_policy(const batch_samples& before, const overlong_result& applied) {
  batch_samples after;
  after.lengths = applied.lengths;
  for (const sample_id source : applied.source)
    after.source_rows.push_back(before.source_rows[index(source)]);
  for (const std::size_t place : applied.alone)
    after.alone.push_back(to_id<sample_id>(place));
  for (const sample_id id : applied.dropped) {
    after.dropped.push_back(to_id<sample_id>(after.lengths.size()));
    after.lengths.push_back(before.lengths[index(id)]);
    after.source_rows.push_back(before.source_rows[index(id)]);
  }
  return after;
}

}  // namespace dynapipe
