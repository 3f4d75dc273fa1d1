/// What users of other trainers reported about times, weights, order and speed, by small inputs.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/arrange.hpp>
#include <dynapipe/batch/baselines.hpp>
#include <dynapipe/batch/spread.hpp>
#include <dynapipe/batch/weights.hpp>
#include <dynapipe/cost/flops.hpp>

#include "../plan/tiny.hpp"
#include "problem_checks.hpp"

using namespace dynapipe;
using namespace dynapipe::test;

namespace {

/// The work of each micro-batch.
numbers micro_batch_works(const std::vector<pack_item>& items, const pack_result& result) {
  numbers works;
  for (std::size_t m = 0; m < result.micro_batches(); ++m) {
    works.push_back(0);
    for (const std::size_t i : result.of(m))
      works.back() += items[i].work;
  }
  return works;
}

double largest_over_mean(const numbers& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return static_cast<double>(*std::max_element(values.begin(), values.end())) * static_cast<double>(values.size()) /
         sum;
}

/// The least of `times` runs.
template <class Run>
double seconds_of(int times, Run&& run) {
  double least = 1e9;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return least;
}

/// Which lengths share a micro-batch, on which rank, in which place.
std::vector<std::vector<numbers>> lengths_in(const numbers& lengths, const pack_result& result) {
  std::vector<std::vector<numbers>> ranks(result.ranks());
  for (std::size_t r = 0; r < result.ranks(); ++r)
    for (std::size_t m = 0; m < result.micro_batches(r); ++m) {
      numbers& batch = ranks[r].emplace_back();
      for (const std::size_t i : result.of(r, m))
        batch.push_back(lengths[i]);
      std::sort(batch.begin(), batch.end());
    }
  return ranks;
}

/// What an allocator reserves that keeps a buffer for each size it has seen, and serves smaller ones from it.
std::int64_t reserved_by(const numbers& sizes) {
  std::int64_t reserved = 0;
  std::int64_t largest = 0;
  for (const std::int64_t size : sizes) {
    if (size <= largest) continue;
    largest = size;
    reserved += size;
  }
  return reserved;
}

}  // namespace

// NeMo-RL #2438.
TEST_CASE("problems: micro-batches of one batch are alike, and every batch may have the same number of them") {
  const auto slowest_by_fastest = [](const numbers& works) {
    const auto [least, most] = std::minmax_element(works.begin(), works.end());
    return static_cast<double>(*most) / static_cast<double>(*least);
  };
  for (const std::uint64_t batch : {18U, 19U, 20U}) {
    const numbers lengths = long_tail(512, 32768, batch);
    const std::vector<sample_lengths> samples = documents(lengths);
    numbers first_fit;
    for (const micro_batch& mb :
         pack_to_cap(std::span{samples}, 32768, packing::first_fit_decreasing, {.padding_multiple = 1})) {
      first_fit.push_back(0);
      for (const sample_id id : mb.samples)
        first_fit.back() += flops_of(lengths[index(id)]);
    }
    CHECK(slowest_by_fastest(first_fit) > 2.5);

    const std::vector<pack_item> items = costly_items(lengths);
    const pack_options options{.ranks = 8, .cap = 32768, .fixed = 32'000'000, .count = 13};
    const pack_result result = checked_pack(items, options);
    CHECK(counts_of(result) == numbers(8, 13));
    CHECK(slowest_by_fastest(micro_batch_works(items, result)) < 1.6);
    CHECK(result.max_over_mean() == doctest::Approx(largest_over_mean(works_of(items, result))).epsilon(0.01));
    CHECK(result.max_over_mean() <= 1.003);
  }
}

// NeMo-RL PR 3476, pytorch #31252, SpecForge PR 739.
TEST_CASE("problems: largest first, buffers never grow") {
  const numbers sizes{10, 20, 30, 40, 50};
  std::vector<arrange_key> keys;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    keys.push_back({nanoseconds{sizes[i]}, to_id<sample_id>(i)});
  const std::vector<std::size_t> order = arrange(std::span<const arrange_key>{keys}, micro_batch_order::largest_first);
  CHECK(reserved_by(sizes) == 150);
  CHECK(reserved_by(arranged(sizes, order)) == 50);
}

// Megatron-LM PRs 2054 and 2282, SkyRL #204, slime PR 2017.
TEST_CASE("problems: ranks have equal times, not equal tokens") {
  numbers lengths(32, 1024);
  lengths.push_back(32'768);
  const pack_result one_long = checked_pack(costly_items(lengths), {.ranks = 2, .cap = 65'536});
  CHECK(one_long.longest == flops_of(32'768));  // the long sample alone: nothing is faster
  CHECK(one_long.gap() == 0.0);

  lengths.insert(lengths.begin(), 64, 1024);
  const std::vector<pack_item> items = costly_items(lengths);
  const numbers works = works_of(items, checked_pack(items, {.ranks = 2, .cap = 131'072}));
  const numbers equal_tokens{flops_of(32'768) + 32 * flops_of(1024), 64 * flops_of(1024)};
  CHECK(largest_over_mean(equal_tokens) > 1.1);
  CHECK(largest_over_mean(works) < 1.01);
}

// mlx-lm PR 1413, torchtune PR 1875, nanochat PR 59, verl PR 3332.
TEST_CASE("problems: every loss token of a batch weighs the same, whichever micro-batch it is in") {
  // The gradient of a token's loss is its value here: 4 tokens of 1, 60 of 0.
  const std::vector<numbers> tokens{numbers(4, 1), numbers(60, 0)};
  const auto weigh = [](std::size_t replicas) {
    std::vector<std::vector<micro_batch>> all(replicas);
    const std::int64_t counts[] = {4, 60};
    for (std::size_t i = 0; i < 2; ++i) {
      micro_batch mb;
      mb.loss_tokens = counts[i];
      all[i % replicas].push_back(mb);
    }
    return weigh_losses(std::span<const std::vector<micro_batch>>{all});
  };
  const double wanted = 4.0 / 64.0;
  const double mean_of_means = (1.0 + 0.0) / 2.0;
  CHECK(mean_of_means > 2 * wanted);
  const loss_weights one = weigh(1);
  CHECK(one.sum_reducing[0] == std::vector<loss_weight>{{1, 16}, {15, 16}});
  CHECK(one.sum_reducing[0][0].value() * 1.0 + one.sum_reducing[0][1].value() * 0.0 == wanted);
  const loss_weights two = weigh(2);  // the replicas' gradients are averaged: each counts half
  CHECK((two.mean_reducing[0][0].value() * 1.0 + two.mean_reducing[1][0].value() * 0.0) / 2 == wanted);
  CHECK(one.token_sum_reducing == loss_weight{1, 64});
  CHECK(two.token_mean_reducing == loss_weight{1, 32});
}

// NeMo Speech PR 15563, Megatron-Bridge #1505, ms-swift #6946, TRL PR 3521.
TEST_CASE("problems: a million samples are packed in no time") {
  const std::vector<pack_item> items = items_of(long_tail(1'000'000, 8192, 22));
  const pack_options options{.cap = 8192, .fixed = 1};
  pack_result result;
  // Far above what it takes, far below what a quadratic packer takes (hours).
  CHECK(seconds_of(1, [&] { result = packed(items, options); }) < 60);
  std::vector<bool> seen(items.size());
  std::size_t count = 0;
  bool fits = true;
  wide_int all = 0;
  for (std::size_t m = 0; m < result.micro_batches(); ++m) {
    std::int64_t size = 0;
    for (const std::size_t i : result.of(m)) {
      count += seen[i] ? 0 : 1;
      seen[i] = true;
      size += items[i].size;
    }
    fits = fits && size > 0 && size <= options.cap;
    all += size;
  }
  CHECK(count == items.size());
  CHECK(result.items.size() == items.size());
  CHECK(fits);
  CHECK(static_cast<wide_int>(result.micro_batches()) * options.cap * 100 < all * 101);
}

// verl #7279.
TEST_CASE("problems: balancing thousands of samples every step is free") {
  const std::vector<pack_item> items = costly_items(long_tail(8192, 32768, 23));
  const pack_options options{.ranks = 8, .cap = 32768, .fixed = 1'000'000};
  pack_result result;
  // About a millisecond when optimised; a debug build under a sanitizer takes longest.
  CHECK(seconds_of(5, [&] { result = packed(items, options); }) < 0.5);
  check_packing(items, options, result);
  CHECK(largest_over_mean(works_of(items, result)) <= 1.003);
}

// Megatron-Bridge PR 4237, NeMo-RL PR 4105.
TEST_CASE("problems: equal samples are packed equally, again and in any order") {
  numbers lengths = long_tail(300, 16'384, 24);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  for (const bool lock_step : {false, true}) {
    const pack_options options{
        .ranks = 4, .cap = 16'384, .fixed = 1000, .devices = 4, .count_multiple = 2, .lock_step = lock_step};
    const auto plan = [&] { return lengths_in(lengths, checked_pack(costly_items(lengths), options)); };
    const auto first = plan();
    CHECK(plan() == first);
    std::uint64_t state = 24;
    for (int shuffle = 0; shuffle < 5; ++shuffle) {
      for (std::size_t i = lengths.size(); i > 1; --i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        std::swap(lengths[i - 1], lengths[(state >> 33) % i]);
      }
      CHECK(plan() == first);
    }
  }
}

// lmms-engine PR 162.
TEST_CASE("problems: a plan is taken one micro-batch at a time, and a stream window by window") {
  // Plans are data: a loader that looks `window` samples ahead holds that many at most, and hands micro-batches out
  // step by step while the next window fills.
  const numbers stream = long_tail(1000, 8192, 33);
  constexpr std::size_t window = 128;
  const pack_options options{.ranks = 4, .cap = 8192, .fixed = 1000, .dummies = true};
  std::vector<int> trained(stream.size());
  std::size_t steps = 0;
  for (std::size_t from = 0; from < stream.size(); from += window) {
    const std::size_t to = std::min(from + window, stream.size());
    const numbers held(stream.begin() + static_cast<std::ptrdiff_t>(from),
                       stream.begin() + static_cast<std::ptrdiff_t>(to));
    const std::vector<pack_item> items = costly_items(held);
    const pack_result result = checked_pack(items, options);
    std::size_t left = held.size();
    for (std::size_t m = 0; m < result.micro_batches(0); ++m, ++steps) {
      std::size_t taken = 0;
      for (std::size_t r = 0; r < result.ranks(); ++r)
        for (const std::size_t i : result.of(r, m)) {
          ++trained[from + i];
          ++taken;
        }
      CHECK(taken > 0);
      CHECK(taken < held.size());  // no step empties a window at once
      left -= taken;
    }
    CHECK(left == 0);
  }
  CHECK(trained == std::vector<int>(stream.size(), 1));
  CHECK(steps > stream.size() / window);
}

// Megatron-Bridge #1636.
TEST_CASE("problems: FLOPs are those of real tokens, however they are packed") {
  const model_spec model = tiny_gpt();  // 8 layers of 64, MLP 256, vocabulary 1,000, one head matrix
  const numbers lengths{100, 7, 60, 33};
  const auto packed_shape = [&](std::size_t from, std::size_t to) {
    varlen_shape s;
    for (std::size_t i = from; i < to; ++i)
      s = with_sample(s, lengths[i]);
    return s;
  };
  const std::int64_t tokens = 200;
  const std::int64_t squares = 100 * 100 + 7 * 7 + 60 * 60 + 33 * 33;
  const std::int64_t elements = 8 * (4 * 64 * 64 + 2 * 64 * 256) + 64 * 1000;
  // Six for each element and token; attention 6 * hidden * layers for each pair of a causal mask.
  const std::int64_t wanted = 6 * elements * tokens + 6 * 64 * 8 * squares;
  CHECK(model_flops(model, packed_shape(0, 4)) == wanted);
  CHECK(model_flops(model, packed_shape(0, 2)) + model_flops(model, packed_shape(2, 4)) == wanted);
  CHECK(model_flops(model, shape{4, 100, 0}) > 3 * wanted / 2);  // what padding would make of it
  CHECK(packed_shape(0, 4).tokens == tokens);
  CHECK(packed_shape(0, 4).squares == squares);
}
