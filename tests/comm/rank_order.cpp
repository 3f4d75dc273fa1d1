#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/comm/rank_order.hpp>

#include "deadlock_reference.hpp"

using namespace dynapipe;
using deadlock_reference::rank_lists;
using deadlock_reference::read;

TEST_CASE("the global order agrees with a played run on random programs") {
  constexpr std::uint64_t first_seed = 20'261'201;
  std::size_t accepted = 0;
  constexpr std::uint64_t count = 20'000;
  for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const rank_lists ranks = deadlock_reference::random_programs(random);
    const std::optional<order_certificate> order = find_order(ranks);
    REQUIRE(order.has_value() == deadlock_reference::finishes_strictly(ranks));
    if (!order) continue;
    ++accepted;
    REQUIRE(certifies(ranks, *order));
  }
  // Neither answer may be rare, or the comparison says little.
  CHECK(accepted > count / 4);
  CHECK(accepted < count * 3 / 4);
}

TEST_CASE("the event numbers of a small program") {
  const auto ranks = read("C:f S1:a R1:g C:b | R0:a C:f { S0:g } C:x").ranks;
  const std::optional<order_certificate> order = find_order(ranks);
  REQUIRE(order.has_value());
  CHECK(order->event == std::vector<std::vector<std::uint32_t>>{{0, 1, 3, 5}, {1, 2, 3, 4}});
}

TEST_CASE("programs that cannot block for trivial reasons") {
  CHECK(find_order(rank_lists{}).has_value());
  CHECK(find_order(rank_lists(3)).has_value());
  CHECK(find_order(read("C:a C:b | | C:c").ranks).has_value());
  CHECK(find_order(read("{ S0:a R0:a } C:b").ranks).has_value());
}

TEST_CASE("a transfer of a rank to itself in two groups never happens") {
  CHECK_FALSE(find_order(read("{ S0:a C:x } { R0:a C:y }").ranks).has_value());
}

TEST_CASE("a send does not happen before the computation that makes its data") {
  CHECK(find_order(read("C:f S1:a<0 | R0:a").ranks).has_value());
  CHECK_FALSE(find_order(read("S1:a<1 C:f | R0:a").ranks).has_value());
  CHECK_FALSE(find_order(read("{ S1:a<1 C:f } | R0:a").ranks).has_value());
}

TEST_CASE("1F1B of many ranks: one global order works, naive places do not") {
  for (const std::size_t stages : {2U, 3U, 8U}) {
    for (const std::size_t micro_batches : {1U, 2U, 7U, 32U}) {
      CAPTURE(stages);
      CAPTURE(micro_batches);
      const rank_lists ordered = deadlock_reference::one_f_one_b(stages, micro_batches, false);
      const std::optional<order_certificate> order = find_order(ordered);
      REQUIRE(order.has_value());
      CHECK(certifies(ordered, *order));
      CHECK(deadlock_reference::finishes_strictly(ordered));
      const rank_lists naive = deadlock_reference::one_f_one_b(stages, micro_batches, true);
      CHECK(find_order(naive).has_value() == deadlock_reference::finishes_strictly(naive));
      CHECK(find_order(naive).has_value() == (micro_batches == 1));
    }
  }
}

TEST_CASE("changed certificates prove nothing") {
  std::size_t tried = 0;
  constexpr std::uint64_t first_seed = 7'001;
  for (std::uint64_t seed = first_seed; seed < first_seed + 2'000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const rank_lists ranks = deadlock_reference::random_programs(random);
    const std::optional<order_certificate> order = find_order(ranks);
    if (!order) continue;
    const auto ends = deadlock_reference::other_ends(ranks);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::vector<std::uint32_t>& events = order->event[r];
      order_certificate changed = *order;
      changed.event[r].push_back(1'000'000);
      CHECK_FALSE(certifies(ranks, changed));
      if (events.empty()) continue;
      changed = *order;
      changed.event[r].pop_back();
      CHECK_FALSE(certifies(ranks, changed));
      if (events.size() > 1) {
        changed = *order;
        std::swap(changed.event[r].front(), changed.event[r].back());
        CHECK_FALSE(certifies(ranks, changed));
        changed = *order;
        changed.event[r][1] = changed.event[r][0];
        CHECK_FALSE(certifies(ranks, changed));
      }
      // One end of a transfer moves away from the other, without breaking the rank's own order.
      const rank_operation& last = ranks[r].back();
      if (last.action != rank_action::compute) {
        changed = *order;
        changed.event[r].back() += 1'000'000;
        CHECK_FALSE(certifies(ranks, changed));
        ++tried;
      }
    }
    order_certificate fewer = *order;
    fewer.event.pop_back();
    CHECK_FALSE(certifies(ranks, fewer));
  }
  CHECK(tried > 1'000);
}

TEST_CASE("a certificate is of its programs only") {
  const auto proves = [](const char* programs_text, const order_certificate& order) {
    return certifies(read(programs_text).ranks, order);
  };
  const order_certificate order = *find_order(read("C:f S1:a/4<0 | R0:a/4").ranks);
  CHECK(proves("C:f S1:a/4<0 | R0:a/4", order));
  CHECK_FALSE(proves("C:f S1:a/4<0 | R0:a/5", order));
  CHECK_FALSE(proves("C:f S1:a/4<0 | R0:b/4", order));
  CHECK_FALSE(proves("C:f S1:a/4<1 | R0:a/4", order));
  CHECK_FALSE(proves("C:f S1:a/4<7 | R0:a/4", order));
  CHECK_FALSE(proves("C:f S2:a/4 | R0:a/4", order));
  CHECK_FALSE(proves("C:f C:a | R0:a/4", order));
  CHECK_FALSE(proves("{ C:f S1:a/4 } | R0:a/4", order));
  CHECK_FALSE(proves("S1:a/4<1 C:f | R0:a/4", order_certificate{{{0, 1}, {0}}}));
  rank_lists headless = read("C:f | C:g").ranks;
  headless[0][0].grouped = true;
  CHECK_FALSE(certifies(headless, order_certificate{{{0}, {1}}}));
}

TEST_CASE("malformed programs are errors that name rank and operation") {
  const auto fails = [](const rank_lists& ranks, const std::string& part) {
    try {
      static_cast<void>(find_order(ranks));
    } catch (const error& e) {
      return std::string{e.what()}.find(part) != std::string::npos;
    }
    return false;
  };
  CHECK(fails(read("C:x S2:a | R0:a").ranks, "rank 0 op 1: peer 2 is none of the 2 ranks"));
  rank_lists ranks = read("C:x | R0:a").ranks;
  ranks[1][0].peer = device_id{-1};
  CHECK(fails(ranks, "rank 1 op 0: peer -1 is none of the 2 ranks"));
  CHECK(fails(read("C:x | S1:a R1:a").ranks, "rank 1 op 0: a transfer to itself outside a group"));
  CHECK(fails(read("S1:a/-1 | R0:a/-1").ranks, "rank 0 op 0: -1 bytes"));
  CHECK(fails(read("S1:a<3 | R0:a").ranks, "rank 0 op 0: made_by 3"));
  CHECK(fails(read("S1:a<0 | R0:a").ranks, "rank 0 op 0: made_by 0"));
  CHECK(fails(read("C:x | R0:a<0 C:y").ranks, "rank 1 op 0: made_by 0"));
  ranks = read("C:x | C:y").ranks;
  ranks[1][0].grouped = true;
  CHECK(fails(ranks, "rank 1 op 0: grouped with the operation before it, but it is the first"));
}

TEST_CASE("a million operations and a group of many members need no deep stack") {
  const rank_lists ordered = deadlock_reference::one_f_one_b(16, 10'000, false);
  std::size_t count = 0;
  for (const rank_program& list : ordered)
    count += list.size();
  CHECK(count > 900'000);
  const std::optional<order_certificate> order = find_order(ordered);
  REQUIRE(order.has_value());
  CHECK(certifies(ordered, *order));

  rank_lists wide(2);
  for (std::uint64_t id = 0; id < 100'000; ++id) {
    wide[0].push_back(rank_operation::send(device_id{1}, id, bytes{1}));
    wide[1].push_back(rank_operation::recv(device_id{0}, id, bytes{1}));
    if (id > 0) wide[0].back().grouped = wide[1].back().grouped = true;
  }
  CHECK(find_order(wide).has_value());
  wide[1][50'000].grouped = false;
  CHECK_FALSE(find_order(wide).has_value());
}
