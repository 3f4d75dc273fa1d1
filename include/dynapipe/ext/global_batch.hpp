#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/core/error.hpp>
#include <dynapipe/ext/csv.hpp>

/// From a lengths file to global batches: one seeded shuffle, then cuts.

namespace dynapipe {

/// Where a global batch ends. Exactly one of the two is set, and at least 1.
struct batch_cut {
  std::optional<std::int64_t> tokens;   ///< at most so many of input + target; a longer row is a batch of its own
  std::optional<std::int64_t> samples;  ///< so many rows; the last batch may have fewer
};

namespace detail {

/// A number from 0 to bound - 1, all equally likely; bound > 0. Draws again while the number drawn is below
/// 2^64 mod bound, then takes it modulo bound.
inline std::uint64_t draw_below(std::mt19937_64& random, std::uint64_t bound) {
  const std::uint64_t uneven = (std::uint64_t{0} - bound) % bound;
  std::uint64_t drawn = random();
  while (drawn < uneven)
    drawn = random();
  return drawn % bound;
}

}  // namespace detail

/// The rows 0 .. count - 1 in the random order of `seed`, the same on every machine.
///
/// Fisher-Yates walk from the end: order = 0, 1, ...; for i = count - 1 down to 1, swap order[i] with order[j], j drawn
/// evenly from 0 .. i. Numbers come from mt19937_64, seeded with `seed` as by the standard's constructor; one below
/// bound = i + 1 is drawn so: x = next number, and again while x < 2^64 mod bound; j = x mod bound. (The standard's
/// distributions and std::shuffle differ from library to library.)
/// Complexity: linear. Never throws but for memory.
[[nodiscard]] inline std::vector<std::int64_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(count);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::mt19937_64 random{seed};
  for (std::size_t i = count; i-- > 1;)
    std::swap(order[i], order[detail::draw_below(random, i + 1)]);
  return order;
}

/// Cuts the rows, taken in `order`, into global batches: lists of row indices.
///
/// By tokens a batch closes before the row whose input + target would take it above the wanted number; a single longer
/// row is a batch of its own. By samples every batch but the last has the wanted number of rows. No batch is empty, and
/// the batches in a row are `order`.
/// `order` holds indices into `rows`. Complexity: linear. Throws `error` naming the value where not exactly one of the
/// two is set, or it is below 1.
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> cut_batches(std::span<const length_row> rows,
                                                                        std::span<const std::int64_t> order,
                                                                        const batch_cut& cut) {
  if (cut.tokens.has_value() == cut.samples.has_value())
    throw error{"a global batch is cut by tokens or by samples, one of the two"};
  const std::int64_t wanted = cut.tokens ? *cut.tokens : *cut.samples;
  if (wanted < 1)
    throw error{"a global batch of " + std::to_string(wanted) + (cut.tokens ? " tokens" : " samples") + ": at least 1"};
  std::vector<std::vector<std::int64_t>> batches;
  std::int64_t held = 0;
  for (const std::int64_t index : order) {
    DYNAPIPE_ASSERT(index >= 0 && static_cast<std::size_t>(index) < rows.size());
    const length_row& row = rows[static_cast<std::size_t>(index)];
    const std::int64_t weight = cut.tokens ? row.input + row.target : 1;
    if (batches.empty() || weight > wanted - held) {
      batches.emplace_back();
      held = 0;
    }
    batches.back().push_back(index);
    held += weight;
  }
  return batches;
}

}  // namespace dynapipe
