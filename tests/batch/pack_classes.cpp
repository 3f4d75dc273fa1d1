#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/pack_classes.hpp>

using namespace dynapipe;

namespace {

using numbers = std::vector<std::int64_t>;

classed_pack_result solve(const std::vector<pack_item>& items, const numbers& classes, const pack_options& options) {
  return pack_classes(std::span<const pack_item>{items}, std::span<const std::int64_t>{classes}, options);
}

/// Checks everything that a classed packing promises; its scaled objective by the definition.
std::int64_t judge(const std::vector<pack_item>& items, const numbers& classes, const pack_options& o,
                   const classed_pack_result& result) {
  const pack_result& p = result.packed;
  std::vector<int> seen(items.size());
  REQUIRE(p.ranks() == static_cast<std::size_t>(o.ranks));
  REQUIRE(std::is_sorted(result.class_of.begin(), result.class_of.end()));
  std::vector<std::int64_t> steps(result.class_of.size());
  std::int64_t most = 0, longest = 0, total = 0, slowest_of_all = 0;
  std::set<std::int64_t> samples;
  for (std::size_t r = 0; r < p.ranks(); ++r) {
    REQUIRE(p.micro_batches(r) == result.class_of.size());
    std::int64_t sum = 0, slowest = 0, held = 0;
    for (std::size_t m = 0; m < p.micro_batches(r); ++m) {
      std::int64_t size = 0, time = o.fixed;
      for (const std::size_t i : p.of(r, m)) {
        ++seen[i];
        REQUIRE(classes[i] == result.class_of[m]);
        size += items[i].size;
        time += items[i].work;
        held += items[i].samples;
      }
      REQUIRE(size <= o.cap);
      if (!o.dummies) REQUIRE(!p.of(r, m).empty());
      sum += time;
      slowest = std::max(slowest, time);
      steps[m] = std::max(steps[m], time);
    }
    most = std::max(most, o.stages_per_device * sum + (o.devices - 1) * slowest);
    longest = std::max(longest, sum);
    total += sum;
    slowest_of_all = std::max(slowest_of_all, slowest);
    samples.insert(held);
  }
  REQUIRE(seen == std::vector<int>(items.size(), 1));
  std::map<std::int64_t, std::int64_t> count;
  for (const std::int64_t c : result.class_of)
    ++count[c];
  for (const auto& [of_class, n] : count) {
    REQUIRE(n % o.count_multiple == 0);
    REQUIRE(n >= o.least_count);
    if (o.count > 0) REQUIRE(n == o.count);
  }
  if (o.equal_samples) REQUIRE(*samples.rbegin() - *samples.begin() <= 1);
  REQUIRE(p.longest == longest);
  REQUIRE(p.total == total);
  if (!o.lock_step) return most;
  std::int64_t in_steps = 0;
  for (const std::int64_t step : steps)
    in_steps += step;
  return o.stages_per_device * in_steps + (o.devices - 1) * slowest_of_all;
}

}  // namespace

TEST_CASE("pack_classes: micro-batches of one class each, the same at every step, and all else that pack keeps") {
  constexpr std::uint64_t seed = 28;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  const auto up_to = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  int solved = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<pack_item> items;
    numbers classes;
    for (std::int64_t n = 1 + up_to(60); n > 0; --n) {
      const std::int64_t length = up_to(12);
      items.push_back({length, 7 * length + length * length});
      classes.push_back(up_to(3) * up_to(2) - 1);
    }
    const pack_options o{.ranks = 1 + up_to(4),
                         .cap = 11 + up_to(40),
                         .fixed = up_to(30),
                         .devices = 1 + up_to(4),
                         .stages_per_device = 1 + up_to(2),
                         .equal_counts = random() % 2 == 0,
                         .count_multiple = 1 + up_to(2),
                         .least_count = 1 + up_to(2),
                         .equal_samples = random() % 4 == 0,
                         .lock_step = random() % 3 == 0,
                         .dummies = random() % 3 != 0};
    try {
      const classed_pack_result result = solve(items, classes, o);
      REQUIRE(result.packed.scaled_objective == judge(items, classes, o, result));
      REQUIRE(result.packed.scaled_bound <= result.packed.scaled_objective);
      REQUIRE(result.packed.scaled_bound > 0);
      ++solved;
    } catch (const unsatisfiable& why) {
      REQUIRE(std::string{why.what()}.rfind("class ", 0) == 0);
    }
  }
  CHECK(solved > 300);
}

TEST_CASE("pack_classes: of one class it is pack, and its bound is one of pack") {
  std::mt19937_64 random{5};
  std::vector<pack_item> items;
  for (int i = 0; i < 200; ++i) {
    const auto length = static_cast<std::int64_t>(1 + random() % 900);
    items.push_back({length, 100 * length + length * length});
  }
  const pack_options o{.ranks = 4, .cap = 1000, .fixed = 500, .devices = 4};
  const pack_result plain = pack(std::span<const pack_item>{items}, o);
  const classed_pack_result one = solve(items, numbers(200, 9), o);
  CHECK(one.packed.scaled_objective == plain.scaled_objective);
  CHECK(one.packed.micro_batches() == plain.micro_batches());
  numbers two(200, 0);
  std::fill(two.begin(), two.begin() + 100, 1);
  CHECK(solve(items, two, o).packed.scaled_bound <= plain.scaled_objective);
  const classed_pack_result none = solve({}, {}, {.ranks = 2, .cap = 5, .dummies = true});
  CHECK(none.packed.micro_batches() == 2);
  CHECK(none.class_of == numbers{0});
}

TEST_CASE("pack_classes: classes make up for each other's imbalance") {
  // Alone, each class leaves one rank 60 behind the other.
  const std::vector<pack_item> items{{1, 100}, {1, 40}, {1, 90}, {1, 30}};
  const classed_pack_result result = solve(items, {0, 0, 1, 1}, {.ranks = 2, .cap = 1});
  CHECK(result.packed.longest == 130);
  CHECK(result.class_of == numbers{0, 1});
}

TEST_CASE("pack_classes: does not depend on the order of the items") {
  std::mt19937_64 random{11};
  std::vector<std::pair<pack_item, std::int64_t>> both;
  for (std::int64_t i = 0; i < 120; ++i)
    both.push_back({{1 + i * 7, 1000 + i * i}, i % 3});
  const pack_options o{.ranks = 3, .cap = 2000, .fixed = 10, .devices = 2, .equal_samples = true};
  const auto works = [&] {
    std::vector<pack_item> items;
    numbers classes;
    for (const auto& [item, of_class] : both) {
      items.push_back(item);
      classes.push_back(of_class);
    }
    const classed_pack_result result = solve(items, classes, o);
    std::vector<numbers> made;
    for (std::size_t m = 0; m < result.packed.micro_batches(); ++m) {
      made.emplace_back();
      for (const std::size_t i : result.packed.of(m))
        made.back().push_back(items[i].work);
      std::sort(made.back().begin(), made.back().end());
    }
    return made;
  };
  const std::vector<numbers> first = works();
  for (int i = 0; i < 10; ++i) {
    std::shuffle(both.begin(), both.end(), random);
    CHECK(works() == first);
  }
}

TEST_CASE("pack_classes: names what it refuses") {
  const auto text_of = [](const std::vector<pack_item>& items, const numbers& classes, const pack_options& o,
                          batch_constraint relax) {
    try {
      (void)solve(items, classes, o);
    } catch (const unsatisfiable& why) {
      CHECK(why.relax() == relax);
      return std::string{why.what()};
    }
    return std::string{};
  };
  CHECK(text_of({{1, 1}, {1, 1}, {1, 1}}, {4, 4, 8}, {.ranks = 2, .cap = 9}, batch_constraint::micro_batches)
            .find("class 8: 1 samples cannot fill") == 0);
  CHECK(text_of({{1, 1}, {10, 1}}, {4, 8}, {.cap = 9}, batch_constraint::cap).find("sample 1 has aligned size 10") ==
        0);
  const std::vector<pack_item> bad{{1, 1}, {-1, 1}};
  const numbers classes{0, 1};
  CHECK_THROWS_AS((void)solve(bad, classes, {.cap = 9}), error);
  const std::vector<pack_item> two{{1, 1}, {1, 1}};
  CHECK_THROWS_AS((void)solve(two, classes, {.cap = 9, .fixed = std::int64_t{1} << 60, .count = 2, .dummies = true}),
                  error);
}
