/// What stands between cost models and plans: looking up ranges, calibration, splits and digests.
///
/// Working sets vary, so that neither caches nor branch predictors learn the questions.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/balanced_split.hpp>
#include <dynapipe/cost/calibration.hpp>
#include <dynapipe/cost/shape_table.hpp>
#include <dynapipe/plan/digest.hpp>
#include <dynapipe/plan/planner.hpp>

namespace {

using namespace dynapipe;

/// Padded samples, longest first, with lengths like those of instruction data.
std::vector<shape> samples_of(std::size_t count) {
  std::mt19937_64 random{1};
  std::normal_distribution<double> normal{5.3, 1.1};
  std::vector<shape> alone;
  for (std::size_t i = 0; i < count; ++i)
    alone.push_back({1, 8 + 8 * (std::llround(std::exp(std::min(9.0, normal(random)))) / 8), 0});
  std::sort(alone.begin(), alone.end(), [](const shape& a, const shape& b) { return a.input > b.input; });
  return alone;
}

/// A time of about a layer's, for shapes up to 65,536 tokens.
std::optional<nanoseconds> simple_time(const shape& s) {
  if (s.rows * s.input > 65'536) return std::nullopt;
  return nanoseconds{290'000 + 130 * s.rows * s.input + s.rows * s.input * s.input / 64};
}

/// 4,096 random ranges of the table's; `state.range(0)` samples.
void shape_table_lookup(benchmark::State& state) {
  const std::vector<shape> alone = samples_of(static_cast<std::size_t>(state.range(0)));
  const shape_table table{alone, simple_time};
  std::mt19937_64 random{2};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> asked;
  for (int k = 0; k < 4'096; ++k) {
    const std::size_t first = random() % alone.size();
    asked.emplace_back(first, 1 + random() % (table.row(first).size() + 1));
  }
  for (auto _ : state) {
    std::int64_t sum = 0;
    for (const auto& [first, count] : asked)
      sum ^= table(first, count);
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(asked.size()));
  state.counters["entries"] = static_cast<double>(table.size());
}
BENCHMARK(shape_table_lookup)->Arg(168)->Arg(512)->Arg(2048);

/// All ranges in order, as a dynamic program asks.
void shape_table_rows(benchmark::State& state) {
  const std::vector<shape> alone = samples_of(static_cast<std::size_t>(state.range(0)));
  const shape_table table{alone, simple_time};
  std::int64_t entries = 0;
  for (auto _ : state) {
    std::int64_t sum = 0;
    entries = 0;
    for (std::size_t i = 0; i < table.samples(); ++i) {
      for (const std::int64_t t : table.row(i))
        sum ^= t;
      entries += static_cast<std::int64_t>(table.row(i).size());
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * entries);
}
BENCHMARK(shape_table_rows)->Arg(168)->Arg(2048);

void shape_table_build(benchmark::State& state) {
  const std::vector<shape> alone = samples_of(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state)
    benchmark::DoNotOptimize(shape_table{alone, simple_time});
}
BENCHMARK(shape_table_build)->Arg(168)->Arg(2048)->Unit(benchmark::kMicrosecond);

void price_of_shapes(benchmark::State& state) {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::a100_80g();
  const pipeline_costs costs{model, cluster, analytic_cost{model, cluster}, {.pipeline = state.range(0)}};
  auto room = costs.make_workspace();
  std::mt19937_64 random{4};
  std::vector<shape> shapes;
  for (int k = 0; k < 1'024; ++k)
    shapes.push_back(
        {1 + static_cast<std::int64_t>(random() % 32), 8 + 8 * static_cast<std::int64_t>(random() % 512), 0});
  std::size_t turn = 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(costs.price(shapes[turn++ % shapes.size()], room));
}
BENCHMARK(price_of_shapes)->Arg(4)->Arg(16);

/// One iteration of 16 stages and `state.range(0)` micro-batches.
void calibrate_stages(benchmark::State& state) {
  std::mt19937_64 random{5};
  std::vector<observation> seen;
  for (int stage = 0; stage < 16; ++stage)
    for (const timed_pass pass : {timed_pass::forward, timed_pass::backward})
      for (std::int64_t m = 0; m < state.range(0); ++m) {
        const auto time = static_cast<std::int64_t>(1'000'000 + random() % 10'000'000);
        seen.push_back({stage_id{stage}, pass, nanoseconds{time},
                        nanoseconds{time + static_cast<std::int64_t>(random() % 500'000)}});
      }
  calibration known = uncalibrated(16);
  for (auto _ : state)
    benchmark::DoNotOptimize(known = calibrate(known, seen));
}
BENCHMARK(calibrate_stages)->Arg(16)->Arg(256)->Unit(benchmark::kMicrosecond);

void split_a_model(benchmark::State& state) {
  const model_spec model = state.range(0) == 0 ? presets::llama_3_70b() : presets::t5_44b();
  const analytic_cost cost{model, presets::h100()};
  std::vector<weighted_shape> mix;
  for (std::int64_t length = 64; length <= 8'192; length *= 2)
    mix.push_back({{8'192 / length, length, model.encoder_decoder() ? 64 : 0}, 1 + length % 7});
  for (auto _ : state)
    benchmark::DoNotOptimize(balanced_split(model, 16, cost, mix, recompute_mode::none));
}
BENCHMARK(split_a_model)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void digest_of_plan(benchmark::State& state) {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::a100_80g();
  std::vector<sample> batch;
  for (const shape& s : samples_of(168))
    batch.push_back({s.input, 5});
  const plan p = planner{model, cluster, analytic_cost{model, cluster}, {.pipeline = 4, .data = 2}}(batch);
  for (auto _ : state)
    benchmark::DoNotOptimize(digest(p));
}
BENCHMARK(digest_of_plan)->Unit(benchmark::kMicrosecond);

}  // namespace
