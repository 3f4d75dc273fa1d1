/// Cutting ordered samples into micro-batches: `partition` by lines and by the whole window, its frontier and its
/// bound.
///
/// Eight stages, four replicas, decoder-only, lengths drawn from what real instruction data have. `lines` is the
/// roofline (convex in rows), `table` the same costs without that promise, as measured tables have to be cut. Counters:
/// `over_bound` the objective over the bound, `priced` the shapes priced.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/batch/partition_bound.hpp>
#include <dynapipe/batch/partition_frontier.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/plan/pipeline_costs.hpp>

namespace {

using namespace dynapipe;

/// Quantiles, at 0, 5, .. 100 %, of input + target of 97,202 instruction samples.
constexpr std::int64_t quantiles[] = {16,  45,  57,  66,  76,  89,  106, 123,  142,  169, 204,
                                      248, 295, 362, 438, 507, 592, 750, 1058, 1484, 7087};

std::vector<sample_lengths> lengths_of(std::size_t samples) {
  std::mt19937_64 random{1};
  constexpr std::size_t parts = std::size(quantiles) - 1;
  std::vector<sample_lengths> lengths;
  for (std::size_t i = 0; i < samples; ++i) {
    const std::size_t part = random() % parts;
    const auto low = static_cast<double>(quantiles[part]);
    const auto high = static_cast<double>(quantiles[part + 1]);
    const double at = static_cast<double>(random() >> 11) * 0x1p-53;
    // Geometric inside a part, as tails are.
    const std::int64_t length = std::llround(low * std::pow(high / low, at));
    lengths.push_back({length, 0, length});
  }
  std::sort(lengths.begin(), lengths.end(), [](const auto& a, const auto& b) { return a.input > b.input; });
  return lengths;
}

struct setting {
  model_spec model = presets::gpt_6_7b();
  cluster_spec cluster = presets::a100_80g();
  pipeline_costs<analytic_cost> costs{model, cluster, analytic_cost{model, cluster}, {.pipeline = 8, .data = 4}};
  pipeline_costs<analytic_cost>::workspace room = costs.make_workspace();
  std::int64_t asked = 0;

  std::optional<nanoseconds> operator()(const shape& s) {
    ++asked;
    const shape_price price = costs.price(s, room);
    return price.in_flight < 8 ? std::nullopt : std::optional{price.time};
  }
};

partition_options options_of(bool lines) { return {.devices = 8, .replicas = 4, .convex_rows = lines}; }

void cut(benchmark::State& state, bool lines) {
  const std::vector<sample_lengths> samples = lengths_of(static_cast<std::size_t>(state.range(0)));
  setting time;
  std::optional<partition_result> found;
  for (auto _ : state) {
    time.asked = 0;
    found = partition(samples, {}, time, options_of(lines));
    benchmark::DoNotOptimize(found);
  }
  state.counters["priced"] = static_cast<double>(time.asked);
  state.counters["micro_batches"] = static_cast<double>(found->cuts.size());
  const auto bound = static_cast<double>(*partition_bound(samples, {}, time, options_of(true)));
  state.counters["over_bound"] = static_cast<double>(found->scaled_objective(options_of(lines))) / bound;
  state.SetComplexityN(state.range(0));
}
void partition_by_lines(benchmark::State& state) { cut(state, true); }
void partition_by_table(benchmark::State& state) { cut(state, false); }
BENCHMARK(partition_by_lines)
    ->Arg(512)
    ->Arg(4'096)
    ->Arg(65'536)
    ->Arg(1'000'000)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();
BENCHMARK(partition_by_table)->Arg(512)->Arg(4'096)->Arg(65'536)->Unit(benchmark::kMillisecond)->Complexity();

void frontier_of_eight(benchmark::State& state) {
  const std::vector<sample_lengths> samples = lengths_of(static_cast<std::size_t>(state.range(0)));
  setting time;
  std::optional<std::vector<partition_result>> found;
  for (auto _ : state)
    benchmark::DoNotOptimize(found = partition_frontier(samples, {}, time, options_of(true)));
  state.counters["cuts"] = static_cast<double>(found->size());
  state.SetComplexityN(state.range(0));
}
BENCHMARK(frontier_of_eight)->Arg(4'096)->Arg(65'536)->Unit(benchmark::kMillisecond);

void bound_of_partition(benchmark::State& state) {
  const std::vector<sample_lengths> samples = lengths_of(static_cast<std::size_t>(state.range(0)));
  setting time;
  for (auto _ : state)
    benchmark::DoNotOptimize(partition_bound(samples, {}, time, options_of(true)));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(bound_of_partition)->Arg(4'096)->Arg(65'536)->Unit(benchmark::kMillisecond);

}  // namespace
