/// What stands between cost models and plans: prices, calibration, splits and digests.
///
/// Working sets vary, so that neither caches nor branch predictors learn the questions.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/balanced_split.hpp>
#include <dynapipe/cost/calibration.hpp>
#include <dynapipe/plan/digest.hpp>
#include <dynapipe/plan/planner.hpp>

namespace {

using namespace dynapipe;

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
  std::mt19937_64 random{1};
  std::vector<sample> batch;
  for (int k = 0; k < 168; ++k)
    batch.push_back({8 + static_cast<std::int64_t>(random() % 1'024), 5});
  const plan p = planner{model, cluster, analytic_cost{model, cluster}, {.pipeline = 4, .data = 2}}(batch);
  for (auto _ : state)
    benchmark::DoNotOptimize(digest(p));
}
BENCHMARK(digest_of_plan)->Unit(benchmark::kMicrosecond);

}  // namespace
