#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/pack_problem.hpp>

using namespace dynapipe;

TEST_CASE("sort_items: most work first, ties by size, samples and id, for few items and for many") {
  constexpr std::uint64_t seed = 7;
  CAPTURE(seed);
  std::mt19937_64 random{seed};
  for (const std::size_t n : {0U, 1U, 50U, 1024U, 1025U, 5000U})
    for (const std::int64_t most : {std::int64_t{1}, std::int64_t{30}, std::int64_t{2047}, std::int64_t{2048},
                                    std::int64_t{1} << 33, std::int64_t{1} << 49}) {
      CAPTURE(n);
      CAPTURE(most);
      std::vector<pack_item> items;
      for (std::size_t i = 0; i < n; ++i)
        items.push_back({static_cast<std::int64_t>(random() % 4),
                         static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1)),
                         static_cast<std::int32_t>(1 + random() % 2)});
      std::vector<std::tuple<std::int64_t, std::int64_t, std::int32_t, std::size_t>> wanted;
      for (std::size_t i = 0; i < n; ++i)
        wanted.emplace_back(-items[i].work, -items[i].size, -items[i].samples, i);
      std::sort(wanted.begin(), wanted.end());
      const detail::pack_sorted sorted = detail::sort_items(std::span<const pack_item>{items}, {.cap = 10});
      REQUIRE(sorted.size() == n);
      bool right = true;
      std::vector<std::tuple<std::int64_t, std::size_t>> by_size;
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t id = std::get<3>(wanted[i]);
        right = right && sorted.ids[i] == id && sorted.items[i] == items[id];
        by_size.emplace_back(-items[id].size, i);
      }
      CHECK(right);
      std::sort(by_size.begin(), by_size.end());
      for (std::size_t i = 0; i < n; ++i)
        right = right && sorted.by_size[i] == std::get<1>(by_size[i]);
      CHECK(right);
    }
}
