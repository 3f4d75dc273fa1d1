#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/shape_table.hpp>

using namespace dynapipe;

namespace {

/// A time that grows with rows and lengths; nothing above `most` tokens fits.
struct pricing {
  std::int64_t most;
  std::int64_t* asked;
  std::optional<nanoseconds> operator()(const shape& s) const {
    ++*asked;
    if (s.rows * (s.input + s.target) > most) return std::nullopt;
    return nanoseconds{10 + s.rows * s.input * (1 + s.input / 64) + 3 * s.rows * s.target};
  }
};

}  // namespace

TEST_CASE("shape_table: every range has the time of its shape, as far as it fits") {
  constexpr unsigned seed = 8'128;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto from = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  int limited = 0, shared = 0;
  for (int round = 0; round < 1'000; ++round) {
    CAPTURE(round);
    const bool both = from(0, 1) == 1;
    const bool sorted = from(0, 2) > 0;
    std::vector<shape> alone(static_cast<std::size_t>(from(1, 30)));
    for (shape& s : alone)
      s = {1, 8 * from(1, 12), both ? 8 * from(0, 6) : 0};
    if (sorted) std::sort(alone.begin(), alone.end(), [](const shape& a, const shape& b) { return a.input > b.input; });
    std::int64_t asked = 0;
    const pricing time{from(100, 2'000), &asked};
    const nanoseconds useful{from(0, 2) == 0 ? from(0, 3'000) : int64_limit};
    const shape_table table{alone, time, useful};
    const std::int64_t calls = asked;
    REQUIRE(table.samples() == alone.size());
    std::size_t entries = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      shape s;
      bool ended = false;
      entries += table.row(i).size();
      for (std::size_t n = 1; i + n <= alone.size() + 2; ++n) {
        std::optional<nanoseconds> t;
        if (i + n <= alone.size()) {
          s = {s.rows + 1, std::max(s.input, alone[i + n - 1].input), std::max(s.target, alone[i + n - 1].target)};
          t = time(s);
        }
        ended = ended || !t || (n > 1 && *t > useful);
        REQUIRE(table(i, n) == (ended ? int64_limit : t->value()));
        REQUIRE((n <= table.row(i).size()) == !ended);
        if (!ended) CHECK(table.row(i)[n - 1] == t->value());
      }
      if (table.row(i).size() < alone.size() - i) ++limited;
    }
    CHECK(table.size() <= entries);
    if (table.size() < entries) ++shared;
    CHECK(calls <= static_cast<std::int64_t>(table.size() + alone.size()));
  }
  CHECK(limited > 1'000);
  CHECK(shared > 100);
}

TEST_CASE("shape_table: equal lengths share a row, and an empty list is an empty table") {
  std::int64_t asked = 0;
  const std::vector<shape> alone(100, shape{1, 64, 0});
  const shape_table table{alone, pricing{64 * 40, &asked}};
  CHECK(table.size() == 40);
  CHECK(asked == 41);
  CHECK(table(0, 40) < int64_limit);
  CHECK(table(0, 41) == int64_limit);
  CHECK(table(99, 1) == table(0, 1));
  CHECK(table(99, 2) == int64_limit);
  CHECK(shape_table{std::vector<shape>{}, pricing{1, &asked}}.samples() == 0);
}
