/// Spreading micro-batches over replicas: `spread`, with counts free, equal, in lock-step, with equal samples.
///
/// Counters: `max_over_mean` is the largest sum of a replica's times over their mean (in lock-step: the sum of the
/// steps' longest over that mean), `gap` how far the objective may be above the optimum.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/batch/spread.hpp>

namespace {

using namespace dynapipe;

/// Times of micro-batches cut by a dynamic program: alike, some short, a tail of long ones.
std::vector<spread_item> micro_batches(std::int64_t count) {
  std::mt19937_64 random{5};
  std::lognormal_distribution<double> time{16, 0.4};
  std::vector<spread_item> items;
  for (std::int64_t i = 0; i < count; ++i)
    items.push_back({nanoseconds{std::llround(time(random))}, 1 + static_cast<std::int64_t>(random() % 24)});
  return items;
}

double max_over_mean(const std::vector<spread_item>& items, const spread_result& found, bool lock_step) {
  double most = 0, all = 0, steps = 0;
  for (std::size_t m = 0;; ++m) {
    std::int64_t longest = -1;
    for (const std::vector<std::size_t>& list : found.replicas)
      if (m < list.size()) longest = std::max(longest, items[list[m]].time.value());
    if (longest < 0) break;
    steps += static_cast<double>(longest);
  }
  for (const std::vector<std::size_t>& list : found.replicas) {
    double sum = 0;
    for (const std::size_t i : list)
      sum += static_cast<double>(items[i].time.value());
    most = std::max(most, sum);
    all += sum;
  }
  return (lock_step ? steps : most) * static_cast<double>(found.replicas.size()) / all;
}

void measure(benchmark::State& state, spread_options options) {
  const std::vector<spread_item> items = micro_batches(state.range(0));
  options.replicas = state.range(1);
  spread_result found;
  for (auto _ : state) {
    found = spread(std::span<const spread_item>{items}, options);
    benchmark::DoNotOptimize(found);
  }
  state.counters["max_over_mean"] = max_over_mean(items, found, options.lock_step);
  state.counters["gap"] = found.gap();
  state.SetComplexityN(state.range(0));
}

/// Sizes with `least` micro-batches on each replica or more.
template <int least>
void sizes(benchmark::internal::Benchmark* b) {
  for (const std::int64_t replicas : {8, 32, 128})
    for (const std::int64_t count : {64, 512, 4'096, 32'768})
      if (count >= least * replicas) b->Args({count, replicas});
  b->Unit(benchmark::kMillisecond)->Complexity();
}

void spread_free(benchmark::State& state) { measure(state, {}); }
void spread_equal(benchmark::State& state) { measure(state, {.equal_counts = true}); }
void spread_pipeline(benchmark::State& state) { measure(state, {.devices = 8}); }
void spread_pipeline_equal(benchmark::State& state) { measure(state, {.devices = 8, .equal_counts = true}); }
void spread_equal_samples(benchmark::State& state) {
  measure(state, {.devices = 8, .equal_counts = true, .equal_samples = true});
}
void spread_lock_step(benchmark::State& state) { measure(state, {.devices = 8, .lock_step = true}); }
BENCHMARK(spread_free)->Apply(sizes<2>);
BENCHMARK(spread_equal)->Apply(sizes<2>);
BENCHMARK(spread_pipeline)->Apply(sizes<2>);
BENCHMARK(spread_pipeline_equal)->Apply(sizes<2>);
BENCHMARK(spread_equal_samples)->Apply(sizes<8>);
BENCHMARK(spread_lock_step)->Apply(sizes<2>);

}  // namespace
