/// Orders of samples, packed rows, and the baselines.
///
/// Counters: `path_tokens` is how far an order travels a sample; `path_over_root` a path's length over
/// sqrt(area * points); `objective_over_length` the objective of the exact cut in an order over that of the order by
/// length; `fill` the share of rows that holds tokens of samples; `over_optimum` what a cut costs beyond the exact one.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/batch/baselines.hpp>
#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/batch/published.hpp>
#include <dynapipe/batch/rows.hpp>

namespace {

using namespace dynapipe;

/// Lengths like those of instruction data: inputs log-normal around 200 tokens, targets around 12, tails of thousands.
std::vector<sample_lengths> samples_of(std::int64_t count, bool two_lengths, std::uint64_t seed = 1) {
  std::mt19937_64 random{seed};
  std::normal_distribution<double> input{5.3, 1.1};
  std::normal_distribution<double> target{2.5, 1.5};
  std::vector<sample_lengths> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    samples.push_back({std::min<std::int64_t>(8'000, 1 + std::llround(std::exp(input(random)))), 0, 1});
    if (two_lengths) samples.back().target = std::min<std::int64_t>(1'000, 3 + std::llround(std::exp(target(random))));
  }
  return samples;
}

/// Lengths without order: nearly every sample a point of its own.
std::vector<sample_lengths> scattered(std::int64_t count) {
  std::mt19937_64 random{2};
  std::vector<sample_lengths> samples;
  for (std::int64_t i = 0; i < count; ++i)
    samples.push_back(
        {1 + static_cast<std::int64_t>(random() % 65'536), 1 + static_cast<std::int64_t>(random() % 65'536), 1});
  return samples;
}

/// Encoder and decoder layers, the slower side decides; up to 16,384 tokens fit.
std::optional<nanoseconds> price(const shape& s) {
  if (s.rows * (s.input + s.target) > 16'384) return std::nullopt;
  const auto side = [&](std::int64_t length, std::int64_t fixed) {
    return fixed + s.rows * (4'000 * length + length * length);
  };
  const std::int64_t encoder = side(s.input, 2'000'000);
  if (s.target == 0) return nanoseconds{encoder};
  return nanoseconds{std::max(encoder, side(s.target, 3'000'000) + s.rows * (1'000 * s.input + s.input * s.target))};
}

void sort_by_length(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), false);
  for (auto _ : state)
    benchmark::DoNotOptimize(order_by_length(samples));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(sort_by_length)->RangeMultiplier(16)->Range(4'096, 1 << 20)->Unit(benchmark::kMillisecond)->Complexity();

void order_two_lengths(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(1), true);
  const sample_order name = sample_order_names[static_cast<std::size_t>(state.range(0))].first;
  std::vector<sample_id> order;
  for (auto _ : state)
    order = order_samples(samples, name);
  const auto objective = [&](const std::vector<sample_id>& ids) {
    std::vector<sample_lengths> ordered;
    for (const sample_id id : ids)
      ordered.push_back(samples[index(id)]);
    const partition_options options{.devices = 4};
    return static_cast<double>(partition(ordered, {}, price, options)->scaled_objective(options));
  };
  state.SetLabel(std::string{to_string(name)});
  state.counters["path_tokens"] =
      static_cast<double>(path_length(samples, order, {})) / static_cast<double>(samples.size());
  if (state.range(1) <= 4'096)
    state.counters["objective_over_length"] = objective(order) / objective(order_by_length(samples));
}
BENCHMARK(order_two_lengths)->ArgsProduct({{0, 1, 2, 3, 4, 5}, {168, 4'096, 65'536}})->Unit(benchmark::kMillisecond);

void tour_of_scattered(benchmark::State& state) {
  const std::vector<sample_lengths> samples = scattered(state.range(0));
  std::vector<sample_id> order;
  for (auto _ : state)
    order = order_by_tour(samples, {.padding_multiple = 1});
  state.counters["path_over_root"] = static_cast<double>(path_length(samples, order, {.padding_multiple = 1})) /
                                     (65'536 * std::sqrt(static_cast<double>(state.range(0))));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(tour_of_scattered)->RangeMultiplier(4)->Range(256, 65'536)->Unit(benchmark::kMillisecond)->Complexity();

void first_fit_decreasing(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), false);
  std::vector<micro_batch> packed;
  for (auto _ : state)
    packed = pack_to_cap(samples, 8'192, packing::first_fit_decreasing, {.padding_multiple = 1});
  std::int64_t sum = 0;
  for (const micro_batch& mb : packed)
    sum += mb.padded.input;
  state.counters["fill"] = static_cast<double>(sum) / (8'192.0 * static_cast<double>(packed.size()));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(first_fit_decreasing)
    ->RangeMultiplier(16)
    ->Range(4'096, 1 << 20)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNLogN);

void pack_two_lengths(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), true);
  packed_rows packed;
  for (auto _ : state)
    packed = pack_rows(samples, {8'192, 1'024}, {});
  std::int64_t sum = 0;
  for (const sample_lengths& s : samples)
    sum += s.input;
  state.counters["fill"] = static_cast<double>(sum) / (8'192.0 * static_cast<double>(packed.rows()));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(pack_two_lengths)
    ->RangeMultiplier(16)
    ->Range(4'096, 1 << 20)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNLogN);

void rows_of_all_prefixes(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), false);
  std::vector<sample_lengths> ordered;
  for (const sample_id id : order_by_length(samples))
    ordered.push_back(samples[index(id)]);
  const row_room row = padded_row(ordered, {});
  for (auto _ : state)
    benchmark::DoNotOptimize(rows_of_prefixes(ordered, row, {}));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(rows_of_all_prefixes)
    ->RangeMultiplier(16)
    ->Range(4'096, 1 << 20)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oNLogN);

void token_budget(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), false);
  for (auto _ : state)
    benchmark::DoNotOptimize(fill_token_budget(samples, 16'384, 8, {}));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(token_budget)->RangeMultiplier(16)->Range(4'096, 1 << 20)->Unit(benchmark::kMillisecond)->Complexity();

/// The published method on its grid of 5 ms, and what its cut costs beyond the optimum.
void published(benchmark::State& state) {
  const std::vector<sample_lengths> samples = samples_of(state.range(0), false);
  std::vector<sample_lengths> ordered;
  for (const sample_id id : order_by_length(samples))
    ordered.push_back(samples[index(id)]);
  const partition_options options{.devices = 4};
  std::optional<published_cut> cut;
  for (auto _ : state)
    cut = published_partition(ordered, {}, price, options);
  state.counters["over_optimum"] =
      static_cast<double>(cut->cut.scaled_objective(options)) /
          static_cast<double>(partition(ordered, {}, price, options)->scaled_objective(options)) -
      1;
  state.counters["candidates"] = static_cast<double>(cut->candidates);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(published)->RangeMultiplier(4)->Range(256, 4'096)->Unit(benchmark::kMillisecond)->Complexity();

}  // namespace
