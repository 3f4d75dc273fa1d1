#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/balanced_split.hpp>
#include <dynapipe/plan/digest.hpp>
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
        const std::vector<bytes> alone = memory_alone(plan_batch.costs().problem({work_shape{one}}, 0), 0);
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
  CHECK_THROWS_WITH_AS(make({.pipeline = 2, .split = split_layers(model, 3)}),
                       "split of model 'tiny': it has 3 stages, the pipeline has 2 (devices x stages per device)",
                       error);
  CHECK_THROWS_WITH_AS(make({.pipeline = 2, .calibrated = uncalibrated(3)}),
                       "the calibration is of 3 stages, the pipeline has 2", error);
  calibration unsound = uncalibrated(2);
  unsound.stages[0][0].scale = 0;
  CHECK_THROWS_AS(make({.pipeline = 2, .calibrated = unsound}), error);
}

namespace {

/// The value of a provenance's option; "" where it is not there.
std::string option(const plan& p, const std::string& name) {
  for (const auto& [key, value] : p.provenance.options)
    if (key == name) return value;
  return "";
}

shape shape_of(const planned_micro_batch& mb) { return {mb.rows, mb.input_length, mb.target_length}; }

/// Knows up to `known` tokens of a row, extrapolates to `most` and refuses more: for want of memory, or of knowledge.
struct limited_model : analytic_cost {
  std::int64_t known;
  std::int64_t most;
  bool memory;
  limited_model(const model_spec& model, const cluster_spec& cluster, std::int64_t known_length,
                std::int64_t longest_length, bool for_memory)
      : analytic_cost{model, cluster}, known{known_length}, most{longest_length}, memory{for_memory} {}

  [[nodiscard]] bool beyond(const shape& s) const { return std::max(s.input, s.target) > most; }
  nanoseconds forward(layer_kind k, const shape& s, recompute_mode r) const {
    return beyond(s) ? nanoseconds::max() : analytic_cost::forward(k, s, r);
  }
  nanoseconds backward(layer_kind k, const shape& s, recompute_mode r) const {
    return beyond(s) ? nanoseconds::max() : analytic_cost::backward(k, s, r);
  }
  bytes stored(layer_kind k, const shape& s, recompute_mode r) const {
    return beyond(s) && memory ? bytes::max() : analytic_cost::stored(k, s, r);
  }
  bytes forward_peak(layer_kind k, const shape& s, recompute_mode r) const {
    return beyond(s) && memory ? bytes::max() : analytic_cost::forward_peak(k, s, r);
  }
  bool extrapolates(layer_kind, const shape& s, recompute_mode) const { return s.input > known; }
  std::string refusal(layer_kind kind, const shape& s, recompute_mode) const {
    return beyond(s) ? std::string{to_string(kind)} + ": nothing was measured there (allow extrapolation)" : "";
  }
};

}  // namespace

TEST_CASE("planner: a calibration scales the costs, names its epoch and changes the digest") {
  for (const schedule_kind schedule : {schedule_kind::adaptive, schedule_kind::one_f_one_b}) {
    const model_spec model = test::tiny_gpt();
    const cluster_spec cluster = test::tiny_cluster();
    const analytic_cost cost{model, cluster};
    calibration known = uncalibrated(3);
    known.epoch = 5;
    known.stages[1][0].scale = pass_scale::one * 3;
    known.stages[2][1].scale = pass_scale::one * 5 / 4;
    const planner_options options{.pipeline = 3, .data = 2, .schedule = schedule, .calibrated = known};
    planner_options plain = options;
    plain.calibrated.reset();
    test::random_source random{31};
    const std::vector<sample> batch = batch_of(random, 40, 700);
    const plan p = planner{model, cluster, cost, options}(batch);
    check_holds(p);
    CHECK(p.provenance.cost_epoch == 5);
    const std::vector<stage_spec> stages = split_layers(model, 3);
    for (const replica_plan& replica : p.replicas)
      for (const planned_micro_batch& mb : replica.micro_batches)
        for (std::size_t s = 0; s < 3; ++s) {
          stage_cost expected = cost_of_stage(model, stages[s], cost, shape_of(mb), recompute_mode::none);
          if (s == 1) expected.forward = 3 * expected.forward;
          if (s == 2) expected.backward = nanoseconds{(5 * expected.backward.value() + 3) / 4};
          CHECK(mb.cost[s] == expected);
        }
    const plan other = planner{model, cluster, cost, plain}(batch);
    CHECK(other.provenance.cost_epoch == 0);
    CHECK(other.predicted < p.predicted);
    CHECK(digest(other) != digest(p));
    // Factors of 1 change nothing but the epoch, which the digest sees.
    plain.calibrated = uncalibrated(3);
    plain.calibrated->epoch = 1;
    plan same = planner{model, cluster, cost, plain}(batch);
    CHECK(digest(same) != digest(other));
    same.provenance.cost_epoch = 0;
    CHECK(same == other);
  }
}

TEST_CASE("planner: what executors measure comes back into plans as they measured it") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const analytic_cost cost{model, cluster};
  planner_options options{.pipeline = 2, .calibrated = uncalibrated(2)};
  test::random_source random{8};
  for (int iteration = 0; iteration < 12; ++iteration) {
    const plan p = planner{model, cluster, cost, options}(batch_of(random, 60, 700));
    std::vector<observation> seen;
    for (const planned_micro_batch& mb : p.replicas[0].micro_batches)
      for (const int stage : {0, 1}) {
        const nanoseconds planned = mb.cost[static_cast<std::size_t>(stage)].forward;
        const nanoseconds model_time = unscaled(*options.calibrated, stage_id{stage}, timed_pass::forward, planned);
        seen.push_back({stage_id{stage}, timed_pass::forward, model_time, model_time * (stage == 0 ? 10 : 17) / 10});
      }
    options.calibrated = calibrate(*options.calibrated, seen);
  }
  CHECK(options.calibrated->epoch == 12);
  const auto thousandths = [&](int stage) {
    return options.calibrated->of(stage_id{stage}, timed_pass::forward).scale * 1000 / pass_scale::one;
  };
  CHECK(thousandths(0) >= 999);
  CHECK(thousandths(0) <= 1'001);
  CHECK(thousandths(1) >= 1'698);
  CHECK(thousandths(1) <= 1'701);
}

TEST_CASE("planner: a given split is planned and named") {
  for (const model_spec& model : {test::tiny_gpt(), test::tiny_t5()}) {
    const cluster_spec cluster = test::tiny_cluster();
    const analytic_cost cost{model, cluster};
    const std::vector<weighted_shape> mix{{{2, 200, model.encoder_decoder() ? 40 : 0}, 1}};
    const std::vector<stage_spec> split = balanced_split(model, 4, cost, mix, recompute_mode::none);
    for (const std::vector<stage_spec>& given :
         {split, cut_layers(model, std::vector<std::int64_t>{1, 5, 1, 1}), split_layers(model, 4)}) {
      test::random_source random{6};
      const plan p = planner{model, cluster, cost, {.pipeline = 4, .split = given}}(batch_of(random, 30, 300));
      check_holds(p);
      CHECK(p.pipeline.stages == given);
      CHECK(option(p, "split").size() == 7);
    }
    const plan p =
        planner{model, cluster, cost, {.pipeline = 2, .split = cut_layers(model, std::vector<std::int64_t>{3, 5})}}(
            std::vector<sample>{{50, 5}});
    CHECK(option(p, "split") == "3,5");
    CHECK(option(planner{model, cluster, cost, {.pipeline = 2}}(std::vector<sample>{{50, 5}}), "split").empty());
  }
}

TEST_CASE("planner: under sequence parallelism boundaries are what one rank sends") {
  for (const model_spec& model : {test::tiny_gpt(), test::tiny_t5()}) {
    cluster_spec cluster = test::tiny_cluster();
    cluster.inter_node.overlap_slowdown = 1.5;
    const analytic_cost cost{model, cluster, {.tensor_parallel = 4}};
    planner_options options{.pipeline = 3, .tensor = 4, .sequence_parallel = true};
    test::random_source random{17};
    const std::vector<sample> batch = batch_of(random, 25, 400);
    const plan p = planner{model, cluster, cost, options}(batch);
    check_holds(p);
    CHECK(option(p, "sequence_parallel") == "true");
    for (const planned_micro_batch& mb : p.replicas[0].micro_batches)
      for (const boundary_cost& boundary : mb.boundary) {
        std::int64_t elements = 0;
        for (const auto& [rows, length, hidden] : boundary.tensors)
          elements += rows * length * hidden;
        CHECK(boundary.tensors[0] == std::array<std::int64_t, 3>{mb.rows, (mb.input_length + 3) / 4, model.hidden});
        CHECK(boundary.forward_bytes == bytes{2 * elements});
        CHECK(boundary.backward_bytes == boundary.forward_bytes);
        // Four ranks of a node share a card of 10 bits a nanosecond, which computing slows by half.
        CHECK(boundary.forward == nanoseconds{1'000 + ceil_div(boundary.forward_bytes.value() * 8 * 4 * 3, 20)});
      }
    options.sequence_parallel = false;
    const plan whole = planner{model, cluster, cost, options}(batch);
    check_holds(whole);
    CHECK(option(whole, "sequence_parallel") == "false");
    CHECK(whole.replicas[0].micro_batches[0].boundary[0].tensors[0][1] ==
          whole.replicas[0].micro_batches[0].input_length);
  }
}

TEST_CASE("planner: a shape that the cost model refuses is refused in its words") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  const std::vector<sample> batch{{100, 1}, {300, 1}};
  for (const bool memory : {true, false}) {
    CAPTURE(memory);
    const limited_model cost{model, cluster, 64, 200, memory};
    const planner plan_batch{model, cluster, cost, {.pipeline = 2}};
    const char* const text =
        "sample 1 (data row 1, 300 tokens, padded to 304) cannot be run: embedding: nothing was measured there (allow "
        "extrapolation)";
    if (memory)
      CHECK_THROWS_WITH_AS(static_cast<void>(plan_batch(batch)), text, infeasible);
    else
      CHECK_THROWS_WITH_AS(static_cast<void>(plan_batch(batch)), text, error);
    const limited_model nothing{model, cluster, 0, 7, memory};
    CHECK_THROWS_AS(static_cast<void>(planner{model, cluster, nothing, {.pipeline = 2}}(batch)), error);
  }
  // A replica without samples needs the smallest shape as well.
  struct no_short_rows : analytic_cost {
    using analytic_cost::analytic_cost;
    nanoseconds forward(layer_kind k, const shape& s, recompute_mode r) const {
      return s.input < 16 ? nanoseconds::max() : analytic_cost::forward(k, s, r);
    }
    static std::string refusal(layer_kind, const shape& s, recompute_mode) { return s.input < 16 ? "too short" : ""; }
  };
  const no_short_rows cost{model, cluster};
  CHECK_THROWS_WITH_AS(static_cast<void>(planner{model, cluster, cost, {.data = 3}}(batch)),
                       "a micro-batch of the smallest shape, for a replica without samples, cannot be run: too short",
                       error);
}

TEST_CASE("planner: extrapolated micro-batches are counted in the plan, and only where there are some") {
  const model_spec model = test::tiny_gpt();
  const cluster_spec cluster = test::tiny_cluster();
  test::random_source random{4};
  const std::vector<sample> batch = batch_of(random, 40, 700);
  const auto plan_with = [&](std::int64_t known) {
    return planner{
        model, cluster, limited_model{model, cluster, known, 1 << 20, true}, {.pipeline = 2, .data = 2}}(batch);
  };
  const plan p = plan_with(100);
  check_holds(p);
  int beyond = 0, all = 0;
  for (const replica_plan& replica : p.replicas)
    for (const planned_micro_batch& mb : replica.micro_batches) {
      ++all;
      if (mb.input_length > 100) ++beyond;
    }
  REQUIRE(beyond > 0);
  REQUIRE(beyond < all);
  CHECK(option(p, "extrapolated_micro_batches") == std::to_string(beyond) + " of " + std::to_string(all));
  CHECK(option(plan_with(1 << 20), "extrapolated_micro_batches").empty());
}
