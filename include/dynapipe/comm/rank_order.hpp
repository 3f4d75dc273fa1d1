#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <dynapipe/comm/rank_program.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>

/// Can a set of send/receive programs block?
///
/// Problem. Every rank has one queue for everything, computations and transfers alike, and works through it in list
/// order. Transfers are unbuffered: the k-th send of a to b and the k-th receive of b from a are one event of both
/// ranks. A group is one event as well: all of its members happen at once. Will every rank reach the end of its list?
///
/// Method. Positions whose members match are merged into clusters (union-find). A cluster happens when all of its
/// positions are at the front of their ranks; it then leaves all these queues at once. Nothing is left to choose (a
/// cluster that can happen stays possible until it does), so one greedy run decides. It comes to the end exactly when
/// no cluster holds two positions of one rank and the graph of clusters under the ranks' orders has no cycle. The
/// order of the run is the certificate; `certifies` re-checks it without any of this code.
///
/// Before that, both ends of every transfer are compared: counts, ids and bytes per directed pair of ranks, because
/// the libraries beneath match by order alone and would swap, cut or wait for ever.
///
/// Complexity: O(operations + ranks) time and memory without groups; merging groups costs at most a logarithm more. No
/// recursion.
///
/// Why the strictest world: taking order away can never create a deadlock, so what is accepted here is safe with one
/// communicator, one for each pair or each direction, with blocking launches, and with a single hardware queue.

namespace dynapipe {

/// A global order: `event[r][i]` is the number of the event in which rank r's i-th position happens. Events of equal
/// number happen at once. Along a rank the numbers rise, and both ends of a transfer have the same: nothing more is
/// needed for a proof that the programs finish.
struct order_certificate {
  std::vector<std::vector<std::uint32_t>> event;

  friend bool operator==(const order_certificate&, const order_certificate&) = default;
};

/// Why programs are refused.
enum class rejection_kind : std::uint8_t {
  unreceived,       ///< a send without a receive
  unsent,           ///< a receive without a send
  different_ids,    ///< the k-th send and the k-th receive of a directed pair are different messages
  different_sizes,  ///< the same message, but not the same number of bytes
  cycle             ///< who waits for whom closes
};

/// How an operation depends on the next one of a chain.
enum class wait_link : std::uint8_t {
  other_end,  ///< the next is the other end of this transfer
  grouped,    ///< the next is in the same group
  behind,     ///< the next stands earlier in the same rank's list
  data        ///< the next computes what this one sends
};

struct wait_step {
  operation_place place;
  wait_link to_next = wait_link::other_end;

  friend constexpr bool operator==(const wait_step&, const wait_step&) = default;
};

/// The reason of a refusal as data.
struct rejection {
  rejection_kind kind = rejection_kind::cycle;
  /// `cycle`: who waits for whom, the last step's next being the first. Otherwise the send and the receive that do not
  /// agree, or the one end that has no other.
  std::vector<wait_step> steps;
  /// No chain has fewer places where one operation stands behind another. False where the search hit its limit of work
  /// (some million steps): then the chain is short, not proven shortest.
  bool shortest = true;
};

namespace detail {

inline constexpr std::uint32_t no_index = std::numeric_limits<std::uint32_t>::max();

template <class Lazy = void>
std::string place_text(operation_place place) {
  return "rank " + std::to_string(index(place.rank)) + " op " + std::to_string(place.op);
}

/// All operations in one row, rank after rank, and the positions that they form.
template <class Lazy>
class flat_programs {
 public:
  explicit flat_programs(std::span<const rank_program> programs) : programs_{programs} {
    std::size_t count = 0;
    for (const rank_program& list : programs)
      count += list.size();
    if (count >= no_index) throw error{"programs of " + std::to_string(count) + " operations are too long"};
    rank_ops.reserve(programs.size() + 1);
    rank_positions.reserve(programs.size() + 1);
    position_ops.reserve(count + 1);
    rank_of.reserve(count);
    position_of.reserve(count);
    for (std::size_t r = 0; r < programs.size(); ++r) {
      rank_ops.push_back(static_cast<std::uint32_t>(rank_of.size()));
      rank_positions.push_back(static_cast<std::uint32_t>(position_ops.size()));
      for (std::size_t i = 0; i < programs[r].size(); ++i) {
        check(r, i);
        if (!programs[r][i].grouped) position_ops.push_back(static_cast<std::uint32_t>(rank_of.size()));
        rank_of.push_back(static_cast<std::uint32_t>(r));
        position_of.push_back(static_cast<std::uint32_t>(position_ops.size() - 1));
      }
    }
    rank_ops.push_back(static_cast<std::uint32_t>(rank_of.size()));
    rank_positions.push_back(static_cast<std::uint32_t>(position_ops.size()));
    position_ops.push_back(static_cast<std::uint32_t>(rank_of.size()));
  }

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(programs_.size()); }
  [[nodiscard]] std::uint32_t ops() const { return static_cast<std::uint32_t>(rank_of.size()); }
  [[nodiscard]] std::uint32_t positions() const { return static_cast<std::uint32_t>(position_ops.size() - 1); }
  [[nodiscard]] const rank_operation& op(std::uint32_t flat) const {
    return programs_[rank_of[flat]][flat - rank_ops[rank_of[flat]]];
  }
  [[nodiscard]] std::uint32_t peer(std::uint32_t flat) const {
    return static_cast<std::uint32_t>(index(op(flat).peer));
  }
  [[nodiscard]] operation_place place(std::uint32_t flat) const {
    return {to_id<device_id>(rank_of[flat]), flat - rank_ops[rank_of[flat]]};
  }
  [[nodiscard]] std::uint32_t rank_of_position(std::uint32_t position) const { return rank_of[position_ops[position]]; }

  std::vector<std::uint32_t> rank_ops;        ///< each rank's first operation, and the end
  std::vector<std::uint32_t> rank_positions;  ///< each rank's first position, and the end
  std::vector<std::uint32_t> position_ops;    ///< each position's first operation, and the end
  std::vector<std::uint32_t> rank_of;         ///< by operation
  std::vector<std::uint32_t> position_of;     ///< by operation

 private:
  void check(std::size_t r, std::size_t i) const {
    const rank_program& list = programs_[r];
    const rank_operation& o = list[i];
    const auto fail = [&](const std::string& what) { throw error{place_text({to_id<device_id>(r), i}) + ": " + what}; };
    if (o.grouped && i == 0) fail("grouped with the operation before it, but it is the first");
    if (o.made_by != rank_operation::unknown) {
      const auto source = static_cast<std::size_t>(o.made_by);
      if (o.action != rank_action::send || source >= list.size() || list[source].action != rank_action::compute)
        fail("made_by " + std::to_string(o.made_by) + " is for sends and names a computation of the same rank");
    }
    if (o.action == rank_action::compute) return;
    if (index(o.peer) >= programs_.size())
      fail("peer " + std::to_string(static_cast<std::int32_t>(o.peer)) + " is none of the " +
           std::to_string(programs_.size()) + " ranks");
    if (o.size < bytes{0}) fail(std::to_string(o.size.value()) + " bytes");
    const bool in_group = o.grouped || (i + 1 < list.size() && list[i + 1].grouped);
    if (index(o.peer) == r && !in_group) fail("a transfer to itself outside a group");
  }

  std::span<const rank_program> programs_;
};

/// Sorts operations by `key` (below `buckets`), keeping the order of equal ones.
template <class Key>
void counting_sort(std::vector<std::uint32_t>& ops, std::uint32_t buckets, Key key) {
  std::vector<std::uint32_t> next(std::size_t{buckets} + 1, 0);
  for (const std::uint32_t op : ops)
    ++next[key(op) + 1];
  for (std::size_t b = 1; b < next.size(); ++b)
    next[b] += next[b - 1];
  std::vector<std::uint32_t> sorted(ops.size());
  for (const std::uint32_t op : ops)
    sorted[next[key(op)]++] = op;
  ops.swap(sorted);
}

/// Finds every transfer's other end (`partner`, `no_index` for computations), or the first pair that does not agree, by
/// sender, receiver and place in their sequence.
template <class Lazy = void>
std::optional<rejection> match_ends(const flat_programs<Lazy>& flat, std::vector<std::uint32_t>& partner) {
  std::vector<std::uint32_t> sends;
  std::vector<std::uint32_t> recvs;
  for (std::uint32_t x = 0; x < flat.ops(); ++x) {
    if (flat.op(x).action == rank_action::send) sends.push_back(x);
    if (flat.op(x).action == rank_action::recv) recvs.push_back(x);
  }
  const auto own = [&](std::uint32_t x) { return flat.rank_of[x]; };
  const auto other = [&](std::uint32_t x) { return flat.peer(x); };
  counting_sort(sends, flat.ranks(), other);
  counting_sort(sends, flat.ranks(), own);
  counting_sort(recvs, flat.ranks(), other);

  const auto refuse = [&](rejection_kind kind, auto... ops) {
    return rejection{.kind = kind, .steps = {wait_step{.place = flat.place(ops)}...}, .shortest = true};
  };
  partner.assign(flat.ops(), no_index);
  for (std::size_t i = 0; i < std::max(sends.size(), recvs.size()); ++i) {
    if (i == recvs.size()) return refuse(rejection_kind::unreceived, sends[i]);
    if (i == sends.size()) return refuse(rejection_kind::unsent, recvs[i]);
    const std::uint32_t s = sends[i];
    const std::uint32_t r = recvs[i];
    const std::pair sent{own(s), other(s)};
    const std::pair taken{other(r), own(r)};
    if (sent < taken) return refuse(rejection_kind::unreceived, s);
    if (taken < sent) return refuse(rejection_kind::unsent, r);
    if (flat.op(s).id != flat.op(r).id) return refuse(rejection_kind::different_ids, s, r);
    if (flat.op(s).size != flat.op(r).size) return refuse(rejection_kind::different_sizes, s, r);
    partner[s] = r;
    partner[r] = s;
  }
  return std::nullopt;
}

/// A send whose data is made at its own position or later: it waits for what stands behind itself.
template <class Lazy = void>
std::optional<rejection> late_data(const flat_programs<Lazy>& flat) {
  for (std::uint32_t x = 0; x < flat.ops(); ++x) {
    if (flat.op(x).made_by == rank_operation::unknown) continue;
    const std::uint32_t source = flat.rank_ops[flat.rank_of[x]] + static_cast<std::uint32_t>(flat.op(x).made_by);
    if (flat.position_of[source] < flat.position_of[x]) continue;
    const bool together = flat.position_of[source] == flat.position_of[x];
    return rejection{.kind = rejection_kind::cycle,
                     .steps = {{flat.place(x), wait_link::data},
                               {flat.place(source), together ? wait_link::grouped : wait_link::behind}},
                     .shortest = true};
  }
  return std::nullopt;
}

/// The clusters of positions that happen at once, and the greedy run over them.
template <class Lazy>
class strict_run {
 public:
  strict_run(const flat_programs<Lazy>& flat, const std::vector<std::uint32_t>& partner)
      : flat_{flat}, event_(flat.positions(), no_index), parent_(flat.positions()), ring_(flat.positions()) {
    for (std::uint32_t p = 0; p < flat.positions(); ++p)
      parent_[p] = ring_[p] = p;
    for (std::uint32_t x = 0; x < flat.ops(); ++x)
      if (partner[x] != no_index && x < partner[x]) unite(flat.position_of[x], flat.position_of[partner[x]]);
    run();
  }

  [[nodiscard]] bool finished() const { return done_ == flat_.positions(); }
  /// The representative of a position's cluster.
  [[nodiscard]] std::uint32_t cluster(std::uint32_t position) {
    while (parent_[position] != position)
      position = parent_[position] = parent_[parent_[position]];
    return position;
  }
  /// The next position of the same cluster, in a ring.
  [[nodiscard]] std::uint32_t next_in_cluster(std::uint32_t position) const { return ring_[position]; }
  /// The first position of a rank that never happens, or the end of its positions.
  [[nodiscard]] std::uint32_t front(std::uint32_t rank) const { return front_[rank]; }

  [[nodiscard]] order_certificate certificate() const {
    order_certificate order;
    order.event.reserve(flat_.ranks());
    for (std::uint32_t r = 0; r < flat_.ranks(); ++r)
      order.event.emplace_back(event_.begin() + flat_.rank_positions[r], event_.begin() + flat_.rank_positions[r + 1]);
    return order;
  }

 private:
  void unite(std::uint32_t a, std::uint32_t b) {
    a = cluster(a);
    b = cluster(b);
    if (a == b) return;
    parent_[std::max(a, b)] = std::min(a, b);
    std::swap(ring_[a], ring_[b]);
  }

  void run() {
    std::vector<std::uint32_t> missing(flat_.positions(), 0);
    for (std::uint32_t p = 0; p < flat_.positions(); ++p)
      ++missing[cluster(p)];
    std::vector<std::uint32_t> arrived;
    arrived.reserve(flat_.positions());
    const auto arrive = [&](std::uint32_t rank) {
      if (front_[rank] < flat_.rank_positions[rank + 1]) arrived.push_back(front_[rank]);
    };
    front_.assign(flat_.rank_positions.begin(), flat_.rank_positions.end() - 1);
    for (std::uint32_t rank = 0; rank < flat_.ranks(); ++rank)
      arrive(rank);
    std::uint32_t events = 0;
    for (std::size_t i = 0; i < arrived.size(); ++i) {
      const std::uint32_t first = arrived[i];
      if (--missing[cluster(first)] > 0) continue;
      std::uint32_t p = first;
      do {
        event_[p] = events;
        ++done_;
        const std::uint32_t rank = flat_.rank_of_position(p);
        ++front_[rank];
        arrive(rank);
        p = ring_[p];
      } while (p != first);
      ++events;
    }
  }

  const flat_programs<Lazy>& flat_;
  std::vector<std::uint32_t> event_;  // by position; no_index for what never happens
  std::vector<std::uint32_t> parent_;
  std::vector<std::uint32_t> ring_;
  std::vector<std::uint32_t> front_;
  std::uint32_t done_ = 0;
};

}  // namespace detail

/// The global order in which the programs happen in the strictest world, or none if they mismatch or block.
///
/// Complexity: linear; no explanation is sought, so this is the check for a search that tries many orders.
/// Throws `error` naming rank and operation for a peer out of range, a transfer to itself outside a group, negative
/// bytes, a `made_by` that is no computation of the rank, and a group without a first member.
template <class Lazy = void>
[[nodiscard]] std::optional<order_certificate> find_order(std::span<const rank_program> programs) {
  const detail::flat_programs<Lazy> flat{programs};
  std::vector<std::uint32_t> partner;
  if (detail::match_ends(flat, partner) || detail::late_data(flat)) return std::nullopt;
  const detail::strict_run<Lazy> run{flat, partner};
  if (!run.finished()) return std::nullopt;
  return run.certificate();
}

/// Whether `certificate` proves that `programs` match and finish in the strictest world.
///
/// Shares no code with the check: it compares the event numbers along every rank, of both ends of every transfer, and
/// of computations and the sends that need them. False, never an exception, for anything malformed.
/// Complexity: O(n log n).
template <class Lazy = void>
[[nodiscard]] bool certifies(std::span<const rank_program> programs, const order_certificate& certificate) {
  struct end_of_transfer {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t place = 0;
    std::uint64_t id = 0;
    bytes size{0};
    std::uint32_t event = 0;
  };
  std::vector<end_of_transfer> sends;
  std::vector<end_of_transfer> recvs;
  if (certificate.event.size() != programs.size()) return false;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const std::vector<std::uint32_t>& numbers = certificate.event[r];
    if (std::adjacent_find(numbers.begin(), numbers.end(), [](std::uint32_t a, std::uint32_t b) { return a >= b; }) !=
        numbers.end())
      return false;
    std::vector<std::uint32_t> at(programs[r].size());
    std::size_t position = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (!programs[r][i].grouped) ++position;
      if (position == 0 || position > numbers.size()) return false;
      at[i] = numbers[position - 1];
    }
    if (position != numbers.size()) return false;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const rank_operation& o = programs[r][i];
      const std::size_t peer = index(o.peer);
      if (o.action == rank_action::send) sends.push_back({r, peer, i, o.id, o.size, at[i]});
      if (o.action == rank_action::recv) recvs.push_back({peer, r, i, o.id, o.size, at[i]});
      if (o.made_by == rank_operation::unknown) continue;
      const auto source = static_cast<std::size_t>(o.made_by);
      if (source >= at.size() || programs[r][source].action != rank_action::compute || at[source] >= at[i])
        return false;
    }
  }
  const auto by_sequence = [](const end_of_transfer& a, const end_of_transfer& b) {
    return std::tie(a.from, a.to, a.place) < std::tie(b.from, b.to, b.place);
  };
  std::sort(sends.begin(), sends.end(), by_sequence);
  std::sort(recvs.begin(), recvs.end(), by_sequence);
  return std::equal(
      sends.begin(), sends.end(), recvs.begin(), recvs.end(), [](const end_of_transfer& s, const end_of_transfer& r) {
        return std::tie(s.from, s.to, s.id, s.size, s.event) == std::tie(r.from, r.to, r.id, r.size, r.event);
      });
}

}  // namespace dynapipe
