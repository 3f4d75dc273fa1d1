#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/pack.hpp>

using namespace dynapipe;

namespace {

using items_list = std::vector<pack_item>;
using batches = std::vector<std::vector<std::vector<std::size_t>>>;  // rank, micro-batch, items

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

pack_result solve(const items_list& items, const pack_options& options) {
  return pack(std::span<const pack_item>{items}, options);
}

batches batches_of(const pack_result& result) {
  batches ranks(result.ranks());
  for (std::size_t r = 0; r < result.ranks(); ++r)
    for (std::size_t m = 0; m < result.micro_batches(r); ++m)
      ranks[r].emplace_back(result.of(r, m).begin(), result.of(r, m).end());
  return ranks;
}

/// The scaled objective of ranks, from its definition; none where something that is asked for does not hold.
std::optional<std::int64_t> judge(const items_list& items, const pack_options& o, const batches& ranks) {
  std::vector<std::vector<std::int64_t>> times(ranks.size());
  std::vector<std::int64_t> samples(ranks.size());
  std::vector<int> seen(items.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& batch : ranks[r]) {
      std::int64_t size = 0;
      times[r].push_back(o.fixed);
      for (const std::size_t i : batch) {
        ++seen[i];
        size += items[i].size;
        times[r].back() += items[i].work;
        samples[r] += items[i].samples;
      }
      if (size > o.cap || (batch.empty() && !o.dummies)) return std::nullopt;
    }
    const std::int64_t count = static_cast<std::int64_t>(times[r].size());
    if (count < std::max<std::int64_t>(1, o.least_count) || count % o.count_multiple != 0) return std::nullopt;
    if (o.count > 0 && count != o.count) return std::nullopt;
    if ((o.equal_counts || o.lock_step) && times[r].size() != times[0].size()) return std::nullopt;
    std::sort(times[r].rbegin(), times[r].rend());
  }
  for (const int count : seen)
    if (count != 1) return std::nullopt;
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
  if (o.equal_samples && *most - *least > 1) return std::nullopt;
  std::int64_t value = 0;
  if (o.lock_step) {
    std::int64_t slowest = 0;
    for (std::size_t m = 0; m < times[0].size(); ++m) {
      std::int64_t step = 0;
      for (const auto& of_rank : times)
        step = std::max(step, of_rank[m]);
      value += o.stages_per_device * step;
      slowest = std::max(slowest, step);
    }
    return value + (o.devices - 1) * slowest;
  }
  for (const auto& of_rank : times) {
    std::int64_t sum = 0;
    for (const std::int64_t t : of_rank)
      sum += t;
    value = std::max(value, o.stages_per_device * sum + (o.devices - 1) * of_rank.front());
  }
  return value;
}

/// The best of all ways to put the items into rows of bins, where bins without items are left out or, if need be, kept
/// as dummies. None where no way is allowed.
std::int64_t brute_force(const items_list& items, const pack_options& o) {
  std::int64_t best = never;
  batches ranks(static_cast<std::size_t>(o.ranks));
  const auto close = [&] {
    // Dummies, up to each count that may be asked for.
    const std::size_t most = o.dummies ? items.size() + static_cast<std::size_t>(o.count_multiple + o.least_count) : 0;
    if (o.equal_counts || o.lock_step || o.count > 0) {
      for (std::size_t m = 0; m <= std::max(most, static_cast<std::size_t>(o.count)); ++m) {
        batches padded = ranks;
        for (auto& r : padded)
          if (o.dummies && r.size() < m) r.resize(m);
        if (const auto value = judge(items, o, padded)) best = std::min(best, *value);
        if (!o.dummies) break;
      }
      return;
    }
    batches padded = ranks;
    for (auto& r : padded)
      while (o.dummies && (r.empty() || static_cast<std::int64_t>(r.size()) < o.least_count ||
                           static_cast<std::int64_t>(r.size()) % o.count_multiple != 0))
        r.emplace_back();
    if (const auto value = judge(items, o, padded)) best = std::min(best, *value);
  };
  const std::function<void(std::size_t)> place = [&](std::size_t i) {
    if (i == items.size()) {
      close();
      return;
    }
    for (auto& r : ranks) {
      const bool was_empty = r.empty();
      for (std::size_t b = 0; b < r.size(); ++b) {
        r[b].push_back(i);
        place(i + 1);
        r[b].pop_back();
      }
      r.push_back({i});
      place(i + 1);
      r.pop_back();
      if (was_empty) break;  // ranks without items are alike
    }
  };
  place(0);
  return best;
}

struct drawn {
  items_list items;
  pack_options options;
};

drawn draw(std::mt19937_64& random, std::size_t most_items) {
  const auto upto = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>{least, most}(random);
  };
  drawn d;
  pack_options& o = d.options;
  o.ranks = upto(1, 3);
  o.cap = upto(4, 16);
  o.fixed = upto(0, 2) == 0 ? 0 : upto(1, 40);
  o.devices = upto(0, 1) == 0 ? 1 : upto(2, 4);
  o.stages_per_device = upto(1, 2);
  o.equal_counts = upto(0, 2) > 0;
  o.count_multiple = upto(0, 3) == 0 ? 2 : 1;
  o.equal_samples = upto(0, 3) == 0;
  o.lock_step = upto(0, 3) == 0;
  o.dummies = upto(0, 3) == 0;
  if (upto(0, 4) == 0) o.least_count = upto(1, 3);
  if (upto(0, 5) == 0) o.count = std::max(o.least_count, upto(1, 3));
  const bool grouped = upto(0, 2) == 0;
  const bool free_work = upto(0, 2) == 0;
  const std::size_t n = static_cast<std::size_t>(upto(0, static_cast<std::int64_t>(most_items)));
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t size =
        std::min(upto(0, 1) == 0 ? o.cap : o.cap / 2, upto(0, o.cap + (upto(0, 30) == 0 ? 3 : 0)));
    d.items.push_back(
        {size, free_work ? upto(0, 60) : 3 * size + size * size, static_cast<std::int32_t>(grouped ? upto(1, 3) : 1)});
  }
  if (n > 0 && upto(0, 60) == 0) d.items[0].size = o.cap + 1;
  return d;
}

std::string print(const drawn& d) {
  const pack_options& o = d.options;
  std::string text = "ranks " + std::to_string(o.ranks) + " cap " + std::to_string(o.cap) + " fixed " +
                     std::to_string(o.fixed) + " devices " + std::to_string(o.devices) + "/" +
                     std::to_string(o.stages_per_device) + " equal " + std::to_string(o.equal_counts) + " multiple " +
                     std::to_string(o.count_multiple) + " least " + std::to_string(o.least_count) + " count " +
                     std::to_string(o.count) + " samples " + std::to_string(o.equal_samples) + " lock " +
                     std::to_string(o.lock_step) + " dummies " + std::to_string(o.dummies) + ":";
  for (const pack_item& item : d.items)
    text +=
        " (" + std::to_string(item.size) + "," + std::to_string(item.work) + "," + std::to_string(item.samples) + ")";
  return text;
}

batch_constraint relax_of(const items_list& items, const pack_options& options, std::string* text = nullptr) {
  try {
    (void)solve(items, options);
  } catch (const unsatisfiable& refusal) {
    if (text != nullptr) *text = refusal.what();
    return refusal.relax();
  }
  FAIL("nothing was refused");
  return {};
}

items_list of_lengths(const std::vector<std::int64_t>& lengths) {
  items_list items;
  for (const std::int64_t length : lengths)
    items.push_back({length, length});
  return items;
}

/// Lengths as in reinforcement learning: a long tail, cut at `longest`; times of a 7 B model in nanoseconds.
items_list long_tail(std::uint64_t seed, std::size_t n, std::int64_t longest) {
  std::mt19937_64 random{seed};
  std::lognormal_distribution<double> draw_length{8.0, 1.2};
  items_list items;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t length = std::clamp<std::int64_t>(static_cast<std::int64_t>(draw_length(random)), 16, longest);
    items.push_back({length, 49'100 * length + length * length});
  }
  return items;
}

}  // namespace

TEST_CASE("pack: as good as brute force on small inputs, and refuses exactly where it finds nothing") {
  constexpr std::uint64_t seed = 20261201;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  std::size_t refused = 0;
  std::size_t optimal = 0;
  constexpr std::size_t cases = 6000;
  for (std::size_t i = 0; i < cases; ++i) {
    const drawn d = draw(random, 6);
    const std::string what = print(d);
    CAPTURE(i);
    CAPTURE(what);
    const std::int64_t best = brute_force(d.items, d.options);
    std::optional<pack_result> result;
    std::string text;
    try {
      result = solve(d.items, d.options);
    } catch (const unsatisfiable& refusal) {
      text = refusal.what();
      ++refused;
    }
    CAPTURE(text);
    REQUIRE(result.has_value() == (best != never));
    if (!result) {
      REQUIRE(text.find("none was found") == std::string::npos);
      continue;
    }
    const std::optional<std::int64_t> value = judge(d.items, d.options, batches_of(*result));
    REQUIRE(value.has_value());
    REQUIRE(wide_int{*value} == result->scaled_objective);
    REQUIRE(*value == best);
    REQUIRE(result->scaled_bound <= best);
    optimal += result->scaled_bound == best ? 1 : 0;
  }
  CHECK(refused > cases / 20);
  CHECK(refused < cases / 2);
  CHECK(optimal > 9 * (cases - refused) / 10);
}

TEST_CASE("pack: what larger inputs get keeps all that is asked, below a bound that holds") {
  constexpr std::uint64_t seed = 77;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  std::size_t packed = 0;
  double worst = 0;
  for (std::size_t i = 0; i < 3000; ++i) {
    drawn d = draw(random, 90);
    d.options.ranks = 1 + static_cast<std::int64_t>(random() % 6);
    if (d.options.count > 0) d.options.count *= 4;
    const std::string what = print(d);
    CAPTURE(i);
    CAPTURE(what);
    try {
      const pack_result result = solve(d.items, d.options);
      const std::optional<std::int64_t> value = judge(d.items, d.options, batches_of(result));
      REQUIRE(value.has_value());
      REQUIRE(wide_int{*value} == result.scaled_objective);
      REQUIRE(result.scaled_bound <= result.scaled_objective);
      ++packed;
      if (d.items.size() > 60 && d.options.devices == 1 && !d.options.lock_step) worst = std::max(worst, result.gap());
    } catch (const unsatisfiable&) {
    }
  }
  CAPTURE(worst);
  CHECK(worst < 0.15);
  CHECK(packed > 2000);
}

TEST_CASE("pack: the bound is never above what another packing reaches") {
  constexpr std::uint64_t seed = 5;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  for (std::size_t i = 0; i < 3000; ++i) {
    const drawn d = draw(random, 6);
    const std::string what = print(d);
    CAPTURE(what);
    if (std::any_of(d.items.begin(), d.items.end(), [&](const pack_item& x) { return x.size > d.options.cap; }))
      continue;
    const detail::pack_sorted sorted = detail::sort_items(std::span<const pack_item>{d.items}, d.options);
    const detail::pack_counts counts =
        detail::counts_of(d.options, d.items.size(), detail::least_bins(sorted, d.options.cap));
    const std::int64_t best = brute_force(d.items, d.options);
    if (best == never) continue;
    REQUIRE(counts.least <= counts.most);
    REQUIRE(detail::count_of_least_bound(d.options, counts, sorted).bound <= best);
  }
}

TEST_CASE("pack: the order of the input does not matter") {
  std::mt19937_64 random{3};
  for (std::size_t i = 0; i < 200; ++i) {
    const drawn d = draw(random, 60);
    std::vector<std::size_t> order(d.items.size());
    for (std::size_t j = 0; j < order.size(); ++j)
      order[j] = j;
    std::shuffle(order.begin(), order.end(), random);
    items_list shuffled;
    for (const std::size_t j : order)
      shuffled.push_back(d.items[j]);
    // What counts of a micro-batch is what its items are like: equal ones may stand for each other.
    const auto picture = [&](const items_list& items) -> std::vector<std::vector<std::vector<std::int64_t>>> {
      std::vector<std::vector<std::vector<std::int64_t>>> ranks;
      try {
        for (const auto& r : batches_of(solve(items, d.options))) {
          ranks.emplace_back();
          for (const auto& batch : r) {
            std::vector<std::int64_t> like;
            for (const std::size_t p : batch)
              like.push_back((items[p].size * 1000 + items[p].work) * 10 + items[p].samples);
            std::sort(like.begin(), like.end());
            ranks.back().push_back(like);
          }
        }
      } catch (const unsatisfiable&) {
      }
      return ranks;
    };
    REQUIRE(picture(d.items) == picture(shuffled));
  }
}

TEST_CASE("pack: lengths with a long tail come out even, under the cap, with equal counts") {
  for (const auto& [n, ranks] : {std::pair<std::size_t, std::int64_t>{512, 8}, {4096, 32}, {32768, 128}}) {
    const items_list items = long_tail(n, n, 32768);
    for (const bool equal_samples : {false, true}) {
      CAPTURE(n);
      CAPTURE(equal_samples);
      const pack_options options{.ranks = ranks, .cap = 32768, .fixed = 1'000'000, .equal_samples = equal_samples};
      const pack_result result = solve(items, options);
      CHECK(judge(items, options, batches_of(result)).has_value());
      CHECK(result.max_over_mean() <= 1.003);
      if (!equal_samples) CHECK(result.gap() <= 0.003);
    }
  }
}

TEST_CASE("pack: lock-step has the m-th micro-batches alike") {
  const items_list items = long_tail(9, 512, 32768);
  const pack_options options{.ranks = 8, .cap = 32768, .lock_step = true};
  const pack_result result = solve(items, options);
  const std::optional<std::int64_t> value = judge(items, options, batches_of(result));
  REQUIRE(value.has_value());
  CHECK(static_cast<double>(*value) <= 1.03 * result.mean());
}

TEST_CASE("pack: a cap nearly used up, one item in each, all alike, more ranks than items") {
  {
    // 8 bins of exactly 100, filled to the last: 60 + 40 and 55 + 45.
    items_list items;
    for (int i = 0; i < 4; ++i)
      for (const std::int64_t size : {60, 40, 55, 45})
        items.push_back({size, size});
    const pack_result result = solve(items, {.ranks = 4, .cap = 100});
    CHECK(result.micro_batches() == 8);
    CHECK(result.max_over_mean() == 1.0);
  }
  {
    const pack_result result = solve(of_lengths(std::vector<std::int64_t>(8, 7)), {.ranks = 1, .cap = 8});
    CHECK(result.micro_batches() == 8);
  }
  {
    const pack_result result = solve(of_lengths(std::vector<std::int64_t>(8, 10)), {.ranks = 8, .cap = 8192});
    CHECK(result.micro_batches() == 8);
  }
  {
    const pack_options options{.ranks = 5, .cap = 10, .dummies = true};
    const pack_result result = solve(of_lengths({3, 3}), options);
    CHECK(result.micro_batches() == 5);
    CHECK(judge(of_lengths({3, 3}), options, batches_of(result)).has_value());
    CHECK(result.is_dummy(result.rank_begin[4]));
  }
}

TEST_CASE("pack: says what to relax, with numbers") {
  std::string text;
  CHECK(relax_of(of_lengths({5, 21}), {.ranks = 1, .cap = 20}, &text) == batch_constraint::cap);
  CHECK(text.find("sample 1") != std::string::npos);
  CHECK(text.find("21") != std::string::npos);
  CHECK(text.find("cap of 20") != std::string::npos);
  CHECK(relax_of({{30, 1, 3}}, {.ranks = 1, .cap = 20}) == batch_constraint::groups);
  CHECK(relax_of(of_lengths({1, 2, 3}), {.ranks = 4, .cap = 20}, &text) == batch_constraint::micro_batches);
  CHECK(text.find("3 samples") != std::string::npos);
  CHECK(relax_of({{4, 1, 4}, {4, 1, 4}, {4, 1, 4}}, {.ranks = 4, .cap = 20}) == batch_constraint::groups);
  CHECK(relax_of(of_lengths({1, 2, 3, 4, 5}), {.ranks = 2, .cap = 20, .count_multiple = 4}, &text) ==
        batch_constraint::count_multiple);
  CHECK(text.find("takes 8") != std::string::npos);
  CHECK(relax_of(of_lengths({6, 6, 6}), {.ranks = 2, .cap = 10}) == batch_constraint::equal_counts);
  CHECK(relax_of(of_lengths({6, 6, 6}), {.ranks = 1, .cap = 10, .count = 2}) == batch_constraint::micro_batches);
  CHECK(relax_of(of_lengths({6, 6, 6}), {.ranks = 1, .cap = 10, .equal_counts = false, .count_multiple = 2}) ==
        batch_constraint::count_multiple);
  CHECK(relax_of(of_lengths({6, 6, 6}), {.ranks = 1, .cap = 10, .count_multiple = 2, .count = 3}) ==
        batch_constraint::count_multiple);
  CHECK(relax_of({{1, 1, 5}, {1, 1, 2}}, {.ranks = 2, .cap = 10, .equal_samples = true}) ==
        batch_constraint::equal_samples);
  CHECK(relax_of({}, {.ranks = 2, .cap = 10}) == batch_constraint::micro_batches);
}

TEST_CASE("pack: refuses what is out of range") {
  CHECK_THROWS_AS((void)solve({{-1, 0}}, {.cap = 1}), error);
  CHECK_THROWS_AS((void)solve({{0, -1}}, {.cap = 1}), error);
  CHECK_THROWS_AS((void)solve({{0, 0, 0}}, {.cap = 1}), error);
  CHECK_THROWS_AS((void)solve({{0, 0}}, {.ranks = 0, .cap = 1}), error);
  CHECK_THROWS_AS((void)solve({{0, 0}}, {.cap = 0}), error);
  CHECK_THROWS_AS((void)solve({{0, int64_limit}, {0, int64_limit}}, {.cap = 1}), error);
  CHECK_THROWS_AS((void)solve({{0, 0}}, {.cap = 1, .least_count = 3, .count = 2}), error);
}

TEST_CASE("pack: items of size 0 need no room of their own") {
  const items_list items = of_lengths({0, 5, 0, 5, 5, 5, 0, 5});
  const pack_options options{.ranks = 2, .cap = 10};
  const pack_result result = solve(items, options);
  REQUIRE(judge(items, options, batches_of(result)).has_value());
  for (std::size_t m = 0; m < result.micro_batches(); ++m) {
    std::int64_t size = 0;
    for (const std::size_t i : result.of(m))
      size += items[i].size;
    CHECK(size > 0);
  }
  CHECK(solve(of_lengths({10, 0, 5}), {.ranks = 1, .cap = 10}).micro_batches() == 2);
}
