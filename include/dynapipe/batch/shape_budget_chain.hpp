#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include <dynapipe/batch/limit_search.hpp>
#include <dynapipe/batch/shape_budget_times.hpp>
#include <dynapipe/core/arithmetic.hpp>

namespace dynapipe::detail {

/// The shape budget for many samples, longest first: for a limit of t_max, a dynamic program over shapes and borders.
///
/// A state is where the next shape begins. A shape that begins in run g with m samples to go to a border takes c
/// micro-batches of ceil(m / c) rows; what they hold beyond the border is the start of the next state. The counts tried
/// are c0 = ceil(m / r), r the thriftiest rows within the limit, and its neighbours, and the whole micro-batches of r
/// rows short of the border. More would not help where times are F + s * rows: c costs c F + s m at least, c0 at most
/// c0 F + s (m + c0 - 1), so c - c0 is below s (c0 - 1) / F, rows beyond the border against the price of a micro-batch.
/// Borders are the beginnings of runs, thinned to `most_borders`: between two that are kept lies an equal share of
/// sum sqrt(samples * step), step being what a row of the run costs more than one of the next, which is how borders lie
/// that waste least. Each state keeps the `most_labels` most promising of (where, sum) that no other beats in both.
///
/// O(K x borders^2) for each limit, all budgets 1 .. K at once.
template <class Times>
class budget_chain {
 public:
  static constexpr std::size_t most_borders = 64;
  static constexpr std::size_t all_labels = 128;

  budget_chain(Times& times, std::size_t shapes) : times_{times}, shapes_{shapes} {
    const std::size_t runs = times.runs();
    for (std::size_t g = 0; g < runs; ++g) {
      thrifty_.push_back(times.thriftiest(g));
      const std::int64_t cost = fixed(times.at(g, thrifty_.back())) / thrifty_.back();
      row_cost_.push_back(g > 0 ? std::min(cost, row_cost_.back()) : cost);
    }
    rest_.assign(runs + 1, 0);
    for (std::size_t g = runs; g-- > 0;)
      rest_[g] = saturating_add(rest_[g + 1], work(g, times.run(g).end - times.run(g).begin));
    choose_borders();
  }

  /// Chains of least sum for the limit that were found, of 1, 2, .. K shapes; an empty one where there is none.
  std::vector<shape_chain> solve(std::int64_t limit) {
    labels_.assign(1, {});
    within_.assign(times_.runs(), -1);
    bins_.assign(borders_.size(), {});
    bins_[0].push_back(0);
    std::vector<shape_chain> found;
    std::int64_t least = int64_limit;
    std::size_t least_label = 0;
    for (std::size_t k = 0; k < shapes_; ++k) {
      std::vector<std::vector<std::uint32_t>> before(borders_.size());
      before.swap(bins_);
      for (const auto& bin : before)
        for (const std::uint32_t l : bin)
          extend(l, limit, least);
      for (const std::uint32_t l : bins_.back())
        if (labels_[l].sum < least) {
          least = labels_[l].sum;
          least_label = l;
        }
      bins_.back().clear();
      found.push_back(least < int64_limit ? path(least_label) : shape_chain{});
    }
    return found;
  }

 private:
  struct label {
    std::size_t position = 0;
    std::int64_t sum = 0;
    std::int64_t promise = 0;  ///< the sum, and about the least that the rest costs
    std::uint32_t from = 0;
    chain_item item{};
  };

  [[nodiscard]] static std::int64_t fixed(std::int64_t time) { return saturating_mul(time, 1'024); }

  /// What `samples` of a run cost at least, about, times 1,024.
  [[nodiscard]] std::int64_t work(std::size_t g, std::size_t samples) const {
    return saturating_mul(row_cost_[g], static_cast<std::int64_t>(samples));
  }
  /// What the samples from `position` on cost at least, about.
  [[nodiscard]] std::int64_t rest(std::size_t position) const {
    if (position >= times_.samples()) return 0;
    const std::size_t g = times_.run_at(position);
    return saturating_add(rest_[g + 1], work(g, times_.run(g).end - position)) / 1'024;
  }

  void choose_borders() {
    std::vector<std::int64_t> shares{0};
    for (std::size_t g = 0; g + 1 < times_.runs(); ++g) {
      const auto samples = static_cast<wide_int>(times_.run(g).end - times_.run(g).begin);
      const wide_int step = std::max<std::int64_t>(1, row_cost_[g] - row_cost_[g + 1]);
      shares.push_back(shares.back() + root(saturate(samples * step)));
    }
    const auto parts = static_cast<wide_int>(std::min(most_borders, times_.runs()));
    wide_int part = 0;
    for (std::size_t g = 0; g < times_.runs(); ++g) {
      if (times_.runs() > most_borders && shares[g] * parts < part * shares.back()) continue;
      borders_.push_back(times_.run(g).begin);
      part = shares.back() > 0 ? shares[g] * parts / shares.back() + 1 : part + 1;
    }
    borders_.push_back(times_.samples());
    for (const std::size_t border : borders_)
      rest_at_.push_back(rest(border));
    most_labels_ = std::clamp<std::size_t>(all_labels / borders_.size(), 1, 16);
  }

  /// The largest integer whose square is not above `value`.
  [[nodiscard]] static std::int64_t root(std::int64_t value) {
    std::int64_t result = 0;
    for (std::int64_t bit = std::int64_t{1} << 31; bit > 0; bit /= 2)
      if (static_cast<wide_int>(result + bit) * (result + bit) <= value) result += bit;
    return result;
  }

  void extend(std::uint32_t l, std::int64_t limit, std::int64_t least) {
    const std::size_t from = labels_[l].position;
    const std::int64_t before = labels_[l].sum;
    const std::size_t g = times_.run_at(from);
    if (within_[g] < 0) within_[g] = times_.most_within(g, limit);
    const std::int64_t most = within_[g];
    if (most == 0) return;
    const std::int64_t rows = std::min(most, thrifty_[g]);
    const std::int64_t at_rows = times_.at(g, rows);
    const auto first = std::upper_bound(borders_.begin(), borders_.end(), from) - borders_.begin();
    for (auto b = static_cast<std::size_t>(first); b < borders_.size(); ++b) {
      const auto samples = static_cast<std::int64_t>(borders_[b] - from);
      if (saturating_add(saturating_add(before, saturating_mul(row_cost_[g], samples) / 1'024), rest_at_[b]) >= least)
        break;
      const std::int64_t count = ceil_div(samples, rows);
      for (std::int64_t c = std::max<std::int64_t>(1, count - 1); c <= std::min(count + 1, samples); ++c)
        if (const std::int64_t r = ceil_div(samples, c); r <= most) offer(l, {r, c}, times_.at(g, r), b);
      if (count > 1 && count * rows != samples) offer(l, {rows, count - 1}, at_rows, b);
    }
  }

  /// Makes a label of `item` after that of `from`; it ends near border `b`.
  void offer(std::uint32_t from, chain_item item, std::int64_t time, std::size_t b) {
    const label& before = labels_[from];
    const std::size_t end =
        std::min(times_.samples(), before.position + static_cast<std::size_t>(item.rows * item.count));
    while (borders_[b] > end)
      --b;
    while (b + 1 < borders_.size() && borders_[b + 1] <= end)
      ++b;
    const std::int64_t sum = saturating_add(before.sum, saturating_mul(time, item.count));
    std::vector<std::uint32_t>& bin = bins_[b];
    for (const std::uint32_t other : bin)
      if (labels_[other].position >= end && labels_[other].sum <= sum) return;
    const label now{end, sum, saturating_add(sum, rest(end)), from, item};
    std::erase_if(bin,
                  [&](std::uint32_t other) { return labels_[other].position <= end && labels_[other].sum >= now.sum; });
    if (bin.size() < most_labels_) {
      bin.push_back(static_cast<std::uint32_t>(labels_.size()));
      labels_.push_back(now);
      return;
    }
    std::uint32_t& worst = *std::max_element(bin.begin(), bin.end(), [&](std::uint32_t x, std::uint32_t y) {
      return labels_[x].promise < labels_[y].promise;
    });
    if (labels_[worst].promise <= now.promise) return;
    worst = static_cast<std::uint32_t>(labels_.size());
    labels_.push_back(now);
  }

  [[nodiscard]] shape_chain path(std::size_t l) const {
    shape_chain result;
    for (; l != 0; l = labels_[l].from)
      result.push_back(labels_[l].item);
    std::reverse(result.begin(), result.end());
    return result;
  }

  Times& times_;
  std::size_t shapes_;
  std::vector<std::int64_t> thrifty_;
  std::vector<std::int64_t>
      row_cost_;  ///< least for a sample of each run, in rows of its own or of one before, times 1,024
  std::vector<std::int64_t> rest_;
  std::vector<std::size_t> borders_;   ///< positions; the last is past all samples
  std::vector<std::int64_t> rest_at_;  ///< of borders
  std::size_t most_labels_ = 1;        ///< of a border
  std::vector<label> labels_;
  std::vector<std::vector<std::uint32_t>> bins_;
  std::vector<std::int64_t> within_;
};

/// Makes a chain better by moving its borders and counts until none of the moves tried helps.
///
/// A chain is taken as targets, the position that each shape must reach, and counts; rows follow. A move puts one
/// target at another run's beginning or a sample on or back, and changes rows or counts, whichever are fewer, on its
/// two sides by one at most.
template <class Times>
class chain_polish {
 public:
  chain_polish(Times& times, const objective_weights& weights) : times_{times}, weights_{weights} {}

  [[nodiscard]] shape_chain improve(const shape_chain& start) {
    take(start);
    best_value_ = {};
    refresh();
    consider(0);
    for (bool better = true; better;) {
      better = false;
      for (std::size_t j = 0; j < legs_.size(); ++j)
        better = improve_leg(j) || better;
    }
    shape_chain result;
    for (std::size_t j = 0; j < legs_.size(); ++j)
      if (legs_[j].target > base_[j].begin) result.push_back({rows_of(base_[j].begin, legs_[j]), legs_[j].count});
    return result;
  }

 private:
  struct leg {
    std::size_t target;
    std::int64_t count;
  };
  /// Where a leg begins, and the times of all before it and of all from it on.
  struct place {
    std::size_t begin;
    cut_times before;
    cut_times rest;
  };

  void take(const shape_chain& start) {
    legs_.clear();
    std::size_t position = 0;
    for (const chain_item& item : start) {
      position = std::min(times_.samples(), position + static_cast<std::size_t>(item.rows * item.count));
      legs_.push_back({position, item.count});
    }
  }

  bool improve_leg(std::size_t j) {
    targets_.assign(1, legs_[j].target);
    const std::size_t begin = base_[j].begin;
    const std::int64_t rows_here = rows_of(begin, legs_[j]);
    const std::size_t low = j > 0 ? legs_[j - 1].target : 0;
    const std::size_t high = j + 1 < legs_.size() ? legs_[j + 1].target : low;
    const auto add = [&](std::size_t target) {
      if (target > low && target < high) targets_.push_back(target);
    };
    if (j + 1 < legs_.size()) {
      const std::size_t g = times_.run_at(std::min(legs_[j].target, times_.samples() - 1));
      for (std::size_t step = 0; step <= 16; step = std::max<std::size_t>(1, 2 * step)) {
        add(times_.run(std::min(times_.runs() - 1, g + step)).begin);
        add(times_.run(g - std::min(g, step)).begin);
      }
      add(legs_[j].target + 1);
      add(legs_[j].target - 1);
      const auto all = static_cast<std::size_t>(rows_here * legs_[j].count);
      add(begin + all + static_cast<std::size_t>(rows_here));
      add(begin + all);
      add(begin + all - static_cast<std::size_t>(rows_here));
    }
    const std::vector<leg> kept = legs_;
    bool better = false;
    std::vector<leg> best = kept;
    const std::int64_t rows_next = j + 1 < kept.size() ? rows_of(end_of(begin, kept[j]), kept[j + 1]) : 1;
    for (const std::size_t target : targets_)
      for (const std::int64_t here : {0, -1, 1}) {
        legs_[j] = {target, count_of(begin, target, rows_here, kept[j].count, here)};
        for (const std::int64_t next : {0, -1, 1}) {
          if (j + 1 < kept.size())
            legs_[j + 1].count =
                count_of(end_of(begin, legs_[j]), kept[j + 1].target, rows_next, kept[j + 1].count, next);
          else if (next != 0)
            break;
          if (!consider(j)) continue;
          better = true;
          best = legs_;
        }
      }
    legs_ = best;
    if (better) refresh();
    return better;
  }

  [[nodiscard]] static std::int64_t rows_of(std::size_t begin, const leg& l) {
    return l.target > begin ? ceil_div(static_cast<std::int64_t>(l.target - begin), l.count) : 1;
  }
  [[nodiscard]] static std::size_t end_of(std::size_t begin, const leg& l) {
    return l.target > begin ? begin + static_cast<std::size_t>(rows_of(begin, l) * l.count) : begin;
  }
  /// The count that a leg has now, or that its rows need to the target; one of the two, that which is coarser, changed
  /// by `change`.
  [[nodiscard]] static std::int64_t count_of(std::size_t begin, std::size_t target, std::int64_t rows,
                                             std::int64_t count, std::int64_t change) {
    if (target <= begin) return 1;
    const auto samples = static_cast<std::int64_t>(target - begin);
    if (rows < count) return ceil_div(samples, std::max<std::int64_t>(1, rows + change));
    return std::max<std::int64_t>(1, std::max(count, ceil_div(samples, rows)) + change);
  }

  /// Adds leg `l` to what goes before it. False where its rows do not fit.
  bool walk(const leg& l, std::size_t& position, cut_times& sofar) {
    if (l.target <= position) return true;
    const std::int64_t rows = rows_of(position, l);
    const std::size_t g = times_.run_at(position);
    if (rows > times_.most(g)) return false;
    const std::int64_t t = times_.at(g, rows);
    const std::int64_t left = ceil_div(static_cast<std::int64_t>(times_.samples() - position), rows);
    sofar = {std::max(sofar.t_max, t), saturating_add(sofar.sum, saturating_mul(t, std::min(l.count, left)))};
    position = end_of(position, l);
    return true;
  }

  /// Notes the places of all legs, which fit.
  void refresh() {
    base_.assign(legs_.size() + 1, {});
    for (std::size_t j = 0; j < legs_.size(); ++j) {
      base_[j + 1] = base_[j];
      walk(legs_[j], base_[j + 1].begin, base_[j + 1].before);
    }
    for (std::size_t j = legs_.size(); j-- > 0;) {
      std::size_t position = base_[j].begin;
      base_[j].rest = base_[j + 1].rest;
      walk(legs_[j], position, base_[j].rest);
    }
  }

  /// Whether the legs, of which `j` and the next have changed, are better than the best so far, which they are then.
  /// Legs from where nothing differs any more are not walked again.
  bool consider(std::size_t j) {
    std::size_t position = base_[j].begin;
    cut_times all = base_[j].before;
    for (std::size_t i = j; i < legs_.size(); ++i) {
      if (i > j + 1 && position == base_[i].begin) {
        all = {std::max(all.t_max, base_[i].rest.t_max), saturating_add(all.sum, base_[i].rest.sum)};
        break;
      }
      if (!walk(legs_[i], position, all)) return false;
    }
    const chain_value value{all, weights_.of(all.t_max, all.sum)};
    if (!value.better_than(best_value_)) return false;
    best_value_ = value;
    return true;
  }

  Times& times_;
  const objective_weights& weights_;
  std::vector<leg> legs_;
  std::vector<place> base_;
  std::vector<std::size_t> targets_;
  chain_value best_value_;
};

/// The best chain of `shapes` shapes at most that was found.
///
/// Limits of t_max are tried in equal ratios from the least possible, then, for each budget up to `shapes`, between the
/// best for it and its neighbours; what is within an eighth of the best for a budget is polished; beyond 16 shapes
/// what is within a 64th, and only for 8 budgets between powers of two, beyond 64 for 2. No choice for a budget depends
/// on a larger one, so the result never gets worse as `shapes` grows.
template <class Times>
[[nodiscard]] shape_chain best_budget_chain(Times& times, std::size_t shapes, const objective_weights& weights) {
  struct answer {
    std::int64_t limit;
    std::vector<shape_chain> chains;
  };
  budget_chain<Times> solver{times, shapes};
  std::int64_t most = times.at(0, 1);
  for (std::size_t g = 0; g < times.runs(); ++g)
    most = std::max(most, times.at(g, times.most(g)));
  std::vector<answer> answers;
  const auto ask = [&](std::int64_t limit) -> const answer& {
    for (const answer& known : answers)
      if (known.limit == limit) return known;
    answers.push_back({limit, solver.solve(limit)});
    return answers.back();
  };
  std::vector<std::int64_t> grid;
  for (std::int64_t limit = times.at(0, 1); limit < most; limit = saturating_add(limit, limit / 3 + 1)) {
    grid.push_back(limit);
    if (grid.size() > 2 && weights.of(limit, 0) > times.judge(ask(grid.front()).chains.front(), weights).objective)
      break;
  }
  grid.push_back(most);

  shape_chain best;
  chain_value best_value;
  chain_polish<Times> polish{times, weights};
  for (std::size_t k = 0; k < shapes; ++k) {
    std::vector<std::pair<chain_value, shape_chain>> found;
    const auto try_limit = [&](std::int64_t limit) {
      const shape_chain& now = ask(limit).chains[k];
      found.emplace_back(times.judge(now, weights), now);
    };
    for (const std::int64_t limit : grid)
      try_limit(limit);
    std::size_t at = 0;
    for (std::size_t i = 0; i < grid.size(); ++i)
      if (found[i].first.better_than(found[at].first)) at = i;
    if (at > 0) try_limit(grid[at - 1] + (grid[at] - grid[at - 1]) / 2);
    if (at + 1 < grid.size()) try_limit(grid[at] + (grid[at + 1] - grid[at]) / 2);
    const std::size_t octave = std::bit_floor(k + 1);
    if (octave > 16 && (k + 1) % (octave / (octave > 64 ? 2 : 8)) != 0) continue;
    const wide_int worth = found[at].first.objective + found[at].first.objective / (k < 16 ? 8 : 64);
    for (const auto& [value, start] : found) {
      if (value.objective > worth) continue;
      const shape_chain better = polish.improve(start);
      if (const chain_value now = times.judge(better, weights); now.better_than(best_value)) {
        best_value = now;
        best = better;
      }
    }
  }
  return best;
}

}  // namespace dynapipe::detail
