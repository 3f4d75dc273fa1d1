#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/arithmetic.hpp>

namespace dynapipe::detail {

/// |difference of inputs| + |difference of targets|.
[[nodiscard]] constexpr std::int64_t lengths_apart(const sample_lengths& a, const sample_lengths& b) {
  return (a.input > b.input ? a.input - b.input : b.input - a.input) +
         (a.target > b.target ? a.target - b.target : b.target - a.target);
}

/// The `count` nearest others of each point, nearest first, equal distances by position: `count` entries a point, or
/// all others where there are fewer.
///
/// `points` must be sorted by input. Method: strips of equal numbers of points, each sorted by target; a point's strip
/// is searched, then those beside it, from the point's target up and down, until a strip or a target is further than
/// the worst neighbour so far. Strips adapt to where the points are, which an even grid does not. A binary search for
/// each strip that is near enough: in practice O(n log n), O(n^2) at worst.
template <class Lazy = void>
[[nodiscard]] std::vector<std::uint32_t> nearest_points(std::span<const sample_lengths> points, std::size_t count) {
  struct found {
    std::int64_t apart;
    std::uint32_t point;
  };
  const std::size_t n = points.size();
  if (n < 2) return {};
  count = std::min(count, n - 1);
  std::size_t each = 1;
  while (each * each < 4 * n)
    ++each;
  const std::size_t strips = (n + each - 1) / each;
  std::vector<std::uint32_t> by_target(n);
  for (std::size_t i = 0; i < n; ++i)
    by_target[i] = static_cast<std::uint32_t>(i);
  for (std::size_t s = 0; s < strips; ++s)
    std::sort(by_target.begin() + static_cast<std::ptrdiff_t>(s * each),
              by_target.begin() + static_cast<std::ptrdiff_t>(std::min(n, (s + 1) * each)),
              [&](std::uint32_t a, std::uint32_t b) {
                return points[a].target != points[b].target ? points[a].target < points[b].target : a < b;
              });

  std::vector<std::uint32_t> nearest;
  nearest.reserve(n * count);
  std::vector<found> best;
  for (std::size_t i = 0; i < n; ++i) {
    const sample_lengths& here = points[i];
    best.clear();
    const auto worst = [&] { return best.size() < count ? int64_limit : best.back().apart; };
    const auto consider = [&](std::uint32_t other) {
      const found entry{lengths_apart(here, points[other]), other};
      if (other == i || (best.size() == count && (entry.apart > best.back().apart ||
                                                  (entry.apart == best.back().apart && other > best.back().point))))
        return;
      if (best.size() == count) best.pop_back();
      std::size_t at = best.size();
      best.push_back(entry);
      for (; at > 0 &&
             (best[at - 1].apart > entry.apart || (best[at - 1].apart == entry.apart && best[at - 1].point > other));
           --at)
        best[at] = best[at - 1];
      best[at] = entry;
    };
    const auto search = [&](std::size_t strip) {
      const auto first = by_target.begin() + static_cast<std::ptrdiff_t>(strip * each);
      const auto last = by_target.begin() + static_cast<std::ptrdiff_t>(std::min(n, (strip + 1) * each));
      const auto middle = std::lower_bound(first, last, here.target, [&](std::uint32_t point, std::int64_t target) {
        return points[point].target < target;
      });
      for (auto up = middle; up != last && points[*up].target - here.target <= worst(); ++up)
        consider(*up);
      for (auto down = middle; down != first && here.target - points[*(down - 1)].target <= worst(); --down)
        consider(*(down - 1));
    };
    const std::size_t own = i / each;
    search(own);
    for (std::size_t s = own; s-- > 0 && here.input - points[(s + 1) * each - 1].input <= worst();)
      search(s);
    for (std::size_t s = own + 1; s < strips && points[s * each].input - here.input <= worst(); ++s)
      search(s);
    for (const found& f : best)
      nearest.push_back(f.point);
  }
  return nearest;
}

/// A path through points, as a cycle with one more node, `end()`, that is 0 from all others, and its local search.
template <class Lazy = void>
class tour_search {
 public:
  /// `path` holds each point once.
  tour_search(std::span<const sample_lengths> points, std::span<const std::uint32_t> path, std::size_t neighbours)
      : points_{points},
        nearest_{nearest_points(points, neighbours)},
        cycle_(path.begin(), path.end()),
        place_(points.size() + 1),
        waits_(points.size(), false) {
    cycle_.push_back(end());
    for (std::uint32_t at = 0; at < cycle_.size(); ++at)
      place_[cycle_[at]] = at;
    neighbours_ = points.empty() ? 0 : nearest_.size() / points.size();
  }

  /// Shortens the path with `moves` moves at most; `seed` says where it is shaken.
  void run(std::int64_t moves, std::uint64_t seed) {
    if (points_.size() < 3) return;
    moves_ = moves;
    for (std::size_t at = 0; at < points_.size(); ++at)
      awake(cycle_[at]);
    settle();
    const std::size_t most = std::min(longest_shaken, (cycle_.size() - 2) / 2);
    random_ = seed;
    while (moves_ > 0) {
      undo_.clear();
      std::int64_t gain = shake(most);
      gain += settle();
      if (gain >= 0) continue;
      while (!undo_.empty()) {
        const std::array<std::uint32_t, 4> last = undo_.back();
        exchange(last[0], last[2], last[1], last[3]);
        undo_.pop_back();
        undo_.pop_back();
      }
    }
  }

  /// The points in order, the end with the longer lengths first.
  [[nodiscard]] std::vector<std::uint32_t> path() const {
    std::vector<std::uint32_t> result;
    result.reserve(points_.size());
    for (std::uint32_t node = next(end()); node != end(); node = next(node))
      result.push_back(node);
    const auto long_end = [&](std::uint32_t node) { return points_[node].input + points_[node].target; };
    if (!result.empty()) {
      const std::int64_t front = long_end(result.front());
      const std::int64_t back = long_end(result.back());
      if (front < back || (front == back && result.front() < result.back())) std::reverse(result.begin(), result.end());
    }
    return result;
  }

 private:
  static constexpr std::size_t longest_shaken = 50;
  static constexpr std::size_t longest_moved = 3;

  /// Takes the nodes `first`..`last` out from between `before` and `after`, and puts them between `left` and `right`.
  struct segment_move {
    std::uint32_t before, first, last, after, left, right;
    bool turned;
  };

  [[nodiscard]] std::uint32_t end() const { return static_cast<std::uint32_t>(points_.size()); }
  [[nodiscard]] std::uint32_t next(std::uint32_t node) const {
    const std::size_t at = place_[node] + std::size_t{1};
    return cycle_[at == cycle_.size() ? 0 : at];
  }
  [[nodiscard]] std::uint32_t previous(std::uint32_t node) const {
    const std::uint32_t at = place_[node];
    return at == 0 ? cycle_.back() : cycle_[at - 1];
  }
  [[nodiscard]] std::int64_t apart(std::uint32_t a, std::uint32_t b) const {
    return a == end() || b == end() ? 0 : lengths_apart(points_[a], points_[b]);
  }

  void awake(std::uint32_t node) {
    if (node == end() || waits_[node]) return;
    waits_[node] = true;
    queue_.push_back(node);
  }

  /// Turns round the nodes from place `from` to place `to`, or all others, whichever are fewer.
  void reverse(std::size_t from, std::size_t to) {
    const std::size_t size = cycle_.size();
    std::size_t count = (to >= from ? to - from : to + size - from) + 1;
    if (2 * count > size) {
      count = size - count;
      std::swap(from, to);
      from = from + 1 == size ? 0 : from + 1;
      to = to == 0 ? size - 1 : to - 1;
    }
    for (std::size_t swaps = count / 2; swaps > 0; --swaps) {
      std::swap(cycle_[from], cycle_[to]);
      place_[cycle_[from]] = static_cast<std::uint32_t>(from);
      place_[cycle_[to]] = static_cast<std::uint32_t>(to);
      from = from + 1 == size ? 0 : from + 1;
      to = to == 0 ? size - 1 : to - 1;
    }
  }

  /// Replaces the edges a-b and c-d by a-c and b-d, where d follows c as b follows a, in either direction.
  void exchange(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    if (next(a) == b) {
      reverse(place_[b], place_[c]);
    } else {
      reverse(place_[c], place_[b]);
    }
    undo_.push_back({a, b, c, d});
  }

  void apply(const segment_move& m) {
    exchange(m.before, m.first, m.left, m.right);
    exchange(m.before, m.left, m.after, m.last);
    if (!m.turned) exchange(m.left, m.last, m.first, m.right);
  }

  /// Swaps two neighbouring stretches of up to `most` nodes somewhere. Returns what it gains, mostly less than 0.
  std::int64_t shake(std::size_t most) {
    const std::size_t size = cycle_.size();
    const std::size_t at = draw(size);
    const std::size_t one = 1 + draw(most);
    const std::size_t two = 1 + draw(most);
    const auto node = [&](std::size_t steps) { return cycle_[(at + steps) % size]; };
    const std::uint32_t before = node(0);
    const std::uint32_t first = node(1);
    const std::uint32_t first_end = node(one);
    const std::uint32_t second = node(one + 1);
    const std::uint32_t second_end = node(one + two);
    const std::uint32_t after = node(one + two + 1);
    const std::int64_t gain = apart(before, first) + apart(first_end, second) + apart(second_end, after) -
                              apart(before, second) - apart(second_end, first) - apart(first_end, after);
    exchange(before, first, first_end, second);
    exchange(first, second, second_end, after);
    exchange(before, first_end, second, after);
    --moves_;
    for (const std::uint32_t touched : {before, first, first_end, second, second_end, after})
      awake(touched);
    return gain;
  }

  [[nodiscard]] std::size_t draw(std::size_t below) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>((random_ >> 33U) % below);
  }

  /// Improves from the waiting nodes until none helps or no move is left. Returns what the path became shorter by.
  std::int64_t settle() {
    std::int64_t gained = 0;
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const std::uint32_t node = queue_[head];
      waits_[node] = false;
      while (moves_ > 0) {
        const std::int64_t gain = improve(node);
        if (gain == 0) break;
        gained += gain;
        --moves_;
      }
    }
    queue_.clear();
    return gained;
  }

  /// The best move that joins `node` to one of its neighbours, if one shortens the path. Returns by how much.
  std::int64_t improve(std::uint32_t node) {
    std::int64_t best = 0;
    std::array<std::uint32_t, 4> pair{};
    segment_move moved{};
    bool is_pair = true;
    const std::uint32_t* const near = nearest_.data() + std::size_t{node} * neighbours_;

    for (const bool forward : {true, false}) {
      const std::uint32_t beside = forward ? next(node) : previous(node);
      const std::int64_t edge = apart(node, beside);
      for (std::size_t k = 0; k < neighbours_; ++k) {
        const std::uint32_t other = near[k];
        const std::int64_t join = lengths_apart(points_[node], points_[other]);
        if (join >= edge) break;
        const std::uint32_t other_beside = forward ? next(other) : previous(other);
        const std::int64_t gain = edge + apart(other, other_beside) - join - apart(beside, other_beside);
        if (gain > best) {
          best = gain;
          pair = {node, beside, other, other_beside};
          is_pair = true;
        }
      }
    }

    for (const bool forward : {true, false}) {
      // The segment begins with `node` and runs forward or backward; `outside` is the other side of `node`.
      const std::uint32_t outside = forward ? previous(node) : next(node);
      std::array<std::uint32_t, longest_moved> segment{};
      std::uint32_t far = node;
      for (std::size_t count = 1; count <= longest_moved && count + 3 <= cycle_.size(); ++count) {
        segment[count - 1] = far;
        const std::uint32_t beyond = forward ? next(far) : previous(far);
        const std::int64_t freed = apart(outside, node) + apart(far, beyond) - apart(outside, beyond);
        for (std::size_t k = 0; k < neighbours_ && freed > best; ++k) {
          const std::uint32_t other = near[k];
          const std::int64_t join = lengths_apart(points_[node], points_[other]);
          if (join >= freed) break;
          const auto inside = [&](std::uint32_t x) {
            return std::find(segment.begin(), segment.begin() + static_cast<std::ptrdiff_t>(count), x) !=
                   segment.begin() + static_cast<std::ptrdiff_t>(count);
          };
          if (inside(other)) continue;
          for (const bool behind : {true, false}) {
            const std::uint32_t other_beside = behind ? next(other) : previous(other);
            if (inside(other_beside)) continue;
            const std::int64_t gain = freed + apart(other, other_beside) - join - apart(far, other_beside);
            if (gain <= best) continue;
            best = gain;
            is_pair = false;
            moved.before = forward ? outside : beyond;
            moved.first = forward ? node : far;
            moved.last = forward ? far : node;
            moved.after = forward ? beyond : outside;
            moved.left = behind ? other : other_beside;
            moved.right = behind ? other_beside : other;
            moved.turned = forward != behind;
          }
        }
        far = beyond;
      }
    }

    if (best == 0) return 0;
    if (is_pair) {
      exchange(pair[0], pair[1], pair[2], pair[3]);
      for (const std::uint32_t touched : pair)
        awake(touched);
    } else {
      apply(moved);
      for (const std::uint32_t touched : {moved.before, moved.first, moved.last, moved.after, moved.left, moved.right})
        awake(touched);
    }
    return best;
  }

  std::span<const sample_lengths> points_;
  std::vector<std::uint32_t> nearest_;
  std::size_t neighbours_ = 0;
  std::vector<std::uint32_t> cycle_;
  std::vector<std::uint32_t> place_;
  std::vector<bool> waits_;
  std::vector<std::uint32_t> queue_;
  std::vector<std::array<std::uint32_t, 4>> undo_;
  std::int64_t moves_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace dynapipe::detail
