#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/comm/rank_program.hpp>
#include <dynapipe/schedule/kinds.hpp>

/// Programs for the tests of the deadlock check, and plain simulators that share no code with it.
namespace deadlock_reference {

using dynapipe::device_id;
using dynapipe::index;
using dynapipe::rank_action;
using dynapipe::rank_operation;
using dynapipe::rank_program;
using dynapipe::to_id;
using rank_lists = std::vector<rank_program>;

struct named_programs {
  rank_lists ranks;
  std::vector<std::string> labels;
};

/// Reads the shorthand of the fixtures: ranks apart by `|`, operations by blanks; `S1:a` sends a to rank 1, `R1:a`
/// receives it, `C:f` computes, `{ }` is a group. `/10` gives bytes (else 1), `<2` the index of the computation that
/// makes the data.
inline named_programs read(std::string_view text) {
  named_programs read;
  read.ranks.emplace_back();
  bool in_group = false;
  bool first_member = false;
  std::size_t i = 0;
  while (i < text.size()) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    const std::string word{text.substr(i, text.find(' ', i) - i)};
    i += word.size();
    if (word == "|") {
      read.ranks.emplace_back();
    } else if (word == "{" || word == "}") {
      in_group = first_member = word == "{";
    } else {
      const std::size_t colon = word.find(':');
      const std::size_t slash = word.find('/');
      const std::size_t source = word.find('<');
      const std::string label = word.substr(colon + 1, std::min(slash, source) - colon - 1);
      std::size_t id = 0;
      while (id < read.labels.size() && read.labels[id] != label)
        ++id;
      if (id == read.labels.size()) read.labels.push_back(label);
      rank_operation op = rank_operation::compute(id);
      if (word[0] != 'C') {
        const auto peer = to_id<device_id>(std::stoul(word.substr(1, colon - 1)));
        const dynapipe::bytes size{slash == std::string::npos ? 1 : std::stoll(word.substr(slash + 1))};
        op = word[0] == 'S' ? rank_operation::send(peer, id, size) : rank_operation::recv(peer, id, size);
      }
      if (source != std::string::npos) op.made_by = std::stoi(word.substr(source + 1));
      op.grouped = in_group && !first_member;
      first_member = false;
      read.ranks.back().push_back(op);
    }
  }
  return read;
}

using place = std::pair<std::size_t, std::size_t>;  ///< rank and operation

/// Both ends of every transfer, from either end; none where counts, ids or bytes differ.
inline std::optional<std::map<place, place>> other_ends(const rank_lists& ranks) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<place>> sends;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<place>> recvs;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      const rank_operation& op = ranks[r][i];
      if (op.action == rank_action::send) sends[{r, index(op.peer)}].emplace_back(r, i);
      if (op.action == rank_action::recv) recvs[{index(op.peer), r}].emplace_back(r, i);
    }
  }
  std::map<place, place> ends;
  if (sends.size() != recvs.size()) return std::nullopt;
  for (const auto& [edge, from] : sends) {
    const std::vector<place>& to = recvs[edge];
    if (from.size() != to.size()) return std::nullopt;
    for (std::size_t k = 0; k < from.size(); ++k) {
      const rank_operation& s = ranks[from[k].first][from[k].second];
      const rank_operation& r = ranks[to[k].first][to[k].second];
      if (s.id != r.id || s.size != r.size) return std::nullopt;
      ends[from[k]] = to[k];
      ends[to[k]] = from[k];
    }
  }
  return ends;
}

/// The position of every operation of a list.
inline std::vector<std::size_t> positions(const rank_program& list) {
  std::vector<std::size_t> result;
  std::size_t next = 0;
  for (const rank_operation& op : list)
    result.push_back(op.grouped ? next - 1 : next++);
  return result;
}

/// The strictest world, played: of the ranks that still have work, the largest set whose current positions have all
/// their other ends within the set takes one step together, until nothing moves.
inline bool finishes_strictly(const rank_lists& ranks) {
  const auto ends = other_ends(ranks);
  if (!ends) return false;
  std::vector<std::size_t> current(ranks.size(), 0);  // first operation of the current position
  const auto position_end = [&](std::size_t r) {
    std::size_t i = current[r] + 1;
    while (i < ranks[r].size() && ranks[r][i].grouped)
      ++i;
    return i;
  };
  while (true) {
    std::set<std::size_t> moving;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (current[r] < ranks[r].size()) moving.insert(r);
    if (moving.empty()) return true;
    const auto can_move = [&](std::size_t r) {
      for (std::size_t i = current[r]; i < position_end(r); ++i) {
        if (ranks[r][i].made_by >= 0 && static_cast<std::size_t>(ranks[r][i].made_by) >= current[r]) return false;
        if (ranks[r][i].action == rank_action::compute) continue;
        const auto [other, op] = ends->at({r, i});
        if (!moving.contains(other) || op < current[other] || op >= position_end(other)) return false;
      }
      return true;
    };
    for (bool shrinks = true; shrinks;) {
      shrinks = false;
      for (const std::size_t r : std::set<std::size_t>{moving}) {
        if (can_move(r)) continue;
        moving.erase(r);
        shrinks = true;
      }
    }
    if (moving.empty()) return false;
    for (const std::size_t r : moving)
      current[r] = position_end(r);
  }
}

/// The weaker worlds, played operation by operation, each looking at all that stands before it.
inline bool finishes_relaxed(const rank_lists& ranks, dynapipe::queue_style style) {
  const auto ends = other_ends(ranks);
  if (!ends) return false;
  std::set<place> done;
  const auto is_compute = [](const rank_operation& op) { return op.action == rank_action::compute; };
  const auto same_queue = [&](const rank_operation& a, const rank_operation& b) {
    if (style == dynapipe::queue_style::single) return true;
    if (is_compute(a) || is_compute(b)) return is_compute(a) && is_compute(b);
    return a.peer == b.peer && (style == dynapipe::queue_style::per_peer || a.action == b.action);
  };
  const auto ready = [&](place at) {
    const rank_program& list = ranks[at.first];
    const std::vector<std::size_t> position = positions(list);
    const rank_operation& op = list[at.second];
    if (op.made_by >= 0 && !done.contains({at.first, static_cast<std::size_t>(op.made_by)})) return false;
    for (std::size_t i = 0; i < at.second; ++i) {
      const rank_operation& before = list[i];
      const bool same_group = position[i] == position[at.second];
      const bool in_turn = before.action == op.action && before.peer == op.peer && !is_compute(op);
      const bool waits = same_group ? in_turn
                                    : same_queue(before, op) || is_compute(before) ||
                                          (is_compute(op) && before.action == rank_action::recv);
      if (waits && !done.contains({at.first, i})) return false;
    }
    return true;
  };
  std::size_t total = 0;
  for (const rank_program& list : ranks)
    total += list.size();
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (std::size_t i = 0; i < ranks[r].size(); ++i) {
        const place here{r, i};
        if (done.contains(here) || !ready(here)) continue;
        if (is_compute(ranks[r][i])) {
          done.insert(here);
          moves = true;
        } else if (ready(ends->at(here))) {
          done.insert({here, ends->at(here)});
          moves = true;
        }
      }
    }
  }
  return done.size() == total;
}

/// Random programs: an order that works (events of one or several transfers, or of a computation), then, mostly, some
/// damage to it.
inline rank_lists random_programs(std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  rank_lists ranks(2 + below(4));
  const std::size_t events = 1 + below(12);
  std::uint64_t id = 0;
  for (std::size_t e = 0; e < events; ++e) {
    if (below(4) == 0) {
      ranks[below(ranks.size())].push_back(rank_operation::compute(id++));
      continue;
    }
    std::vector<bool> touched(ranks.size(), false);
    const auto append = [&](std::size_t r, rank_operation op) {
      op.grouped = touched[r];
      touched[r] = true;
      ranks[r].push_back(op);
    };
    for (std::size_t transfers = below(3) == 0 ? 1 + below(4) : 1; transfers > 0; --transfers) {
      const std::size_t from = below(ranks.size());
      const std::size_t to = (from + 1 + below(ranks.size() - 1)) % ranks.size();
      const dynapipe::bytes size{static_cast<std::int64_t>(below(3))};
      append(from, rank_operation::send(to_id<device_id>(to), id, size));
      append(to, rank_operation::recv(to_id<device_id>(from), id++, size));
    }
  }
  for (std::size_t damage = below(5); damage > 0; --damage) {
    rank_program& list = ranks[below(ranks.size())];
    if (list.size() < 2) continue;
    const std::size_t i = below(list.size() - 1);
    switch (below(16)) {
      case 0: list.erase(list.begin() + static_cast<std::ptrdiff_t>(i)); break;
      case 1: list[i].id += 1; break;
      case 2: list[i].size += dynapipe::bytes{1}; break;
      case 3:
      case 4: list[i + 1].grouped = !list[i + 1].grouped; break;
      case 5:
        for (std::size_t c = 0; c < list.size(); ++c)
          if (list[i].action == rank_action::send && list[c].action == rank_action::compute)
            list[i].made_by = static_cast<std::int32_t>(c);
        break;
      default:
        std::swap(list[i], list[i + 1]);
        std::swap(list[i].grouped, list[i + 1].grouped);
        // `made_by` counts operations: the swap may have moved what it names.
        for (rank_operation& op : list)
          op.made_by = rank_operation::unknown;
    }
    list.front().grouped = false;
    for (rank_operation& op : list)
      if (op.made_by >= 0 && (static_cast<std::size_t>(op.made_by) >= list.size() ||
                              list[static_cast<std::size_t>(op.made_by)].action != rank_action::compute))
        op.made_by = rank_operation::unknown;
  }
  return ranks;
}

/// 1F1B of `stages` ranks. Every transfer stands at both ends where its computation ends, in one global order;
/// `naive`: every send right after its computation, every receive right before its use.
inline rank_lists one_f_one_b(std::size_t stages, std::size_t micro_batches, bool naive) {
  struct pass {
    std::size_t micro_batch;
    bool backward;
  };
  rank_lists ranks(stages);
  std::vector<std::vector<pass>> orders(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const std::size_t ahead = std::min(micro_batches, stages - s);
    for (std::size_t mb = 0; mb < ahead; ++mb)
      orders[s].push_back({mb, false});
    for (std::size_t mb = 0; mb < micro_batches; ++mb) {
      orders[s].push_back({mb, true});
      if (mb + ahead < micro_batches) orders[s].push_back({mb + ahead, false});
    }
  }
  const auto input = [&](std::size_t s, const pass& p) { return p.backward ? s + 1 < stages : s > 0; };
  const auto output = [&](std::size_t s, const pass& p) { return p.backward ? s > 0 : s + 1 < stages; };
  const auto id = [&](std::size_t producer, const pass& p) {
    return (p.micro_batch * stages + producer) * 2 + (p.backward ? 1 : 0);
  };
  const dynapipe::bytes size{1 << 20};
  const auto send = [&](std::size_t s, const pass& p) {
    const std::size_t to = p.backward ? s - 1 : s + 1;
    ranks[s].push_back(rank_operation::send(to_id<device_id>(to), id(s, p), size));
    return to;
  };
  const auto recv = [&](std::size_t s, const pass& p) {
    const std::size_t from = p.backward ? s + 1 : s - 1;
    ranks[s].push_back(rank_operation::recv(to_id<device_id>(from), id(from, p), size));
  };
  std::vector<std::size_t> next(stages, 0);
  std::set<std::uint64_t> arrived;
  for (bool moves = true; moves;) {
    moves = false;
    std::vector<std::pair<std::size_t, pass>> ended;
    for (std::size_t s = 0; s < stages; ++s) {
      if (next[s] == orders[s].size()) continue;
      const pass p = orders[s][next[s]];
      if (!naive && input(s, p) && !arrived.contains(id(p.backward ? s + 1 : s - 1, p))) continue;
      if (naive && input(s, p)) recv(s, p);
      ranks[s].push_back(rank_operation::compute(id(s, p)));
      if (naive && output(s, p)) send(s, p);
      ++next[s];
      ended.emplace_back(s, p);
      moves = true;
    }
    for (const auto& [s, p] : ended) {
      if (naive || !output(s, p)) continue;
      recv(send(s, p), p);
      arrived.insert(id(s, p));
    }
  }
  return ranks;
}

}  // namespace deadlock_reference
