/// Micro-batches of few shapes.
///
/// Counters: `over_free` what the objective is beyond that of the exact cut without a budget, `shapes_free` the shapes
/// of that, `micro_batches` those of the result.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/shape_budget.hpp>

namespace {

using namespace dynapipe;

/// Lengths like those of instruction data: inputs log-normal around 200 tokens, targets around 12, tails of thousands.
std::vector<sample_lengths> samples_of(std::int64_t count, bool two_lengths) {
  std::mt19937_64 random{1};
  std::normal_distribution<double> input{5.3, 1.1};
  std::normal_distribution<double> target{2.5, 1.5};
  std::vector<sample_lengths> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    samples.push_back({std::min<std::int64_t>(8'000, 1 + std::llround(std::exp(input(random)))), 0, 1});
    if (two_lengths) samples.back().target = std::min<std::int64_t>(1'000, 3 + std::llround(std::exp(target(random))));
  }
  return samples;
}

/// Encoder and decoder layers, the slower side decides; up to 16,384 tokens fit.
std::optional<nanoseconds> price(const shape& s) {
  if (s.rows * (s.input + s.target) > 16'384) return std::nullopt;
  const auto side = [&](std::int64_t length, std::int64_t fixed) {
    return std::max(fixed, s.rows * (4'000 * length + length * length)) + 500'000;
  };
  const std::int64_t encoder = side(s.input, 2'000'000);
  if (s.target == 0) return nanoseconds{encoder};
  return nanoseconds{std::max(encoder, side(s.target, 3'000'000) + s.rows * (1'000 * s.input + s.input * s.target))};
}

void few_shapes(benchmark::State& state, bool two_lengths) {
  const std::vector<sample_lengths> samples = samples_of(state.range(1), two_lengths);
  std::vector<sample_lengths> ordered;
  for (const sample_id id : two_lengths ? order_samples(samples, sample_order::tour) : order_by_length(samples))
    ordered.push_back(samples[index(id)]);
  const partition_options options{.devices = 8, .replicas = 4, .convex_rows = !two_lengths};
  const std::optional<shape_budget_result> free = shape_budget(ordered, {}, price, options, state.range(1));
  std::optional<shape_budget_result> found;
  for (auto _ : state) {
    found = shape_budget(ordered, {}, price, options, state.range(0));
    benchmark::DoNotOptimize(found);
  }
  state.counters["over_free"] =
      static_cast<double>(found->scaled_objective(options)) / static_cast<double>(found->lower_bound) - 1;
  state.counters["shapes_free"] = static_cast<double>(free->shapes.size());
  state.counters["micro_batches"] = static_cast<double>(found->cuts.size());
  state.SetComplexityN(state.range(1));
}
BENCHMARK_CAPTURE(few_shapes, one_length, false)
    ->ArgsProduct({{1, 2, 4, 8, 16}, {512, 4'096, 65'536}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(few_shapes, two_lengths, true)
    ->ArgsProduct({{1, 2, 4, 8, 16}, {512, 4'096}})
    ->Unit(benchmark::kMillisecond);

void eight_shapes(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), false);
  std::vector<sample_lengths> ordered;
  for (const sample_id id : order_by_length(samples))
    ordered.push_back(samples[index(id)]);
  const partition_options options{.devices = 8, .replicas = 4, .convex_rows = true};
  for (auto _ : state)
    benchmark::DoNotOptimize(shape_budget(ordered, {}, price, options, 8));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(eight_shapes)->RangeMultiplier(4)->Range(256, 262'144)->Unit(benchmark::kMillisecond)->Complexity();

}  // namespace
