#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/overlong.hpp>

using namespace dynapipe;

namespace {

using policy = overlong_policy;
using samples = std::vector<sample_lengths>;
constexpr policy all_policies[] = {policy::error, policy::alone, policy::drop, policy::truncate, policy::split};

/// Decoder-only plain documents of these read lengths.
samples documents(const std::vector<std::int64_t>& inputs, std::int64_t offset = 1) {
  samples result;
  for (const std::int64_t input : inputs)
    result.push_back({input, 0, input + offset - 1});
  return result;
}

overlong_result apply(const samples& given, policy how, std::int64_t limit, std::int64_t multiple = 1,
                      std::int64_t offset = 1) {
  return apply_overlong(std::span<const sample_lengths>{given},
                        {.padding_multiple = multiple, .sequence_offset = offset}, how, limit);
}

template <class Fits>
overlong_result apply_fits(const samples& given, policy how, Fits&& fits) {
  return apply_overlong(std::span<const sample_lengths>{given}, {.padding_multiple = 1}, how, fits, "no memory");
}

struct totals {
  std::int64_t tokens = 0;
  std::int64_t loss = 0;

  explicit totals(const samples& of) {
    for (const sample_lengths& s : of) {
      tokens += s.input + s.target;
      loss += s.loss;
    }
  }
};

void check_accounts(const samples& given, const overlong_result& r) {
  REQUIRE(r.source.size() == r.lengths.size());
  REQUIRE(r.begin.size() == r.lengths.size());
  CHECK(totals{given}.tokens == totals{r.lengths}.tokens + r.counts.tokens_lost);
  CHECK(totals{given}.loss == totals{r.lengths}.loss + r.counts.loss_tokens_lost);
  std::vector<int> seen(given.size(), 0);
  for (const sample_id id : r.dropped)
    ++seen.at(index(id));
  std::size_t kept = 0;
  for (std::size_t i = 0; i < r.source.size(); ++i) {
    if (i == 0 || r.source[i] != r.source[i - 1]) {
      ++seen.at(index(r.source[i]));
      ++kept;
    }
    CHECK(r.lengths[i].loss >= 0);
    CHECK(r.lengths[i].input + r.lengths[i].target > 0);
    CHECK(r.begin[i] >= 0);
    CHECK(r.begin[i] + r.lengths[i].input <= given[index(r.source[i])].input);
    const bool lost_all = given[index(r.source[i])].loss > 0 && r.lengths[i].loss == 0;
    CHECK((std::find(r.lossless.begin(), r.lossless.end(), i) != r.lossless.end()) == lost_all);
  }
  CHECK(std::is_sorted(r.source.begin(), r.source.end()));
  for (const int n : seen)
    CHECK(n == 1);
  CHECK(kept + r.dropped.size() == given.size());
  const overlong_counts& c = r.counts;
  CHECK(c.over_long == c.alone + c.dropped + c.truncated + c.split);
  CHECK(c.dropped == static_cast<std::int64_t>(r.dropped.size()));
  CHECK(c.alone == static_cast<std::int64_t>(r.alone.size()));
  CHECK(static_cast<std::int64_t>(r.lengths.size()) ==
        static_cast<std::int64_t>(given.size()) - c.dropped - c.split + c.pieces);
}

}  // namespace

TEST_CASE("five, cap four: each policy") {
  const samples given = documents({5, 2, 3, 1});
  CHECK_THROWS_WITH_AS((void)apply(given, policy::error, 4),
                       "sample 0 (input 5; padded: input 5 tokens) is over-long: the padded length is above the limit "
                       "of 4 tokens; raise --max-length, lower padding_multiple, or choose --overlong "
                       "alone|drop|truncate|split",
                       error);
  const overlong_result alone = apply(given, policy::alone, 4);
  CHECK(alone.lengths == given);
  CHECK(alone.alone == std::vector<std::size_t>{0});
  CHECK(alone.counts == overlong_counts{.over_long = 1, .alone = 1});
  const overlong_result drop = apply(given, policy::drop, 4);
  CHECK(drop.lengths == documents({2, 3, 1}));
  CHECK(drop.dropped == std::vector<sample_id>{sample_id{0}});
  CHECK(drop.counts == overlong_counts{.over_long = 1, .dropped = 1, .tokens_lost = 5, .loss_tokens_lost = 5});
  const overlong_result cut = apply(given, policy::truncate, 4);
  CHECK(cut.lengths == documents({4, 2, 3, 1}));
  CHECK(cut.counts == overlong_counts{.over_long = 1, .truncated = 1, .tokens_lost = 1, .loss_tokens_lost = 1});
  const overlong_result split = apply(given, policy::split, 4);
  CHECK(split.lengths == documents({4, 1, 2, 3, 1}));
  CHECK(split.counts == overlong_counts{.over_long = 1, .split = 1, .pieces = 2});
  for (const policy how : all_policies)
    if (how != policy::error) check_accounts(given, apply(given, how, 4));
}

TEST_CASE("a document longer than twice the cap") {
  const overlong_result r = apply(documents({121}), policy::split, 60);
  CHECK(r.lengths == documents({60, 60, 1}));
  CHECK(r.begin == std::vector<std::int64_t>{0, 60, 120});
  CHECK(r.source == std::vector<sample_id>(3, sample_id{0}));
  CHECK(totals{r.lengths}.loss == 121);
  // Aligned to 8, no more than 56 tokens fit below 60.
  CHECK(apply(documents({121}), policy::split, 60, 8).lengths == documents({56, 56, 9}));
}

TEST_CASE("without a shifted label the first token of a piece is not predicted") {
  const samples given = documents({121}, 0);
  REQUIRE(given[0].loss == 120);
  const overlong_result r = apply(given, policy::split, 60, 1, 0);
  CHECK(r.lengths == samples{{60, 0, 59}, {60, 0, 59}, {1, 0, 0}});
  CHECK(r.counts.loss_tokens_lost == 2);
  CHECK(r.lossless == std::vector<std::size_t>{2});
  check_accounts(given, r);
}

TEST_CASE("the aligned length is what counts") {
  const samples given = documents({8190});
  CHECK(apply(given, policy::error, 8190).lengths == given);
  CHECK_THROWS_WITH_AS((void)apply(given, policy::error, 8190, 64), doctest::Contains("padded: input 8192 tokens"),
                       error);
  CHECK(apply(given, policy::truncate, 8190, 64).lengths == documents({8128}));
  CHECK_THROWS_WITH_AS((void)apply(given, policy::truncate, 7, 8), doctest::Contains("padding_multiple, 8, it is 7"),
                       error);
}

TEST_CASE("an instruction sample keeps its answer") {
  // A prompt of 91 and an answer of 10 tokens: 100 are read, of which the last 10 have a label that counts.
  const samples given{{100, 0, 10}};
  for (const policy how : {policy::truncate, policy::split}) {
    const overlong_result r = apply(given, how, 40);
    CHECK(r.lengths == samples{{40, 0, 10}});
    CHECK(r.begin == std::vector<std::int64_t>{60});
    CHECK(r.counts == overlong_counts{.over_long = 1, .truncated = 1, .tokens_lost = 60});
  }
  const overlong_result shorter = apply(given, policy::truncate, 4);
  CHECK(shorter.lengths == samples{{4, 0, 4}});
  CHECK(shorter.counts.loss_tokens_lost == 6);
}

TEST_CASE("an encoder-decoder loses input first") {
  const auto sum_fits = [](const sample_lengths& s) { return s.input + s.target <= 30; };
  CHECK(apply_fits({{50, 12, 10}}, policy::truncate, sum_fits).lengths == samples{{18, 12, 10}});
  CHECK(apply_fits({{50, 12, 10}}, policy::split, sum_fits).counts.truncated == 1);
  const overlong_result both = apply_fits({{50, 42, 40}}, policy::truncate, sum_fits);
  CHECK(both.lengths == samples{{1, 29, 27}});
  CHECK(both.counts == overlong_counts{.over_long = 1, .truncated = 1, .tokens_lost = 62, .loss_tokens_lost = 13});
  // The limit holds for each length by itself.
  CHECK(apply({{50, 42, 40}}, policy::truncate, 30).lengths == samples{{30, 30, 28}});
  CHECK(apply({{5, 42, 40}}, policy::truncate, 30).lengths == samples{{5, 30, 28}});
  CHECK(apply({{0, 42, 40}}, policy::truncate, 30).lengths == samples{{0, 30, 28}});
  const overlong_result nothing = apply({{5, 42, 40}}, policy::truncate, 2);
  CHECK(nothing.lengths == samples{{2, 2, 0}});
  CHECK(nothing.lossless == std::vector<std::size_t>{0});
}

TEST_CASE("where nothing fits there is no policy") {
  const auto never = [](const sample_lengths&) { return false; };
  for (const policy how : {policy::error, policy::truncate, policy::split})
    CHECK_THROWS_WITH_AS((void)apply_fits({{9, 0, 9}}, how, never), doctest::Contains("no memory"), error);
  CHECK(apply_fits({{9, 0, 9}}, policy::drop, never).lengths.empty());
}

TEST_CASE("random batches: the accounts are right, and what is left is the longest that fits") {
  constexpr unsigned seed = 7'121;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 3'000; ++round) {
    CAPTURE(round);
    const bool encoder_decoder = random() % 3 == 0;
    const shape_options shapes{.padding_multiple = std::int64_t{1} << (random() % 4),
                               .extra_decoder_tokens = static_cast<std::int64_t>(random() % 3),
                               .sequence_offset = static_cast<std::int64_t>(random() % 3)};
    model_spec model;
    if (encoder_decoder) model = presets::t5_11b();
    if (!encoder_decoder) model = presets::gpt_6_7b();
    samples given;
    for (std::uint64_t n = random() % 8; n > 0; --n) {
      const sample s{1 + static_cast<std::int64_t>(random() % 100),
                     random() % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 60)};
      given.push_back(lengths_read(model, s, shapes, 0));
    }
    const bool by_memory = random() % 2 == 0;
    const std::int64_t limit = 2 * shapes.padding_multiple + static_cast<std::int64_t>(random() % 60);
    const auto fits = [&](const sample_lengths& s) {
      const std::int64_t input = padded_length(s.input, shapes);
      const std::int64_t target = s.target > 0 ? padded_length(s.target, shapes) : 0;
      return by_memory ? input + 2 * target <= 2 * limit : std::max(input, target) <= limit;
    };
    const auto run = [&](policy how) {
      const std::span<const sample_lengths> all{given};
      return by_memory ? apply_overlong(all, shapes, how, fits, "memory") : apply_overlong(all, shapes, how, limit);
    };
    const bool some = std::any_of(given.begin(), given.end(), [&](const sample_lengths& s) { return !fits(s); });
    if (some) CHECK_THROWS_AS((void)run(policy::error), error);
    for (const policy how : all_policies) {
      if (how == policy::error && some) continue;
      const overlong_result r = run(how);
      check_accounts(given, r);
      if (!some) {
        CHECK(r.lengths == given);
        CHECK(r.counts == overlong_counts{});
      }
      std::size_t next_alone = 0;
      for (std::size_t i = 0; i < r.lengths.size(); ++i) {
        const sample_lengths& whole = given[index(r.source[i])];
        const sample_lengths& left = r.lengths[i];
        if (next_alone < r.alone.size() && r.alone[next_alone] == i) {
          CHECK_FALSE(fits(left));
          CHECK(left == whole);
          ++next_alone;
          continue;
        }
        CHECK(fits(left));
        const bool last = i + 1 == r.lengths.size() || r.source[i + 1] != r.source[i];
        if (left == whole || (r.begin[i] > 0 && last)) continue;
        if (left.input < whole.input) CHECK_FALSE(fits({left.input + 1, left.target, 0}));
        if (left.target < whole.target) CHECK_FALSE(fits({std::min<std::int64_t>(1, left.input), left.target + 1, 0}));
        if (!last) CHECK(r.begin[i + 1] == r.begin[i] + left.input);
      }
      if (how == policy::split && shapes.sequence_offset > 0 && r.counts.truncated == 0)
        CHECK(r.counts.loss_tokens_lost == 0);
      if (how != policy::drop) CHECK(r.dropped.empty());
    }
  }
}

TEST_CASE("bisection asks few questions") {
  int asked = 0;
  const auto fits = [&](const sample_lengths& s) {
    ++asked;
    return s.input <= 123'456'789;
  };
  const overlong_result r = apply_fits({{longest_length, 0, longest_length}}, policy::truncate, fits);
  CHECK(r.lengths[0].input == 123'456'789);
  CHECK(asked <= 34);
}

TEST_CASE("policies have names in both directions") {
  for (const auto& [value, name] : overlong_policy_names) {
    CHECK(to_string(value) == name);
    CHECK(value_in(overlong_policy_names, name) == value);
  }
  CHECK_FALSE(value_in(overlong_policy_names, "pad").has_value());
}
