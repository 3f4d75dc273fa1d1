#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/spread.hpp>

using namespace dynapipe;

namespace {

using items = std::vector<spread_item>;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

items of_times(const std::vector<std::int64_t>& times) {
  items result;
  for (const std::int64_t t : times)
    result.push_back({nanoseconds{t}, 1});
  return result;
}

spread_result run(const items& given, const spread_options& options) {
  return spread(std::span<const spread_item>{given}, options);
}

/// One way to give micro-batches to replicas; dummies are -1 and stand last.
using lists = std::vector<std::vector<int>>;

std::int64_t dummy_time(const items& given, const spread_options& o) {
  std::int64_t t = o.dummy_time.value();
  for (const spread_item& item : given)
    t = std::min(t, item.time.value());
  return t;
}

/// The scaled objective by its definition.
std::int64_t judge(const items& given, const spread_options& o, const lists& spread) {
  const auto time = [&](int i) {
    return i < 0 ? dummy_time(given, o) : given[static_cast<std::size_t>(i)].time.value();
  };
  if (o.lock_step) {
    std::int64_t sum = 0, longest = 0;
    for (std::size_t m = 0; m < spread[0].size(); ++m) {
      std::int64_t step = 0;
      for (const std::vector<int>& list : spread)
        step = std::max(step, time(list[m]));
      sum += step;
      longest = std::max(longest, step);
    }
    return o.stages_per_device * sum + (o.devices - 1) * longest;
  }
  std::int64_t most = 0;
  for (const std::vector<int>& list : spread) {
    std::int64_t sum = 0, longest = 0;
    for (const int i : list) {
      sum += time(i);
      longest = std::max(longest, time(i));
    }
    most = std::max(most, o.stages_per_device * sum + (o.devices - 1) * longest);
  }
  return most;
}

/// Whether all that is asked for is kept.
bool keeps(const items& given, const spread_options& o, const lists& spread) {
  std::int64_t least = never, most = 0;
  for (const std::vector<int>& list : spread) {
    if (list.empty() || static_cast<std::int64_t>(list.size()) % o.count_multiple != 0) return false;
    if ((o.equal_counts || o.lock_step) && list.size() != spread[0].size()) return false;
    if (!o.dummies && std::find(list.begin(), list.end(), -1) != list.end()) return false;
    std::int64_t samples = 0;
    for (const int i : list)
      samples += i < 0 ? 0 : given[static_cast<std::size_t>(i)].samples;
    least = std::min(least, samples);
    most = std::max(most, samples);
  }
  return !o.equal_samples || most - least <= 1;
}

/// The least over all assignments, orders within a replica too where that matters; dummies as few as complete them.
std::int64_t brute_force(const items& given, const spread_options& o) {
  const std::size_t replicas = static_cast<std::size_t>(o.replicas);
  const std::size_t multiple = static_cast<std::size_t>(o.count_multiple);
  std::int64_t best = never;
  std::vector<std::size_t> where(given.size(), 0);
  for (;;) {
    lists spread(replicas);
    for (std::size_t i = 0; i < given.size(); ++i)
      spread[where[i]].push_back(static_cast<int>(i));
    std::size_t largest = 1;
    for (const std::vector<int>& list : spread)
      largest = std::max(largest, list.size());
    for (std::vector<int>& list : spread) {
      std::size_t count = o.equal_counts || o.lock_step ? largest : std::max<std::size_t>(1, list.size());
      while (count % multiple != 0)
        ++count;
      // Longest first is best in lock-step: sorted lists have the least maximum at each place.
      std::sort(list.begin(), list.end(), [&](int a, int b) {
        return given[static_cast<std::size_t>(a)].time > given[static_cast<std::size_t>(b)].time;
      });
      list.resize(count, -1);
    }
    if (keeps(given, o, spread)) best = std::min(best, judge(given, o, spread));
    std::size_t i = 0;
    while (i < where.size() && ++where[i] == replicas)
      where[i++] = 0;
    if (i == where.size()) return best;
  }
}

lists lists_of(const spread_result& result) {
  lists all;
  for (std::size_t r = 0; r < result.replicas.size(); ++r) {
    std::vector<int>& list = all.emplace_back();
    for (const std::size_t i : result.replicas[r])
      list.push_back(static_cast<int>(i));
    list.resize(list.size() + static_cast<std::size_t>(result.dummies[r]), -1);
  }
  return all;
}

void check_result(const items& given, const spread_options& o, const spread_result& result) {
  REQUIRE(result.replicas.size() == static_cast<std::size_t>(o.replicas));
  REQUIRE(result.dummies.size() == result.replicas.size());
  std::vector<int> seen(given.size(), 0);
  for (const std::vector<std::size_t>& list : result.replicas)
    for (const std::size_t i : list)
      ++seen.at(i);
  for (const int n : seen)
    CHECK(n == 1);
  CHECK(keeps(given, o, lists_of(result)));
  CHECK(result.scaled_objective == judge(given, o, lists_of(result)));
  CHECK(result.scaled_bound <= result.scaled_objective);
}

items random_items(std::mt19937_64& random, std::size_t count, std::uint64_t scale, std::uint64_t samples) {
  items given;
  for (std::size_t i = 0; i < count; ++i)
    given.push_back(
        {nanoseconds{static_cast<std::int64_t>(random() % scale)}, static_cast<std::int64_t>(random() % samples)});
  return given;
}

spread_options random_options(std::mt19937_64& random, std::size_t most_replicas) {
  spread_options o;
  o.replicas = 1 + static_cast<std::int64_t>(random() % most_replicas);
  o.devices = 1 + static_cast<std::int64_t>(random() % 8);
  o.stages_per_device = 1 + static_cast<std::int64_t>(random() % 2);
  o.equal_counts = random() % 2 == 0;
  o.count_multiple = random() % 3 == 0 ? 2 : 1;
  o.equal_samples = random() % 3 == 0;
  o.lock_step = random() % 4 == 0;
  o.dummies = random() % 2 == 0;
  o.dummy_time = nanoseconds{static_cast<std::int64_t>(random() % 4)};
  return o;
}

struct ratios {
  double worst = 1;
  double sum = 0;
  int count = 0;
  int optimal = 0;

  void add(wide_int found, std::int64_t best) {
    const double ratio = best == 0 ? 1 : static_cast<double>(found) / static_cast<double>(best);
    worst = std::max(worst, ratio);
    sum += ratio;
    ++count;
    optimal += found == best ? 1 : 0;
  }
  [[nodiscard]] double mean() const { return sum / count; }
};

}  // namespace

TEST_CASE("spreads by hand") {
  const spread_result even = run(of_times({8, 7, 6, 5, 4}), {.replicas = 2});
  CHECK(even.scaled_objective == 15);
  CHECK(even.gap() == 0.0);
  // 9 devices: apart, each of the two long ones would fill a pipeline for 8 * 10.
  std::vector<std::int64_t> times(32, 1);
  times[0] = times[1] = 10;
  const spread_result filled = run(of_times(times), {.replicas = 2, .devices = 9});
  CHECK(filled.replicas[0] == std::vector<std::size_t>{0, 1});
  CHECK(filled.scaled_objective == 100);
  // Two stages on a device halve the time to fill.
  CHECK(run(of_times({6, 4}), {.replicas = 1, .devices = 3, .stages_per_device = 2}).scaled_objective ==
        2 * 10 + 2 * 6);
  const spread_result steps = run(of_times({1, 9, 2, 8}), {.replicas = 2, .lock_step = true});
  CHECK(steps.scaled_objective == 11);
  CHECK(steps.replicas == std::vector<std::vector<std::size_t>>{{1, 0}, {3, 2}});
}

TEST_CASE("more replicas than micro-batches: dummies, or a refusal that counts what is missing") {
  const items given = of_times({5, 3});
  const spread_result filled = run(given, {.replicas = 4, .equal_counts = true, .dummies = true});
  check_result(given, {.replicas = 4, .equal_counts = true, .dummies = true}, filled);
  CHECK(filled.replicas == std::vector<std::vector<std::size_t>>{{0}, {1}, {}, {}});
  CHECK(filled.dummies == std::vector<std::int64_t>{0, 0, 1, 1});
  const auto refusal = [](const items& of, const spread_options& o) -> std::optional<batch_constraint> {
    try {
      (void)run(of, o);
      return std::nullopt;
    } catch (const unsatisfiable& e) {
      return e.relax();
    }
  };
  CHECK(refusal(given, {.replicas = 4}) == batch_constraint::micro_batches);
  CHECK_THROWS_WITH_AS((void)run(given, {.replicas = 4}), doctest::Contains("2 are missing"), unsatisfiable);
  CHECK(refusal(of_times({1, 2, 3}), {.replicas = 2, .equal_counts = true}) == batch_constraint::equal_counts);
  CHECK(refusal(of_times({1, 2, 3}), {.replicas = 2, .lock_step = true}) == batch_constraint::lock_step);
  // Between R and R k micro-batches.
  const spread_options multiple{.replicas = 2, .count_multiple = 4};
  CHECK(refusal(of_times({1, 2, 3, 4, 5}), multiple) == batch_constraint::count_multiple);
  CHECK_THROWS_WITH_AS((void)run(of_times({1, 2, 3, 4, 5}), multiple),
                       "5 micro-batches cannot be spread over 2 replicas with at least one on each, a multiple of 4: 3 "
                       "are missing; allow dummies, make more micro-batches, or give up count_multiple",
                       unsatisfiable);
  const items odd{{nanoseconds{1}, 3}, {nanoseconds{1}, 1}};
  CHECK(refusal(odd, {.replicas = 2, .equal_samples = true}) == batch_constraint::equal_samples);
  CHECK(refusal({}, {.replicas = 2}) == batch_constraint::micro_batches);
  const spread_result nothing = run({}, {.replicas = 2, .count_multiple = 3, .dummies = true});
  CHECK(nothing.dummies == std::vector<std::int64_t>{3, 3});
}

TEST_CASE("nine micro-batches on four replicas: none starves") {
  const spread_result result = run(of_times(std::vector<std::int64_t>(9, 7)), {.replicas = 4});
  std::vector<std::size_t> counts;
  for (const std::vector<std::size_t>& list : result.replicas)
    counts.push_back(list.size());
  std::sort(counts.begin(), counts.end());
  CHECK(counts == std::vector<std::size_t>{2, 2, 2, 3});
}

TEST_CASE("bad times are refused") {
  CHECK_THROWS_WITH_AS((void)run(of_times({1, -2}), {}), doctest::Contains("micro-batch 1"), error);
  CHECK_THROWS_AS((void)run(of_times({never / 2, never / 2}), {}), error);
}

TEST_CASE("few micro-batches: optimal, all constraints kept, refused exactly when nothing is feasible") {
  constexpr unsigned seed = 53'117;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  int feasible = 0, refused = 0;
  for (int round = 0; round < 6'000; ++round) {
    CAPTURE(round);
    const spread_options o = random_options(random, 4);
    const items given = random_items(random, 1 + random() % 7, round % 2 == 0 ? 12 : 1'000, 1 + random() % 5);
    const std::int64_t best = brute_force(given, o);
    std::optional<spread_result> found;
    try {
      found = run(given, o);
    } catch (const unsatisfiable&) {
    }
    REQUIRE(found.has_value() == (best != never));
    if (!found) {
      ++refused;
      continue;
    }
    ++feasible;
    check_result(given, o, *found);
    CHECK(found->scaled_bound <= best);
    CHECK(found->scaled_objective == best);
  }
  MESSAGE(feasible, " spreads, ", refused, " refusals");
  CHECK(feasible > 2'000);
  CHECK(refused > 500);
}

TEST_CASE("beyond the exhaustive search: near the optimum, the bound below it") {
  constexpr unsigned seed = 8'081;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  ratios all;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    spread_options o = random_options(random, 1);
    o.replicas = round % 100 == 0 ? 3 : 2;
    o.lock_step = false;
    const items given = random_items(random, o.replicas == 3 ? 13 : 13 + random() % 2, 1'000, 1 + random() % 4);
    const std::int64_t best = brute_force(given, o);
    std::optional<spread_result> found;
    try {
      found = run(given, o);
    } catch (const unsatisfiable&) {
    }
    REQUIRE(found.has_value() == (best != never));
    if (!found) continue;
    check_result(given, o, *found);
    CHECK(found->scaled_bound <= best);
    all.add(found->scaled_objective, best);
  }
  MESSAGE(all.count, " spreads, ", all.optimal, " optimal, worst ratio ", all.worst, ", mean ", all.mean());
  CHECK(all.count > 80);
  CHECK(all.worst <= 1.05);
  CHECK(all.mean() <= 1.003);
}

TEST_CASE("the objective does not depend on the order of the micro-batches") {
  constexpr unsigned seed = 77;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    spread_options o = random_options(random, 6);
    o.dummies = true;
    o.equal_samples = false;
    items given = random_items(random, 1 + random() % 60, round % 2 == 0 ? 9 : 100'000, 3);
    const spread_result first = run(given, o);
    check_result(given, o, first);
    std::shuffle(given.begin(), given.end(), random);
    const spread_result second = run(given, o);
    CHECK(first.scaled_objective == second.scaled_objective);
    CHECK(first.scaled_bound == second.scaled_bound);
  }
}

TEST_CASE("many micro-batches: even, equally many, with equal samples") {
  constexpr unsigned seed = 640;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  double worst = 0;
  for (const bool equal_samples : {false, true})
    for (const bool lock_step : {false, true})
      for (const std::int64_t replicas : {2, 8, 32})
        for (const std::int64_t devices : {1, 4}) {
          CAPTURE(replicas);
          CAPTURE(devices);
          items given;
          for (std::int64_t i = 0; i < 16 * replicas; ++i) {
            // Short samples come many to a micro-batch.
            const std::int64_t samples = 1 + static_cast<std::int64_t>(random() % 40);
            given.push_back({nanoseconds{1'000'000 + static_cast<std::int64_t>(random() % 30'000'000)}, samples});
          }
          const spread_options o{.replicas = replicas,
                                 .devices = devices,
                                 .equal_counts = true,
                                 .count_multiple = 4,
                                 .equal_samples = equal_samples,
                                 .lock_step = lock_step};
          const spread_result found = run(given, o);
          check_result(given, o, found);
          worst = std::max(worst, found.gap());
        }
  MESSAGE("largest gap to the bound ", worst);
  CHECK(worst <= 0.02);
}
