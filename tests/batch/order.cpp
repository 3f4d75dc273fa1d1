#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/order.hpp>

using namespace dynapipe;

namespace {

using lengths_list = std::vector<sample_lengths>;

std::vector<int> numbers(const std::vector<sample_id>& order) {
  std::vector<int> ids;
  for (const sample_id id : order)
    ids.push_back(static_cast<int>(id));
  return ids;
}

std::vector<int> order_of(const lengths_list& lengths) { return numbers(order_by_length(lengths)); }

lengths_list random_lengths(std::mt19937_64& random, std::size_t count, std::int64_t inputs, std::int64_t targets) {
  lengths_list lengths(count);
  for (sample_lengths& s : lengths)
    s = {static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(inputs)),
         static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(targets)),
         static_cast<std::int64_t>(random() % 9)};
  return lengths;
}

}  // namespace

TEST_CASE("longest first, by input, then target, then id") {
  CHECK(order_of({}).empty());
  CHECK(order_of({{5, 0, 5}}) == std::vector{0});
  CHECK(order_of({{3, 0, 1}, {9, 0, 1}, {5, 0, 1}}) == std::vector{1, 2, 0});
  CHECK(order_of({{5, 2, 9}, {5, 7, 0}, {5, 2, 1}, {6, 0, 0}}) == std::vector{3, 1, 0, 2});
  CHECK(order_of({{4, 4, 1}, {4, 4, 2}, {4, 4, 3}}) == std::vector{0, 1, 2});
}

TEST_CASE("sorted orders stand as documented, at every size and width of lengths") {
  constexpr unsigned seed = 77;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  constexpr std::int64_t long_one = std::int64_t{1} << 31;
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    // Few lengths in few samples; then a radix sort of one pass and of several; then lengths too wide for it.
    const std::size_t kind = static_cast<std::size_t>(round) % 4;
    const std::size_t count = std::array<std::size_t, 4>{50, 600, 2'000, 400}[kind];
    const std::int64_t inputs = std::array<std::int64_t, 4>{6, 30, 5'000, long_one}[kind];
    const std::int64_t targets = std::array<std::int64_t, 4>{4, 3, 300, long_one}[kind];
    const lengths_list lengths = random_lengths(random, random() % count, inputs, targets);
    std::vector<int> wanted(lengths.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto sorted_by = [&](auto key) {
      std::sort(wanted.begin(), wanted.end(), [&](int a, int b) {
        const auto x = key(lengths[static_cast<std::size_t>(a)]);
        const auto y = key(lengths[static_cast<std::size_t>(b)]);
        return x != y ? x > y : a < b;
      });
      return wanted;
    };
    REQUIRE(numbers(order_by_length(lengths)) ==
            sorted_by([](const sample_lengths& s) { return std::pair{s.input, s.target}; }));
    REQUIRE(numbers(order_by_target(lengths)) ==
            sorted_by([](const sample_lengths& s) { return std::pair{s.target, s.input}; }));
    REQUIRE(numbers(order_by_sum(lengths)) ==
            sorted_by([](const sample_lengths& s) { return std::pair{s.input + s.target, s.input}; }));
  }
}

TEST_CASE("a snake by hand: down the first strip, up the second") {
  const shape_options exact{.padding_multiple = 1};
  // Strips of three: inputs 9, 8, 8 and 3, 2, 1.
  const lengths_list lengths{{9, 1, 0}, {8, 5, 0}, {8, 3, 0}, {3, 4, 0}, {2, 2, 0}, {1, 6, 0}};
  CHECK(numbers(order_by_snake(lengths, exact, 2)) == std::vector{1, 2, 0, 4, 3, 5});
  // Equal inputs stay in one strip.
  const lengths_list equal{{5, 1, 0}, {5, 2, 0}, {5, 3, 0}, {5, 4, 0}};
  CHECK(numbers(order_by_snake(equal, exact, 4)) == std::vector{3, 2, 1, 0});
  // Lengths that pad alike are equal, and stand by id.
  CHECK(numbers(order_by_snake(lengths_list{{3, 1, 0}, {8, 8, 0}, {5, 2, 0}}, {}, 3)) == std::vector{0, 1, 2});
}

TEST_CASE("Hilbert's curve visits each cell of a square, neighbours side by side") {
  for (const unsigned bits : {1U, 2U, 3U, 5U}) {
    const std::uint64_t side = std::uint64_t{1} << bits;
    std::vector<std::pair<std::int64_t, std::int64_t>> at(side * side, {-1, -1});
    for (std::uint64_t x = 0; x < side; ++x)
      for (std::uint64_t y = 0; y < side; ++y) {
        const std::uint64_t place = detail::hilbert_place(x, y, bits);
        REQUIRE(place < at.size());
        REQUIRE(at[place].first == -1);
        at[place] = {static_cast<std::int64_t>(x), static_cast<std::int64_t>(y)};
      }
    for (std::size_t i = 1; i < at.size(); ++i)
      REQUIRE(std::abs(at[i].first - at[i - 1].first) + std::abs(at[i].second - at[i - 1].second) == 1);
  }
  // The corners of a square of four, from the long inputs on.
  const lengths_list corners{{1, 1, 0}, {1, 3, 0}, {3, 1, 0}, {3, 3, 0}};
  CHECK(numbers(order_by_hilbert(corners, {.padding_multiple = 1})).front() == 2);
}

TEST_CASE("every order holds each sample once and does not depend on the order of the input") {
  constexpr unsigned seed = 1'234;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const lengths_list lengths = random_lengths(random, random() % 300, 1 + round * 9, 1 + round);
    std::vector<std::size_t> shuffle(lengths.size());
    std::iota(shuffle.begin(), shuffle.end(), std::size_t{0});
    std::shuffle(shuffle.begin(), shuffle.end(), random);
    lengths_list shuffled;
    for (const std::size_t i : shuffle)
      shuffled.push_back(lengths[i]);
    for (const auto& [name, text] : sample_order_names) {
      CAPTURE(text);
      const order_options options{.shapes = {.padding_multiple = 1 + round % 3 * 4}};
      const std::vector<sample_id> order = order_samples(lengths, name, options);
      const std::vector<sample_id> other = order_samples(shuffled, name, options);
      REQUIRE(order.size() == lengths.size());
      REQUIRE(other.size() == lengths.size());
      std::vector<bool> seen(lengths.size(), false);
      for (std::size_t i = 0; i < order.size(); ++i) {
        REQUIRE_FALSE(seen[index(order[i])]);
        seen[index(order[i])] = true;
        const sample_lengths& a = lengths[index(order[i])];
        const sample_lengths& b = shuffled[index(other[i])];
        // The same padded lengths at the same place; with the sorts the same lengths.
        REQUIRE(padded_length(a.input, options.shapes) == padded_length(b.input, options.shapes));
        REQUIRE((a.target > 0) == (b.target > 0));
        REQUIRE(padded_length(a.target, options.shapes) == padded_length(b.target, options.shapes));
        if (name == sample_order::length || name == sample_order::target || name == sample_order::sum) {
          REQUIRE(a.input == b.input);
          REQUIRE(a.target == b.target);
        }
        // Equal lengths stand side by side, by id.
        if (i == 0) continue;
        const sample_lengths& before = lengths[index(order[i - 1])];
        if (before.input == a.input && before.target == a.target) REQUIRE(order[i - 1] < order[i]);
      }
    }
  }
}

TEST_CASE("candidate orders: one for one length, all that differ for two") {
  const lengths_list one{{3, 0, 0}, {9, 0, 0}, {5, 0, 0}};
  REQUIRE(candidate_orders(one, false).size() == 1);
  CHECK(candidate_orders(one, false)[0].name == sample_order::length);
  CHECK(candidate_orders({}, true).size() == 1);

  std::mt19937_64 random{6};
  const lengths_list many = random_lengths(random, 200, 900, 300);
  const std::vector<named_order> orders = candidate_orders(many, true);
  REQUIRE(orders.size() == 6);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    CHECK(orders[i].name == sample_order_names[i].first);
    CHECK(orders[i].ids == order_samples(many, orders[i].name));
  }
  CHECK(to_string(sample_order::hilbert) == "hilbert");
  CHECK(value_in(sample_order_names, std::string_view{"tour"}) == sample_order::tour);
  // Without moves a tour is one of the others.
  CHECK(candidate_orders(many, true, {.tour = {.most_moves = 0}}).size() == 5);
}

TEST_CASE("the best order is that of least objective, the first of equals, none where none is feasible") {
  std::mt19937_64 random{7};
  const lengths_list many = random_lengths(random, 100, 900, 300);
  const auto by_name = [](const named_order& order) -> std::optional<wide_int> {
    if (order.name == sample_order::snake) return std::nullopt;
    return order.name == sample_order::sum || order.name == sample_order::tour ? 3 : 4;
  };
  const std::optional<chosen_order> best = best_order(many, by_name);
  REQUIRE(best.has_value());
  CHECK(best->order.name == sample_order::sum);
  CHECK(best->order.ids == order_by_sum(many));
  CHECK(best->objective == 3);
  CHECK_FALSE(best_order(many, [](const named_order&) { return std::optional<std::int64_t>{}; }).has_value());
  // One length: one call.
  int calls = 0;
  const auto count = [&](const named_order&) { return std::optional{++calls}; };
  CHECK(best_order(lengths_list{{3, 0, 0}, {9, 0, 0}}, count)->objective == 1);
  CHECK(calls == 1);
}
