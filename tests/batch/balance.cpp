#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/balance.hpp>

using namespace dynapipe;

namespace {

using groups = std::vector<std::vector<std::size_t>>;

groups spread(const std::vector<std::int64_t>& weights, std::size_t replicas) {
  std::vector<nanoseconds> times;
  for (const std::int64_t w : weights)
    times.emplace_back(w);
  return balance(times, replicas);
}

std::vector<std::int64_t> sums(const std::vector<std::int64_t>& weights, const groups& spread) {
  std::vector<std::int64_t> result;
  for (const std::vector<std::size_t>& group : spread) {
    result.push_back(0);
    for (const std::size_t i : group)
      result.back() += weights[i];
  }
  return result;
}

std::int64_t width(const std::vector<std::int64_t>& values) {
  return *std::max_element(values.begin(), values.end()) - *std::min_element(values.begin(), values.end());
}

/// The least spread of any assignment.
std::int64_t least_spread(const std::vector<std::int64_t>& weights, std::size_t replicas) {
  std::vector<std::size_t> where(weights.size(), 0);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (;;) {
    std::vector<std::int64_t> sum(replicas, 0);
    for (std::size_t i = 0; i < weights.size(); ++i)
      sum[where[i]] += weights[i];
    best = std::min(best, width(sum));
    std::size_t i = 0;
    while (i < where.size() && ++where[i] == replicas)
      where[i++] = 0;
    if (i == where.size()) return best;
  }
}

void check_form(const groups& spread, std::size_t weights, std::size_t replicas) {
  REQUIRE(spread.size() == replicas);
  std::vector<int> seen(weights, 0);
  std::size_t last_first = 0;
  bool empty_seen = false;
  for (const std::vector<std::size_t>& group : spread) {
    CHECK(std::is_sorted(group.begin(), group.end()));
    for (const std::size_t i : group)
      ++seen.at(i);
    if (group.empty()) {
      empty_seen = true;
      continue;
    }
    CHECK_FALSE(empty_seen);
    CHECK(group.front() >= last_first);
    last_first = group.front();
  }
  for (const int n : seen)
    CHECK(n == 1);
}

}  // namespace

TEST_CASE("the differencing method by hand") {
  // 8-7 = 1, 6-5 = 1, 4-1 = 3 (8 | 7, 4), 3-1 = 2 (8, 6 | 7, 4, 5): sums 14 and 16, though 15 and 15 is possible.
  CHECK(spread({8, 7, 6, 5, 4}, 2) == groups{{0, 2}, {1, 3, 4}});
  // (4, 3, 0) and (2, 1, 0) join largest with smallest: (4 | 3 | 2) takes 1 to the smallest.
  CHECK(spread({4, 3, 2, 1}, 3) == groups{{0}, {1}, {2, 3}});
  CHECK(spread({1, 2, 3, 4}, 2) == groups{{0, 3}, {1, 2}});
  CHECK(spread({5, 5, 5, 5, 5, 5}, 3).size() == 3);
  CHECK(sums({5, 5, 5, 5, 5, 5}, spread({5, 5, 5, 5, 5, 5}, 3)) == std::vector<std::int64_t>{10, 10, 10});
}

TEST_CASE("few weights") {
  CHECK(spread({}, 3) == groups{{}, {}, {}});
  CHECK(spread({7}, 1) == groups{{0}});
  CHECK(spread({7}, 4) == groups{{0}, {}, {}, {}});
  CHECK(spread({7, 9, 8}, 5) == groups{{0}, {1}, {2}, {}, {}});
  CHECK(spread({3, 1, 2}, 1) == groups{{0, 1, 2}});
}

TEST_CASE("zero and huge weights") {
  check_form(spread({0, 0, 0, 0}, 2), 4, 2);
  check_form(spread({0, 5, 0}, 2), 3, 2);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  check_form(spread({most, most, most, 1, 0}, 2), 5, 2);
  check_form(spread(std::vector<std::int64_t>(9, most), 4), 9, 4);
  CHECK(spread({most, 1}, 2) == groups{{0}, {1}});
}

TEST_CASE("random spreads: every weight once, no wider than the largest weight, never below the optimum") {
  constexpr unsigned seed = 1'982;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  int optimal = 0;
  constexpr int rounds = 1'500;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const std::size_t replicas = 1 + random() % 4;
    std::vector<std::int64_t> weights(1 + random() % 8);
    const std::uint64_t scale = std::uint64_t{1} << (1 + random() % 40);
    for (std::int64_t& w : weights)
      w = 1 + static_cast<std::int64_t>(random() % scale);
    const groups found = spread(weights, replicas);
    check_form(found, weights.size(), replicas);
    CHECK(found == spread(weights, replicas));
    const std::int64_t got = width(sums(weights, found));
    const std::int64_t least = least_spread(weights, replicas);
    CHECK(got >= least);
    // Joining largest with smallest never widens either partial solution.
    CHECK(got <= *std::max_element(weights.begin(), weights.end()));
    if (weights.size() <= replicas)
      for (const std::vector<std::size_t>& group : found)
        CHECK(group.size() <= 1);
    optimal += got == least ? 1 : 0;
  }
  MESSAGE(optimal, " of ", rounds, " spreads are optimal");
  CHECK(optimal > rounds / 2);
}

TEST_CASE("many weights come out nearly even") {
  constexpr unsigned seed = 8;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (const std::size_t replicas : {2U, 8U, 32U}) {
    std::vector<std::int64_t> weights(40 * replicas);
    for (std::int64_t& w : weights)
      w = 1'000'000 + static_cast<std::int64_t>(random() % 50'000'000);
    const groups found = spread(weights, replicas);
    check_form(found, weights.size(), replicas);
    const std::vector<std::int64_t> total = sums(weights, found);
    const std::int64_t even =
        std::accumulate(weights.begin(), weights.end(), std::int64_t{0}) / static_cast<std::int64_t>(replicas);
    CHECK(*std::max_element(total.begin(), total.end()) < even + even / 100);
  }
}
