/// What users of other trainers reported about numbers of micro-batches and samples, by small inputs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/balance.hpp>
#include <dynapipe/batch/baselines.hpp>
#include <dynapipe/batch/deal.hpp>
#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/overlong.hpp>
#include <dynapipe/batch/pack_classes.hpp>
#include <dynapipe/batch/pack_groups.hpp>
#include <dynapipe/batch/spread.hpp>
#include <dynapipe/batch/weights.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/plan/planner.hpp>

#include "../plan/tiny.hpp"
#include "problem_checks.hpp"

using namespace dynapipe;
using namespace dynapipe::test;

// verl #6176, #6178.
TEST_CASE("problems: ranks of very different load make equally many micro-batches") {
  const std::vector<pack_item> items = items_of({95, 95, 95, 95, 95, 20, 20, 20, 20, 20});
  const pack_result result = checked_pack(items, {.ranks = 2, .cap = 100});
  CHECK(counts_of(result) == numbers{3, 3});  // five of 95 alone, the five of 20 together

  std::vector<spread_item> made(5, {nanoseconds{95}, 1});
  made.push_back({nanoseconds{100}, 5});
  const spread_result over = spread(std::span<const spread_item>{made}, {.replicas = 2, .equal_counts = true});
  CHECK(over.replicas[0].size() == 3);
  CHECK(over.replicas[1].size() == 3);
}

// EasyR1 #11004, slime #1860.
TEST_CASE("problems: a rank with fewer samples than micro-batches gets samples of others, or dummies of weight 0") {
  CHECK(counts_of(checked_pack(items_of({100, 100, 100, 100, 10, 10}), {.ranks = 2, .cap = 100})) == numbers{3, 3});

  const std::vector<pack_item> five = items_of({100, 100, 100, 100, 10});
  refused([&] { (void)packed(five, {.ranks = 2, .cap = 100}); }, {"5 items"});
  const pack_options filled{.ranks = 2, .cap = 100, .dummies = true};
  const pack_result result = checked_pack(five, filled);
  CHECK(counts_of(result) == numbers{3, 3});
  CHECK(dummies_of(result) == 1);
  std::vector<std::vector<micro_batch>> replicas(2);
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t m = 0; m < 3; ++m) {
      micro_batch mb;
      for (const std::size_t i : result.of(r, m))
        mb.loss_tokens += five[i].size;
      mb.dummy = result.of(r, m).empty();
      replicas[r].push_back(mb);
    }
  const loss_weights weights = weigh_losses(std::span<const std::vector<micro_batch>>{replicas});
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t m = 0; m < 3; ++m) {
      CHECK((weights.sum_reducing[r][m].numerator == 0) == replicas[r][m].dummy);
      sum += weights.sum_reducing[r][m].numerator * (410 / weights.sum_reducing[r][m].denominator);
    }
  CHECK(sum == 410);
}

// verl #4152, #473; miles #969.
TEST_CASE("problems: a number of samples that the ranks do not divide is no error") {
  numbers lengths = long_tail(206, 4096, 12);
  const std::vector<pack_item> items = costly_items(lengths);
  pack_options options{.ranks = 4, .cap = 8192};
  CHECK(counts_of(checked_pack(items, options)).size() == 4);
  options.equal_samples = true;
  numbers samples = samples_of(items, checked_pack(items, options));
  std::sort(samples.begin(), samples.end());
  CHECK(samples == numbers{51, 51, 52, 52});
}

// verl #6786.
TEST_CASE("problems: nine samples on four ranks leave no rank without any") {
  const std::vector<pack_item> items = items_of(numbers(9, 10));
  numbers samples = samples_of(items, checked_pack(items, {.ranks = 4, .cap = 30, .equal_samples = true}));
  std::sort(samples.rbegin(), samples.rend());
  CHECK(samples == numbers{3, 2, 2, 2});
  CHECK(*std::min_element(samples.begin(), samples.end()) > 0);

  std::vector<nanoseconds> times(9, nanoseconds{10});
  std::vector<std::size_t> sizes;
  for (const auto& group : balance(times, 4))
    sizes.push_back(group.size());
  std::sort(sizes.rbegin(), sizes.rend());
  CHECK(sizes == std::vector<std::size_t>{3, 2, 2, 2});
}

// Megatron-LM PR 5154, TRL PR 7328.
TEST_CASE("problems: no rank is empty, whatever the number of ranks, and too few groups are refused or filled up") {
  for (const std::size_t n : {12U, 13U, 23U, 100U}) {
    const pack_options options{.ranks = 12, .cap = 1 << 15};
    const pack_result result = checked_pack(items_of(long_tail(n, 1 << 15, n)), options);
    for (std::size_t m = 0; m < result.micro_batches(); ++m)
      CHECK(!result.of(m).empty());
  }
  const std::vector<pack_item> samples = items_of(numbers(6, 10));
  const numbers groups{1, 1, 2, 2, 3, 3};
  const auto in_groups = [&](const pack_options& o) {
    return pack_groups(std::span<const pack_item>{samples}, std::span<const std::int64_t>{groups}, o);
  };
  CHECK(refused([&] { (void)in_groups({.ranks = 4, .cap = 100}); }, {"3 groups", "4 ranks"}) ==
        batch_constraint::groups);
  const pack_options filled{.ranks = 4, .cap = 100, .dummies = true};
  const pack_result result = in_groups(filled);
  check_packing(samples, filled, result);
  CHECK(counts_of(result) == numbers{1, 1, 1, 1});
  CHECK(dummies_of(result) == 1);
}

// Megatron-LM's dp_balanced scheduler.
TEST_CASE("problems: an over-long first sample leaves no empty micro-batch") {
  const std::vector<sample_lengths> lengths = documents({20, 3, 3, 3});
  const shape_options exact{.padding_multiple = 1};
  const overlong_result kept = apply_overlong(std::span{lengths}, exact, overlong_policy::alone, 10);
  REQUIRE(kept.alone == std::vector<std::size_t>{0});
  // What is alone by policy takes all the room there is.
  std::vector<pack_item> items;
  for (const sample_lengths& s : kept.lengths)
    items.push_back({std::min<std::int64_t>(s.input, 10), s.input});
  const pack_result result = checked_pack(items, {.ranks = 2, .cap = 10});
  CHECK(counts_of(result) == numbers{1, 1});
  for (std::size_t m = 0; m < result.micro_batches(); ++m) {
    CHECK(!result.is_dummy(m));
    if (result.of(m).front() == 0) CHECK(result.of(m).size() == 1);
  }
  CHECK(refused([] { (void)packed(items_of({20, 3, 3, 3}), {.ranks = 2, .cap = 10}); }, {"sample 0", "20", "10"}) ==
        batch_constraint::cap);
}

// vime PR 119, NeMo Speech #14288, verl PR 1617.
TEST_CASE("problems: too few samples for the virtual stages' multiple are refused at once, saying how many it takes") {
  const std::vector<pack_item> items = items_of({7, 6, 5, 4, 3});
  CHECK(refused([&] { (void)packed(items, {.ranks = 2, .cap = 100, .count_multiple = 4}); },
                {"5 samples", "multiple of 4", "takes 8"}) == batch_constraint::count_multiple);
  const pack_options filled{.ranks = 2, .cap = 100, .count_multiple = 4, .dummies = true};
  const pack_result result = checked_pack(items, filled);
  CHECK(counts_of(result) == numbers{4, 4});
  CHECK(counts_of(checked_pack(items_of(numbers(8, 5)), {.ranks = 2, .cap = 100, .count_multiple = 4})) ==
        numbers{4, 4});
}

// NeMo-RL #718, #648.
TEST_CASE("problems: a few short samples still make a micro-batch for every rank") {
  const pack_result result = checked_pack(items_of(numbers(8, 10)), {.ranks = 8, .cap = 8192});
  CHECK(counts_of(result) == numbers(8, 1));
}

// axolotl #3848.
TEST_CASE("problems: samples kept and dropped add up, also where the last micro-batch is short") {
  const std::vector<sample_lengths> three = documents({5, 4, 3});
  const shape_options exact{.padding_multiple = 1};
  const std::vector<micro_batch> one = fixed_size(std::span{three}, 4, exact);
  CHECK(one.size() == 1);
  check_covers(one, 3);

  const std::vector<sample_lengths> lengths = documents({9, 2, 12, 10, 30, 1, 11});
  for (const overlong_policy policy :
       {overlong_policy::alone, overlong_policy::drop, overlong_policy::truncate, overlong_policy::split}) {
    const overlong_result kept = apply_overlong(std::span{lengths}, exact, policy, 10);
    std::set<std::size_t> sources;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < kept.lengths.size(); ++i) {
      sources.insert(index(kept.source[i]));
      tokens += kept.lengths[i].input;
    }
    CHECK(sources.size() + kept.dropped.size() == lengths.size());
    CHECK(tokens + kept.counts.tokens_lost == 75);
    CHECK(kept.counts.over_long == 3);
    CHECK(kept.counts.alone + kept.counts.dropped + kept.counts.truncated + kept.counts.split == 3);
    check_covers(fixed_size(std::span{kept.lengths}, 4, exact), kept.lengths.size());
  }
}

// verl #4538.
TEST_CASE("problems: samples go to replicas, not to every device") {
  const model_spec model = tiny_gpt();
  const cluster_spec cluster = tiny_cluster();
  const planner plan_batch{
      model, cluster, analytic_cost{model, cluster, {.tensor_parallel = 4}}, {.data = 2, .tensor = 4}};
  const std::vector<sample> batch{{50, 3}, {40, 3}, {30, 3}, {20, 3}};
  const plan p = plan_batch(batch);
  REQUIRE(p.replicas.size() == 2);  // of eight devices
  std::vector<int> seen(batch.size());
  for (const replica_plan& replica : p.replicas) {
    CHECK(!replica.micro_batches.empty());
    for (const planned_micro_batch& mb : replica.micro_batches)
      for (const auto& row : mb.samples)
        for (const sample_id id : row)
          ++seen[index(id)];
  }
  CHECK(seen == std::vector<int>(batch.size(), 1));
}

// Megatron-Bridge #4609, EasyR1 #11004.
TEST_CASE("problems: at every step all ranks run micro-batches of the same modality") {
  // Four of text and one with an image, whose tokens count in its size and work.
  const std::vector<pack_item> items{{100, 100}, {90, 90}, {80, 80}, {70, 70}, {60 + 256, 60 + 1024}};
  const numbers text_or_image{0, 0, 0, 0, 1};
  const auto in_classes = [&](const pack_options& o) {
    return pack_classes(std::span<const pack_item>{items}, std::span<const std::int64_t>{text_or_image}, o);
  };
  CHECK(refused([&] { (void)in_classes({.ranks = 2, .cap = 400}); }, {"class 1", "1 samples", "2 ranks"}) ==
        batch_constraint::micro_batches);
  for (const bool lock_step : {false, true}) {
    const pack_options options{.ranks = 2, .cap = 400, .lock_step = lock_step, .dummies = true};
    const classed_pack_result result = in_classes(options);
    check_packing(items, options, result.packed);
    CHECK(result.class_of == numbers{0, 1});
    CHECK(dummies_of(result.packed) == 1);
    for (std::size_t r = 0; r < 2; ++r)
      for (std::size_t m = 0; m < 2; ++m)
        for (const std::size_t i : result.packed.of(r, m))
          CHECK(text_or_image[i] == result.class_of[m]);
  }
}

// DeepSpeed #7998, ParlAI #3753.
TEST_CASE("problems: in lock-step equally many forwards run, and a step costs its slowest rank") {
  const std::vector<pack_item> items = costly_items(long_tail(96, 8192, 29));
  const pack_options options{.ranks = 4, .cap = 8192, .fixed = 1000, .lock_step = true};
  const pack_result result = checked_pack(items, options);
  wide_int all = 0;
  wide_int work = 0;
  for (std::size_t m = 0; m < result.micro_batches(0); ++m) {
    std::int64_t slowest = 0;
    for (std::size_t r = 0; r < 4; ++r) {
      std::int64_t time = 1000;
      for (const std::size_t i : result.of(r, m))
        time += items[i].work;
      slowest = std::max(slowest, time);
      work += time;
    }
    all += slowest;
  }
  CHECK(result.scaled_objective == all);
  CHECK(4 * all * 100 <= work * 106);

  const std::vector<sample_lengths> lengths = documents({9, 9, 8, 7, 5, 3, 3, 2, 1});
  const auto time = [](const shape& s) -> std::optional<nanoseconds> { return nanoseconds{s.rows * s.input + 3}; };
  const std::optional<deal_result> dealt = deal(std::span{lengths}, order_by_length(lengths), {.padding_multiple = 1},
                                                time, {.devices = 2, .replicas = 2}, false);
  REQUIRE(dealt.has_value());
  CHECK(dealt->replicas[0].size() == dealt->replicas[1].size());
  std::vector<micro_batch> both = dealt->replicas[0];
  both.insert(both.end(), dealt->replicas[1].begin(), dealt->replicas[1].end());
  check_covers(both, lengths.size());
}
