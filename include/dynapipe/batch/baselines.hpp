#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/batch/order_sorts.hpp>
#include <dynapipe/batch/rows.hpp>
#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/cost/shape.hpp>

/// How others build micro-batches, to compare with on the same costs. All take samples in the order of the data, whose
/// positions are their ids, up to 2^31 tokens long; put each sample into one micro-batch; and are deterministic. None
/// looks at times or memory. Samples above a cap are an error here: a caller drops or cuts them before.

namespace dynapipe {

/// How samples are packed.
enum class packing : std::uint8_t {
  next_fit,             ///< in the order of the data; what does not fit closes what is open
  first_fit_decreasing  ///< longest first, each into the first that has room
};

namespace detail {

/// The samples `ids` as a micro-batch, one a row, padded to the longest.
template <class Lazy = void>
[[nodiscard]] micro_batch padded_micro_batch(std::span<const sample_lengths> lengths, std::span<const sample_id> ids,
                                             const shape_options& shapes) {
  micro_batch result{.samples = {ids.begin(), ids.end()}, .row_ends = {}, .padded = {}};
  result.padded.rows = static_cast<std::int64_t>(ids.size());
  for (const sample_id id : ids) {
    const sample_lengths& s = lengths[index(id)];
    result.padded.input = std::max(result.padded.input, padded_length(s.input, shapes));
    if (s.target > 0) result.padded.target = std::max(result.padded.target, padded_length(s.target, shapes));
    result.loss_tokens = saturating_add(result.loss_tokens, s.loss);
  }
  return result;
}

/// Runs of `rows` samples of `ids`, the last with what is left, each padded to its longest.
template <class Lazy = void>
[[nodiscard]] std::vector<micro_batch> in_runs(std::span<const sample_lengths> lengths, std::span<const sample_id> ids,
                                               std::size_t rows, const shape_options& shapes) {
  std::vector<micro_batch> result;
  for (std::size_t begin = 0; begin < ids.size(); begin += rows)
    result.push_back(padded_micro_batch(lengths, ids.subspan(begin, std::min(rows, ids.size() - begin)), shapes));
  return result;
}

/// Refuses a sample that a cap has no room for. @throws error naming the sample, its length and the cap.
template <class Lazy = void>
void require_below(std::size_t number, std::int64_t length, std::int64_t cap, const char* what) {
  if (length > cap)
    throw error{"sample " + std::to_string(number) + " has " + std::to_string(length) + " tokens of " + what +
                ", more than the " + std::to_string(cap) + " there is room for"};
}

/// `sizes` in rows of the size `room`: a row number for each, in the order of `turns`, and the number of rows.
template <class Lazy = void>
[[nodiscard]] std::pair<std::vector<std::size_t>, std::size_t> rows_by(packing how, std::span<const std::size_t> turns,
                                                                       std::span<const row_room> sizes, row_room room) {
  std::vector<std::size_t> row_of;
  row_of.reserve(turns.size());
  if (how == packing::first_fit_decreasing) {
    first_fit fit{room};
    for (const std::size_t i : turns)
      row_of.push_back(fit.place(sizes[i]));
    return {std::move(row_of), fit.rows()};
  }
  std::size_t rows = 0;
  row_room left;
  for (const std::size_t i : turns) {
    if (rows == 0 || sizes[i].input > left.input || sizes[i].target > left.target) {
      ++rows;
      left = room;
    }
    left = {left.input - sizes[i].input, left.target - sizes[i].target};
    row_of.push_back(rows - 1);
  }
  return {std::move(row_of), rows};
}

/// The order in which samples are packed: that of the data, or the longest first, by their share of `room`.
template <class Lazy = void>
[[nodiscard]] std::vector<std::size_t> packing_turns(packing how, std::span<const row_room> sizes, row_room room) {
  std::vector<std::size_t> turns(sizes.size());
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  if (how == packing::next_fit) return turns;
  const std::vector<sample_id> order = longest_first(sizes, room);
  std::transform(order.begin(), order.end(), turns.begin(), [](sample_id id) { return index(id); });
  return turns;
}

}  // namespace detail

/// Every sample padded to the longest of the batch, in the order of the data, `rows` a micro-batch (the last has what
/// is left). O(n).
template <class Lazy = void>
[[nodiscard]] std::vector<micro_batch> pad_to_longest(std::span<const sample_lengths> lengths, std::size_t rows,
                                                      const shape_options& shapes) {
  DYNAPIPE_ASSERT(rows > 0);
  std::vector<sample_id> ids(lengths.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = to_id<sample_id>(i);
  const row_room longest = padded_row(lengths, shapes);
  std::vector<micro_batch> result = detail::in_runs(lengths, ids, rows, shapes);
  for (micro_batch& mb : result)
    mb.padded = {mb.padded.rows, longest.input, longest.target};
  return result;
}

/// Samples packed into rows of one length, `rows` rows a micro-batch (the last has what is left): the packing that
/// DynaPipe compares with is next-fit in the order of the data. `separator_tokens` stand between two samples of a row,
/// as in `pack_rows`; every row is padded to `row`, rounded up to the padding multiple. `row.target` is 0 for samples
/// with one length. O(n), and O(n log n) for first-fit decreasing.
///
/// @throws error naming a sample that is longer than a row.
template <class Lazy = void>
[[nodiscard]] std::vector<micro_batch> pack_to_length(std::span<const sample_lengths> lengths, row_room row,
                                                      std::size_t rows, packing how, const shape_options& shapes) {
  DYNAPIPE_ASSERT(rows > 0);
  std::vector<row_room> sizes;
  sizes.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    detail::require_below(i, lengths[i].input, row.input, "input");
    detail::require_below(i, lengths[i].target, row.target, "target");
    sizes.push_back(detail::with_separator({lengths[i].input, lengths[i].target}, row, shapes.separator_tokens));
  }
  const row_room room = detail::with_separator(row, row, shapes.separator_tokens);
  const std::vector<std::size_t> turns = detail::packing_turns(how, sizes, room);
  const auto [row_of, count] = detail::rows_by(how, turns, sizes, room);
  const packed_rows packed = detail::rows_of(turns, row_of, count);

  std::vector<micro_batch> result;
  std::size_t from = 0;
  for (std::size_t first = 0; first < count; first += rows) {
    const std::size_t last = std::min(first + rows, count);
    micro_batch mb;
    for (std::size_t r = first; r < last; ++r)
      mb.row_ends.push_back(packed.row_ends[r] - from);
    for (; from < packed.row_ends[last - 1]; ++from) {
      mb.samples.push_back(to_id<sample_id>(packed.order[from]));
      mb.loss_tokens = saturating_add(mb.loss_tokens, lengths[packed.order[from]].loss);
    }
    mb.padded = {static_cast<std::int64_t>(last - first), padded_length(row.input, shapes),
                 row.target > 0 ? padded_length(row.target, shapes) : 0};
    result.push_back(std::move(mb));
  }
  return result;
}

/// Samples concatenated without padding to a token cap: every micro-batch is one row, its input and target together at
/// most `cap` tokens. Each length is rounded up to the padding multiple (1: none) before it is counted, as kernels and
/// context parallelism want it. `padded` is one row of the sums. O(n), and O(n log n) for first-fit decreasing.
///
/// @throws error naming a sample above the cap.
template <class Lazy = void>
[[nodiscard]] std::vector<micro_batch> pack_to_cap(std::span<const sample_lengths> lengths, std::int64_t cap,
                                                   packing how, const shape_options& shapes) {
  std::vector<row_room> sizes;
  sizes.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const sample_lengths& s = lengths[i];
    sizes.push_back({padded_length(s.input, shapes) + (s.target > 0 ? padded_length(s.target, shapes) : 0), 0});
    detail::require_below(i, sizes.back().input, cap, "rounded input and target");
  }
  const std::vector<std::size_t> turns = detail::packing_turns(how, sizes, {cap, 0});
  const auto [row_of, count] = detail::rows_by(how, turns, sizes, {cap, 0});
  std::vector<micro_batch> result(count);
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    micro_batch& mb = result[row_of[turn]];
    const sample_lengths& s = lengths[turns[turn]];
    mb.samples.push_back(to_id<sample_id>(turns[turn]));
    mb.padded = {1, mb.padded.input + padded_length(s.input, shapes),
                 mb.padded.target + (s.target > 0 ? padded_length(s.target, shapes) : 0)};
    mb.loss_tokens = saturating_add(mb.loss_tokens, s.loss);
  }
  for (micro_batch& mb : result)
    mb.row_ends = {mb.samples.size()};
  return result;
}

/// Samples by length, shortest first, as many in a micro-batch as rows * (longest input + longest target), padded,
/// stays within `budget` tokens. A micro-batch of more than `multiple` rows that is full keeps a multiple of it, and
/// hands the others on.
///
/// As fairseq's `batch_by_size`, but that what is handed on is checked again with the sample that follows: there
/// fifteen samples of 100 tokens and one of 2,000 make, at a budget of 3,000 and multiples of 8, a micro-batch of
/// 16,000. O(n log n), and O(n * multiple) at worst.
///
/// @throws error naming a sample above the budget.
template <class Lazy = void>
[[nodiscard]] std::vector<micro_batch> fill_token_budget(std::span<const sample_lengths> lengths, std::int64_t budget,
                                                         std::size_t multiple, const shape_options& shapes) {
  DYNAPIPE_ASSERT(multiple > 0);
  std::vector<sample_id> ids = order_by_length(lengths);
  std::reverse(ids.begin(), ids.end());
  const auto same = [&](sample_id a, sample_id b) {
    const sample_lengths& x = lengths[index(a)];
    const sample_lengths& y = lengths[index(b)];
    return x.input == y.input && x.target == y.target;
  };
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && same(ids[begin], ids[end]))
      ++end;
    std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end));
  }

  std::vector<micro_batch> result;
  std::size_t begin = 0;
  row_room longest;
  const auto with = [&](row_room room, std::size_t at) {
    const row_room alone = padded_row(lengths.subspan(index(ids[at]), 1), shapes);
    return row_room{std::max(room.input, alone.input), std::max(room.target, alone.target)};
  };
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const row_room alone = with({}, at);
    detail::require_below(index(ids[at]), alone.input + alone.target, budget, "padded input and target");
    row_room next = with(longest, at);
    while (begin < at && saturating_mul(static_cast<std::int64_t>(at + 1 - begin), next.input + next.target) > budget) {
      const std::size_t open = at - begin;
      const std::size_t kept = open < multiple ? open : open / multiple * multiple;
      result.push_back(detail::padded_micro_batch(lengths, std::span{ids}.subspan(begin, kept), shapes));
      begin += kept;
      next = alone;
      for (std::size_t i = begin; i < at; ++i)
        next = with(next, i);
    }
    longest = next;
  }
  if (begin < ids.size()) result.push_back(detail::padded_micro_batch(lengths, std::span{ids}.subspan(begin), shapes));
  return result;
}

/// Samples by length, longest first (`order_by_length`), `rows` a micro-batch (the last has what is left), each padded
/// to its own longest. O(n log n).
template <class Lazy = void>
[[nodiscard]] std::vector<micro_batch> fixed_size(std::span<const sample_lengths> lengths, std::size_t rows,
                                                  const shape_options& shapes) {
  DYNAPIPE_ASSERT(rows > 0);
  return detail::in_runs(lengths, order_by_length(lengths), rows, shapes);
}

}  // namespace dynapipe
