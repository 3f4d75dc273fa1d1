#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/order_sorts.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// Tokens of one row: what it holds, or what a sample takes of it.
struct row_room {
  std::int64_t input = 0;
  std::int64_t target = 0;  ///< 0 where samples have one length

  friend constexpr bool operator==(const row_room&, const row_room&) = default;
};

/// First-fit: rows of one size, filled one sample after another, each into the first row that has room in both lengths.
///
/// Method: a tree over the rows; the first row with room is found from the left. A node holds the most room left below
/// it, for each length by itself. A row long of input beside one long of target would mislead that, so it holds as well
/// the most that one row below it has of both together, at three proportions. Rows not yet begun have all.
///
/// Complexity: O(log rows) a sample with one length. With two, a node may still promise what no row below it has, and
/// O(rows) is possible; in practice it grows little faster than log rows. 80 bytes a row. Exact for any rows; for rows
/// above 2^30 tokens with two lengths the proportions saturate, and mislead more.
class first_fit {
 public:
  explicit first_fit(row_room row) : row_{room_of(row, row)} { grow(64); }

  /// The row that takes `sample`, which now has less room. `sample` must fit an empty row.
  std::size_t place(row_room sample) {
    const room needed = room_of(sample, row_.left);
    DYNAPIPE_ASSERT(holds(row_, needed));
    std::size_t node = find(needed);
    while (node == 0) {
      grow(2 * leaves_);
      node = find(needed);
    }
    const std::size_t row = node - leaves_;
    rows_ = std::max(rows_, row + 1);
    const row_room left = tree_[node].left;
    tree_[node] = room_of({left.input - sample.input, left.target - sample.target}, row_.left);
    while (node > 1)
      join(node /= 2);
    return row;
  }

  /// Rows begun.
  [[nodiscard]] std::size_t rows() const { return rows_; }

 private:
  struct room {
    row_room left;
    /// The lesser of the shares of input and target, times row.input * row.target; of one of them 8 times over.
    std::array<std::int64_t, 3> both{};
  };

  [[nodiscard]] static room room_of(row_room left, row_room row) {
    if (row.target == 0) return {left, {}};
    const std::int64_t input = saturating_mul(left.input, row.target);
    const std::int64_t target = saturating_mul(left.target, row.input);
    return {left,
            {std::min(saturating_mul(8, input), target), std::min(input, target),
             std::min(input, saturating_mul(8, target))}};
  }
  [[nodiscard]] static bool holds(const room& has, const room& needed) {
    return has.left.input >= needed.left.input && has.left.target >= needed.left.target &&
           has.both[0] >= needed.both[0] && has.both[1] >= needed.both[1] && has.both[2] >= needed.both[2];
  }

  /// The node of the first row with room; 0 where there is none.
  [[nodiscard]] std::size_t find(const room& needed) const {
    std::size_t node = 1;
    while (node > 0) {
      if (holds(tree_[node], needed)) {
        if (node >= leaves_) return node;
        node *= 2;
      } else {
        while (node % 2 == 1)
          node /= 2;
        if (node > 0) ++node;
      }
    }
    return 0;
  }

  void join(std::size_t node) {
    const room& a = tree_[2 * node];
    const room& b = tree_[2 * node + 1];
    tree_[node] = {{std::max(a.left.input, b.left.input), std::max(a.left.target, b.left.target)},
                   {std::max(a.both[0], b.both[0]), std::max(a.both[1], b.both[1]), std::max(a.both[2], b.both[2])}};
  }

  void grow(std::size_t leaves) {
    std::vector<room> wider(2 * leaves, row_);
    std::copy(tree_.begin() + static_cast<std::ptrdiff_t>(leaves_), tree_.end(),
              wider.begin() + static_cast<std::ptrdiff_t>(leaves));
    tree_ = std::move(wider);
    leaves_ = leaves;
    for (std::size_t node = leaves; --node > 0;)
      join(node);
  }

  room row_;
  std::vector<room> tree_;
  std::size_t leaves_ = 0;
  std::size_t rows_ = 0;
};

/// Samples of one micro-batch, packed into rows.
struct packed_rows {
  std::vector<std::size_t> order;     ///< positions of the samples, row after row
  std::vector<std::size_t> row_ends;  ///< where each row ends in `order`, as in `micro_batch`

  [[nodiscard]] std::size_t rows() const { return row_ends.size(); }
};

namespace detail {

/// A row that holds k samples has k - 1 separators: with a separator in front of every sample, and one more in the row,
/// sizes add up. A length of 0 in the row means that it does not count.
[[nodiscard]] constexpr row_room with_separator(row_room tokens, row_room row, std::int64_t separator) {
  return {tokens.input + separator, row.target > 0 ? tokens.target + separator : 0};
}

/// Positions of `sizes` by input / room.input + target / room.target, largest first, equal ones by position. Lengths up
/// to 2^31 + a multiple of the padding.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> longest_first(std::span<const row_room> sizes, row_room room) {
  const auto times = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(std::max<std::int64_t>(1, b));
  };
  const bool two = room.target > 0;
  const std::uint64_t most = (two ? 2 : 1) * times(room.input, room.target);
  std::vector<order_key> keys;
  keys.reserve(sizes.size());
  for (const row_room& size : sizes)
    keys.push_back({0, most - times(size.input, room.target) - (two ? times(size.target, room.input) : 0)});
  return sort_keys(keys);
}

/// Rows from the row that each sample was given, samples of a row by their turn in `turns`.
template <class Lazy = void>
[[nodiscard]] packed_rows rows_of(std::span<const std::size_t> turns, std::span<const std::size_t> row_of,
                                  std::size_t rows) {
  packed_rows packed{std::vector<std::size_t>(turns.size()), std::vector<std::size_t>(rows + 1, 0)};
  for (const std::size_t row : row_of)
    ++packed.row_ends[row + 1];
  std::partial_sum(packed.row_ends.begin(), packed.row_ends.end(), packed.row_ends.begin());
  for (std::size_t turn = 0; turn < turns.size(); ++turn)
    packed.order[packed.row_ends[row_of[turn]]++] = turns[turn];
  packed.row_ends.pop_back();
  return packed;
}

}  // namespace detail

/// The row that `samples` need when each has a row: their longest input and longest target, padded; target 0 where none
/// has one. O(n).
template <class Lazy = void>
[[nodiscard]] row_room padded_row(std::span<const sample_lengths> samples, const shape_options& shapes) {
  row_room row;
  for (const sample_lengths& s : samples) {
    row.input = std::max(row.input, padded_length(s.input, shapes));
    if (s.target > 0) row.target = std::max(row.target, padded_length(s.target, shapes));
  }
  return row;
}

/// Packs samples into few rows of the size `row`, with `separator_tokens` between two samples of a row.
///
/// Problem: bin packing, and vector packing in two dimensions where samples have two lengths: of a row's k samples the
/// inputs and k - 1 separators must fit `row.input`, the targets and k - 1 separators `row.target`. Tokens that a
/// decoder reads beyond the target stay with each sample. Method: first-fit decreasing (Johnson, 1973), by the
/// sum of the shares that a sample takes of either length, separator and all; equal samples by position.
///
/// Guarantee: with one length at most 11/9 of the fewest rows + 6/9 (Dosa, 2007); with two none beyond what `first_fit`
/// gives, that no sample of a row fits an earlier one. No sample may be longer than `row`; lengths up to 2^31. Rows are
/// in the order begun. O(n log n) as `first_fit`; never throws.
template <class Lazy = void>
[[nodiscard]] packed_rows pack_rows(std::span<const sample_lengths> samples, row_room row,
                                    const shape_options& shapes) {
  const row_room room = detail::with_separator(row, row, shapes.separator_tokens);
  std::vector<row_room> sizes;
  sizes.reserve(samples.size());
  for (const sample_lengths& s : samples)
    sizes.push_back(detail::with_separator({s.input, s.target}, row, shapes.separator_tokens));
  first_fit fit{room};
  std::vector<std::size_t> turns;
  std::vector<std::size_t> row_of;
  turns.reserve(samples.size());
  row_of.reserve(samples.size());
  for (const sample_id id : detail::longest_first(sizes, room)) {
    turns.push_back(index(id));
    row_of.push_back(fit.place(sizes[index(id)]));
  }
  return detail::rows_of(turns, row_of, fit.rows());
}

/// Rows needed by the first samples of a run.
struct prefix_rows {
  std::vector<std::int64_t> enough;    ///< `enough[k - 1]`: rows that first-fit needs for the first k samples
  std::vector<std::int64_t> at_least;  ///< no packing of the first k samples has fewer
};

/// Rows of the size `row` for every prefix of `samples`, all in one pass, so that a partition can price packed ranges.
///
/// `enough` is first-fit in the order given; where the run stands longest first in one length, that is first-fit
/// decreasing of every prefix. `at_least` is the larger of the tokens over the row's, rounded up, and the number of
/// samples of which no two share a row, for each length. No sample may be longer than `row`, which in a run that begins
/// with its longest is `padded_row` of the first. O(n log n) as `first_fit`; never throws.
template <class Lazy = void>
[[nodiscard]] prefix_rows rows_of_prefixes(std::span<const sample_lengths> samples, row_room row,
                                           const shape_options& shapes) {
  const row_room room = detail::with_separator(row, row, shapes.separator_tokens);
  first_fit fit{room};
  prefix_rows result;
  row_room sum;
  row_room large;
  const auto bound = [](std::int64_t taken, std::int64_t alone, std::int64_t length) {
    return length > 0 ? std::max(alone, ceil_div(taken, length)) : alone;
  };
  for (const sample_lengths& s : samples) {
    const row_room size = detail::with_separator({s.input, s.target}, row, shapes.separator_tokens);
    fit.place(size);
    sum = {saturating_add(sum.input, size.input), saturating_add(sum.target, size.target)};
    large = {large.input + (2 * size.input > room.input ? 1 : 0),
             large.target + (2 * size.target > room.target ? 1 : 0)};
    result.enough.push_back(static_cast<std::int64_t>(fit.rows()));
    result.at_least.push_back(std::max(
        {std::int64_t{1}, bound(sum.input, large.input, room.input), bound(sum.target, large.target, room.target)}));
  }
  return result;
}

/// The padded shape of packed rows: the fullest row decides each length.
///
/// It prices attention over the whole row: as if samples in a row saw one another, or the kernel did not skip masked
/// pairs. Where it skips them (a document mask), price `masked_shape`. O(n), never throws.
template <class Lazy = void>
[[nodiscard]] shape packed_shape(std::span<const sample_lengths> samples, const packed_rows& packed,
                                 const shape_options& shapes) {
  shape padded{static_cast<std::int64_t>(packed.rows()), 0, 0};
  std::size_t begin = 0;
  for (const std::size_t end : packed.row_ends) {
    const auto separators = static_cast<std::int64_t>(end - begin - 1) * shapes.separator_tokens;
    row_room used;
    for (; begin < end; ++begin) {
      used.input += samples[packed.order[begin]].input;
      used.target += samples[packed.order[begin]].target;
    }
    padded.input = std::max(padded.input, padded_length(used.input + separators, shapes));
    if (used.target > 0) padded.target = std::max(padded.target, padded_length(used.target + separators, shapes));
  }
  return padded;
}

/// What packed rows cost where every sample attends to itself alone and masked pairs are skipped: tokens with padding
/// and separators, which all layers but attention's core work on, and the pairs of the samples. `window` as the model
/// has it. O(n), never throws.
template <class Lazy = void>
[[nodiscard]] varlen_shape masked_shape(std::span<const sample_lengths> samples, const shape& padded,
                                        std::int64_t window = 0) {
  varlen_shape masked;
  for (const sample_lengths& s : samples)
    masked = with_sample(masked, s.input, s.target, window);
  masked.tokens = padded.rows * padded.input;
  masked.target_tokens = padded.rows * padded.target;
  return masked;
}

/// Samples as rows: one a row, or packed where that is cheaper.
struct row_choice {
  packed_rows rows;
  shape padded;
  nanoseconds time{0};
  bool packed = false;
};

/// Packs the samples of a micro-batch into rows as long as its longest where that takes less time, as DynaPipe does
/// with `enable_packing`; equal times are not packed. `time(shape)` gives the time of a padded shape, none where it
/// does not fit. None where neither fits. Two calls of `time`, and `pack_rows`.
///
/// Unlike the published program, whose memory check prices the packed rows at the padded lengths from before, each form
/// is judged by its own shape.
template <class ShapeTime>
[[nodiscard]] std::optional<row_choice> pack_where_cheaper(std::span<const sample_lengths> samples,
                                                           const shape_options& shapes, ShapeTime&& time) {
  if (samples.empty()) return row_choice{};
  const row_room row = padded_row(samples, shapes);
  const shape plain{static_cast<std::int64_t>(samples.size()), row.input, row.target};
  const std::optional<nanoseconds> alone = time(plain);
  packed_rows packed = pack_rows(samples, row, shapes);
  if (packed.rows() < samples.size()) {
    const shape padded = packed_shape(samples, packed, shapes);
    const std::optional<nanoseconds> together = time(padded);
    if (together && (!alone || *together < *alone)) return row_choice{std::move(packed), padded, *together, true};
  }
  if (!alone) return std::nullopt;
  row_choice choice{.rows = {}, .padded = plain, .time = *alone};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    choice.rows.order.push_back(i);
    choice.rows.row_ends.push_back(i + 1);
  }
  return choice;
}

}  // namespace dynapipe
