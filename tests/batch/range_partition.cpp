#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/range_partition.hpp>

using namespace dynapipe;

TEST_CASE("ranges whose times rise and fall: equal to brute force") {
  constexpr unsigned seed = 909;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  int refused = 0;
  for (int round = 0; round < 3'000; ++round) {
    CAPTURE(round);
    const std::size_t n = 1 + random() % 10;
    const partition_options options{
        .devices = 1 + below(6), .replicas = 1 + below(3), .stages_per_device = 1 + below(2)};
    std::vector<std::vector<std::optional<nanoseconds>>> times(n);
    for (std::size_t i = 0; i < n; ++i) {
      bool fits = below(200) > 0;
      for (std::size_t count = 1; i + count <= n; ++count) {
        times[i].push_back(fits ? std::optional{nanoseconds{below(100)}} : std::nullopt);
        fits = fits && below(6) > 0;
      }
    }
    const auto found =
        partition_ranges(n, [&](std::size_t first, std::size_t count) { return times[first][count - 1]; }, options);
    std::optional<wide_int> best;
    for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (n - 1); ++borders) {
      partition_result cut;
      std::int64_t sum = 0;
      std::size_t from = 0;
      bool fits = true;
      for (std::size_t i = 1; i <= n; ++i) {
        if (i < n && (borders >> (i - 1) & 1U) == 0) continue;
        const std::optional<nanoseconds> t = times[from][i - from - 1];
        fits = fits && t.has_value();
        if (!fits) break;
        cut.t_max = std::max(cut.t_max, *t);
        sum += t->value();
        from = i;
      }
      cut.sum = nanoseconds{sum};
      if (fits && (!best || cut.scaled_objective(options) < *best)) best = cut.scaled_objective(options);
    }
    const bool alone = std::all_of(times.begin(), times.end(), [](const auto& row) { return row.front().has_value(); });
    REQUIRE(found.has_value() == alone);
    refused += alone ? 0 : 1;
    if (!found) continue;
    REQUIRE(found->scaled_objective(options) == *best);
    REQUIRE(found->cuts.front() == 0);
  }
  CHECK(refused > 10);
}

TEST_CASE("no sample, no cut") {
  const auto time = [](std::size_t, std::size_t) -> std::optional<nanoseconds> { return nanoseconds{1}; };
  CHECK(partition_ranges(0, time, {})->cuts.empty());
}
