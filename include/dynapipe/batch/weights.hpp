#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>

namespace dynapipe {

/// A factor of a loss: an exact fraction in lowest terms, 0 being 0 / 1.
struct loss_weight {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;

  [[nodiscard]] constexpr double value() const {
    return static_cast<double>(numerator) / static_cast<double>(denominator);
  }
  friend constexpr bool operator==(const loss_weight&, const loss_weight&) = default;
};

/// The factors that make a trainer's gradient that of the whole batch's token mean.
struct loss_weights {
  std::vector<std::vector<loss_weight>> sum_reducing;   ///< of each replica's micro-batches
  std::vector<std::vector<loss_weight>> mean_reducing;  ///< the same, times the number of replicas
  loss_weight token_sum_reducing;                       ///< of a loss that is a sum over tokens: one factor for all
  loss_weight token_mean_reducing;                      ///< the same, times the number of replicas
  std::int64_t loss_tokens = 0;                         ///< of the batch
};

namespace detail {

[[nodiscard]] constexpr loss_weight in_lowest_terms(std::int64_t numerator, std::int64_t denominator) {
  const std::int64_t common = std::gcd(numerator, denominator);
  return {numerator / common, denominator / common};
}

}  // namespace detail

/// The weights of micro-batches' losses.
///
/// Let l(r, m) be the loss tokens of micro-batch m of replica r, N their sum over all, R the number of replicas, and
/// L(r, m) the sum of its tokens' losses. What is to be minimised is the mean over the tokens of the batch,
/// (1 / N) * sum over r, m of L(r, m); a mean of the micro-batches' means instead lets few tokens weigh as much as
/// many. Gradients are added up over a replica's micro-batches, and then over replicas, summed or averaged:
///
///     the trainer's loss is          replicas are summed      replicas are averaged
///     a mean, L(r, m) / l(r, m)      times l(r, m) / N        times R * l(r, m) / N
///     a sum, L(r, m)                 times 1 / N              times R / N
///
/// The first line is `sum_reducing` and `mean_reducing`, the second `token_sum_reducing` and `token_mean_reducing`.
/// (A trainer that divides by its number of micro-batches too has to undo that.) Dummies and micro-batches without loss
/// tokens weigh 0. Their mean is 0 / 0: let their loss be 0, for 0 times NaN is NaN.
///
/// Guarantee: exact; the sums of all weights are 1 and R. O(n log N) for n micro-batches. @throws error where the batch
/// has no loss token, a number of them is negative, or R times their sum is above 2^63 - 1.
template <class Lazy = void>
[[nodiscard]] loss_weights weigh_losses(std::span<const std::vector<micro_batch>> replicas) {
  const auto tokens_of = [](const micro_batch& mb) { return mb.dummy ? 0 : mb.loss_tokens; };
  wide_int all = 0;
  for (std::size_t r = 0; r < replicas.size(); ++r)
    for (std::size_t m = 0; m < replicas[r].size(); ++m) {
      const std::int64_t held = tokens_of(replicas[r][m]);
      if (held < 0)
        throw error{"replica " + std::to_string(r) + ", micro-batch " + std::to_string(m) + ": loss_tokens must not " +
                    "be negative, it is " + std::to_string(held)};
      all += held;
    }
  if (all == 0) throw error{"the batch has no loss token: its mean loss is 0 / 0"};
  const std::int64_t count = static_cast<std::int64_t>(replicas.size());
  if (all * count > int64_limit) throw error{"the batch has too many loss tokens to count on all replicas"};

  loss_weights result;
  result.loss_tokens = static_cast<std::int64_t>(all);
  result.token_sum_reducing = {1, result.loss_tokens};
  result.token_mean_reducing = detail::in_lowest_terms(count, result.loss_tokens);
  for (const std::vector<micro_batch>& replica : replicas) {
    std::vector<loss_weight>& sum = result.sum_reducing.emplace_back();
    std::vector<loss_weight>& mean = result.mean_reducing.emplace_back();
    for (const micro_batch& mb : replica) {
      sum.push_back(detail::in_lowest_terms(tokens_of(mb), result.loss_tokens));
      mean.push_back(detail::in_lowest_terms(count * tokens_of(mb), result.loss_tokens));
    }
  }
  return result;
}

}  // namespace dynapipe
