#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/plan/planner.hpp>
#include <dynapipe/plan/validate.hpp>

#include "../schedule/random_problem.hpp"
#include "tiny.hpp"

using namespace dynapipe;

namespace {

std::vector<sample> batch_of(test::random_source& random, std::size_t samples, std::int64_t longest) {
  std::vector<sample> batch;
  for (std::size_t i = 0; i < samples; ++i)
    batch.push_back({random.from(1, random.one_in(8) ? longest : longest / 10 + 1), random.from(0, 20)});
  batch.front().target = 3;
  return batch;
}

void check_holds(const plan& p) {
  for (const violation& fault : validate(p))
    FAIL_CHECK(fault.where << ": " << fault.what);
}

}  // namespace

TEST_CASE("planner: plans of every kind hold") {
  test::random_source random{1};
  for (const model_spec& model : {test::tiny_gpt(), test::tiny_t5()})
    for (const queue_style queues : {queue_style::single, queue_style::per_peer, queue_style::per_direction})
      for (const recompute_mode recompute : {recompute_mode::none, recompute_mode::selective, recompute_mode::full})
        for (const std::int64_t pipeline : {1, 2, 3, 4})
          for (const stage_placement placement :
               {stage_placement::linear, stage_placement::interleaved, stage_placement::v}) {
            const cluster_spec cluster = test::tiny_cluster();
            const planner plan_batch{model,
                                     cluster,
                                     analytic_cost{model, cluster},
                                     {.pipeline = pipeline,
                                      .data = 2,
                                      .stages_per_device = placement == stage_placement::linear ? 1 : 2,
                                      .placement = placement,
                                      .recompute = recompute,
                                      .queues = queues}};
            const plan p = plan_batch(batch_of(random, 30, 500));
            check_holds(p);
            CHECK(p.iteration == p.predicted + p.sync);
            CHECK(p.lower_bound <= p.predicted);
          }
}

TEST_CASE("planner: 500 random batches on little memory hold, or a sample alone is refused") {
  constexpr std::uint64_t seed = 77;
  int planned = 0, refused = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    CAPTURE(seed);
    CAPTURE(i);
    test::random_source random{seed + i};
    const model_spec model = random.one_in(2) ? test::tiny_gpt() : test::tiny_t5();
    const cluster_spec cluster = test::tiny_cluster();
    const analytic_cost cost{model, cluster};
    planner_options options{.pipeline = random.from(1, 8),
                            .data = random.from(1, 5),
                            .schedule = random.one_in(4) ? schedule_kind::one_f_one_b : schedule_kind::adaptive,
                            .recompute = static_cast<recompute_mode>(random.from(0, 2))};
    const pipeline_costs roomy{model, cluster, cost, options};
    const bytes state = *std::max_element(roomy.fixed().begin(), roomy.fixed().end());
    options.memory_limit = state + bytes{random.from(1, 40) * 100'000};
    const std::vector<sample> batch = batch_of(random, static_cast<std::size_t>(random.from(1, 40)), 600);
    const planner plan_batch{model, cluster, cost, options};
    try {
      check_holds(plan_batch(batch));
      ++planned;
    } catch (const infeasible& refusal) {
      ++refused;
      CHECK(refusal.needed() > refusal.available());
      if (options.schedule != schedule_kind::adaptive) continue;
      bool too_big = false;
      for (const sample& s : batch) {
        const sample_lengths read = lengths_read(model, s, {}, 0);
        const shape one{1, padded_length(read.input, {}), read.target > 0 ? padded_length(read.target, {}) : 0};
        const std::vector<bytes> alone = memory_alone(plan_batch.costs().problem({one}, 0), 0);
        for (std::size_t d = 0; d < alone.size(); ++d)
          too_big = too_big || alone[d] > plan_batch.costs().room()[d];
      }
      CHECK(too_big);
    }
  }
  MESSAGE("seed " << seed << ": " << planned << " planned, " << refused << " refused");
  CHECK(planned > 200);
  CHECK(refused > 50);
}

TEST_CASE("planner: fewer samples than replicas leave dummies of the smallest shape") {
  for (const model_spec& model : {test::tiny_gpt(), test::tiny_t5()}) {
    const cluster_spec cluster = test::tiny_cluster();
    const planner plan_batch{model, cluster, analytic_cost{model, cluster}, {.pipeline = 4, .data = 3}};
    const plan p = plan_batch(std::vector<sample>{{100, 5}});
    check_holds(p);
    int dummies = 0;
    for (const replica_plan& replica : p.replicas)
      for (const planned_micro_batch& mb : replica.micro_batches) {
        if (!mb.dummy) continue;
        ++dummies;
        CHECK(mb.rows == 1);
        CHECK(mb.input_length == 8);
        CHECK(mb.loss_tokens == 0);
      }
    CHECK(dummies == 2);
  }
}

TEST_CASE("planner: equal batches give equal plans") {
  const model_spec model = test::tiny_t5();
  const cluster_spec cluster = test::tiny_cluster();
  const planner first{model, cluster, analytic_cost{model, cluster}, {.pipeline = 3, .data = 2}};
  const planner second{model, cluster, analytic_cost{model, cluster}, {.pipeline = 3, .data = 2}};
  test::random_source a{5}, b{5};
  CHECK(first(batch_of(a, 60, 700)) == second(batch_of(b, 60, 700)));
}

TEST_CASE("planner: lengths are what the model reads, and loss is weighted by the data's targets") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const planner plan_batch{model, cluster, analytic_cost{model, cluster}, {}};
  const plan p = plan_batch(std::vector<sample>{{129, 0}, {10, 4}, {1, 0}}, {40, 7, 9});
  CHECK(p.lengths == std::vector<sample_lengths>{{128, 0, 128}, {13, 0, 4}, {1, 0, 0}});
  CHECK(p.source_rows == std::vector<std::int64_t>{40, 7, 9});
  std::int64_t loss = 0;
  for (const planned_micro_batch& mb : p.replicas[0].micro_batches)
    loss += mb.loss_tokens;
  CHECK(loss == 132);
}

TEST_CASE("planner: bad batches are refused in words") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const planner plan_batch{model, cluster, analytic_cost{model, cluster}, {.pipeline = 2}};
  const auto plan_of = [&](std::vector<sample> batch) { static_cast<void>(plan_batch(batch)); };
  CHECK_THROWS_WITH_AS(plan_of({}), "the batch is empty: there is nothing to plan", error);
  CHECK_THROWS_WITH_AS(plan_of({{1, 0}}), "no sample of the batch has a loss token: there is nothing to learn", error);
  CHECK_THROWS_WITH_AS(plan_of({{5, 1}, {-1, 3}}), "sample 1 (input -1, target 3): a length is negative", error);
  CHECK_THROWS_WITH_AS(plan_of({{0, 0}}), "sample 0 (input 0, target 0): it has no token", error);
  CHECK_THROWS_WITH_AS(plan_of({{(std::int64_t{1} << 31) + 1, 0}}),
                       "sample 0 (input 2147483649, target 0): a length is above 2^31 tokens", error);
  CHECK_THROWS_AS(plan_of({{std::int64_t{1} << 31, std::int64_t{1} << 31}}), infeasible);
}

TEST_CASE("planner: a sample that never fits is named with its numbers and the knob") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster(mib(20));
  const planner plan_batch{model, cluster, analytic_cost{model, cluster}, {.pipeline = 2}};
  const std::vector<sample> batch{{100, 1}, {2'000, 1}};
  try {
    static_cast<void>(plan_batch(batch, {12, 34}));
    FAIL("it was planned");
  } catch (const infeasible& refusal) {
    const std::string text = refusal.what();
    CHECK(text.find("sample 1 (data row 34, 2000 tokens, padded to 2000) does not fit device 0: it needs ") == 0);
    CHECK(text.find(std::to_string(refusal.needed().value()) + " bytes") != std::string::npos);
    CHECK(text.find("there are " + std::to_string(refusal.available().value())) != std::string::npos);
    CHECK(text.find("--recompute full") != std::string::npos);
  }
}

TEST_CASE("planner: a batch whose times cannot be counted is refused") {
  const model_spec model = test::tiny_gpt();
  cluster_spec cluster = test::tiny_cluster(bytes::max());
  cluster.matmul_tflops = 1;
  const planner plan_batch{model, cluster, analytic_cost{model, cluster}, {.pipeline = 2}};
  const std::vector<sample> batch(8, {std::int64_t{1} << 30, 5});
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_batch(batch)),
                       "the batch would take longer than 2^63 ns: its times cannot be counted", error);
}

TEST_CASE("planner: unsound options are refused") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const analytic_cost cost{model, cluster};
  const auto make = [&](const planner_options& options) { planner{model, cluster, cost, options}; };
  CHECK_THROWS_WITH_AS(make({.pipeline = 9}),
                       "model 'tiny' has 8 layers: it cannot be cut into 9 pipeline stages (lower --pp or "
                       "--stages-per-device)",
                       error);
  CHECK_THROWS_WITH_AS(make({.pipeline = 0}), "--pp must lie in 1..1000000, it is 0", error);
  CHECK_THROWS_WITH_AS(make({.data = -1}), "--dp must lie in 1..1000000, it is -1", error);
  CHECK_THROWS_AS(make({.stages_per_device = 2}), error);
  CHECK_THROWS_AS(make({.memory_limit = bytes{1'000}}), infeasible);
  CHECK_THROWS_AS(make({.shapes = {.padding_multiple = 0}}), error);
}
