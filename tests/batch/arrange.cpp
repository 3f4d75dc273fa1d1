#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/arrange.hpp>

using namespace dynapipe;

namespace {

using positions = std::vector<std::size_t>;
using order = micro_batch_order;

std::vector<arrange_key> keys_of(const std::vector<std::int64_t>& times, const std::vector<std::int32_t>& first = {}) {
  std::vector<arrange_key> keys;
  for (std::size_t i = 0; i < times.size(); ++i)
    keys.push_back({nanoseconds{times[i]}, static_cast<sample_id>(first.empty() ? 0 : first[i])});
  return keys;
}

positions arrange_times(const std::vector<std::int64_t>& times, order how) {
  const std::vector<arrange_key> keys = keys_of(times);
  return arrange(std::span<const arrange_key>{keys}, how);
}

}  // namespace

TEST_CASE("orders of micro-batches by hand") {
  CHECK(arrange_times({3, 1, 5, 4, 2}, order::largest_first) == positions{2, 3, 0, 4, 1});
  CHECK(arrange_times({3, 1, 5, 4, 2}, order::smallest_first) == positions{1, 4, 0, 3, 2});
  // 1 3 5 4 2
  CHECK(arrange_times({3, 1, 5, 4, 2}, order::ramp) == positions{1, 0, 2, 3, 4});
  CHECK(arrange_times({4, 4, 4, 4}, order::ramp) == positions{2, 0, 1, 3});
  CHECK(arrange_times({}, order::ramp).empty());
  CHECK(arrange_times({7}, order::ramp) == positions{0});
  const std::vector<arrange_key> keys = keys_of({1, 2, 3, 4}, {9, 2, 5, 2});
  CHECK(arrange(std::span<const arrange_key>{keys}, order::arrival) == positions{1, 3, 2, 0});
}

TEST_CASE("equal times keep their positions") {
  for (const order how : {order::largest_first, order::smallest_first, order::arrival})
    CHECK(arrange_times({8, 8, 8, 8}, how) == positions{0, 1, 2, 3});
}

TEST_CASE("random orders are permutations of the promised form") {
  constexpr unsigned seed = 419;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    std::vector<std::int64_t> times(random() % 20);
    for (std::int64_t& t : times)
      t = static_cast<std::int64_t>(random() % 12);
    for (const order how : {order::ramp, order::largest_first, order::smallest_first, order::arrival}) {
      const positions found = arrange_times(times, how);
      positions sorted = found;
      std::sort(sorted.begin(), sorted.end());
      REQUIRE(sorted.size() == times.size());
      for (std::size_t i = 0; i < sorted.size(); ++i)
        CHECK(sorted[i] == i);
      std::vector<std::int64_t> run;
      for (const std::size_t i : found)
        run.push_back(times[i]);
      if (how == order::largest_first) CHECK(std::is_sorted(run.rbegin(), run.rend()));
      if (how == order::smallest_first) CHECK(std::is_sorted(run.begin(), run.end()));
      if (how != order::ramp || run.empty()) continue;
      const auto peak = std::max_element(run.begin(), run.end());
      CHECK(std::is_sorted(run.begin(), peak + 1));
      CHECK(std::is_sorted(run.rbegin(), std::make_reverse_iterator(peak)));
      if (run.size() > 2) CHECK(std::max(run.front(), run.back()) <= *std::min_element(run.begin() + 1, run.end() - 1));
    }
  }
}

TEST_CASE("in lock-step one order serves all replicas") {
  const std::vector<std::vector<arrange_key>> replicas{keys_of({1, 9, 4}, {4, 8, 1}), keys_of({8, 2, 3}, {0, 7, 6})};
  const std::span<const std::vector<arrange_key>> all{replicas};
  CHECK(arrange_steps(all, order::largest_first) == positions{1, 0, 2});
  CHECK(arrange_steps(all, order::smallest_first) == positions{2, 0, 1});
  CHECK(arrange_steps(all, order::ramp) == positions{2, 1, 0});
  CHECK(arrange_steps(all, order::arrival) == positions{0, 2, 1});
  CHECK(arrange_steps(std::span<const std::vector<arrange_key>>{}, order::ramp).empty());
}

TEST_CASE("a permutation is applied") {
  const positions at{2, 0, 1};
  CHECK(arranged(std::vector<int>{10, 20, 30}, at) == std::vector<int>{30, 10, 20});
}

TEST_CASE("orders have names in both directions") {
  for (const auto& [value, name] : micro_batch_order_names) {
    CHECK(to_string(value) == name);
    CHECK(value_in(micro_batch_order_names, name) == value);
  }
  CHECK_FALSE(value_in(micro_batch_order_names, "random").has_value());
}
