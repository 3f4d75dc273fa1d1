#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/batch/order.hpp>

using namespace dynapipe;

namespace {

using points = std::vector<sample_lengths>;
constexpr shape_options exact{.padding_multiple = 1};

std::int64_t apart(const sample_lengths& a, const sample_lengths& b) {
  return std::abs(a.input - b.input) + std::abs(a.target - b.target);
}

std::int64_t travelled(const points& all, const std::vector<sample_id>& order) {
  std::int64_t sum = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    sum += apart(all[index(order[i - 1])], all[index(order[i])]);
  return sum;
}

/// The shortest path through all points, by subsets and last point (Held and Karp, 1962).
std::int64_t shortest_path(const points& all) {
  const std::size_t n = all.size();
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 2;
  std::vector<std::vector<std::int64_t>> best(std::size_t{1} << n, std::vector<std::int64_t>(n, never));
  for (std::size_t i = 0; i < n; ++i)
    best[std::size_t{1} << i][i] = 0;
  for (std::size_t set = 1; set < best.size(); ++set)
    for (std::size_t last = 0; last < n; ++last)
      for (std::size_t next = 0; next < n; ++next)
        if ((set >> next & 1U) == 0)
          best[set | std::size_t{1} << next][next] =
              std::min(best[set | std::size_t{1} << next][next], best[set][last] + apart(all[last], all[next]));
  return *std::min_element(best.back().begin(), best.back().end());
}

/// No path is shorter: a path is a spanning tree in which no point has more than two edges. Points with more are made
/// dearer, by what is taken off again twice, and the tree is built anew (Held and Karp, 1971). The first is the least
/// spanning tree itself.
double least_path(const points& all, double path, int rounds) {
  const std::size_t n = all.size();
  std::vector<double> price(n, 0);
  double best = 0;
  double step = 2;
  for (int round = 0; round < rounds; ++round, step *= 0.98) {
    std::vector<double> to_tree(n, std::numeric_limits<double>::max());
    std::vector<std::size_t> parent(n, n);
    std::vector<bool> inside(n, false);
    std::vector<int> edges(n, 0);
    to_tree[0] = 0;
    double bound = 0;
    for (std::size_t added = 0; added < n; ++added) {
      std::size_t next = n;
      for (std::size_t i = 0; i < n; ++i)
        if (!inside[i] && (next == n || to_tree[i] < to_tree[next])) next = i;
      inside[next] = true;
      bound += to_tree[next] - 2 * price[next];
      if (parent[next] < n) {
        ++edges[next];
        ++edges[parent[next]];
      }
      for (std::size_t i = 0; i < n; ++i) {
        const double cost = static_cast<double>(apart(all[next], all[i])) + price[next] + price[i];
        if (inside[i] || cost >= to_tree[i]) continue;
        to_tree[i] = cost;
        parent[i] = next;
      }
    }
    best = std::max(best, bound);
    double norm = 0;
    for (std::size_t i = 0; i < n; ++i)
      if (edges[i] > 2 || price[i] > 0) norm += (edges[i] - 2) * (edges[i] - 2);
    if (norm == 0) break;
    for (std::size_t i = 0; i < n; ++i)
      price[i] = std::max(0.0, price[i] + step * (path - bound) / norm * (edges[i] - 2));
  }
  return best;
}

points random_points(std::mt19937_64& random, std::size_t count, std::int64_t inputs, std::int64_t targets) {
  points all(count);
  for (sample_lengths& s : all)
    s = {1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(inputs)),
         1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(targets)), 0};
  return all;
}

}  // namespace

TEST_CASE("tours of few points") {
  CHECK(order_by_tour({}, exact).empty());
  CHECK(order_by_tour(points{{5, 5, 0}}, exact).size() == 1);
  // Equal padded lengths stand together, by id; the long end comes first.
  const points pairs{{3, 3, 0}, {90, 4, 0}, {4, 2, 0}, {91, 3, 0}};
  const std::vector<sample_id> order = order_by_tour(pairs, {});
  CHECK(order == std::vector{sample_id{1}, sample_id{3}, sample_id{0}, sample_id{2}});
  CHECK(path_length(pairs, order, {}) == 88);
  // A target of 0 is none, and pads to none.
  CHECK(path_length(points{{8, 0, 0}, {8, 1, 0}}, std::vector{sample_id{0}, sample_id{1}}, {}) == 8);
  // Input that a sort by length would cross back and forth: two rows of targets.
  points rows;
  for (std::int64_t i = 1; i <= 20; ++i) {
    rows.push_back({i, 1, 0});
    rows.push_back({i, 500, 0});
  }
  CHECK(travelled(rows, order_by_tour(rows, exact)) == 19 + 499 + 19);
}

TEST_CASE("nearest points: as a search of all") {
  constexpr unsigned seed = 15;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    points all = random_points(random, 2 + random() % 200, 1 + round * 5, 1 + static_cast<std::int64_t>(random() % 90));
    std::sort(all.begin(), all.end(), [](const sample_lengths& a, const sample_lengths& b) {
      return a.input != b.input ? a.input < b.input : a.target < b.target;
    });
    const std::size_t count = std::min<std::size_t>(1 + random() % 9, all.size() - 1);
    const std::vector<std::uint32_t> nearest = detail::nearest_points(all, count);
    REQUIRE(nearest.size() == all.size() * count);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<std::uint32_t> others;
      for (std::size_t k = 0; k < all.size(); ++k)
        if (k != i) others.push_back(static_cast<std::uint32_t>(k));
      std::sort(others.begin(), others.end(), [&](std::uint32_t a, std::uint32_t b) {
        const std::int64_t x = apart(all[i], all[a]);
        const std::int64_t y = apart(all[i], all[b]);
        return x != y ? x < y : a < b;
      });
      for (std::size_t k = 0; k < count; ++k)
        REQUIRE(nearest[i * count + k] == others[k]);
    }
  }
}

TEST_CASE("tours of up to 12 points against the shortest") {
  constexpr unsigned seed = 1'962;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  double gaps = 0;
  int shortest = 0;
  constexpr int rounds = 200;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const points all = random_points(random, 3 + random() % (round % 8 == 0 ? 10 : 8), 10 + round * 3, 1 + round);
    const std::int64_t best = shortest_path(all);
    const std::int64_t found = travelled(all, order_by_tour(all, exact));
    REQUIRE(found >= best);
    REQUIRE(found == path_length(all, order_by_tour(all, exact), exact));
    gaps += best == 0 ? 0 : static_cast<double>(found) / static_cast<double>(best) - 1;
    shortest += found == best ? 1 : 0;
  }
  MESSAGE("mean gap to the shortest: ", (100 * gaps / rounds), " %, shortest in ", shortest, " of ", rounds);
  CHECK(gaps / rounds < 0.005);
}

TEST_CASE("tours of hundreds of points: near the bound, and never longer than where they start") {
  constexpr unsigned seed = 1'971;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  double gaps = 0;
  double tree_gaps = 0;
  constexpr int rounds = 8;
  for (int round = 0; round < rounds; ++round) {
    const points all = random_points(random, 300, 4'000, 4'000);
    const auto length = [&](const std::vector<sample_id>& order) { return travelled(all, order); };
    const std::int64_t start = std::min({length(order_by_length(all)), length(order_by_hilbert(all, exact)),
                                         length(order_by_snake(all, exact, snake_strips(all.size())))});
    CHECK(length(order_by_tour(all, exact, {.most_moves = 0})) == start);
    std::int64_t before = start;
    for (const std::int64_t moves : {1, 10, 100, 1'000, 10'000}) {
      const std::int64_t now = length(order_by_tour(all, exact, {.moves_per_point = 100, .most_moves = moves}));
      CHECK(now <= before);
      before = now;
    }
    const std::int64_t found = length(order_by_tour(all, exact));
    const auto path = static_cast<double>(found);
    gaps += path / least_path(all, path, 300) - 1;
    tree_gaps += path / least_path(all, path, 1) - 1;
  }
  MESSAGE("mean gap to the least spanning tree: ", (100 * tree_gaps / rounds),
          " %, to the bound with prices: ", (100 * gaps / rounds), " %");
  CHECK(gaps / rounds < 0.06);
}

TEST_CASE("tours are never longer than their start on clustered lengths, for any seed") {
  constexpr unsigned seed = 88;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    points all = random_points(random, random() % 200, 60, 4);
    for (sample_lengths& s : all)
      s.input = s.input * s.input / 4 + 1;
    const tour_options options{
        .moves_per_point = static_cast<std::int64_t>(random() % 20), .neighbours = 1 + random() % 10, .seed = random()};
    const std::int64_t found = path_length(all, order_by_tour(all, {}, options), {});
    CHECK(found <= path_length(all, order_by_length(all), {}));
    CHECK(found <= path_length(all, order_by_hilbert(all, {}), {}));
    CHECK(order_by_tour(all, {}, options) == order_by_tour(all, {}, options));
  }
}
