#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/baselines.hpp>

using namespace dynapipe;

namespace {

using ids = std::vector<std::vector<int>>;

std::vector<sample_lengths> inputs(const std::vector<std::int64_t>& lengths) {
  std::vector<sample_lengths> samples;
  for (const std::int64_t length : lengths)
    samples.push_back({length, 0, 1});
  return samples;
}

ids ids_of(const std::vector<micro_batch>& list) {
  ids result;
  for (const micro_batch& mb : list) {
    result.emplace_back();
    for (const sample_id id : mb.samples)
      result.back().push_back(static_cast<int>(id));
  }
  return result;
}

/// Every sample once; no micro-batch empty; rows that end where the samples do; loss tokens summed.
void check_covers(const std::vector<sample_lengths>& samples, const std::vector<micro_batch>& list) {
  std::vector<bool> seen(samples.size(), false);
  std::size_t count = 0;
  for (const micro_batch& mb : list) {
    REQUIRE_FALSE(mb.samples.empty());
    REQUIRE_FALSE(mb.dummy);
    std::int64_t loss = 0;
    for (const sample_id id : mb.samples) {
      REQUIRE_FALSE(seen.at(index(id)));
      seen[index(id)] = true;
      ++count;
      loss += samples[index(id)].loss;
    }
    REQUIRE(mb.loss_tokens == loss);
    if (!mb.row_ends.empty()) REQUIRE(mb.row_ends.back() == mb.samples.size());
    REQUIRE(mb.padded.rows == static_cast<std::int64_t>(mb.row_ends.empty() ? mb.samples.size() : mb.row_ends.size()));
  }
  REQUIRE(count == samples.size());
}

std::string message_of(auto&& call) {
  try {
    static_cast<void>(call());
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

/// Tokens of one row from its definition.
row_room used(const std::vector<sample_lengths>& samples, const micro_batch& mb, std::size_t row,
              std::int64_t separator) {
  row_room tokens_used{-separator, -separator};
  for (std::size_t i = row == 0 ? 0 : mb.row_ends[row - 1]; i < mb.row_ends[row]; ++i) {
    tokens_used.input += samples[index(mb.samples[i])].input + separator;
    tokens_used.target += samples[index(mb.samples[i])].target + separator;
  }
  return tokens_used;
}

}  // namespace

TEST_CASE("padded to the longest of the batch") {
  const std::vector<sample_lengths> samples{{5, 1, 7}, {20, 0, 2}, {3, 9, 1}};
  const std::vector<micro_batch> list = pad_to_longest(samples, 2, {});
  check_covers(samples, list);
  CHECK(ids_of(list) == ids{{0, 1}, {2}});
  CHECK(list[0].padded == shape{2, 24, 16});
  CHECK(list[1].padded == shape{1, 24, 16});
  CHECK(list[0].loss_tokens == 9);
  CHECK(pad_to_longest({}, 2, {}).empty());
}

TEST_CASE("packed to a fixed length, next-fit and first-fit decreasing") {
  const shape_options shapes{.padding_multiple = 8, .separator_tokens = 1};
  const std::vector<sample_lengths> samples = inputs({6, 4, 5, 3, 9});
  const std::vector<micro_batch> next = pack_to_length(samples, {10, 0}, 2, packing::next_fit, shapes);
  check_covers(samples, next);
  // 6 | 4 + 1 + 5 | 3 | 9
  CHECK(ids_of(next) == ids{{0, 1, 2}, {3, 4}});
  CHECK(next[0].row_ends == std::vector<std::size_t>{1, 3});
  CHECK(next[0].padded == shape{2, 16, 0});
  CHECK(next[1].row_ends == std::vector<std::size_t>{1, 2});
  // 9 | 6 + 1 + 3 | 5 + 1 + 4
  const std::vector<micro_batch> first = pack_to_length(samples, {10, 0}, 2, packing::first_fit_decreasing, shapes);
  check_covers(samples, first);
  CHECK(ids_of(first) == ids{{4, 0, 3}, {2, 1}});
  CHECK(first[0].row_ends == std::vector<std::size_t>{1, 3});
  CHECK(first[1].row_ends == std::vector<std::size_t>{2});
  CHECK(first[1].padded == shape{1, 16, 0});
}

TEST_CASE("sorted, a fixed number of rows, padded to each micro-batch's longest") {
  const std::vector<sample_lengths> samples = inputs({5, 30, 17, 30, 2});
  const std::vector<micro_batch> list = fixed_size(samples, 2, {});
  check_covers(samples, list);
  CHECK(ids_of(list) == ids{{1, 3}, {2, 0}, {4}});
  CHECK(list[0].padded == shape{2, 32, 0});
  CHECK(list[1].padded == shape{2, 24, 0});
  CHECK(list[2].padded == shape{1, 8, 0});
}

TEST_CASE("a token budget") {
  const shape_options exact{.padding_multiple = 1};
  // Shortest first: 3 * 5 stays within 15, 4 * 9 does not.
  CHECK(ids_of(fill_token_budget(inputs({9, 4, 5, 4}), 15, 1, exact)) == ids{{1, 3, 2}, {0}});
  // What is handed on is checked again: fifteen of 100 and one of 2,000.
  std::vector<std::int64_t> lengths(15, 100);
  lengths.push_back(2'000);
  const std::vector<micro_batch> list = fill_token_budget(inputs(lengths), 3'000, 8, exact);
  check_covers(inputs(lengths), list);
  REQUIRE(list.size() == 3);
  CHECK(list[0].padded == shape{8, 100, 0});
  CHECK(list[1].padded == shape{7, 100, 0});
  CHECK(list[2].padded == shape{1, 2'000, 0});
  // Handed on and taken up: 3 * 6 > 16 closes two of 4; nothing is left over with a multiple of 1.
  CHECK(ids_of(fill_token_budget(inputs({4, 4, 4, 5, 6}), 16, 2, exact)) == ids{{0, 1}, {2, 3}, {4}});
  CHECK(message_of([&] { return fill_token_budget(inputs({4, 17}), 16, 1, exact); }) ==
        "sample 1 has 17 tokens of padded input and target, more than the 16 there is room for");
  // The padded length counts: 17 is 24.
  CHECK_FALSE(message_of([&] { return fill_token_budget(inputs({17}), 23, 1, {}); }).empty());
  CHECK(message_of([&] { return fill_token_budget(inputs({17}), 24, 1, {}); }).empty());
}

TEST_CASE("packed to a token cap") {
  const shape_options exact{.padding_multiple = 1};
  const std::vector<sample_lengths> samples = inputs({6, 5, 3, 4, 2});
  CHECK(ids_of(pack_to_cap(samples, 10, packing::next_fit, exact)) == ids{{0}, {1, 2}, {3, 4}});
  const std::vector<micro_batch> list = pack_to_cap(samples, 10, packing::first_fit_decreasing, exact);
  check_covers(samples, list);
  CHECK(ids_of(list) == ids{{0, 3}, {1, 2, 4}});
  CHECK(list[1].padded == shape{1, 10, 0});
  CHECK(list[1].row_ends == std::vector<std::size_t>{3});
  // Eight samples of 7 with a cap of 8: eight micro-batches, none above the cap.
  CHECK(pack_to_cap(inputs(std::vector<std::int64_t>(8, 7)), 8, packing::first_fit_decreasing, exact).size() == 8);
  // A length within the cap whose rounded length is not.
  CHECK(message_of([&] { return pack_to_cap(inputs({8'190}), 8'190, packing::next_fit, {.padding_multiple = 64}); }) ==
        "sample 0 has 8192 tokens of rounded input and target, more than the 8190 there is room for");
  // The first sample too long: an error, no empty micro-batch.
  CHECK_FALSE(message_of([&] { return pack_to_cap(inputs({20, 3, 3}), 10, packing::next_fit, exact); }).empty());
  // Input and target count together.
  const std::vector<sample_lengths> pairs{{4, 3, 0}, {2, 2, 0}, {3, 0, 0}};
  const std::vector<micro_batch> both = pack_to_cap(pairs, 10, packing::next_fit, exact);
  CHECK(ids_of(both) == ids{{0}, {1, 2}});
  CHECK(both[1].padded == shape{1, 5, 2});
}

TEST_CASE("fewer micro-batches never from a smaller cap") {
  std::mt19937_64 random{9};
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 3'000; ++i)
    lengths.push_back(3'000 + static_cast<std::int64_t>(random() % 1'100));
  const shape_options exact{.padding_multiple = 1};
  CHECK(pack_to_cap(inputs(lengths), 8'193, packing::first_fit_decreasing, exact).size() <=
        pack_to_cap(inputs(lengths), 8'192, packing::first_fit_decreasing, exact).size());
}

TEST_CASE("over-long samples are named with their length") {
  CHECK(message_of([&] { return pack_to_length(inputs({5, 21}), {20, 0}, 1, packing::next_fit, {}); }) ==
        "sample 1 has 21 tokens of input, more than the 20 there is room for");
  const std::vector<sample_lengths> pairs{{5, 9, 0}};
  CHECK(message_of([&] { return pack_to_length(pairs, {20, 8}, 1, packing::first_fit_decreasing, {}); }) ==
        "sample 0 has 9 tokens of target, more than the 8 there is room for");
}

TEST_CASE("baselines keep what they promise on random samples") {
  constexpr unsigned seed = 31;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const bool two = round % 2 == 1;
    std::vector<sample_lengths> samples(random() % 60);
    for (sample_lengths& s : samples)
      s = {1 + static_cast<std::int64_t>(random() % 40), two ? static_cast<std::int64_t>(random() % 20) : 0,
           static_cast<std::int64_t>(random() % 9)};
    const shape_options shapes{.padding_multiple = 1 + static_cast<std::int64_t>(random() % 4),
                               .separator_tokens = static_cast<std::int64_t>(random() % 3)};
    const std::size_t rows = 1 + random() % 5;
    check_covers(samples, pad_to_longest(samples, rows, shapes));
    check_covers(samples, fixed_size(samples, rows, shapes));

    const std::int64_t budget = 68 + static_cast<std::int64_t>(random() % 200);
    const std::size_t multiple = 1 + random() % 5;
    const std::vector<micro_batch> filled = fill_token_budget(samples, budget, multiple, shapes);
    check_covers(samples, filled);
    std::int64_t before = 0;
    for (const micro_batch& mb : filled) {
      for (const sample_id id : mb.samples) {
        REQUIRE(samples[index(id)].input >= before);
        before = samples[index(id)].input;
        REQUIRE(mb.padded.input >= samples[index(id)].input);
        REQUIRE(mb.padded.target >= samples[index(id)].target);
      }
      REQUIRE(mb.padded.rows * (mb.padded.input + mb.padded.target) <= budget);
      REQUIRE((mb.samples.size() < multiple || mb.samples.size() % multiple == 0 || &mb == &filled.back()));
    }

    for (const packing how : {packing::next_fit, packing::first_fit_decreasing}) {
      const row_room row{40 + static_cast<std::int64_t>(random() % 60),
                         two ? 20 + static_cast<std::int64_t>(random() % 9) : 0};
      const std::vector<micro_batch> list = pack_to_length(samples, row, rows, how, shapes);
      check_covers(samples, list);
      row_room last{-1, -1};
      std::int64_t all = 0;
      for (const micro_batch& mb : list) {
        REQUIRE(mb.padded.rows <= static_cast<std::int64_t>(rows));
        if (&mb != &list.back()) REQUIRE(mb.padded.rows == static_cast<std::int64_t>(rows));
        REQUIRE(mb.padded.input == padded_length(row.input, shapes));
        all += mb.padded.rows;
        for (std::size_t r = 0; r < mb.row_ends.size(); ++r) {
          const row_room now = used(samples, mb, r, shapes.separator_tokens);
          REQUIRE(now.input <= row.input);
          if (two) REQUIRE(now.target <= row.target);
          if (how == packing::next_fit && last.input >= 0) {
            // The row's first sample did not fit the row before.
            const sample_lengths& first = samples[index(mb.samples[r == 0 ? 0 : mb.row_ends[r - 1]])];
            REQUIRE((last.input + shapes.separator_tokens + first.input > row.input ||
                     (two && last.target + shapes.separator_tokens + first.target > row.target)));
          }
          last = now;
        }
      }
      if (how == packing::first_fit_decreasing)
        REQUIRE(all == static_cast<std::int64_t>(pack_rows(samples, row, shapes).rows()));

      const std::vector<micro_batch> capped = pack_to_cap(samples, budget, how, shapes);
      check_covers(samples, capped);
      for (const micro_batch& mb : capped) {
        std::int64_t sum = 0;
        for (const sample_id id : mb.samples)
          sum += padded_length(samples[index(id)].input, shapes) +
                 (samples[index(id)].target > 0 ? padded_length(samples[index(id)].target, shapes) : 0);
        REQUIRE(sum <= budget);
        REQUIRE(mb.padded.input + mb.padded.target == sum);
      }
      // Two neighbouring micro-batches of first-fit hold more than one cap; all but one are more than half full.
      if (how == packing::first_fit_decreasing)
        for (std::size_t m = 1; m < capped.size(); ++m)
          REQUIRE(capped[m - 1].padded.input + capped[m - 1].padded.target + capped[m].padded.input +
                      capped[m].padded.target >
                  budget);
    }
  }
}
