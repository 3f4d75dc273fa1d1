/// Builds micro-batches of one global batch in the ways that a trainer may want, and says what each costs: padded rows
/// cut exactly, concatenated samples packed under a token cap with equally many micro-batches on every rank, over-long
/// samples split, and the weights that make the gradient that of the whole batch.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include <dynapipe/batch/overlong.hpp>
#include <dynapipe/batch/pack.hpp>
#include <dynapipe/batch/partition_bound.hpp>
#include <dynapipe/batch/partition_frontier.hpp>
#include <dynapipe/batch/spread.hpp>
#include <dynapipe/batch/weights.hpp>
#include <dynapipe/dynapipe.hpp>

using namespace dynapipe;

int main() {
  // Documents: what the model reads, and what it learns from.
  std::vector<sample_lengths> lengths{{9'000, 0, 9'000}};
  for (std::int64_t i = 0; i < 63; ++i)
    lengths.push_back({60 + i * i * 2 / 3, 0, 59 + i * i * 2 / 3});

  // Nothing longer than 4,096 tokens: the first document becomes three pieces, none of its loss tokens is lost.
  const overlong_result kept = apply_overlong(lengths, {}, overlong_policy::split, 4'096);
  fmt::print("{} samples from {} documents, {} tokens lost\n", kept.lengths.size(), lengths.size(),
             kept.counts.tokens_lost);

  // Padded rows, 4 stages on 2 replicas. A micro-batch takes 200 us and 1 us a token; 16,384 tokens fit.
  const auto time = [](const shape& s) -> std::optional<nanoseconds> {
    if (s.rows * s.input > 16'384) return std::nullopt;
    return nanoseconds{200'000 + 1'000 * s.rows * s.input};
  };
  std::vector<sample_lengths> ordered;
  for (const sample_id id : order_by_length(kept.lengths))
    ordered.push_back(kept.lengths[index(id)]);
  const partition_options pipeline{.devices = 4, .replicas = 2, .convex_rows = true};
  const auto cuts = partition_frontier(ordered, {}, time, pipeline);
  for (const partition_result& cut : *cuts)
    fmt::print("padded: {} micro-batches, slowest {} us, sum {} us\n", cut.cuts.size(), cut.t_max.value() / 1'000,
               cut.sum.value() / 1'000);
  const partition_result best = *partition(ordered, {}, time, pipeline);
  fmt::print("best cut {:.1f} % above the bound for any\n",
             100.0 * static_cast<double>(best.scaled_objective(pipeline)) /
                     static_cast<double>(*partition_bound(ordered, {}, time, pipeline)) -
                 100);

  // Its micro-batches on the replicas, equally many on each so that ranks step together.
  std::vector<spread_item> items;
  for (std::size_t m = 0; m < best.cuts.size(); ++m) {
    const std::size_t end = m + 1 < best.cuts.size() ? best.cuts[m + 1] : ordered.size();
    const auto rows = static_cast<std::int64_t>(end - best.cuts[m]);
    items.push_back({*time({rows, padded_length(ordered[best.cuts[m]].input, {}), 0}), rows});
  }
  const spread_result dealt = spread(
      items, {.replicas = 2, .devices = 4, .equal_counts = true, .dummies = true, .dummy_time = *time({1, 8, 0})});
  fmt::print("replicas run {} + {} and {} + {} micro-batches + dummies, gap to the bound {:.2f} %\n",
             dealt.replicas[0].size(), dealt.dummies[0], dealt.replicas[1].size(), dealt.dummies[1], 100 * dealt.gap());

  // The same samples without padding: at most 8,192 tokens, a multiple of 2 on each of 2 ranks.
  std::vector<pack_item> documents;
  for (const sample_lengths& s : kept.lengths)
    documents.push_back({.size = s.input, .work = 1'000 * s.input + s.input * s.input / 50});
  const pack_result packed = pack(documents, {.ranks = 2, .cap = 8'192, .fixed = 200'000, .count_multiple = 2});
  fmt::print("packed: {} micro-batches a rank, slowest rank {:.3f} of the mean\n", packed.micro_batches(0),
             packed.max_over_mean());

  // What each micro-batch's loss weighs, so that the gradient is that of the token mean of the whole batch.
  std::vector<std::vector<micro_batch>> ranks(packed.ranks());
  for (std::size_t r = 0; r < packed.ranks(); ++r)
    for (std::size_t m = 0; m < packed.micro_batches(r); ++m) {
      micro_batch& mb = ranks[r].emplace_back();
      for (const std::size_t i : packed.of(r, m))
        mb.loss_tokens += kept.lengths[i].loss;
    }
  const loss_weights weights = weigh_losses(ranks);
  double sum = 0;
  for (const auto& rank : weights.sum_reducing)
    for (const auto& weight : rank)
      sum += weight.value();
  fmt::print("{} loss tokens, weights sum to {:.6f}\n", weights.loss_tokens, sum);
  return sum > 0.999999 && sum < 1.000001 ? 0 : 1;
}
