#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/comm/deadlock.hpp>

#include "deadlock_reference.hpp"

using namespace dynapipe;
using deadlock_reference::place;
using deadlock_reference::rank_lists;
using deadlock_reference::read;

namespace {

struct known_case {
  const char* name;
  const char* ranks;
  bool accepted;
  bool single;
  bool per_pair;
  bool per_edge;
};

// Public hang reports and the rules of NCCL, with what is known of each.
constexpr known_case known_cases[] = {
    {"sends head-on", "S1:a R1:b | S0:b R0:a", false, false, false, true},
    {"head-on, both grouped", "{ S1:a R1:b } | { S0:b R0:a }", true, true, true, true},
    {"head-on, one side grouped", "{ S1:a R1:b } | S0:b R0:a", false, true, true, true},
    {"receives head-on", "R1:b S1:a | R0:a S0:b", false, false, false, true},
    {"ring of sends", "S1:x0 R2:x2 | S2:x1 R0:x0 | S0:x2 R1:x1", false, false, true, true},
    {"ring, odd rank flips", "S1:x0 R2:x2 | R0:x0 S2:x1 | S0:x2 R1:x1", true, true, true, true},
    {"ring of four, odd ranks flip", "S1:x0 R3:x3 | R0:x0 S2:x1 | S3:x2 R1:x1 | R2:x2 S0:x3", true, true, true, true},
    {"one edge, swapped", "S1:m0/10 S1:m1/20 | R0:m1/20 R0:m0/10", false, false, false, false},
    {"one edge, swapped, equal sizes", "S1:m0/10 S1:m1/10 | R0:m1/10 R0:m0/10", false, false, false, false},
    {"sizes differ", "S1:m0/10 | R0:m0/12", false, false, false, false},
    {"a receive is missing", "S1:m0 S1:m1 | R0:m0", false, false, false, false},
    {"1F1B, send first on both (pytorch#172668)", "C:F2 S1:aF2 R1:gB0 C:B0 | S0:gB0 C:F1 C:B1 R0:aF2 C:F2", false,
     false, false, true},
    {"1F1B, Megatron's order", "S1:a1 R1:g0 S1:a2 R1:g1 | R0:a1 S0:g0 R0:a2 S0:g1", true, true, true, true},
    {"1F1B, fused exchange", "{ S1:a1 R1:g0 } | { S0:g0 R0:a1 }", true, true, true, true},
    {"looped stages on two ranks (pytorch#172668)", "S1:0F1 R1:1F0 C:2F0 | S0:1F0 R0:0F1 C:1F1", false, false, false,
     true},
    {"batched over peers (PiPPy#969)", "{ S1:h S2:skip } | R0:h C:F S2:o | { R0:skip R1:o }", false, true, true, true},
    {"batched over peers, one more message", "{ S1:h S2:skip } S1:h2 | R0:h R0:h2 C:F S2:o | { R0:skip R1:o }", false,
     true, true, true},
    {"looped, each forwards first (pytorch#195760)",
     "C:0F0 S1:0a C:1F0 S1:1a R3:0d C:0F4 | R0:0a S2:0b R0:1a S2:1b | R1:0b S3:0c R1:1b S3:1c | R2:0c S0:0d R2:1c",
     true, true, true, true},
    {"looped, a second send queued (pytorch#195760)",
     "C:0F0 S1:0a C:1F0 S1:1a R3:0d C:0F4 | R0:0a S2:0b S2:zz R0:1a | R1:0b S3:0c S3:yy R1:zz | R2:0c S0:0d R2:yy",
     false, false, true, true},
    {"cycle over crossing edges", "S1:a S2:b | S2:c R0:a | R0:b R1:c", false, false, true, true},
    {"a receive too early", "R1:g0 S1:a1 | R0:a1 C:F1 C:B S0:g0", false, false, false, true},
    {"a group waits for a late member", "S1:a R2:z | { R0:a S2:late<2 } C:L | R1:late S0:z", false, false, true, true},
    {"a receive before what feeds it", "R1:b C:F S1:a | R0:a C:G S0:b", false, false, false, false},
    {"pairs agree, no global order", "S1:a R2:c | S2:b R0:a | S0:c R1:b", false, false, true, true},
    {"three stages, ordered by time",
     "C:F0 S1:a0 C:F1 S1:a1 R1:g0 C:B0 R1:g1 C:B1 | R0:a0 C:F0 S2:b0 R0:a1 C:F1 R2:h0 C:B0 S0:g0 S2:b1 R2:h1 C:B1 "
     "S0:g1 "
     "| R1:b0 C:F0 C:B0 S1:h0 R1:b1 C:F1 C:B1 S1:h1",
     true, true, true, true},
    {"activation and gradient crossed on one edge (Megatron#5271)",
     "{ S1:act R1:g S1:grad R1:a } | { S0:g R0:grad S0:a R0:act }", false, false, false, false},
    {"the same, in one order", "{ S1:act R1:a S1:grad R1:g } | { S0:a R0:act S0:g R0:grad }", true, true, true, true},
    {"warm-up longer than the micro-batches (torchtitan#775)", "S1:a0 R1:g0 | R0:a0 R0:a1 S0:g0", false, false, false,
     false},
    {"a send behind its own reply", "S1:a R1:g C:B S1:a2 | R0:a R0:a2 S0:g", false, false, false, true},
    {"sends after their computation, receives before their use",
     "C:F0 S1:a0 C:F1 S1:a1 R1:g0 C:B0 | R0:a0 C:F0 C:B0 S0:g0 R0:a1", false, false, false, true},
};

std::string reason(const char* text) {
  const auto [ranks, labels] = read(text);
  return explain(ranks, check_deadlock(ranks).why, labels);
}

/// The chain that is found when the search's work is limited to its first start.
rejection hasty_chain(const rank_lists& ranks) {
  const detail::flat_programs<void> flat{ranks};
  std::vector<std::uint32_t> partner;
  REQUIRE(!detail::match_ends(flat, partner));
  detail::strict_run<void> run{flat, partner};
  return detail::chain_search<void>{flat, partner, run, 0}.shortest();
}

std::size_t flat(const std::vector<std::size_t>& first, operation_place at) { return first[index(at.rank)] + at.op; }

/// Whether every link of a chain holds, read off the rank_lists alone, and how often something stands behind.
bool chain_holds(const rank_lists& ranks, const std::vector<wait_step>& steps, std::size_t& behind) {
  const auto ends = deadlock_reference::other_ends(ranks);
  behind = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const operation_place a = steps[i].place;
    const operation_place b = steps[(i + 1) % steps.size()].place;
    const place here{index(a.rank), a.op};
    const place there{index(b.rank), b.op};
    const std::vector<std::size_t> position = deadlock_reference::positions(ranks[here.first]);
    switch (steps[i].to_next) {
      case wait_link::other_end:
        if (!ends || !ends->contains(here) || ends->at(here) != there) return false;
        break;
      case wait_link::grouped:
        if (a.rank != b.rank || a.op == b.op || position[a.op] != position[b.op]) return false;
        break;
      case wait_link::behind:
        if (a.rank != b.rank || position[a.op] <= position[b.op]) return false;
        ++behind;
        break;
      case wait_link::data:
        if (a.rank != b.rank || ranks[here.first][a.op].made_by != static_cast<std::int32_t>(b.op)) return false;
        break;
    }
  }
  return !steps.empty();
}

/// The fewest "behind" links of any closed chain: all-pairs distances over the operations.
std::size_t shortest_chain(const rank_lists& ranks) {
  const auto ends = deadlock_reference::other_ends(ranks);
  std::vector<std::size_t> first(ranks.size() + 1, 0);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    first[r + 1] = first[r] + ranks[r].size();
  const std::size_t n = first.back();
  constexpr std::size_t far = 1'000'000;
  std::vector<std::vector<std::size_t>> distance(n, std::vector<std::size_t>(n, far));
  std::size_t best = far;
  const auto relax = [&] {
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j)
          distance[i][j] = std::min(distance[i][j], distance[i][k] + distance[k][j]);
  };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<std::size_t> position = deadlock_reference::positions(ranks[r]);
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      for (std::size_t j = 0; j < ranks[r].size(); ++j)
        if (position[i] == position[j]) distance[first[r] + i][first[r] + j] = 0;
      if (ends->contains({r, i})) {
        const auto [other, op] = ends->at({r, i});
        distance[first[r] + i][flat(first, {to_id<device_id>(other), op})] = 0;
      }
    }
  }
  relax();
  const std::vector<std::vector<std::size_t>> together = distance;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<std::size_t> position = deadlock_reference::positions(ranks[r]);
    for (std::size_t i = 0; i < ranks[r].size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (position[j] < position[i]) {
          if (together[first[r] + i][first[r] + j] == 0) best = 1;
          distance[first[r] + i][first[r] + j] = std::min<std::size_t>(distance[first[r] + i][first[r] + j], 1);
        }
  }
  relax();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (distance[i][j] + distance[j][i] > 0) best = std::min(best, distance[i][j] + distance[j][i]);
  return best;
}

}  // namespace

TEST_CASE("known programs") {
  for (const known_case& known : known_cases) {
    CAPTURE(known.name);
    const rank_lists ranks = read(known.ranks).ranks;
    const deadlock_report report = check_deadlock(ranks);
    CHECK(report.accepted == known.accepted);
    CHECK(report.safe_per_pair == known.per_pair);
    CHECK(report.safe_per_edge == known.per_edge);
    CHECK(finishes_with(ranks, queue_style::single) == known.single);
    CHECK(finishes_with(ranks, queue_style::per_peer) == known.per_pair);
    CHECK(finishes_with(ranks, queue_style::per_direction) == known.per_edge);
    CHECK(certifies(ranks, report.certificate) == known.accepted);
    CHECK(report.why.steps.empty() == known.accepted);
    CHECK(find_order(ranks).has_value() == known.accepted);
  }
  CHECK(std::size(known_cases) == 30);
}

TEST_CASE("reasons in words") {
  CHECK(
      reason("S1:a R1:b | S0:b R0:a") ==
      "rank 0 op 0 (send a to 1) waits for rank 1 op 1 (recv a from 0), which stands behind rank 1 op 0 (send b to 0), "
      "which waits for rank 0 op 1 (recv b from 1), which stands behind rank 0 op 0 (send a to 1)");
  CHECK(
      reason("{ S1:a R1:b } | S0:b R0:a") ==
      "rank 1 op 0 (send b to 0) waits for rank 0 op 1 (recv b from 1), which is in one group with rank 0 op 0 (send a "
      "to 1), which waits for rank 1 op 1 (recv a from 0), which stands behind rank 1 op 0 (send b to 0)");
  CHECK(reason("S1:a<1 C:f | R0:a") ==
        "rank 0 op 0 (send a to 1) waits for rank 0 op 1 (compute f), which stands behind rank 0 op 0 (send a to 1)");
  CHECK(
      reason("{ S1:a<1 C:f } | R0:a") ==
      "rank 0 op 0 (send a to 1) waits for rank 0 op 1 (compute f), which is in one group with rank 0 op 0 (send a to "
      "1)");
  CHECK(reason("S1:m0/10 S1:m1/20 | R0:m1/20 R0:m0/10") ==
        "rank 0 op 0 (send m0 to 1, 10 bytes) meets rank 1 op 0 (recv m1 from 0, 20 bytes): the ids differ");
  CHECK(reason("S1:m0/10 | R0:m0/12") ==
        "rank 0 op 0 (send m0 to 1, 10 bytes) meets rank 1 op 0 (recv m0 from 0, 12 bytes): the sizes differ");
  CHECK(reason("S1:m0 S1:m1 | R0:m0") == "rank 0 op 1 (send m1 to 1) is never received");
  CHECK(reason("S1:m0 | R0:m0 R0:m1") == "rank 1 op 1 (recv m1 from 0) is never sent");
  CHECK(reason("C:x | R2:m R0:n | S1:m") == "rank 1 op 1 (recv n from 0) is never sent");
  CHECK(reason("C:x S2:m | S2:n | R1:n") == "rank 0 op 1 (send m to 2) is never received");
  const rank_lists ranks = read("S1:a R1:b | S0:b R0:a").ranks;
  CHECK(
      explain(ranks, check_deadlock(ranks).why).starts_with("rank 0 op 0 (send 0 to 1) waits for rank 1 op 1 (recv 0"));
}

TEST_CASE("the shortest chain is found behind longer ones") {
  // The ranks stop in a ring of four; ranks 2 and 3 would also meet head-on later.
  const rank_lists ranks = read("S1:x0 R3:x3 | S2:x1 R0:x0 | S3:x2 R1:x1 S3:p R3:q | S0:x3 R2:x2 S2:q R2:p").ranks;
  const deadlock_report report = check_deadlock(ranks);
  std::size_t behind = 0;
  REQUIRE(chain_holds(ranks, report.why.steps, behind));
  CHECK(behind == 2);
  CHECK(report.why.shortest);
  CHECK(explain(ranks, report.why).find("rank 2 op 2") != std::string::npos);
}

TEST_CASE("random programs: verdict, reason and the weaker worlds against plain simulators") {
  constexpr std::uint64_t first_seed = 912'000;
  std::size_t chains = 0;
  std::size_t longer = 0;
  std::size_t hurried = 0;
  std::size_t pair_only = 0;
  std::size_t edge_only = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + 20'000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const rank_lists ranks = deadlock_reference::random_programs(random);
    const deadlock_report report = check_deadlock(ranks);
    REQUIRE(report.accepted == deadlock_reference::finishes_strictly(ranks));
    for (const queue_style style : {queue_style::single, queue_style::per_peer, queue_style::per_direction}) {
      CAPTURE(to_string(style));
      const bool finishes = finishes_with(ranks, style);
      REQUIRE(finishes == deadlock_reference::finishes_relaxed(ranks, style));
      if (report.accepted) REQUIRE(finishes);
      if (style == queue_style::per_peer) REQUIRE(report.safe_per_pair == finishes);
      if (style == queue_style::per_direction) REQUIRE(report.safe_per_edge == finishes);
    }
    if (report.accepted) {
      REQUIRE(certifies(ranks, report.certificate));
      continue;
    }
    pair_only += report.safe_per_pair;
    edge_only += report.safe_per_edge && !report.safe_per_pair;
    REQUIRE(!explain(ranks, report.why).empty());
    REQUIRE((report.why.kind == rejection_kind::cycle) == deadlock_reference::other_ends(ranks).has_value());
    if (report.why.kind != rejection_kind::cycle) continue;
    std::size_t behind = 0;
    REQUIRE(chain_holds(ranks, report.why.steps, behind));
    if (report.why.steps.front().to_next == wait_link::data) continue;
    REQUIRE(report.why.shortest);
    const std::size_t shortest = shortest_chain(ranks);
    REQUIRE(behind == shortest);
    // A search that must stop at once still has a chain, and says when it may not be the shortest.
    const rejection hasty = hasty_chain(ranks);
    REQUIRE(chain_holds(ranks, hasty.steps, behind));
    REQUIRE((hasty.shortest ? behind == shortest : behind >= shortest));
    hurried += behind > shortest;
    ++chains;
    longer += behind > 2;
  }
  // Every kind of answer occurs often enough to mean something.
  CHECK(chains > 2'000);
  CHECK(longer > 100);
  CHECK(hurried > 10);
  CHECK(pair_only > 100);
  CHECK(edge_only > 100);
}

TEST_CASE("a long ring has one chain, as long as the ring") {
  constexpr std::size_t ranks = 200;
  rank_lists ring(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    ring[r].push_back(rank_operation::send(to_id<device_id>((r + 1) % ranks), r, bytes{1}));
    const std::size_t before = (r + ranks - 1) % ranks;
    ring[r].push_back(rank_operation::recv(to_id<device_id>(before), before, bytes{1}));
  }
  const deadlock_report report = check_deadlock(ring);
  std::size_t behind = 0;
  REQUIRE(chain_holds(ring, report.why.steps, behind));
  CHECK(behind == ranks);
  CHECK(report.why.shortest);
}

TEST_CASE("a refusal of a large program is bounded work, and its chain holds") {
  // A ring of sends, then long lists that wait behind it: many starts, no chain but the long one.
  constexpr std::size_t ranks = 64;
  rank_lists ring(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto next = to_id<device_id>((r + 1) % ranks);
    const std::size_t before = (r + ranks - 1) % ranks;
    ring[r].push_back(rank_operation::send(next, r, bytes{1}));
    ring[r].push_back(rank_operation::recv(to_id<device_id>(before), before, bytes{1}));
    for (std::uint64_t k = 1; k <= 2'000; ++k) {
      const bool even = r % 2 == 0;
      const auto send = rank_operation::send(next, k * ranks + r, bytes{1});
      const auto recv = rank_operation::recv(to_id<device_id>(before), k * ranks + before, bytes{1});
      ring[r].push_back(even ? send : recv);
      ring[r].push_back(even ? recv : send);
    }
  }
  const deadlock_report report = check_deadlock(ring);
  CHECK_FALSE(report.accepted);
  CHECK_FALSE(report.why.shortest);
  std::size_t behind = 0;
  REQUIRE(chain_holds(ring, report.why.steps, behind));
  CHECK(behind == ranks);
  CHECK(report.safe_per_pair);
}
