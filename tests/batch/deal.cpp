#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/deal.hpp>
#include <dynapipe/batch/order.hpp>

using namespace dynapipe;

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// A micro-batch takes fixed + tokens; more than `room` padded tokens do not fit.
struct price {
  std::int64_t fixed = 0;
  std::int64_t room = never;

  std::optional<nanoseconds> operator()(const shape& s) const {
    const std::int64_t all = s.rows * (s.input + s.target);
    if (all > room) return std::nullopt;
    return nanoseconds{fixed + all};
  }
};

struct problem {
  std::vector<sample_lengths> lengths{};
  shape_options shapes{.padding_multiple = 1};
  price time{};
  partition_options options{};
  bool dummies = false;

  [[nodiscard]] std::optional<deal_result> solve() const {
    const std::vector<sample_id> order = order_by_length(lengths);
    return deal(std::span<const sample_lengths>{lengths}, std::span<const sample_id>{order}, shapes, time, options,
                dummies);
  }
  [[nodiscard]] std::int64_t objective(std::int64_t t_max, std::int64_t sum) const {
    return (options.devices - 1) * t_max + options.stages_per_device * sum;
  }
};

/// The best cut of sorted inputs dealt in runs, each run as its longest, by trying all.
std::int64_t brute_force(const problem& p) {
  std::vector<std::int64_t> inputs;
  for (const sample_lengths& s : p.lengths)
    inputs.push_back(padded_length(s.input, p.shapes));
  std::sort(inputs.rbegin(), inputs.rend());
  const std::size_t replicas = static_cast<std::size_t>(p.options.replicas);
  const std::size_t runs = (inputs.size() + replicas - 1) / replicas;
  std::int64_t best = never;
  for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (runs - 1); ++borders) {
    std::int64_t t_max = 0, sum = 0;
    std::size_t from = 0;
    bool fits = true;
    for (std::size_t i = 1; i <= runs; ++i) {
      if (i < runs && (borders >> (i - 1) & 1U) == 0) continue;
      const std::optional<nanoseconds> t = p.time({static_cast<std::int64_t>(i - from), inputs[from * replicas], 0});
      const bool is_short = i == runs && from + 1 == runs && inputs.size() % replicas != 0;
      fits = fits && t && (!is_short || p.dummies);
      if (!fits) break;
      t_max = std::max(t_max, t->value());
      sum += t->value();
      from = i;
    }
    if (fits) best = std::min(best, p.objective(t_max, sum));
  }
  return best;
}

void check_result(const problem& p, const deal_result& d) {
  const std::size_t replicas = static_cast<std::size_t>(p.options.replicas);
  REQUIRE(d.replicas.size() == replicas);
  std::vector<int> seen(p.lengths.size(), 0);
  std::size_t least = p.lengths.size(), most = 0;
  std::int64_t loss = 0, all_loss = 0;
  for (const sample_lengths& s : p.lengths)
    all_loss += s.loss;
  for (const std::vector<micro_batch>& list : d.replicas) {
    REQUIRE(list.size() == d.cuts.size());
    std::size_t samples = 0;
    for (const micro_batch& mb : list) {
      CHECK(mb.dummy == mb.samples.empty());
      if (mb.dummy) CHECK(p.dummies);
      samples += mb.samples.size();
      loss += mb.loss_tokens;
      std::int64_t input = 0, target = 0;
      for (const sample_id id : mb.samples) {
        ++seen.at(index(id));
        input = std::max(input, padded_length(p.lengths[index(id)].input, p.shapes));
        if (p.lengths[index(id)].target > 0)
          target = std::max(target, padded_length(p.lengths[index(id)].target, p.shapes));
      }
      if (!mb.dummy) CHECK(mb.padded == shape{static_cast<std::int64_t>(mb.samples.size()), input, target});
      REQUIRE(p.time(mb.padded).has_value());
    }
    least = std::min(least, samples);
    most = std::max(most, samples);
  }
  for (const int n : seen)
    CHECK(n == 1);
  CHECK(most - least <= 1);
  CHECK(loss == all_loss);
  std::int64_t t_max = 0, sum = 0;
  for (std::size_t m = 0; m < d.cuts.size(); ++m) {
    std::int64_t step = 0;
    for (const std::vector<micro_batch>& list : d.replicas)
      if (!list[m].dummy) step = std::max(step, p.time(list[m].padded)->value());
    t_max = std::max(t_max, step);
    sum += step;
  }
  CHECK(t_max <= d.t_max.value());
  CHECK(sum <= d.sum.value());
}

std::vector<sample_lengths> documents(const std::vector<std::int64_t>& inputs) {
  std::vector<sample_lengths> result;
  for (const std::int64_t input : inputs)
    result.push_back({input, 0, input});
  return result;
}

}  // namespace

TEST_CASE("a deal by hand") {
  const problem p{.lengths = documents({10, 2, 9, 3}), .time = {.fixed = 1}, .options = {.replicas = 2}};
  const std::optional<deal_result> d = p.solve();
  REQUIRE(d.has_value());
  check_result(p, *d);
  CHECK(d->cuts == std::vector<std::size_t>{0, 1});
  CHECK(d->sum == nanoseconds{11 + 4});
  CHECK(d->replicas[0][0].samples == std::vector<sample_id>{sample_id{0}});
  CHECK(d->replicas[1][0].samples == std::vector<sample_id>{sample_id{2}});
  // To and fro: the second replica, which had the shorter one, now has the longer.
  CHECK(d->replicas[0][1].samples == std::vector<sample_id>{sample_id{1}});
  CHECK(d->replicas[1][1].samples == std::vector<sample_id>{sample_id{3}});
}

TEST_CASE("206 samples on 4 replicas, as they are left by a filter") {
  std::vector<std::int64_t> inputs;
  for (std::int64_t i = 0; i < 206; ++i)
    inputs.push_back(1 + i * 37 % 101);
  for (const bool dummies : {false, true}) {
    const problem p{.lengths = documents(inputs),
                    .time = {.fixed = 30, .room = 900},
                    .options = {.devices = 4, .replicas = 4},
                    .dummies = dummies};
    const std::optional<deal_result> d = p.solve();
    REQUIRE(d.has_value());
    check_result(p, *d);
  }
}

TEST_CASE("fewer samples than replicas") {
  problem p{.lengths = documents({7, 5}), .options = {.replicas = 4}, .dummies = true};
  const std::optional<deal_result> d = p.solve();
  REQUIRE(d.has_value());
  check_result(p, *d);
  CHECK_FALSE(d->replicas[1][0].dummy);
  CHECK(d->replicas[2][0].dummy);
  CHECK(d->replicas[3][0].padded == shape{1, 1, 0});
  p.dummies = false;
  CHECK_THROWS_WITH_AS((void)p.solve(), doctest::Contains("leave 2 of them without a sample"), unsatisfiable);
  p.lengths.clear();
  CHECK(p.solve()->replicas.size() == 4);
}

TEST_CASE("a sample that does not fit alone gives none") {
  const problem p{.lengths = documents({7, 5}), .time = {.room = 6}, .options = {.replicas = 2}};
  CHECK_FALSE(p.solve().has_value());
}

TEST_CASE("encoder-decoder samples are dealt by both lengths") {
  constexpr unsigned seed = 11;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    problem p{.time = {.fixed = 20, .room = 400},
              .options = {.devices = 3, .replicas = 1 + static_cast<std::int64_t>(random() % 4)},
              .dummies = true};
    p.shapes.padding_multiple = 4;
    for (std::uint64_t n = 1 + random() % 30; n > 0; --n)
      p.lengths.push_back({1 + static_cast<std::int64_t>(random() % 50), 1 + static_cast<std::int64_t>(random() % 50),
                           static_cast<std::int64_t>(random() % 50)});
    const std::optional<deal_result> d = p.solve();
    REQUIRE(d.has_value());
    check_result(p, *d);
  }
}

TEST_CASE("random deals: all constraints at once, the cut optimal for the runs") {
  constexpr unsigned seed = 90'001;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  int optimal = 0, joined = 0, refused = 0;
  double worst = 1;
  for (int round = 0; round < 5'000; ++round) {
    CAPTURE(round);
    problem p{.time = {.fixed = static_cast<std::int64_t>(random() % 60)},
              .options = {.devices = 1 + static_cast<std::int64_t>(random() % 6),
                          .replicas = 1 + static_cast<std::int64_t>(random() % 5),
                          .stages_per_device = 1 + static_cast<std::int64_t>(random() % 2)},
              .dummies = random() % 2 == 0};
    if (random() % 2 == 0) p.time.room = 60 + static_cast<std::int64_t>(random() % 200);
    const std::size_t samples = 1 + random() % (9 * static_cast<std::size_t>(p.options.replicas));
    for (std::size_t i = 0; i < samples; ++i) {
      const std::int64_t length = 1 + static_cast<std::int64_t>(random() % 60);
      p.lengths.push_back({length, 0, length - 1});
    }
    const std::int64_t best = brute_force(p);
    std::optional<deal_result> d;
    try {
      d = p.solve();
    } catch (const unsatisfiable& e) {
      CHECK(e.relax() == batch_constraint::micro_batches);
      CHECK_FALSE(p.dummies);
    }
    if (!d) {
      CHECK(best == never);
      ++refused;
      continue;
    }
    REQUIRE(best != never);
    check_result(p, *d);
    const std::int64_t found = p.objective(d->t_max.value(), d->sum.value());
    CHECK(found >= best);
    if (p.dummies || samples % static_cast<std::size_t>(p.options.replicas) == 0) {
      CHECK(found == best);
      ++optimal;
    } else {
      ++joined;
      worst = std::max(worst, static_cast<double>(found) / static_cast<double>(best));
    }
  }
  MESSAGE(optimal, " optimal, ", joined, " without dummies at most ", worst, " times that, ", refused, " refused");
  CHECK(optimal > 2'000);
  CHECK(joined > 500);
  CHECK(refused > 50);
  CHECK(worst <= 1.1);
}
