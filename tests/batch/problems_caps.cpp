/// What users of other trainers reported about caps, lengths and memory, by small inputs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/baselines.hpp>
#include <dynapipe/batch/order.hpp>
#include <dynapipe/batch/overlong.hpp>
#include <dynapipe/batch/partition.hpp>
#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/flops.hpp>
#include <dynapipe/plan/planner.hpp>
#include <dynapipe/plan/validate.hpp>

#include "../plan/tiny.hpp"
#include "problem_checks.hpp"

using namespace dynapipe;
using namespace dynapipe::test;

namespace {

constexpr shape_options exact{.padding_multiple = 1};

/// The inputs of what a policy leaves.
numbers left_of(const numbers& lengths, overlong_policy policy, std::int64_t longest, overlong_counts& counts) {
  const std::vector<sample_lengths> given = documents(lengths);
  const overlong_result result = apply_overlong(std::span{given}, exact, policy, longest);
  counts = result.counts;
  numbers left;
  for (const sample_lengths& s : result.lengths)
    left.push_back(s.input);
  return left;
}

std::vector<micro_batch> to_cap(const numbers& lengths, std::int64_t cap, packing how, const shape_options& shapes) {
  const std::vector<sample_lengths> samples = documents(lengths);
  return pack_to_cap(std::span{samples}, cap, how, shapes);
}

}  // namespace

// verl PRs 7553 and 6735.
TEST_CASE("problems: eight samples of 7 under a cap of 8 are eight micro-batches, none of 14") {
  const pack_result result = checked_pack(items_of(numbers(8, 7)), {.cap = 8});
  CHECK(result.micro_batches() == 8);
}

// slime PR 2017, miles PR 1938.
TEST_CASE("problems: balancing FLOPs breaks no cap") {
  const std::vector<pack_item> items = costly_items(long_tail(512, 32768, 4));
  const pack_options options{.ranks = 8, .cap = 32768, .fixed = 1'000'000};
  const numbers works = works_of(items, checked_pack(items, options));
  const std::int64_t most = *std::max_element(works.begin(), works.end());
  const std::int64_t all = std::accumulate(works.begin(), works.end(), std::int64_t{0});
  CHECK(most * 8 * 1000 <= all * 1003);
}

// verl #3088, verl-internvl #15.
TEST_CASE("problems: a cap counts real lengths, not the width that a tensor happens to be padded to") {
  // A tensor of width 40,960 holds these; under a cap of 16,384 all of them run.
  const numbers lengths{9000, 8000, 512, 7, 4097};
  for (const packing how : {packing::next_fit, packing::first_fit_decreasing})
    check_covers(to_cap(lengths, 16'384, how, {}), lengths.size());
  std::vector<pack_item> aligned;
  for (const std::int64_t length : lengths)
    aligned.push_back({padded_length(length, {}), length});
  CHECK(checked_pack(aligned, {.cap = 16'384}).micro_batches() == 2);

  const std::vector<sample_lengths> samples = documents(lengths);
  CHECK(apply_overlong(std::span{samples}, {}, overlong_policy::error, 16'384).counts == overlong_counts{});
}

// OpenRLHF PR 1280.
TEST_CASE("problems: a sample above the cap is refused with its number, its length and the cap") {
  CHECK(refused([] { (void)packed(items_of({21}), {.cap = 20}); }, {"sample 0", "21", "cap of 20"}) ==
        batch_constraint::cap);
  CHECK(refused([] { (void)packed(items_of({3, 20, 21}), {.cap = 20}); }, {"sample 2", "21"}) == batch_constraint::cap);
}

// fairseq #1191, torchtitan PR 3855, TRL #4554 and #5075.
TEST_CASE("problems: what becomes of over-long samples is said, and what they lose is counted") {
  overlong_counts counts;
  check_error([&] { left_of({5, 2, 3, 1}, overlong_policy::error, 4, counts); }, {"sample 0", "input 5", "4 tokens"});
  CHECK(left_of({5, 2, 3, 1}, overlong_policy::alone, 4, counts) == numbers{5, 2, 3, 1});
  CHECK(counts == overlong_counts{.over_long = 1, .alone = 1});
  CHECK(left_of({5, 2, 3, 1}, overlong_policy::drop, 4, counts) == numbers{2, 3, 1});
  CHECK(counts == overlong_counts{.over_long = 1, .dropped = 1, .tokens_lost = 5, .loss_tokens_lost = 5});
  CHECK(left_of({5, 2, 3, 1}, overlong_policy::truncate, 4, counts) == numbers{4, 2, 3, 1});
  CHECK(counts == overlong_counts{.over_long = 1, .truncated = 1, .tokens_lost = 1, .loss_tokens_lost = 1});
  const numbers pieces = left_of({5, 2, 3, 1}, overlong_policy::split, 4, counts);
  CHECK(pieces == numbers{4, 1, 2, 3, 1});
  CHECK(counts == overlong_counts{.over_long = 1, .split = 1, .pieces = 2});
  CHECK(checked_pack(items_of(pieces), {.cap = 4}).micro_batches() == 3);
}

// torchtune #1689.
TEST_CASE("problems: a document more than twice the cap becomes as many pieces as it takes") {
  overlong_counts counts;
  CHECK(left_of({121}, overlong_policy::split, 60, counts) == numbers{60, 60, 1});
  CHECK(counts.pieces == 3);
  CHECK(counts.tokens_lost == 0);
  check_error([&] { left_of({121}, overlong_policy::error, 60, counts); }, {"sample 0", "121", "60"});
}

// TRL #3887.
TEST_CASE("problems: a larger cap takes no more micro-batches, whether or not it is a power of two") {
  // Sums of twelve draws: about normal, with mean 4,096 and deviation 512.
  numbers lengths;
  std::uint64_t state = 9;
  for (int i = 0; i < 3000; ++i) {
    std::int64_t sum = 4096 - 12 * 255;
    for (int k = 0; k < 12; ++k) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += static_cast<std::int64_t>((state >> 33) % 512);
    }
    lengths.push_back(std::min<std::int64_t>(8000, sum));
  }
  std::size_t packs = lengths.size();
  std::size_t fits = lengths.size();
  for (const std::int64_t cap : {8000, 8191, 8192, 8193, 8500, 9001, 12'289, 16'384, 16'385, 40'000}) {
    CAPTURE(cap);
    const std::size_t now = checked_pack(items_of(lengths), {.cap = cap, .fixed = 1}).micro_batches();
    const std::vector<micro_batch> fit = to_cap(lengths, cap, packing::first_fit_decreasing, exact);
    CHECK(now <= packs);
    CHECK(fit.size() <= fits);
    if (cap == 8192) CHECK(now < 1700);
    packs = now;
    fits = fit.size();
  }
}

// Megatron-Bridge PR 5162, NeMo-RL's MFFD, Megatron-LM's hybrid context parallelism, AReaL #1103.
TEST_CASE("problems: items without tokens crash nothing and need no micro-batch of their own") {
  CHECK(checked_pack(items_of({10, 0, 5}), {.cap = 10, .fixed = 1}).micro_batches() == 2);
  const pack_result result = checked_pack(items_of({0, 5, 0, 5, 5, 5, 0, 5}), {.ranks = 2, .cap = 10, .fixed = 1});
  CHECK(counts_of(result) == numbers{2, 2});
  CHECK(checked_pack(items_of({0, 0, 0}), {.cap = 10, .fixed = 1}).micro_batches() == 1);
  // A sample without a token would be an empty segment of a varlen kernel: refused where samples are read.
  check_error([] { (void)lengths_read(tiny_gpt(), {0, 0}, {}, 3); }, {"sample 3", "no token"});
}

// verl PR 5110.
TEST_CASE("problems: squares of long samples do not overflow") {
  const numbers lengths{65'536, 87'382, 1 << 20};
  const std::vector<pack_item> items = costly_items(lengths);
  const pack_result result = checked_pack(items, {.cap = 1 << 20});
  wide_int all = 0;
  for (const std::int64_t s : lengths) {
    CHECK(seen_squares(s) == s * s);
    all += static_cast<wide_int>(s) * (49'408 + s);
  }
  CHECK(result.total == all);
  CHECK(result.longest > 0);
  check_error([] { (void)packed({{1, int64_limit}, {1, int64_limit}}, {.cap = 2}); }, {"2^62"});
  const model_spec model = tiny_gpt();
  CHECK(model_flops(model, with_sample({}, longest_length)) > model_flops(model, with_sample({}, 1 << 20)));
  CHECK(model_flops(model, shape{longest_length, longest_length, 0}) == int64_limit);
}

// SkyRL PR 2108.
TEST_CASE("problems: a length that only alignment puts above the cap is refused, as aligned") {
  const shape_options by_64{.padding_multiple = 64};
  const std::int64_t aligned = padded_length(8190, by_64);
  CHECK(refused([&] { (void)packed({{aligned, 1}}, {.cap = 8190}); }, {"aligned size 8192", "8190"}) ==
        batch_constraint::cap);
  check_error([&] { (void)to_cap({8190}, 8190, packing::next_fit, by_64); }, {"sample 0", "8192", "8190", "rounded"});
  const std::vector<sample_lengths> one = documents({8190});
  check_error([&] { (void)apply_overlong(std::span{one}, by_64, overlong_policy::error, 8190); },
              {"sample 0", "padded: input 8192", "8190"});
}

// fairseq's batch_by_size.
TEST_CASE("problems: samples handed on to the next micro-batch are checked against the cap again") {
  numbers lengths(15, 100);
  lengths.push_back(2000);
  const std::vector<sample_lengths> samples = documents(lengths);
  const std::vector<micro_batch> all = fill_token_budget(std::span{samples}, 3000, 8, exact);
  check_covers(all, samples.size());
  for (const micro_batch& mb : all) {
    std::int64_t longest = 0;
    for (const sample_id id : mb.samples)
      longest = std::max(longest, samples[index(id)].input);
    CHECK(longest * static_cast<std::int64_t>(mb.samples.size()) <= 3000);
  }
}

// TRL's TokenBudgetBatcher.
TEST_CASE("problems: the last samples of a batch are trained too") {
  numbers lengths{64, 1, 2, 3, 40, 30, 64, 5, 6, 7, 1};
  const std::vector<sample_lengths> samples = documents(lengths);
  const std::size_t n = samples.size();
  (void)checked_pack(items_of(lengths), {.ranks = 2, .cap = 64});
  for (const packing how : {packing::next_fit, packing::first_fit_decreasing}) {
    check_covers(to_cap(lengths, 64, how, exact), n);
    check_covers(pack_to_length(std::span{samples}, {64, 0}, 3, how, exact), n);
  }
  check_covers(fill_token_budget(std::span{samples}, 64, 4, exact), n);
  check_covers(fixed_size(std::span{samples}, 4, exact), n);
  check_covers(pad_to_longest(std::span{samples}, 4, exact), n);
  std::sort(lengths.rbegin(), lengths.rend());
  const std::vector<sample_lengths> ordered = documents(lengths);
  const auto time = [](const shape& s) -> std::optional<nanoseconds> {
    if (s.rows * s.input > 64) return std::nullopt;
    return nanoseconds{s.rows * s.input + 1};
  };
  const auto cut = partition(std::span<const sample_lengths>{ordered}, exact, time, {.devices = 2});
  REQUIRE(cut.has_value());
  CHECK(cut->cuts.front() == 0);
  for (std::size_t m = 0; m < cut->cuts.size(); ++m) {
    const std::size_t to = m + 1 < cut->cuts.size() ? cut->cuts[m + 1] : n;
    CHECK(cut->cuts[m] < to);
    CHECK(static_cast<std::int64_t>(to - cut->cuts[m]) * lengths[cut->cuts[m]] <= 64);
  }
}

// tinker-cloud PR 33, slime #1522, NeMo-RL #656.
TEST_CASE("problems: the cap comes from the devices' bytes, and the longest sample runs alone where it must") {
  const model_spec model = tiny_gpt();
  const cluster_spec cluster = tiny_cluster();
  std::vector<sample> batch{{900, 100}};
  batch.insert(batch.end(), 60, {30, 10});
  const auto plan_within = [&](std::int64_t mib) {
    return planner{model, cluster, analytic_cost{model, cluster}, {.memory_limit = bytes{mib << 20}}}(batch);
  };
  const auto rows_of_longest = [](const plan& p) {
    std::int64_t rows = 0;
    for (const planned_micro_batch& mb : p.replicas[0].micro_batches)
      for (const auto& row : mb.samples)
        for (const sample_id id : row)
          if (index(id) == 0) rows = mb.rows;
    return rows;
  };
  std::size_t fewer = 1000;
  bool alone = false;
  bool refuses = false;
  for (std::int64_t mib = 1; mib <= 1024; mib *= 2) {
    try {
      const plan p = plan_within(mib);
      CHECK(validate(p).empty());  // no device ever above its memory
      CHECK(p.replicas[0].micro_batches.size() <= fewer);
      fewer = p.replicas[0].micro_batches.size();
      alone = alone || (rows_of_longest(p) == 1 && fewer > 1);
    } catch (const infeasible&) {
      CHECK(fewer == 1000);  // what fits in less fits in more
      refuses = true;
    }
  }
  CHECK(alone);
  CHECK(refuses);

  // Without padding: an item's size is its bytes.
  const std::int64_t bytes_of_token = 34 * 4096;
  std::vector<pack_item> items;
  for (const std::int64_t length : {32'768, 9000, 8000, 7000, 6000, 100})
    items.push_back({length * bytes_of_token, length});
  CHECK(checked_pack(items, {.cap = 32'768 * bytes_of_token, .fixed = 1}).micro_batches() == 2);
}
