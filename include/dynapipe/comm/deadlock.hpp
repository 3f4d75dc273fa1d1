#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/comm/rank_order.hpp>
#include <dynapipe/comm/rank_program.hpp>
#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/kinds.hpp>

/// The deadlock check with its reasons: the verdict of `comm/rank_order.hpp`, for a refusal the shortest chain of who
/// waits for whom, and whether the programs would finish with more queues than one.

namespace dynapipe {

/// The answer of `check_deadlock`.
struct deadlock_report {
  bool accepted = false;
  order_certificate certificate;  ///< where accepted
  rejection why;                  ///< where refused
  bool safe_per_pair = false;     ///< `finishes_with` one queue for each pair of ranks
  bool safe_per_edge = false;     ///< `finishes_with` one queue for each peer and direction
};

namespace detail {

/// The search for the shortest chain among positions that never happen.
///
/// From a position one goes to any earlier blocked position of its rank ("behind"), and from there through its cluster
/// ("other end", "grouped") to another position. A chain closes where it re-enters the cluster that it left, at another
/// position. Breadth first, with a high-water mark for each rank: every position is entered at most once, though any
/// earlier position counts as a neighbour. Length: the number of "behind" links.
template <class Lazy>
class chain_search {
 public:
  /// `work_limit`: positions entered or looked through, over all starts, after which no new start is tried. The default
  /// is some tens of milliseconds.
  chain_search(const flat_programs<Lazy>& flat, const std::vector<std::uint32_t>& partner, strict_run<Lazy>& run,
               std::size_t work_limit = 4'000'000)
      : flat_{flat},
        partner_{partner},
        run_{run},
        reached_(flat.ranks()),
        previous_(flat.positions()),
        left_(flat.positions(), false),
        work_limit_{work_limit} {}

  [[nodiscard]] rejection shortest() {
    std::vector<std::uint32_t> best = through(some_start(), no_index);
    const std::size_t least = two_of_one_rank() ? 1 : 2;
    rejection result;
    for (std::uint32_t r = 0; r < flat_.ranks() && result.shortest && best.size() > 2 * least; ++r) {
      for (std::uint32_t p = run_.front(r); p < flat_.rank_positions[r + 1] && best.size() > 2 * least; ++p) {
        if (work_ > work_limit_) {
          result.shortest = false;
          break;
        }
        std::vector<std::uint32_t> found = through(p, static_cast<std::uint32_t>(best.size() / 2));
        if (!found.empty()) best = std::move(found);
      }
    }
    for (std::size_t i = 0; i < best.size(); i += 2)
      append_path(best[i], best[i + 1], result.steps);
    return result;
  }

 private:
  struct entry {
    std::uint32_t position;  ///< entered from behind
    std::uint32_t exit;      ///< the position before it, of the same rank
    std::uint32_t from;      ///< the entry whose cluster holds `exit`
  };

  /// A position on a chain of fronts: from a blocked front to a member of its cluster that is not at the front, to the
  /// front of that one's rank, and so on until a rank comes again.
  [[nodiscard]] std::uint32_t some_start() const {
    std::uint32_t rank = 0;
    while (run_.front(rank) == flat_.rank_positions[rank + 1])
      ++rank;
    std::vector<char> seen(flat_.ranks(), 0);
    std::uint32_t held = no_index;
    while (!seen[rank]) {
      seen[rank] = 1;
      const std::uint32_t first = run_.front(rank);
      held = first;
      do
        held = run_.next_in_cluster(held);
      while (held == run_.front(flat_.rank_of_position(held)));
      rank = flat_.rank_of_position(held);
    }
    return held;
  }

  /// Whether a blocked cluster holds two positions of one rank, which closes a chain of length 1.
  [[nodiscard]] bool two_of_one_rank() {
    std::vector<std::uint32_t> last_cluster(flat_.ranks(), no_index);
    for (std::uint32_t r = 0; r < flat_.ranks(); ++r) {
      for (std::uint32_t p = run_.front(r); p < flat_.rank_positions[r + 1]; ++p) {
        if (run_.cluster(p) != p) continue;
        std::uint32_t q = p;
        do {
          std::uint32_t& last = last_cluster[flat_.rank_of_position(q)];
          if (last == p) return true;
          last = p;
          q = run_.next_in_cluster(q);
        } while (q != p);
      }
    }
    return false;
  }

  /// The shortest chain that leaves `start` for a position before it, as pairs (entered, left) of positions in one
  /// cluster, if it has fewer than `limit` pairs; else empty.
  [[nodiscard]] std::vector<std::uint32_t> through(std::uint32_t start, std::uint32_t limit) {
    const std::uint32_t home = run_.cluster(start);
    for (std::uint32_t r = 0; r < flat_.ranks(); ++r)
      reached_[r] = run_.front(r);
    entries_.clear();
    work_ += flat_.ranks();
    std::uint32_t closing = enter_before(start, no_index, home, start);
    std::uint32_t length = 1;
    for (std::uint32_t i = 0; closing == no_index && i < entries_.size();) {
      const std::size_t level_end = entries_.size();
      if (++length >= limit) break;
      for (; closing == no_index && i < level_end; ++i)
        closing = leave_cluster(i, home, start);
    }
    for (const entry& e : entries_)
      left_[run_.cluster(e.position)] = false;
    std::vector<std::uint32_t> chain;
    for (std::uint32_t left = start; closing != no_index; closing = entries_[closing].from) {
      chain.insert(chain.begin(), {entries_[closing].position, left});
      left = entries_[closing].exit;
    }
    return chain;
  }

  /// Leaves the cluster of entry `i` by every other position. Once is enough: before the place where a cluster was
  /// entered from behind, everything is already entered.
  std::uint32_t leave_cluster(std::uint32_t i, std::uint32_t home, std::uint32_t start) {
    const std::uint32_t entered = entries_[i].position;
    if (std::exchange(left_[run_.cluster(entered)], true)) return no_index;
    for (std::uint32_t p = run_.next_in_cluster(entered); p != entered; p = run_.next_in_cluster(p)) {
      ++work_;
      const std::uint32_t closing = enter_before(p, i, home, start);
      if (closing != no_index) return closing;
    }
    return no_index;
  }

  /// Enters what is before `exit` on its rank and was not yet entered; the entry that closes the chain, if one does.
  std::uint32_t enter_before(std::uint32_t exit, std::uint32_t from, std::uint32_t home, std::uint32_t start) {
    for (std::uint32_t& p = reached_[flat_.rank_of_position(exit)]; p < exit; ++p) {
      ++work_;
      if (p == start) continue;
      entries_.push_back({p, exit, from});
      if (run_.cluster(p) == home) return static_cast<std::uint32_t>(entries_.size() - 1);
    }
    return no_index;
  }

  /// The shortest way through one cluster from `entered` to `left`, as steps; the last one stands behind what follows.
  void append_path(std::uint32_t entered, std::uint32_t left, std::vector<wait_step>& steps) {
    std::uint32_t p = entered;
    do {
      previous_[p] = no_index;
      p = run_.next_in_cluster(p);
    } while (p != entered);
    // From the far side, so that the links read forward. `previous_` holds the operation that leads towards `left`.
    std::vector<std::uint32_t> queue{left};
    for (std::size_t i = 0; i < queue.size() && queue.back() != entered; ++i) {
      for (std::uint32_t x = flat_.position_ops[queue[i]]; x < flat_.position_ops[queue[i] + 1]; ++x) {
        if (partner_[x] == no_index) continue;
        const std::uint32_t next = flat_.position_of[partner_[x]];
        if (next == left || previous_[next] != no_index) continue;
        previous_[next] = partner_[x];
        queue.push_back(next);
        if (next == entered) break;
      }
    }
    std::uint32_t arrived = no_index;
    for (p = entered; p != left; p = flat_.position_of[arrived]) {
      const std::uint32_t op = previous_[p];
      if (arrived != no_index) steps.push_back({flat_.place(arrived), wait_link::grouped});
      steps.push_back({flat_.place(op), wait_link::other_end});
      arrived = partner_[op];
    }
    steps.push_back({flat_.place(arrived), wait_link::behind});
  }

  const flat_programs<Lazy>& flat_;
  const std::vector<std::uint32_t>& partner_;
  strict_run<Lazy>& run_;
  std::vector<entry> entries_;
  std::vector<std::uint32_t> reached_;
  std::vector<std::uint32_t> previous_;
  std::vector<char> left_;  // by cluster
  std::size_t work_limit_;
  std::size_t work_ = 0;
};

/// Whether the graph of `nodes` nodes and directed `edges` has no cycle. Linear.
template <class Lazy = void>
bool acyclic(std::uint32_t nodes, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& edges) {
  std::vector<std::size_t> first(std::size_t{nodes} + 1, 0);
  std::vector<std::uint32_t> incoming(nodes, 0);
  for (const auto& [from, to] : edges) {
    ++first[from + 1];
    ++incoming[to];
  }
  for (std::size_t n = 1; n < first.size(); ++n)
    first[n] += first[n - 1];
  std::vector<std::uint32_t> successors(edges.size());
  std::vector<std::size_t> end(first.begin(), first.end() - 1);
  for (const auto& [from, to] : edges)
    successors[end[from]++] = to;
  std::vector<std::uint32_t> free_nodes;
  free_nodes.reserve(nodes);
  for (std::uint32_t n = 0; n < nodes; ++n)
    if (incoming[n] == 0) free_nodes.push_back(n);
  for (std::size_t i = 0; i < free_nodes.size(); ++i)
    for (std::size_t e = first[free_nodes[i]]; e < first[free_nodes[i] + 1]; ++e)
      if (--incoming[successors[e]] == 0) free_nodes.push_back(successors[e]);
  return free_nodes.size() == nodes;
}

/// The order that is left when a rank has the queues of `style`; see `finishes_with`.
template <class Lazy>
class relaxed_order {
 public:
  relaxed_order(const flat_programs<Lazy>& flat, const std::vector<std::uint32_t>& partner, queue_style style)
      : flat_{flat}, partner_{partner}, style_{style}, last_(2 * std::size_t{flat.ranks()}, no_index) {
    for (std::uint32_t r = 0; r < flat.ranks(); ++r)
      add_rank(r);
  }

  /// An event for each operation (both ends of a transfer share one), and one for the end of each position.
  [[nodiscard]] bool finishes() const { return acyclic(flat_.ops() + flat_.positions(), edges_); }

 private:
  [[nodiscard]] std::uint32_t event(std::uint32_t x) const { return std::min(x, partner_[x]); }
  void edge(std::uint32_t before, std::uint32_t after) {
    if (before != no_index) edges_.emplace_back(before, after);
  }
  [[nodiscard]] std::uint32_t& last(std::uint32_t peer, rank_action direction) {
    return last_[2 * std::size_t{peer} + (direction == rank_action::send ? 1 : 0)];
  }

  void add_rank(std::uint32_t rank) {
    computed_ = no_index;
    received_.clear();
    for (std::uint32_t p = flat_.rank_positions[rank]; p < flat_.rank_positions[rank + 1]; ++p) {
      const std::uint32_t begin = flat_.position_ops[p];
      const std::uint32_t end = flat_.position_ops[p + 1];
      for (std::uint32_t x = begin; x < end; ++x)
        wait_for_earlier(x, p == flat_.rank_positions[rank]);
      for (std::uint32_t x = begin; x < end; ++x)
        if (flat_.op(x).action == rank_action::compute) received_.clear();
      for (std::uint32_t x = begin; x < end; ++x)
        become_earlier(x);
    }
    for (std::uint32_t x = flat_.rank_ops[rank]; x < flat_.rank_ops[rank + 1]; ++x)
      if (flat_.op(x).action != rank_action::compute)
        last(flat_.peer(x), rank_action::send) = last(flat_.peer(x), rank_action::recv) = no_index;
  }

  void wait_for_earlier(std::uint32_t x, bool first) {
    const rank_operation& o = flat_.op(x);
    edge(computed_, event(x));
    if (style_ == queue_style::single && !first) edge(flat_.ops() + flat_.position_of[x] - 1, event(x));
    if (o.action == rank_action::compute) {
      for (const std::uint32_t r : received_)
        edge(r, event(x));
    } else if (style_ == queue_style::per_peer) {
      const bool sends = o.action == rank_action::send;
      edge(last(flat_.peer(x), sends ? rank_action::recv : rank_action::send), event(x));
    }
    if (o.made_by != rank_operation::unknown)
      edge(flat_.rank_ops[flat_.rank_of[x]] + static_cast<std::uint32_t>(o.made_by), event(x));
  }

  void become_earlier(std::uint32_t x) {
    const rank_operation& o = flat_.op(x);
    edge(event(x), flat_.ops() + flat_.position_of[x]);
    if (o.action == rank_action::compute) {
      edge(computed_, event(x));
      computed_ = event(x);
      return;
    }
    if (o.action == rank_action::recv) received_.push_back(event(x));
    std::uint32_t& before = last(flat_.peer(x), o.action);
    edge(before, event(x));
    before = event(x);
  }

  const flat_programs<Lazy>& flat_;
  const std::vector<std::uint32_t>& partner_;
  queue_style style_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::vector<std::uint32_t> last_;      // by peer and direction, of the rank at hand
  std::vector<std::uint32_t> received_;  // since its last computation
  std::uint32_t computed_ = no_index;
};

template <class Lazy = void>
std::string operation_text(std::span<const rank_program> programs, operation_place place,
                           std::span<const std::string> labels, bool with_size = false) {
  const rank_operation& o = programs[index(place.rank)][place.op];
  const std::string name = o.id < labels.size() ? labels[o.id] : std::to_string(o.id);
  std::string text = place_text(place) + " (";
  if (o.action == rank_action::compute) text += "compute " + name;
  if (o.action == rank_action::send) text += "send " + name + " to " + std::to_string(index(o.peer));
  if (o.action == rank_action::recv) text += "recv " + name + " from " + std::to_string(index(o.peer));
  if (with_size) text += ", " + std::to_string(o.size.value()) + " bytes";
  return text + ")";
}

}  // namespace detail

/// A refusal in words: the two ends that do not agree, or the chain of who waits for whom.
///
/// `labels[id]` names the message or computation `id`; ids beyond are written as numbers. Operations are counted from 0
/// in their rank's list, members of groups like all others.
template <class Lazy = void>
[[nodiscard]] std::string explain(std::span<const rank_program> programs, const rejection& why,
                                  std::span<const std::string> labels = {}) {
  const auto text = [&](std::size_t step, bool with_size) {
    return detail::operation_text(programs, why.steps[step].place, labels, with_size);
  };
  switch (why.kind) {
    case rejection_kind::unreceived: return text(0, false) + " is never received";
    case rejection_kind::unsent: return text(0, false) + " is never sent";
    case rejection_kind::different_ids: return text(0, true) + " meets " + text(1, true) + ": the ids differ";
    case rejection_kind::different_sizes: return text(0, true) + " meets " + text(1, true) + ": the sizes differ";
    case rejection_kind::cycle: break;
  }
  std::string chain;
  for (std::size_t i = 0; i < why.steps.size(); ++i) {
    chain += text(i, false);
    if (i > 0) chain += ", which";
    switch (why.steps[i].to_next) {
      case wait_link::other_end:
      case wait_link::data: chain += " waits for "; break;
      case wait_link::grouped: chain += " is in one group with "; break;
      case wait_link::behind: chain += " stands behind "; break;
    }
  }
  return chain + text(0, false);
}

/// Whether the programs finish when a rank has the queues of `style` for its transfers, all of them unbuffered, and
/// members of a group progress independently.
///
/// An operation waits for all operations of its queue that stand at earlier positions. With `per_peer` and
/// `per_direction` computations have a queue of their own; a computation also waits for every receive before it, and a
/// transfer for every computation before it. With `single` one queue holds everything. Members of one group wait for
/// each other only where they have the same peer and direction, and a send waits for its `made_by`. Programs with a
/// mismatch do not finish.
///
/// This is the reading under which a group over several peers blocks least; NCCL promises only that what follows a
/// group starts after all its members, so for such groups trust the verdict alone. What the verdict accepts finishes
/// under every style.
///
/// Complexity: linear. Throws as `find_order`. Source: NCCL user guide, point-to-point and group calls.
template <class Lazy = void>
[[nodiscard]] bool finishes_with(std::span<const rank_program> programs, queue_style style) {
  const detail::flat_programs<Lazy> flat{programs};
  std::vector<std::uint32_t> partner;
  if (detail::match_ends(flat, partner)) return false;
  return detail::relaxed_order<Lazy>{flat, partner, style}.finishes();
}

/// Decides whether the programs match and finish in the strictest world, with a proof or a reason; see
/// `comm/rank_order.hpp` for problem and method.
///
/// Guarantee: complete in both directions; equal on every machine. Of mismatches it names the first by sender, receiver
/// and place in their sequence; of chains a shortest one.
/// Complexity: linear where it accepts; a refusal adds a bounded search and the two runs of `finishes_with`.
/// Throws as `find_order`.
template <class Lazy = void>
[[nodiscard]] deadlock_report check_deadlock(std::span<const rank_program> programs) {
  const detail::flat_programs<Lazy> flat{programs};
  std::vector<std::uint32_t> partner;
  deadlock_report report;
  if (std::optional<rejection> mismatch = detail::match_ends(flat, partner)) {
    report.why = std::move(*mismatch);
    return report;
  }
  if (std::optional<rejection> late = detail::late_data(flat)) {
    report.why = std::move(*late);
  } else {
    detail::strict_run<Lazy> run{flat, partner};
    report.accepted = run.finished();
    if (report.accepted)
      report.certificate = run.certificate();
    else
      report.why = detail::chain_search<Lazy>{flat, partner, run}.shortest();
  }
  const auto finishes = [&](queue_style style) { return detail::relaxed_order<Lazy>{flat, partner, style}.finishes(); };
  report.safe_per_pair = report.accepted || finishes(queue_style::per_peer);
  report.safe_per_edge = report.accepted || finishes(queue_style::per_direction);
  return report;
}

}  // namespace dynapipe
