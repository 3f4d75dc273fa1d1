#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/weights.hpp>

using namespace dynapipe;

namespace {

using batches = std::vector<std::vector<micro_batch>>;

micro_batch with_loss(std::int64_t tokens, bool dummy = false) {
  micro_batch mb;
  mb.loss_tokens = tokens;
  mb.dummy = dummy;
  return mb;
}

loss_weights weigh(const batches& replicas) {
  return weigh_losses(std::span<const std::vector<micro_batch>>{replicas});
}

/// Losses of tokens, by replica and micro-batch. The gradient of a token's loss stands for the loss here: both are
/// linear in the weights.
using token_values = std::vector<std::vector<std::vector<double>>>;

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values)
    sum += v;
  return sum;
}

}  // namespace

TEST_CASE("4 and 60 tokens: the weighted gradient is that of the whole batch's mean") {
  // A gradient of 8 for each of the 4 tokens, of 1 for each of the 60.
  const std::vector<double> few(4, 8.0), many(60, 1.0);
  const double wanted = (4 * 8.0 + 60 * 1.0) / 64;
  REQUIRE(wanted == 1.4375);
  const double mean_of_means = (sum_of(few) / 4 + sum_of(many) / 60) / 2;
  CHECK(mean_of_means == 4.5);

  const loss_weights one = weigh({{with_loss(4), with_loss(60)}});
  CHECK(one.loss_tokens == 64);
  CHECK(one.sum_reducing[0] == std::vector<loss_weight>{{1, 16}, {15, 16}});
  CHECK(one.mean_reducing == one.sum_reducing);
  CHECK(one.sum_reducing[0][0].value() * 8.0 + one.sum_reducing[0][1].value() * 1.0 == wanted);
  CHECK(one.token_sum_reducing.value() * (sum_of(few) + sum_of(many)) == wanted);

  const loss_weights two = weigh({{with_loss(4)}, {with_loss(60)}});
  CHECK(two.sum_reducing[0][0] == loss_weight{1, 16});
  CHECK(two.mean_reducing[0][0] == loss_weight{1, 8});
  CHECK(two.mean_reducing[1][0] == loss_weight{15, 8});
  CHECK((two.mean_reducing[0][0].value() * 8.0 + two.mean_reducing[1][0].value() * 1.0) / 2 == wanted);
  CHECK(two.token_mean_reducing == loss_weight{1, 32});
  CHECK(two.token_mean_reducing.value() * (sum_of(few) + sum_of(many)) / 2 == wanted);
}

TEST_CASE("random batches: both trainers and both reductions give the token mean") {
  constexpr unsigned seed = 2'604;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const std::size_t count = 1 + random() % 5;
    batches replicas(count);
    token_values values(count);
    double all = 0;
    std::int64_t tokens = 0;
    for (std::size_t r = 0; r < count; ++r)
      for (std::uint64_t m = 1 + random() % 5; m > 0; --m) {
        const std::int64_t n = random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random() % 30);
        const bool dummy = n == 0 && random() % 2 == 0;
        replicas[r].push_back(with_loss(n, dummy));
        values[r].emplace_back();
        for (std::int64_t i = 0; i < n; ++i)
          values[r].back().push_back(static_cast<double>(random() % 100));
        all += sum_of(values[r].back());
        tokens += n;
      }
    if (tokens == 0) continue;
    const loss_weights w = weigh(replicas);
    double mean_summed = 0, mean_averaged = 0, sum_summed = 0, sum_averaged = 0, weights = 0;
    for (std::size_t r = 0; r < count; ++r) {
      double of_replica = 0, of_sums = 0;
      REQUIRE(w.sum_reducing[r].size() == replicas[r].size());
      for (std::size_t m = 0; m < replicas[r].size(); ++m) {
        weights += w.sum_reducing[r][m].value();
        if (values[r][m].empty()) {
          CHECK(w.sum_reducing[r][m] == loss_weight{0, 1});
          CHECK(w.mean_reducing[r][m] == loss_weight{0, 1});
          continue;
        }
        const double mean = sum_of(values[r][m]) / static_cast<double>(values[r][m].size());
        mean_summed += mean * w.sum_reducing[r][m].value();
        of_replica += mean * w.mean_reducing[r][m].value();
        sum_summed += sum_of(values[r][m]) * w.token_sum_reducing.value();
        of_sums += sum_of(values[r][m]) * w.token_mean_reducing.value();
      }
      mean_averaged += of_replica / static_cast<double>(count);
      sum_averaged += of_sums / static_cast<double>(count);
    }
    const double wanted = all / static_cast<double>(tokens);
    for (const double found : {mean_summed, mean_averaged, sum_summed, sum_averaged})
      CHECK(std::abs(found - wanted) <= 1e-12 * (1 + wanted));
    CHECK(std::abs(weights - 1) < 1e-12);
  }
}

TEST_CASE("dummies weigh nothing, whatever they claim") {
  const loss_weights w = weigh({{with_loss(6), with_loss(100, true)}, {with_loss(2), with_loss(0)}});
  CHECK(w.loss_tokens == 8);
  CHECK(w.sum_reducing[0] == std::vector<loss_weight>{{3, 4}, {0, 1}});
  CHECK(w.mean_reducing[1] == std::vector<loss_weight>{{1, 2}, {0, 1}});
}

TEST_CASE("batches that have no mean are refused") {
  CHECK_THROWS_WITH_AS((void)weigh({}), doctest::Contains("no loss token"), error);
  CHECK_THROWS_WITH_AS((void)weigh({{with_loss(0)}, {with_loss(5, true)}}), doctest::Contains("no loss token"), error);
  CHECK_THROWS_WITH_AS((void)weigh({{with_loss(1)}, {with_loss(1), with_loss(-3)}}),
                       doctest::Contains("replica 1, micro-batch 1"), error);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(weigh({{with_loss(most)}}).sum_reducing[0][0] == loss_weight{1, 1});
  CHECK_THROWS_AS((void)weigh({{with_loss(most)}, {with_loss(0)}}), error);
}
