/// Planning one global batch, and its parts: `planner`, `partition`, `balance`, `adaptive`, `simulate`, `validate`.
///
/// Counters say what the result is worth: the gap to the lower bound, padding efficiency, micro-batches.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/dynapipe.hpp>
#include <dynapipe/plan/validate.hpp>

namespace {

using namespace dynapipe;

/// Samples with lengths like those of instruction data: log-normal around 200 tokens, a tail to some thousands.
std::vector<sample> batch_of(std::size_t samples, std::uint64_t seed = 1) {
  std::mt19937_64 random{seed};
  std::normal_distribution<double> normal{5.3, 1.1};
  std::vector<sample> batch;
  for (std::size_t i = 0; i < samples; ++i)
    batch.push_back({std::min<std::int64_t>(8'000, 1 + std::llround(std::exp(normal(random)))),
                     1 + static_cast<std::int64_t>(random() % 60)});
  return batch;
}

struct setting {
  model_spec model = presets::gpt_6_7b();
  cluster_spec cluster = presets::a100_80g();
  analytic_cost cost{model, cluster};
  planner<analytic_cost> plan_batch{model, cluster, cost, {.pipeline = 4, .data = 2}};
};

std::int64_t padded_tokens(const plan& p) {
  std::int64_t sum = 0;
  for (const replica_plan& replica : p.replicas)
    for (const planned_micro_batch& mb : replica.micro_batches)
      sum += mb.rows * (mb.input_length + mb.target_length);
  return sum;
}

/// 168 samples of this kind are about the 65,536 tokens of DynaPipe's evaluation.
void plan_one_batch(benchmark::State& state) {
  const setting s;
  const std::vector<sample> batch = batch_of(static_cast<std::size_t>(state.range(0)));
  std::optional<plan> p;
  for (auto _ : state) {
    p = s.plan_batch(batch);
    benchmark::DoNotOptimize(*p);
  }
  std::int64_t real = 0, count = 0;
  for (const sample_lengths& l : p->lengths)
    real += l.input + l.target;
  for (const replica_plan& replica : p->replicas)
    count += static_cast<std::int64_t>(replica.micro_batches.size());
  state.counters["gap"] = static_cast<double>(p->predicted.value()) / static_cast<double>(p->lower_bound.value()) - 1;
  state.counters["padding_efficiency"] = static_cast<double>(real) / static_cast<double>(padded_tokens(*p));
  state.counters["micro_batches"] = static_cast<double>(count);
  state.SetComplexityN(state.range(0));
}
BENCHMARK(plan_one_batch)->Arg(16)->Arg(168)->Arg(512)->Arg(2048)->Unit(benchmark::kMillisecond)->Complexity();

void partition_samples(benchmark::State& state) {
  const setting s;
  std::vector<sample_lengths> lengths;
  for (const sample& one : batch_of(static_cast<std::size_t>(state.range(0))))
    lengths.push_back(lengths_read(s.model, one, {}, 0));
  std::vector<sample_lengths> ordered;
  for (const sample_id id : order_by_length(lengths))
    ordered.push_back(lengths[index(id)]);
  auto room = s.plan_batch.costs().make_workspace();
  const auto time = [&](const shape& of) -> std::optional<nanoseconds> {
    const shape_price price = s.plan_batch.costs().price(of, room);
    if (price.in_flight < 4) return std::nullopt;
    return price.time;
  };
  std::optional<partition_result> cut;
  for (auto _ : state) {
    cut = partition(ordered, {}, time, {.devices = 4, .replicas = 2});
    benchmark::DoNotOptimize(cut);
  }
  state.counters["micro_batches"] = static_cast<double>(cut->cuts.size());
  state.SetComplexityN(state.range(0));
}
BENCHMARK(partition_samples)->RangeMultiplier(4)->Range(64, 4096)->Unit(benchmark::kMillisecond)->Complexity();

void balance_replicas(benchmark::State& state) {
  std::mt19937_64 random{3};
  std::vector<nanoseconds> weights;
  for (std::int64_t i = 0; i < state.range(0); ++i)
    weights.emplace_back(static_cast<std::int64_t>(random() % 1'000'000));
  double worst = 0;
  for (auto _ : state) {
    const auto groups = balance(weights, 8);
    benchmark::DoNotOptimize(groups);
    state.PauseTiming();
    std::int64_t most = 0, all = 0;
    for (const auto& group : groups) {
      std::int64_t sum = 0;
      for (const std::size_t i : group)
        sum += weights[i].value();
      most = std::max(most, sum);
      all += sum;
    }
    worst = 8 * static_cast<double>(most) / static_cast<double>(all);
    state.ResumeTiming();
  }
  state.counters["max_over_mean"] = worst;
  state.SetComplexityN(state.range(0));
}
BENCHMARK(balance_replicas)->RangeMultiplier(8)->Range(64, 32'768)->Unit(benchmark::kMillisecond)->Complexity();

pipeline_problem problem_of(std::int64_t stages, std::int64_t micro_batches) {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::h200();
  const pipeline_costs costs{model, cluster, analytic_cost{model, cluster}, {.pipeline = stages}};
  std::mt19937_64 random{7};
  std::lognormal_distribution<double> length{6, 1};
  std::vector<work_shape> shapes;
  for (std::int64_t m = 0; m < micro_batches; ++m)
    shapes.emplace_back(
        shape{1 + static_cast<std::int64_t>(random() % 8), 8 * (1 + std::llround(length(random)) / 8), 0});
  return costs.problem(shapes, 0);
}

void schedule_adaptive(benchmark::State& state) {
  const pipeline_problem problem = problem_of(state.range(0), state.range(1));
  for (auto _ : state)
    benchmark::DoNotOptimize(adaptive(problem));
  const program lists = adaptive(problem);
  state.counters["gap"] = static_cast<double>(simulate(problem, lists)->makespan.value()) /
                              static_cast<double>(lower_bound(problem).value()) -
                          1;
  const program plain = order_transfers(problem, one_f_one_b(problem));
  state.counters["gap_1f1b"] = static_cast<double>(simulate(problem, plain)->makespan.value()) /
                                   static_cast<double>(lower_bound(problem).value()) -
                               1;
  state.SetComplexityN(state.range(1));
}
BENCHMARK(schedule_adaptive)->ArgsProduct({{8}, {8, 32, 128, 512}})->Unit(benchmark::kMillisecond)->Complexity();

void simulate_program(benchmark::State& state) {
  const pipeline_problem problem = problem_of(state.range(0), state.range(1));
  const program lists = adaptive(problem);
  std::size_t steps = 0;
  for (const auto& list : lists)
    steps += list.size();
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate(problem, lists));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(steps));
  state.SetComplexityN(state.range(1));
}
BENCHMARK(simulate_program)->ArgsProduct({{8}, {8, 32, 128, 512}})->Unit(benchmark::kMicrosecond)->Complexity();

void validate_plan(benchmark::State& state) {
  const setting s;
  const plan p = s.plan_batch(batch_of(static_cast<std::size_t>(state.range(0))));
  for (auto _ : state)
    benchmark::DoNotOptimize(validate(p));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(validate_plan)->Arg(16)->Arg(168)->Arg(512)->Unit(benchmark::kMillisecond)->Complexity();

void price_of_a_shape(benchmark::State& state) {
  const setting s;
  auto room = s.plan_batch.costs().make_workspace();
  std::int64_t turn = 0;
  for (auto _ : state) {
    turn = (turn * 5 + 1) % 4096;
    benchmark::DoNotOptimize(s.plan_batch.costs().price(shape{1 + turn % 32, 8 + 8 * (turn / 32), 0}, room));
  }
}
BENCHMARK(price_of_a_shape);

}  // namespace
