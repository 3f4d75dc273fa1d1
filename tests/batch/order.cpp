#include <cstddef>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/order.hpp>

using namespace dynapipe;

namespace {

std::vector<int> order_of(const std::vector<sample_lengths>& lengths) {
  std::vector<int> ids;
  for (const sample_id id : order_by_length(lengths))
    ids.push_back(static_cast<int>(id));
  return ids;
}

}  // namespace

TEST_CASE("longest first, by input, then target, then id") {
  CHECK(order_of({}).empty());
  CHECK(order_of({{5, 0, 5}}) == std::vector{0});
  CHECK(order_of({{3, 0, 1}, {9, 0, 1}, {5, 0, 1}}) == std::vector{1, 2, 0});
  CHECK(order_of({{5, 2, 9}, {5, 7, 0}, {5, 2, 1}, {6, 0, 0}}) == std::vector{3, 1, 0, 2});
  CHECK(order_of({{4, 4, 1}, {4, 4, 2}, {4, 4, 3}}) == std::vector{0, 1, 2});
}

TEST_CASE("random orders hold every sample once and stand as documented") {
  constexpr unsigned seed = 77;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 300; ++round) {
    std::vector<sample_lengths> lengths(random() % 50);
    for (sample_lengths& s : lengths)
      s = {static_cast<std::int64_t>(random() % 6), static_cast<std::int64_t>(random() % 4),
           static_cast<std::int64_t>(random() % 9)};
    const std::vector<sample_id> order = order_by_length(lengths);
    std::vector<bool> seen(lengths.size(), false);
    REQUIRE(order.size() == lengths.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      REQUIRE_FALSE(seen[index(order[i])]);
      seen[index(order[i])] = true;
      if (i == 0) continue;
      const sample_lengths& before = lengths[index(order[i - 1])];
      const sample_lengths& now = lengths[index(order[i])];
      CHECK(before.input >= now.input);
      if (before.input == now.input) CHECK(before.target >= now.target);
      if (before.input == now.input && before.target == now.target) CHECK(order[i - 1] < order[i]);
    }
  }
}
