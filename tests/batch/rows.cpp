#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/rows.hpp>

using namespace dynapipe;

namespace {

std::vector<sample_lengths> inputs(const std::vector<std::int64_t>& lengths) {
  std::vector<sample_lengths> samples;
  for (const std::int64_t length : lengths)
    samples.push_back({length, 0, 0});
  return samples;
}

/// Rows as lists of positions, each checked for its room from the definition.
std::vector<std::vector<std::size_t>> checked_rows(const std::vector<sample_lengths>& samples,
                                                   const packed_rows& packed, row_room row, std::int64_t separator) {
  REQUIRE(packed.order.size() == samples.size());
  std::vector<std::vector<std::size_t>> rows;
  std::vector<bool> seen(samples.size(), false);
  std::size_t begin = 0;
  for (const std::size_t end : packed.row_ends) {
    REQUIRE(begin < end);
    REQUIRE(end <= packed.order.size());
    std::int64_t input = -separator;
    std::int64_t target = -separator;
    rows.emplace_back();
    for (; begin < end; ++begin) {
      const std::size_t i = packed.order[begin];
      REQUIRE_FALSE(seen[i]);
      seen[i] = true;
      rows.back().push_back(i);
      input += samples[i].input + separator;
      target += samples[i].target + separator;
    }
    REQUIRE(input <= row.input);
    if (row.target > 0) REQUIRE(target <= row.target);
  }
  REQUIRE(begin == samples.size());
  return rows;
}

/// First-fit in the order `turns`, by looking at every row.
std::vector<std::vector<std::size_t>> naive_first_fit(const std::vector<sample_lengths>& samples,
                                                      const std::vector<std::size_t>& turns, row_room row,
                                                      std::int64_t separator) {
  std::vector<std::vector<std::size_t>> rows;
  for (const std::size_t i : turns) {
    bool placed = false;
    for (auto& one : rows) {
      std::int64_t input = samples[i].input;
      std::int64_t target = samples[i].target;
      for (const std::size_t other : one) {
        input += samples[other].input + separator;
        target += samples[other].target + separator;
      }
      if (input > row.input || (row.target > 0 && target > row.target)) continue;
      one.push_back(i);
      placed = true;
      break;
    }
    if (!placed) rows.push_back({i});
  }
  return rows;
}

/// The fewest rows, by trying all.
std::size_t fewest_rows(const std::vector<sample_lengths>& samples, row_room row, std::int64_t separator,
                        std::vector<row_room>& left, std::size_t next, std::size_t best) {
  if (left.size() >= best) return best;
  if (next == samples.size()) return left.size();
  const std::int64_t input = samples[next].input + separator;
  const std::int64_t target = row.target > 0 ? samples[next].target + separator : 0;
  for (std::size_t r = 0; r <= left.size(); ++r) {
    if (r == left.size()) {
      left.push_back({row.input + separator - input, (row.target > 0 ? row.target + separator : 0) - target});
      best = std::min(best, fewest_rows(samples, row, separator, left, next + 1, best));
      left.pop_back();
      break;
    }
    if (left[r].input < input || left[r].target < target) continue;
    left[r] = {left[r].input - input, left[r].target - target};
    best = std::min(best, fewest_rows(samples, row, separator, left, next + 1, best));
    left[r] = {left[r].input + input, left[r].target + target};
  }
  return best;
}

/// Lengths up to `row`, over `part`.
std::vector<sample_lengths> random_samples(std::mt19937_64& random, std::size_t count, row_room row,
                                           std::int64_t part = 1) {
  const auto up_to = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  std::vector<sample_lengths> samples(count);
  for (sample_lengths& s : samples)
    s = {up_to(row.input / part), row.target > 0 ? up_to(row.target / part) : 0, 0};
  return samples;
}

}  // namespace

TEST_CASE("rows by hand") {
  const shape_options shapes{.padding_multiple = 1, .separator_tokens = 1};
  // 6 + 1 + 3 fills a row of 10; 5 + 1 + 4 another.
  const packed_rows packed = pack_rows(inputs({3, 4, 5, 6}), {10, 0}, shapes);
  CHECK(packed.order == std::vector<std::size_t>{3, 0, 2, 1});
  CHECK(packed.row_ends == std::vector<std::size_t>{2, 4});
  // With two separators nothing of that fits: 6 + 3, 5 + 4 need 11.
  CHECK(pack_rows(inputs({3, 4, 5, 6}), {10, 0}, {.padding_multiple = 1, .separator_tokens = 2}).rows() == 3);
  CHECK(pack_rows({}, {10, 0}, shapes).rows() == 0);
  // Both lengths count: the inputs would fit one row, the targets do not.
  const std::vector<sample_lengths> pairs{{2, 5, 0}, {2, 5, 0}, {2, 1, 0}};
  CHECK(pack_rows(pairs, {10, 7}, shapes).rows() == 2);
  CHECK(pack_rows(pairs, {10, 13}, shapes).rows() == 1);
  // A sample without a target takes a separator of the target's row.
  CHECK(pack_rows(std::vector<sample_lengths>{{1, 5, 0}, {1, 0, 0}}, {10, 5}, shapes).rows() == 2);
}

TEST_CASE("a longer search for the first row: more rows than the tree begins with") {
  const shape_options shapes{.padding_multiple = 1, .separator_tokens = 0};
  std::vector<std::int64_t> lengths(1'000, 6);
  lengths.insert(lengths.end(), 1'000, 4);
  const packed_rows packed = pack_rows(inputs(lengths), {10, 0}, shapes);
  CHECK(packed.rows() == 1'000);
  for (const std::size_t i : packed.order)
    if (i >= 1'000) CHECK(packed.order[2 * (i - 1'000) + 1] == i);
}

TEST_CASE("first-fit decreasing: as the naive one, rows within their room, near the fewest") {
  constexpr unsigned seed = 1'973;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  std::size_t rows = 0;
  std::size_t fewest = 0;
  for (int round = 0; round < 600; ++round) {
    CAPTURE(round);
    const bool two = round % 2 == 1;
    const row_room row{5 + static_cast<std::int64_t>(random() % 60),
                       two ? 5 + static_cast<std::int64_t>(random() % 60) : 0};
    const std::int64_t separator = static_cast<std::int64_t>(random() % 3);
    const shape_options shapes{.padding_multiple = 1, .separator_tokens = separator};
    const std::vector<sample_lengths> samples =
        random_samples(random, 1 + random() % (round < 400 ? 11 : 300), row, 1 + round / 2 % 2);
    const packed_rows packed = pack_rows(samples, row, shapes);
    const auto found = checked_rows(samples, packed, row, separator);

    const auto share = [&](std::size_t i) {
      return (samples[i].input + separator) * (two ? row.target + separator : 1) +
             (two ? (samples[i].target + separator) * (row.input + separator) : 0);
    };
    std::vector<std::size_t> turns(samples.size());
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    std::sort(turns.begin(), turns.end(),
              [&](std::size_t a, std::size_t b) { return share(a) != share(b) ? share(a) > share(b) : a < b; });
    REQUIRE(found == naive_first_fit(samples, turns, row, separator));

    const prefix_rows prefixes = rows_of_prefixes(samples, row, shapes);
    std::vector<std::size_t> given;
    for (std::size_t k = 1; k <= samples.size(); ++k) {
      given.push_back(k - 1);
      if (samples.size() < 40 || k == samples.size())
        REQUIRE(prefixes.enough[k - 1] ==
                static_cast<std::int64_t>(naive_first_fit(samples, given, row, separator).size()));
      REQUIRE(prefixes.at_least[k - 1] <= prefixes.enough[k - 1]);
    }
    if (samples.size() > 11) continue;
    std::vector<row_room> none;
    const std::size_t best = fewest_rows(samples, row, separator, none, 0, samples.size());
    REQUIRE(prefixes.at_least.back() <= static_cast<std::int64_t>(best));
    REQUIRE(best <= packed.rows());
    if (!two) REQUIRE(9 * packed.rows() <= 11 * best + 6);
    rows += packed.rows();
    fewest += best;
  }
  MESSAGE("rows: ", rows, ", fewest: ", fewest);
  CHECK(rows < fewest + fewest / 50);
}

TEST_CASE("prefixes of a sorted run have the rows of first-fit decreasing") {
  std::mt19937_64 random{8};
  const row_room row{64, 0};
  const shape_options shapes{};
  std::vector<sample_lengths> samples = random_samples(random, 80, row);
  std::sort(samples.begin(), samples.end(),
            [](const sample_lengths& a, const sample_lengths& b) { return a.input > b.input; });
  const prefix_rows prefixes = rows_of_prefixes(samples, row, shapes);
  for (std::size_t k = 1; k <= samples.size(); ++k)
    CHECK(prefixes.enough[k - 1] ==
          static_cast<std::int64_t>(pack_rows(std::span{samples}.first(k), row, shapes).rows()));
}

TEST_CASE("shapes of packed rows, with attention over the row and without") {
  const shape_options shapes{.padding_multiple = 8, .separator_tokens = 1};
  const std::vector<sample_lengths> samples{{20, 3, 0}, {9, 4, 0}, {10, 2, 0}};
  const row_room row = padded_row(samples, shapes);
  CHECK(row == row_room{24, 8});
  const packed_rows packed = pack_rows(samples, row, shapes);
  REQUIRE(packed.rows() == 2);
  // 20 alone, 9 + 1 + 10 = 20, targets 4 + 1 + 2 = 7.
  const shape padded = packed_shape(samples, packed, shapes);
  CHECK(padded == shape{2, 24, 8});
  const varlen_shape masked = masked_shape(samples, padded);
  CHECK(masked.tokens == 48);
  CHECK(masked.target_tokens == 16);
  CHECK(masked.squares == 400 + 81 + 100);
  CHECK(masked.target_squares == 9 + 16 + 4);
  CHECK(masked.cross_pairs == 60 + 36 + 20);
  CHECK(masked.samples == 3);
  CHECK(masked_shape(samples, padded, 10).squares == 300 + 81 + 100);
}

TEST_CASE("rows are packed where that is cheaper") {
  const shape_options shapes{.padding_multiple = 8, .separator_tokens = 1};
  const std::vector<sample_lengths> samples = inputs({30, 9, 10});
  const auto by_tokens = [](const shape& s) -> std::optional<nanoseconds> { return nanoseconds{s.rows * s.input}; };
  const std::optional<row_choice> packed = pack_where_cheaper(samples, shapes, by_tokens);
  REQUIRE(packed.has_value());
  CHECK(packed->packed);
  CHECK(packed->padded == shape{2, 32, 0});
  CHECK(packed->time == nanoseconds{64});
  // Equal times: one a row.
  const auto equal = [](const shape&) -> std::optional<nanoseconds> { return nanoseconds{5}; };
  const std::optional<row_choice> plain = pack_where_cheaper(samples, shapes, equal);
  CHECK_FALSE(plain->packed);
  CHECK(plain->padded == shape{3, 32, 0});
  CHECK(plain->rows.row_ends == std::vector<std::size_t>{1, 2, 3});
  // Only the packed form fits; then none.
  const auto two_rows = [](const shape& s) -> std::optional<nanoseconds> {
    return s.rows > 2 ? std::nullopt : std::optional{nanoseconds{1'000}};
  };
  CHECK(pack_where_cheaper(samples, shapes, two_rows)->packed);
  const auto never = [](const shape&) -> std::optional<nanoseconds> { return std::nullopt; };
  CHECK_FALSE(pack_where_cheaper(samples, shapes, never).has_value());
}
