/// Packing of samples without padding over data-parallel ranks: lengths with a long tail, as reinforcement learning has
/// them, times of a 7 B model. Counters: max_over_mean of the ranks' times, the gap to the lower bound, the share of
/// the room that is used, micro-batches of a rank.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/batch/pack.hpp>
#include <dynapipe/batch/pack_groups.hpp>

namespace {

using namespace dynapipe;

/// Nanoseconds of a 7 B model, forward and backward, on one 80 GB device pair.
pack_item item_of(std::int64_t length) { return {length, 49'100 * length + length * length}; }

std::vector<pack_item> long_tail(std::int64_t n, std::int64_t longest) {
  std::mt19937_64 random{static_cast<std::uint64_t>(n)};
  std::lognormal_distribution<double> draw{8.0, 1.2};
  std::vector<pack_item> items;
  items.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    items.push_back(item_of(std::clamp<std::int64_t>(static_cast<std::int64_t>(draw(random)), 16, longest)));
  return items;
}

void report(benchmark::State& state, const std::vector<pack_item>& items, const pack_options& options,
            const pack_result& result) {
  double size = 0;
  for (const pack_item& item : items)
    size += static_cast<double>(item.size);
  const double batches = static_cast<double>(result.micro_batches());
  state.counters["max_over_mean"] = result.max_over_mean();
  state.counters["gap"] = result.gap();
  state.counters["fill"] = size / (batches * static_cast<double>(options.cap));
  state.counters["micro_batches"] = batches / static_cast<double>(options.ranks);
  state.SetComplexityN(static_cast<benchmark::IterationCount>(items.size()));
}

void run(benchmark::State& state, const std::vector<pack_item>& items, const pack_options& options) {
  pack_result result;
  for ([[maybe_unused]] auto _ : state) {
    result = pack(std::span<const pack_item>{items}, options);
    benchmark::DoNotOptimize(result.longest);
  }
  report(state, items, options, result);
}

pack_options options_of(const benchmark::State& state) {
  return {.ranks = state.range(1), .cap = 32768, .fixed = 31'900'000};
}

void pack_long_tail(benchmark::State& state) { run(state, long_tail(state.range(0), 32768), options_of(state)); }

void pack_pipeline(benchmark::State& state) {
  pack_options options = options_of(state);
  options.devices = 4;
  run(state, long_tail(state.range(0), 32768), options);
}

void pack_equal_samples(benchmark::State& state) {
  pack_options options = options_of(state);
  options.equal_samples = true;
  run(state, long_tail(state.range(0), 32768), options);
}

void pack_lock_step(benchmark::State& state) {
  pack_options options = options_of(state);
  options.lock_step = true;
  run(state, long_tail(state.range(0), 32768), options);
}

void pack_multiple(benchmark::State& state) {
  pack_options options = options_of(state);
  options.count_multiple = 4;
  run(state, long_tail(state.range(0), 32768), options);
}

void pack_unequal(benchmark::State& state) {
  pack_options options = options_of(state);
  options.equal_counts = false;
  run(state, long_tail(state.range(0), 32768), options);
}

/// Groups of eight answers to one prompt, of lengths up to 4,096.
void pack_in_groups(benchmark::State& state) {
  const std::vector<pack_item> items = long_tail(state.range(0), 4096);
  std::vector<std::int64_t> group_of;
  for (std::size_t i = 0; i < items.size(); ++i)
    group_of.push_back(static_cast<std::int64_t>(i / 8));
  const pack_options options = options_of(state);
  pack_result result;
  for ([[maybe_unused]] auto _ : state) {
    result = pack_groups(std::span<const pack_item>{items}, std::span<const std::int64_t>{group_of}, options);
    benchmark::DoNotOptimize(result.longest);
  }
  report(state, items, options, result);
}

/// Many lengths for one cap, on one rank: a data set packed before training.
void pack_data_set(benchmark::State& state) {
  run(state, long_tail(state.range(0), 8192), {.ranks = state.range(1), .cap = 8192});
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Unit(benchmark::kMillisecond)->Args({512, 8})->Args({4096, 32})->Args({32768, 128})->Complexity();
}

BENCHMARK(pack_long_tail)->Apply(sizes);
BENCHMARK(pack_pipeline)->Apply(sizes);
BENCHMARK(pack_equal_samples)->Apply(sizes);
BENCHMARK(pack_lock_step)->Apply(sizes);
BENCHMARK(pack_multiple)->Apply(sizes);
BENCHMARK(pack_unequal)->Apply(sizes);
BENCHMARK(pack_in_groups)->Apply(sizes);
BENCHMARK(pack_data_set)
    ->Unit(benchmark::kMillisecond)
    ->Args({65'536, 1})
    ->Args({262'144, 1})
    ->Args({1'000'000, 1})
    ->Args({1'000'000, 8})
    ->Complexity();

}  // namespace
