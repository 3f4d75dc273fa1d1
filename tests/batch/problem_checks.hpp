#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/batch/pack.hpp>
#include <dynapipe/batch/sample.hpp>

namespace dynapipe::test {

using numbers = std::vector<std::int64_t>;

/// FLOPs of a forward and backward of a 7 B model over one sample, in thousands of its hidden size.
inline std::int64_t flops_of(std::int64_t length) { return 49'408 * length + length * length; }

/// Items of some lengths whose work is their length.
inline std::vector<pack_item> items_of(const numbers& lengths) {
  std::vector<pack_item> items;
  for (const std::int64_t length : lengths)
    items.push_back({length, length});
  return items;
}

/// Items of some lengths whose work is their FLOPs.
inline std::vector<pack_item> costly_items(const numbers& lengths) {
  std::vector<pack_item> items;
  for (const std::int64_t length : lengths)
    items.push_back({length, flops_of(length)});
  return items;
}

inline pack_result packed(const std::vector<pack_item>& items, const pack_options& options) {
  return pack(std::span<const pack_item>{items}, options);
}

/// Samples of a decoder-only model without prompts: every token but one has a label.
inline std::vector<sample_lengths> documents(const numbers& lengths) {
  std::vector<sample_lengths> result;
  for (const std::int64_t length : lengths)
    result.push_back({length, 0, length});
  return result;
}

/// Lengths with a long tail, from a generator of its own: 2^(e / 16), e around `middle`, cut at `longest`.
inline numbers long_tail(std::size_t count, std::int64_t longest, std::uint64_t seed) {
  numbers lengths;
  std::uint64_t state = seed;
  const auto draw = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>(state >> 33);
  };
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t bits = 0;
    for (int k = 0; k < 4; ++k)
      bits += draw() % 5;  // 0..16, 8 most often
    const std::int64_t base = std::int64_t{32} << (bits * 3 / 4);
    lengths.push_back(std::min(longest, base + draw() % base));
  }
  return lengths;
}

/// Micro-batches of each rank.
inline numbers counts_of(const pack_result& result) {
  numbers counts;
  for (std::size_t r = 0; r < result.ranks(); ++r)
    counts.push_back(static_cast<std::int64_t>(result.micro_batches(r)));
  return counts;
}

/// Samples of each rank.
inline numbers samples_of(const std::vector<pack_item>& items, const pack_result& result) {
  numbers samples(result.ranks());
  for (std::size_t r = 0; r < result.ranks(); ++r)
    for (std::size_t m = 0; m < result.micro_batches(r); ++m)
      for (const std::size_t i : result.of(r, m))
        samples[r] += items[i].samples;
  return samples;
}

/// The work of each rank.
inline numbers works_of(const std::vector<pack_item>& items, const pack_result& result) {
  numbers works(result.ranks());
  for (std::size_t r = 0; r < result.ranks(); ++r)
    for (std::size_t m = 0; m < result.micro_batches(r); ++m)
      for (const std::size_t i : result.of(r, m))
        works[r] += items[i].work;
  return works;
}

inline std::int64_t dummies_of(const pack_result& result) {
  std::int64_t dummies = 0;
  for (std::size_t m = 0; m < result.micro_batches(); ++m)
    dummies += result.of(m).empty() ? 1 : 0;
  return dummies;
}

/// Checks what every packing must keep: each item once, no micro-batch above the cap, none empty unless asked for,
/// every rank with as many as the others.
inline void check_packing(const std::vector<pack_item>& items, const pack_options& options, const pack_result& result) {
  std::vector<int> seen(items.size());
  REQUIRE(result.ranks() == static_cast<std::size_t>(options.ranks));
  std::size_t micro_batches = 0;
  for (std::size_t r = 0; r < result.ranks(); ++r) {
    CHECK(result.micro_batches(r) > 0);
    if (options.equal_counts || options.lock_step) CHECK(result.micro_batches(r) == result.micro_batches(0));
    CHECK(static_cast<std::int64_t>(result.micro_batches(r)) % options.count_multiple == 0);
    micro_batches += result.micro_batches(r);
    for (std::size_t m = 0; m < result.micro_batches(r); ++m) {
      std::int64_t size = 0;
      for (const std::size_t i : result.of(r, m)) {
        ++seen[i];
        size += items[i].size;
      }
      CHECK(size <= options.cap);
      if (!options.dummies) CHECK(!result.of(r, m).empty());
    }
  }
  CHECK(micro_batches == result.micro_batches());
  CHECK(seen == std::vector<int>(items.size(), 1));
}

/// Packs, and checks what every packing must keep.
inline pack_result checked_pack(const std::vector<pack_item>& items, const pack_options& options) {
  pack_result result = packed(items, options);
  check_packing(items, options, result);
  return result;
}

/// Checks that each of `count` samples is in one micro-batch, and none of these is empty.
inline void check_covers(std::span<const micro_batch> all, std::size_t count) {
  std::vector<int> seen(count);
  for (const micro_batch& mb : all) {
    CHECK(!mb.samples.empty());
    for (const sample_id id : mb.samples)
      ++seen[index(id)];
  }
  CHECK(seen == std::vector<int>(count, 1));
}

/// Calls `run`, which must refuse with a text that has all `parts`; what it asks to relax.
template <class Run>
batch_constraint refused(Run&& run, const std::vector<std::string>& parts) {
  try {
    run();
  } catch (const unsatisfiable& why) {
    const std::string text = why.what();
    for (const std::string& part : parts) {
      CAPTURE(text);
      CAPTURE(part);
      CHECK(text.find(part) != std::string::npos);
    }
    return why.relax();
  }
  FAIL("nothing was refused");
  return batch_constraint::cap;
}

/// Calls `run`, which must throw an error whose text has all `parts`.
template <class Run>
void check_error(Run&& run, const std::vector<std::string>& parts) {
  try {
    run();
  } catch (const error& why) {
    const std::string text = why.what();
    for (const std::string& part : parts) {
      CAPTURE(text);
      CAPTURE(part);
      CHECK(text.find(part) != std::string::npos);
    }
    return;
  }
  FAIL("nothing was refused");
}

}  // namespace dynapipe::test
