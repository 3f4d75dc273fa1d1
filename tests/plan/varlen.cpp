#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/overlong.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/plan/planner.hpp>
#include <dynapipe/plan/validate.hpp>
#include <dynapipe/plan/varlen.hpp>

using namespace dynapipe;

namespace {

/// A roofline that prices padded rows only, as measured tables do.
struct rows_only {
  analytic_cost inner;

  [[nodiscard]] nanoseconds forward(layer_kind k, const shape& s, recompute_mode r) const {
    return inner.forward(k, s, r);
  }
  [[nodiscard]] nanoseconds backward(layer_kind k, const shape& s, recompute_mode r) const {
    return inner.backward(k, s, r);
  }
  [[nodiscard]] bytes stored(layer_kind k, const shape& s, recompute_mode r) const { return inner.stored(k, s, r); }
  [[nodiscard]] bytes forward_peak(layer_kind k, const shape& s, recompute_mode r) const {
    return inner.forward_peak(k, s, r);
  }
  [[nodiscard]] bytes backward_peak(layer_kind k, const shape& s, recompute_mode r) const {
    return inner.backward_peak(k, s, r);
  }
  [[nodiscard]] bytes state(layer_kind k) const { return inner.state(k); }
};

std::vector<sample> drawn(std::mt19937_64& random, std::size_t count) {
  std::vector<sample> batch;
  for (std::size_t i = 0; i < count; ++i) {
    const auto longest = static_cast<std::int64_t>(random() % 12 == 0 ? 2'000 : 300);
    batch.push_back(
        {longest / 2 + static_cast<std::int64_t>(random() % 150), 1 + static_cast<std::int64_t>(random() % 60)});
  }
  return batch;
}

}  // namespace

TEST_CASE("plans without padding hold") {
  constexpr unsigned seed = 31;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const cluster_spec cluster = presets::a100_80g();
  for (const model_spec& model : {presets::gpt_6_7b(), presets::t5_11b()}) {
    const analytic_cost cost{model, cluster};
    for (const std::int64_t pipeline : {4, 8}) {
      const planner plan_batch{model, cluster, cost, {.pipeline = pipeline, .data = 2}};
      for (const std::size_t count : {1U, 3U, 40U}) {
        const batch_samples batch = plan_batch.read(drawn(random, count));
        const plan p = plan_varlen(plan_batch, batch);
        CAPTURE(model.name);
        CAPTURE(count);
        CHECK(validate(p).empty());
        CHECK(p.layout == batch_layout::varlen);
        for (const replica_plan& replica : p.replicas)
          for (const planned_micro_batch& mb : replica.micro_batches) {
            if (mb.dummy) continue;
            REQUIRE(mb.samples.size() == 1);
            std::int64_t input = 0;
            std::int64_t target = 0;
            for (const sample_id id : mb.samples.front()) {
              input += padded_length(p.lengths[index(id)].input, {});
              if (model.encoder_decoder()) target += padded_length(p.lengths[index(id)].target, {});
            }
            CHECK(mb.input_length == input);
            CHECK(mb.target_length == target);
          }
      }
    }
  }
}

TEST_CASE("a cost model of padded rows refuses concatenated samples, in words") {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::a100_80g();
  const planner plan_batch{model, cluster, rows_only{analytic_cost{model, cluster}}, {.pipeline = 4}};
  const std::vector<sample> batch{{100, 5}};
  CHECK(validate(plan_batch(batch)).empty());
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_varlen(plan_batch, plan_batch.read(batch))),
                       doctest::Contains("prices padded rows only"), error);
}

TEST_CASE("policies reach the plan: dropped, alone, pieces") {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::a100_80g();
  const analytic_cost cost{model, cluster};
  const planner plan_batch{model, cluster, cost, {.pipeline = 4, .data = 2}};
  const std::vector<sample> batch{{900, 0}, {100, 0}, {90, 10}, {1'500, 0}, {30, 3}};
  const batch_samples read = plan_batch.read(batch, {10, 11, 12, 13, 14});
  const auto planned_with = [&](overlong_policy policy) {
    return with_policy(read, apply_overlong(read.lengths, {}, policy, 512));
  };

  const plan dropped = plan_batch(planned_with(overlong_policy::drop));
  CHECK(validate(dropped).empty());
  CHECK(dropped.lengths.size() == 5);
  CHECK(dropped.dropped == std::vector<sample_id>{sample_id{3}, sample_id{4}});
  CHECK(dropped.source_rows == std::vector<std::int64_t>{11, 12, 14, 10, 13});

  const plan alone = plan_batch(planned_with(overlong_policy::alone));
  CHECK(validate(alone).empty());
  for (const replica_plan& replica : alone.replicas)
    for (const planned_micro_batch& mb : replica.micro_batches)
      if (mb.input_length > 512) CHECK(mb.rows == 1);

  const plan split = plan_batch(planned_with(overlong_policy::split));
  CHECK(validate(split).empty());
  CHECK(split.lengths.size() == 3 + 2 + 3);
  CHECK(std::count(split.source_rows.begin(), split.source_rows.end(), 13) == 3);
  CHECK(validate(plan_varlen(plan_batch, planned_with(overlong_policy::split))).empty());

  batch_samples none = read;
  none.dropped = {sample_id{0}, sample_id{1}, sample_id{2}, sample_id{3}, sample_id{4}};
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_batch(none)), doctest::Contains("every sample"), error);
}

TEST_CASE("micro-batches of the caller are planned as they are, packed rows too") {
  const model_spec model = presets::gpt_6_7b();
  const cluster_spec cluster = presets::a100_80g();
  const analytic_cost cost{model, cluster};
  const planner plan_batch{model, cluster, cost, {.pipeline = 4}};
  const std::vector<sample> batch{{100, 4}, {50, 3}, {40, 2}};
  micro_batch first;
  first.samples = {sample_id{1}, sample_id{2}, sample_id{0}};
  first.row_ends = {2, 3};
  first.padded = {2, 104, 0};
  first.loss_tokens = 9;
  const plan p = plan_batch(batch, {{first}});
  CHECK(validate(p).empty());
  REQUIRE(p.replicas.front().micro_batches.size() == 1);
  CHECK(p.replicas.front().micro_batches.front().samples ==
        std::vector<std::vector<sample_id>>{{sample_id{1}, sample_id{2}}, {sample_id{0}}});
  first.padded.rows = 1 << 20;
  CHECK_THROWS_AS(static_cast<void>(plan_batch(batch, {{first}})), infeasible);
}
