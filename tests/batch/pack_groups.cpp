#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/pack_groups.hpp>

using namespace dynapipe;

namespace {

using ids = std::vector<std::int64_t>;

pack_result solve(const std::vector<pack_item>& samples, const ids& groups, const pack_options& options) {
  return pack_groups(std::span<const pack_item>{samples}, std::span<const std::int64_t>{groups}, options);
}

}  // namespace

TEST_CASE("pack_groups: joins the samples of a group, in the order of first samples") {
  const std::vector<pack_item> samples{{1, 10}, {2, 20}, {3, 30}, {4, 40}};
  const ids groups{7, -2, 7, 5};
  const grouped_items joined = join_groups(std::span<const pack_item>{samples}, std::span<const std::int64_t>{groups});
  CHECK(joined.items == std::vector<pack_item>{{4, 40, 2}, {2, 20, 1}, {4, 40, 1}});
  CHECK(std::vector<std::size_t>(joined.of(0).begin(), joined.of(0).end()) == std::vector<std::size_t>{0, 2});
  CHECK(std::vector<std::size_t>(joined.of(2).begin(), joined.of(2).end()) == std::vector<std::size_t>{3});
  const std::vector<pack_item> huge{{int64_limit, 0}, {1, 0}};
  const ids one{0, 0};
  CHECK_THROWS_AS((void)join_groups(std::span<const pack_item>{huge}, std::span<const std::int64_t>{one}), error);
}

TEST_CASE("pack_groups: each group is in one micro-batch, each sample in exactly one, under the cap") {
  constexpr std::uint64_t seed = 41;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  for (int i = 0; i < 300; ++i) {
    std::vector<pack_item> samples;
    ids groups;
    for (std::size_t s = 0; s < 40 + random() % 60; ++s) {
      const auto length = static_cast<std::int64_t>(random() % 9);
      samples.push_back({length, length * 10 + length * length});
      groups.push_back(static_cast<std::int64_t>(random() % 25) * 1000 - 7);
    }
    const pack_options options{.ranks = 1 + static_cast<std::int64_t>(random() % 4), .cap = 90, .fixed = 5};
    const pack_result result = solve(samples, groups, options);
    std::map<std::int64_t, std::set<std::size_t>> where;
    std::vector<int> seen(samples.size());
    for (std::size_t m = 0; m < result.micro_batches(); ++m) {
      std::int64_t size = 0;
      for (const std::size_t s : result.of(m)) {
        ++seen[s];
        size += samples[s].size;
        where[groups[s]].insert(m);
      }
      REQUIRE(size <= options.cap);
      REQUIRE(!result.is_dummy(m));
    }
    REQUIRE(seen == std::vector<int>(samples.size(), 1));
    for (const auto& [group, batches] : where)
      REQUIRE(batches.size() == 1);
    for (std::size_t r = 1; r < result.ranks(); ++r)
      REQUIRE(result.micro_batches(r) == result.micro_batches(0));
  }
}

TEST_CASE("pack_groups: says which sample or group is too long, or that groups are too few") {
  const auto refusal = [](const std::vector<pack_item>& samples, const ids& groups, const pack_options& options,
                          batch_constraint relax, const std::string& part) {
    try {
      (void)solve(samples, groups, options);
      FAIL("nothing was refused");
    } catch (const unsatisfiable& why) {
      const std::string text = why.what();
      CAPTURE(text);
      CHECK(why.relax() == relax);
      CHECK(text.find(part) != std::string::npos);
    }
  };
  refusal({{1, 1}, {11, 1}}, {3, 3}, {.cap = 10}, batch_constraint::cap, "sample 1 has aligned size 11");
  refusal({{1, 1}, {6, 1}, {6, 1}}, {4, 9, 9}, {.cap = 10}, batch_constraint::groups,
          "group 9 of 2 samples, the first of them sample 1, has aligned size 12");
  refusal({{1, 1}, {1, 1}, {1, 1}}, {0, 0, 0}, {.ranks = 2, .cap = 10}, batch_constraint::groups,
          "1 groups of samples");
}
