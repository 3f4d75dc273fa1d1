#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/global_batch.hpp>

using namespace dynapipe;

namespace {

using batches = std::vector<std::vector<std::int64_t>>;

std::vector<length_row> rows_of(const std::vector<std::int64_t>& lengths) {
  std::vector<length_row> rows;
  for (const std::int64_t length : lengths)
    rows.push_back({.task = 0, .input = length - length / 3, .target = length / 3});
  return rows;
}

std::vector<std::int64_t> in_order(std::size_t count) {
  std::vector<std::int64_t> order(count);
  for (std::size_t i = 0; i < count; ++i)
    order[i] = static_cast<std::int64_t>(i);
  return order;
}

batches by_tokens(const std::vector<std::int64_t>& lengths, std::int64_t tokens) {
  return cut_batches(rows_of(lengths), in_order(lengths.size()), {.tokens = tokens, .samples = {}});
}

}  // namespace

TEST_CASE("the shuffle of a seed is the same everywhere") {
  // From an independent program, written after the documented walk.
  CHECK(shuffled(12, 0) == std::vector<std::int64_t>{0, 10, 9, 8, 7, 1, 2, 4, 11, 3, 5, 6});
  CHECK(shuffled(12, 1) == std::vector<std::int64_t>{5, 3, 10, 4, 6, 2, 7, 11, 9, 0, 1, 8});
  CHECK(shuffled(12, 20'261'201) == std::vector<std::int64_t>{11, 2, 3, 9, 6, 1, 7, 10, 4, 5, 0, 8});
  const std::vector<std::int64_t> large = shuffled(100'000, 7);
  std::uint64_t digest = 0;
  for (const std::int64_t row : large)
    digest = digest * 1'099'511'628'211U + static_cast<std::uint64_t>(row);
  CHECK(digest == 1'356'084'461'545'862'348U);
}

TEST_CASE("a shuffle holds every row once") {
  CHECK(shuffled(0, 3).empty());
  CHECK(shuffled(1, 3) == std::vector<std::int64_t>{0});
  std::vector<std::int64_t> order = shuffled(5'000, 11);
  CHECK(order != in_order(5'000));
  std::sort(order.begin(), order.end());
  CHECK(order == in_order(5'000));
}

TEST_CASE("all orders of four rows are equally likely") {
  std::vector<int> seen(256, 0);
  constexpr int tries = 24'000;
  for (int seed = 0; seed < tries; ++seed) {
    std::size_t code = 0;
    for (const std::int64_t row : shuffled(4, static_cast<std::uint64_t>(seed)))
      code = code * 4 + static_cast<std::size_t>(row);
    ++seen[code];
  }
  CHECK(std::count_if(seen.begin(), seen.end(), [](int n) { return n > 0; }) == 24);
  for (const int n : seen)
    CHECK((n == 0 || (n > 850 && n < 1'150)));
}

TEST_CASE("a drawn number is even over its range: what would be uneven is drawn again") {
  constexpr std::uint64_t bound = (std::uint64_t{1} << 63) + 1;
  constexpr std::uint64_t uneven = (std::uint64_t{1} << 63) - 1;  // 2^64 mod bound
  std::mt19937_64 random{42};
  std::mt19937_64 plain{42};
  int again = 0;
  for (int i = 0; i < 1'000; ++i) {
    const std::uint64_t drawn = detail::draw_below(random, bound);
    std::uint64_t x = plain();
    for (; x < uneven; x = plain())
      ++again;
    CHECK(drawn == x - (x >= bound ? bound : 0));
  }
  CHECK(again > 800);
  CHECK(detail::draw_below(random, 1) == 0);
}

TEST_CASE("a batch closes before the row that would take it above the wanted tokens") {
  CHECK(by_tokens({4, 3, 3, 1, 9, 10}, 10) == batches{{0, 1, 2}, {3, 4}, {5}});
  CHECK(by_tokens({4, 3, 4, 7}, 10) == batches{{0, 1}, {2}, {3}});
  CHECK(by_tokens({1, 1, 1}, 100) == batches{{0, 1, 2}});
  CHECK(by_tokens({}, 100).empty());
}

TEST_CASE("a longer row is a batch of its own") {
  CHECK(by_tokens({11, 2, 3}, 10) == batches{{0}, {1, 2}});
  CHECK(by_tokens({2, 11, 3, 40, 50}, 10) == batches{{0}, {1}, {2}, {3}, {4}});
  CHECK(by_tokens({longest_length, longest_length, 1}, 2 * longest_length) == batches{{0, 1}, {2}});
}

TEST_CASE("batches by samples") {
  const std::vector<length_row> rows = rows_of({1, 2, 3, 4, 5, 6, 7});
  const std::vector<std::int64_t> order{6, 5, 4, 3, 2, 1, 0};
  CHECK(cut_batches(rows, order, {.tokens = {}, .samples = 3}) == batches{{6, 5, 4}, {3, 2, 1}, {0}});
  CHECK(cut_batches(rows, order, {.tokens = {}, .samples = 7}) == batches{order});
  CHECK(cut_batches(rows, order, {.tokens = {}, .samples = 100}) == batches{order});
  CHECK(cut_batches(rows, order, {.tokens = {}, .samples = 1}).size() == 7);
}

TEST_CASE("random batches follow the rule, row by row") {
  std::mt19937_64 random{2'026};
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    std::vector<std::int64_t> lengths(random() % 60);
    for (std::int64_t& length : lengths)
      length = 1 + static_cast<std::int64_t>(random() % 40);
    const std::int64_t wanted = 1 + static_cast<std::int64_t>(random() % 100);
    const std::vector<std::int64_t> order = shuffled(lengths.size(), random());
    const batches cut = cut_batches(rows_of(lengths), order, {.tokens = wanted, .samples = {}});
    std::vector<std::int64_t> joined;
    std::int64_t last = 0;
    for (const std::vector<std::int64_t>& batch : cut) {
      REQUIRE(!batch.empty());
      if (!joined.empty()) CHECK(last + lengths[static_cast<std::size_t>(batch.front())] > wanted);
      last = 0;
      for (const std::int64_t row : batch)
        last += lengths[static_cast<std::size_t>(row)];
      CHECK((last <= wanted || batch.size() == 1));
      joined.insert(joined.end(), batch.begin(), batch.end());
    }
    CHECK(joined == order);
  }
}

TEST_CASE("a cut that says nothing, two things, or less than 1 is an error with the value") {
  const std::vector<length_row> rows = rows_of({1});
  const auto problem = [&](const batch_cut& cut) {
    try {
      static_cast<void>(cut_batches(rows, in_order(1), cut));
    } catch (const error& e) {
      return std::string{e.what()};
    }
    return std::string{"none"};
  };
  CHECK(problem({}) == "a global batch is cut by tokens or by samples, one of the two");
  CHECK(problem({.tokens = 5, .samples = 5}) == "a global batch is cut by tokens or by samples, one of the two");
  CHECK(problem({.tokens = 0, .samples = {}}) == "a global batch of 0 tokens: at least 1");
  CHECK(problem({.tokens = {}, .samples = -3}) == "a global batch of -3 samples: at least 1");
}
