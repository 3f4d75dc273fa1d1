#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/fitted.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/profile.hpp>
#include <dynapipe/cost/profile_sound.hpp>
#include <dynapipe/cost/table_grid.hpp>

namespace dynapipe {

/// What a table says of shapes outside of what was measured: nothing (they are refused), or what the fit says.
enum class outside_policy : std::uint8_t { error, fitted };

inline constexpr name_table<outside_policy, 2> outside_policy_names{
    {{outside_policy::error, "error"}, {outside_policy::fitted, "fitted"}}};

[[nodiscard]] constexpr std::string_view to_string(outside_policy value) {
  return name_in(outside_policy_names, value);
}

/// Options of `table_cost`.
struct table_options {
  outside_policy outside = outside_policy::error;
  /// Makes times and memory rise with rows and lengths, as planning needs it: raw tables fall in a tenth of their
  /// neighbouring pairs.
  bool monotone = true;
  /// A time that stands out of all its neighbours on the grid by more than this, measured against the fit, is a
  /// disturbed measurement, and is brought back to the nearest of them. In percent; 0: none is.
  std::int64_t spike_percent = 10;
};

/// A point of a table that is not as it was measured.
struct table_remark {
  layer_kind kind = layer_kind::decoder;
  recompute_mode recompute = recompute_mode::none;
  shape at;

  friend constexpr bool operator==(const table_remark&, const table_remark&) = default;
};

namespace detail {

/// Whether a node of a table is measured or between measured ones, outside of them, or out of memory.
enum class node_state : std::uint8_t { inside, outside, out_of_memory };

/// The table of one kind and recomputation.
struct layer_table {
  table_grid grid;
  std::vector<node_state> states;
  std::array<std::vector<std::int64_t>, cost_amount_names.size()> values;  ///< empty where nothing was measured
  std::vector<std::int64_t> input;  ///< the backward's input half; empty where its weight half was not measured
  std::vector<grid_point> failed;   ///< points that ran out of memory

  [[nodiscard]] const std::vector<std::int64_t>& of(cost_amount amount) const {
    return values[static_cast<std::size_t>(amount)];
  }
  [[nodiscard]] bool present() const { return !states.empty(); }
  [[nodiscard]] bool has_failed(const grid_point& p) const {
    return std::any_of(failed.begin(), failed.end(), [&](const grid_point& f) { return dominates(p, f); });
  }
};

[[nodiscard]] constexpr grid_point grid_point_of(layer_kind kind, const shape& s) {
  if (kind == layer_kind::cross_decoder) return {s.rows, s.target, s.input};
  return {s.rows, kind == layer_kind::head && s.target > 0 ? s.target : s.input, 0};
}

[[nodiscard]] constexpr shape shape_at(layer_kind kind, const grid_point& p) {
  if (kind == layer_kind::cross_decoder) return {p[0], p[2], p[1]};
  return {p[0], p[1], 0};
}

/// Builds the table of one kind and recomputation.
template <class Lazy = void>
class layer_table_maker {
 public:
  layer_table_maker(const profile& measured, const fitted_cost& fit, layer_kind kind, recompute_mode recompute,
                    const table_options& options)
      : fit_{fit}, kind_{kind}, recompute_{recompute}, options_{options} {
    for (const profile_point& point : measured.points) {
      if (point.kind != kind || point.recompute != recompute || point.varlen) continue;
      if (point.out_of_memory)
        table_.failed.push_back(grid_point_of(kind, point.padded));
      else
        points_.push_back(&point);
    }
  }

  [[nodiscard]] layer_table make() {
    if (points_.empty()) return std::move(table_);
    grid_ = measured_grid();
    table_.grid = table_grid{{grid_.axes()[0].refined(), grid_.axes()[1].refined(), grid_.axes()[2].refined()}};
    find_hull();
    std::vector<std::array<axis_place, 3>> places(table_.grid.nodes());
    table_.states.resize(table_.grid.nodes());
    for (std::size_t i = 0; i < places.size(); ++i) {
      const grid_point p = table_.grid.point(i);
      places[i] = grid_.find_by_log(p);
      table_.states[i] = table_.has_failed(p)                   ? node_state::out_of_memory
                         : inside_[grid_.upper_node(places[i])] ? node_state::inside
                                                                : node_state::outside;
    }
    for (const auto& [amount, name] : cost_amount_names) {
      const std::vector<std::int64_t> ratios = ratios_of(amount);
      if (ratios.empty()) continue;
      std::vector<std::int64_t>& values = table_.values[static_cast<std::size_t>(amount)];
      values.resize(table_.grid.nodes(), int64_limit);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (table_.states[i] != node_state::out_of_memory) values[i] = value_at_node(amount, i, places[i], ratios);
      if (options_.monotone) make_monotone(values, amount > cost_amount::weight);
    }
    make_input_half();
    return std::move(table_);
  }

  [[nodiscard]] const std::vector<table_remark>& holes() const { return holes_; }
  [[nodiscard]] const std::vector<table_remark>& spikes() const { return spikes_; }

 private:
  static constexpr int ratio_shift = 30;

  [[nodiscard]] table_grid measured_grid() const {
    std::array<std::vector<std::int64_t>, 3> points;
    for (const profile_point* point : points_)
      for (std::size_t a = 0; a < 3; ++a)
        points[a].push_back(grid_point_of(kind_, point->padded)[a]);
    for (std::vector<std::int64_t>& axis : points) {
      std::sort(axis.begin(), axis.end());
      axis.erase(std::unique(axis.begin(), axis.end()), axis.end());
    }
    return table_grid{{table_axis{points[0]}, table_axis{points[1]}, table_axis{points[2]}}};
  }

  /// A node is inside where a measured one has at least its rows and lengths.
  void find_hull() {
    inside_.assign(grid_.nodes(), false);
    std::vector<bool> seen(grid_.nodes(), false);
    for (const profile_point* point : points_)
      seen[grid_.node(grid_.find(grid_point_of(kind_, point->padded)))] = true;
    inside_ = seen;
    grid_.for_each_step(false, [&](std::size_t i, std::size_t above) { inside_[i] = inside_[i] || inside_[above]; });
    for (std::size_t i = 0; i < grid_.nodes(); ++i)
      if (inside_[i] && !seen[i]) holes_.push_back({kind_, recompute_, shape_at(kind_, grid_.point(i))});
  }

  /// Measured over fitted at every node inside, in 2^-30; nothing where the amount was not measured, or too seldom for
  /// a fit.
  [[nodiscard]] std::vector<std::int64_t> ratios_of(cost_amount amount) {
    if (fitted(amount, grid_.point(0)) == int64_limit) return {};
    std::vector<wide_int> sum(grid_.nodes(), 0);
    std::vector<std::int64_t> count(grid_.nodes(), 0);
    for (const profile_point* point : points_) {
      const std::int64_t measured = amounts_of(*point)[static_cast<std::size_t>(amount)];
      if (measured <= 0) continue;
      const std::size_t i = grid_.node(grid_.find(grid_point_of(kind_, point->padded)));
      sum[i] += measured;
      ++count[i];
    }
    if (std::all_of(count.begin(), count.end(), [](std::int64_t c) { return c == 0; })) return {};
    std::vector<std::int64_t> ratios(grid_.nodes(), 0);
    for (std::size_t i = 0; i < ratios.size(); ++i)
      if (count[i] > 0) {
        const wide_int whole = static_cast<wide_int>(fitted(amount, grid_.point(i))) * count[i];
        ratios[i] = saturate(((sum[i] << ratio_shift) + whole / 2) / whole);
      }
    if (amount <= cost_amount::weight && options_.spike_percent > 0) level_spikes(ratios, amount);
    fill_holes(ratios);
    return ratios;
  }

  [[nodiscard]] std::int64_t fitted(cost_amount amount, const grid_point& p) const {
    return std::max<std::int64_t>(1, fit_.value(amount, kind_, shape_at(kind_, p), recompute_));
  }

  /// Neighbours of a node: next to it along an axis, or along two axes in opposite directions, where the tokens are
  /// about the same.
  template <class Take>
  void for_each_neighbour(std::size_t node, Take take) const {
    for (std::size_t a = 0; a < 3; ++a) {
      const std::size_t place = grid_.place_on(node, a);
      const bool up = place + 1 < grid_.axes()[a].size();
      if (place > 0) take(node - grid_.stride(a));
      if (up) take(node + grid_.stride(a));
      for (std::size_t b = 0; b < 3; ++b)
        if (b != a && up && grid_.place_on(node, b) > 0) take(node + grid_.stride(a) - grid_.stride(b));
    }
  }

  void level_spikes(std::vector<std::int64_t>& ratios, cost_amount amount) {
    const std::vector<std::int64_t> raw = ratios;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == 0) continue;
      std::int64_t least = int64_limit;
      std::int64_t most = 0;
      for_each_neighbour(i, [&](std::size_t n) {
        if (raw[n] == 0) return;
        least = std::min(least, raw[n]);
        most = std::max(most, raw[n]);
      });
      if (most == 0) continue;
      const wide_int percent = 100 + options_.spike_percent;
      const bool high = static_cast<wide_int>(raw[i]) * 100 > percent * most;
      const bool low = static_cast<wide_int>(raw[i]) * percent < static_cast<wide_int>(100) * least;
      if (!high && !low) continue;
      ratios[i] = high ? most : least;
      const table_remark remark{kind_, recompute_, shape_at(kind_, grid_.point(i))};
      if (amount == cost_amount::forward || std::find(spikes_.begin(), spikes_.end(), remark) == spikes_.end())
        spikes_.push_back(remark);
    }
  }

  /// Nodes inside without a measurement take the mean over axes of what lies between their nearest neighbours; 1 (the
  /// fit) where there is none on any axis.
  void fill_holes(std::vector<std::int64_t>& ratios) const {
    const std::vector<std::int64_t> known = ratios;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] > 0 || !inside_[i]) continue;
      wide_int sum = 0;
      std::int64_t weight = 0;
      for (std::size_t a = 0; a < 3; ++a) {
        const std::vector<std::int64_t>& points = grid_.axes()[a].points();
        const std::size_t here = grid_.place_on(i, a);
        const auto node = [&](std::size_t place) { return i + (place - here) * grid_.stride(a); };
        std::optional<std::size_t> below;
        std::optional<std::size_t> above;
        for (std::size_t p = here; p-- > 0 && !below;)
          if (known[node(p)] > 0) below = p;
        for (std::size_t p = here + 1; p < points.size() && !above; ++p)
          if (known[node(p)] > 0) above = p;
        if (below && above) {
          const std::int64_t low = log2_fixed(points[*below]);
          const std::int64_t part = ((log2_fixed(points[here]) - low) << weight_shift) /
                                    std::max<std::int64_t>(1, log2_fixed(points[*above]) - low);
          sum += 2 * static_cast<wide_int>(blend(known[node(*below)], known[node(*above)], part));
          weight += 2;
        } else if (below || above) {
          sum += known[node(below ? *below : *above)];
          weight += 1;
        }
      }
      ratios[i] = weight > 0 ? static_cast<std::int64_t>(sum / weight) : std::int64_t{1} << ratio_shift;
    }
  }

  [[nodiscard]] std::int64_t value_at_node(cost_amount amount, std::size_t i, const std::array<axis_place, 3>& places,
                                           const std::vector<std::int64_t>& ratios) const {
    const std::int64_t by_fit = fitted(amount, table_.grid.point(i));
    if (table_.states[i] == node_state::outside) return by_fit;
    const wide_int half = wide_int{1} << (ratio_shift - 1);
    return saturate((static_cast<wide_int>(by_fit) * grid_.between(ratios, places) + half) >> ratio_shift);
  }

  /// Inside, times become the mean of the largest value at or below a node and the least at or above it; memory the
  /// former, so that it is never less than measured. Outside, nothing is less than what lies below. All rise along
  /// every axis.
  void make_monotone(std::vector<std::int64_t>& values, bool is_memory) const {
    const auto inside = [&](std::size_t i) { return table_.states[i] == node_state::inside; };
    const std::vector<std::int64_t> raw = values;
    table_.grid.for_each_step(true, [&](std::size_t i, std::size_t below) {
      if (inside(i)) values[i] = std::max(values[i], values[below]);
    });
    if (!is_memory) {
      std::vector<std::int64_t> lower = raw;
      table_.grid.for_each_step(false, [&](std::size_t i, std::size_t above) {
        if (inside(above)) lower[i] = std::min(lower[i], lower[above]);
      });
      for (std::size_t i = 0; i < values.size(); ++i)
        if (inside(i)) values[i] = lower[i] + (values[i] - lower[i]) / 2;
    }
    table_.grid.for_each_step(true, [&](std::size_t i, std::size_t below) {
      if (table_.states[i] == node_state::outside) values[i] = std::max(values[i], values[below]);
    });
  }

  /// What the backward takes more than its weight half at the nodes. Rounding between nodes loses less than 6 ns of the
  /// halves' sum.
  void make_input_half() {
    const std::vector<std::int64_t>& whole = table_.of(cost_amount::backward);
    const std::vector<std::int64_t>& weight = table_.of(cost_amount::weight);
    if (whole.empty() || weight.empty()) return;
    table_.input = whole;
    for (std::size_t i = 0; i < whole.size(); ++i)
      if (table_.states[i] != node_state::out_of_memory)
        table_.input[i] = saturating_add(whole[i] - std::min(whole[i], weight[i]), 6);
    if (options_.monotone) make_monotone(table_.input, true);
  }

  const fitted_cost& fit_;
  layer_kind kind_;
  recompute_mode recompute_;
  const table_options& options_;
  std::vector<const profile_point*> points_;
  table_grid grid_;
  std::vector<bool> inside_;
  layer_table table_;
  std::vector<table_remark> holes_;
  std::vector<table_remark> spikes_;
};

}  // namespace detail

/// A `cost_model` of padded shapes from measured points.
///
/// Between points of the grid, the ratio of measured to fitted is interpolated, linear in the logarithms of rows and
/// lengths; the product with the fit is laid down on a grid that is four times finer, and read from there by linear
/// interpolation. Inside is what some measured point has at least the rows and lengths of; points missing there are
/// filled from their neighbours (`holes`). A shape below the least measured rows or length is charged as that one.
///
/// - At or beyond a point that ran out of memory, and within a step of the finer grid before it, all costs are the
///   largest value: infeasible, not expensive.
/// - Outside of what was measured a shape is refused, or priced by the fit (never below the table's nearest value), by
///   `outside`; `extrapolates` says which those are, `refusal` why.
/// - A kind, recomputation or amount without any padded measurement is what `fitted_cost` makes of it.
///
/// Guarantee: with `monotone`, costs never fall when rows or a length grow. Integers throughout, equal on every
/// machine. O(1) for each call, never throws after construction. Memory: 64 times the points of the grid for decoders
/// with cross-attention, 16 times for others, for each amount that was measured.
class table_cost {
 public:
  /// @throws error where the profile is not sound, or measured another device or tensor-parallel degree than the fit.
  table_cost(const profile& measured, fitted_cost fit, const table_options& options = {})
      : fit_{std::move(fit)}, options_{options}, source_{"table of " + measured.device} {
    require_sound(measured);
    const fitted_costs& costs = fit_.costs();
    if (costs.device != measured.device || costs.tensor_parallel != measured.tensor_parallel)
      throw error{"the profile is of " + measured.device + " with tensor_parallel " +
                  std::to_string(measured.tensor_parallel) + ", the fit of " + costs.device + " with " +
                  std::to_string(costs.tensor_parallel)};
    const profile once = merged(measured);
    for (const auto& [kind, kind_name] : layer_kind_names)
      for (const auto& [recompute, recompute_name] : recompute_names) {
        detail::layer_table_maker maker{once, fit_, kind, recompute, options_};
        layers_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(recompute)] = maker.make();
        holes_.insert(holes_.end(), maker.holes().begin(), maker.holes().end());
        spikes_.insert(spikes_.end(), maker.spikes().begin(), maker.spikes().end());
      }
  }

  [[nodiscard]] const fitted_cost& fit() const { return fit_; }
  /// Points of the grid that were not measured and are filled from their neighbours.
  [[nodiscard]] const std::vector<table_remark>& holes() const { return holes_; }
  /// Points with a time that was taken for a disturbed measurement.
  [[nodiscard]] const std::vector<table_remark>& spikes() const { return spikes_; }
  /// What plans name as the source of their costs.
  [[nodiscard]] const std::string& source() const { return source_; }

  [[nodiscard]] nanoseconds forward(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return nanoseconds{value(cost_amount::forward, kind, s, recompute)};
  }
  [[nodiscard]] nanoseconds backward(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return nanoseconds{value(cost_amount::backward, kind, s, recompute)};
  }
  /// Where the weight half was not measured, half of the backward.
  [[nodiscard]] nanoseconds backward_weight(layer_kind kind, const shape& s, recompute_mode recompute) const {
    const detail::layer_table& layer = table(kind, recompute);
    if (!layer.present()) return fit_.backward_weight(kind, s, recompute);
    const std::int64_t whole = value(cost_amount::backward, kind, s, recompute);
    if (layer.of(cost_amount::weight).empty()) return nanoseconds{detail::half_of(whole)};
    return nanoseconds{std::min(whole, value(cost_amount::weight, kind, s, recompute))};
  }
  [[nodiscard]] nanoseconds backward_input(layer_kind kind, const shape& s, recompute_mode recompute) const {
    const detail::layer_table& layer = table(kind, recompute);
    if (!layer.present()) return fit_.backward_input(kind, s, recompute);
    const std::int64_t whole = value(cost_amount::backward, kind, s, recompute);
    if (whole == int64_limit) return nanoseconds{whole};
    if (layer.input.empty()) return nanoseconds{whole - whole / 2};
    const auto by_fit = [&] { return fit_.backward_input(kind, s, recompute).value(); };
    return nanoseconds{std::min(whole, between(layer, layer.input, detail::grid_point_of(kind, s), by_fit))};
  }
  [[nodiscard]] bytes stored(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return bytes{value(cost_amount::stored, kind, s, recompute)};
  }
  [[nodiscard]] bytes weight_stored(layer_kind kind, const shape& s, recompute_mode recompute) const {
    const detail::layer_table& layer = table(kind, recompute);
    if (!layer.present()) return fit_.weight_stored(kind, s, recompute);
    const std::int64_t all = value(cost_amount::stored, kind, s, recompute);
    if (layer.of(cost_amount::weight_stored).empty()) return bytes{detail::half_of(all)};
    return bytes{std::min(all, value(cost_amount::weight_stored, kind, s, recompute))};
  }
  [[nodiscard]] bytes forward_peak(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return bytes{
        std::max(value(cost_amount::forward_peak, kind, s, recompute), value(cost_amount::stored, kind, s, recompute))};
  }
  [[nodiscard]] bytes backward_peak(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return bytes{value(cost_amount::backward_peak, kind, s, recompute)};
  }
  [[nodiscard]] bytes state(layer_kind kind) const { return fit_.state(kind); }

  /// Whether the shape lies outside of what was measured (but not beyond a point that ran out of memory).
  [[nodiscard]] bool extrapolates(layer_kind kind, const shape& s, recompute_mode recompute) const {
    const detail::layer_table& layer = table(kind, recompute);
    if (!layer.present()) return fit_.extrapolates(kind, s, recompute);
    return state_of(layer, detail::grid_point_of(kind, s)) == detail::node_state::outside;
  }

  /// Why a shape is refused, if it is.
  [[nodiscard]] std::string refusal(layer_kind kind, const shape& s, recompute_mode recompute) const {
    const detail::layer_table& layer = table(kind, recompute);
    if (!layer.present()) return fit_.refusal(kind, s, recompute);
    const detail::grid_point p = detail::grid_point_of(kind, s);
    const detail::node_state state = state_of(layer, p);
    if (state == detail::node_state::inside) return fit_.refusal(kind, s, recompute);
    const auto size = [&](const detail::grid_point& g) {
      return std::to_string(g[0]) + " x " + std::to_string(g[1]) + (g[2] > 0 ? " + " + std::to_string(g[2]) : "");
    };
    const std::string who = std::string{to_string(kind)} + " with recompute " + std::string{to_string(recompute)};
    if (state == detail::node_state::out_of_memory)
      return who + " ran out of memory where it was measured at or next to " + size(p) + " tokens (" + source_ +
             "): use fewer tokens, more --tp, or more recomputation";
    if (options_.outside == outside_policy::fitted) return fit_.refusal(kind, s, recompute);
    const auto& axes = layer.grid.axes();
    return who + " was not measured as far as " + size(p) + " tokens (" + source_ + ": up to " +
           std::to_string(axes[0].points().back()) + " rows, up to " + std::to_string(axes[1].points().back()) +
           (p[2] > 0 ? " + " + std::to_string(axes[2].points().back()) : "") +
           " tokens, and fewer rows the longer they are): measure it, or take the fit there (--outside fitted)";
  }

  /// One amount; the largest int64 where the shape is refused.
  [[nodiscard]] std::int64_t value(cost_amount amount, layer_kind kind, const shape& s,
                                   recompute_mode recompute) const {
    const detail::layer_table& layer = table(kind, recompute);
    if (!layer.present()) return fit_.value(amount, kind, s, recompute);
    return between(layer, layer.of(amount), detail::grid_point_of(kind, s),
                   [&] { return fit_.value(amount, kind, s, recompute); });
  }

 private:
  [[nodiscard]] const detail::layer_table& table(layer_kind kind, recompute_mode recompute) const {
    return layers_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(recompute)];
  }

  /// What lies between the nodes, or what becomes of `p` outside of them: refused, or `by_fit`.
  template <class Fitted>
  [[nodiscard]] std::int64_t between(const detail::layer_table& layer, const std::vector<std::int64_t>& values,
                                     const detail::grid_point& p, const Fitted& by_fit) const {
    const std::array<detail::axis_place, 3> places = layer.grid.find(p);
    const detail::node_state state = layer.states[layer.grid.upper_node(places)];
    const bool beyond = places[0].beyond || places[1].beyond || places[2].beyond;
    if (state == detail::node_state::inside && !beyond && !values.empty()) [[likely]]
      return layer.grid.between(values, places);
    if (state_of(layer, p) == detail::node_state::out_of_memory) return int64_limit;
    if ((beyond || state == detail::node_state::outside) && options_.outside == outside_policy::error)
      return int64_limit;
    if (values.empty()) return by_fit();
    const std::int64_t nearest = layer.grid.between(values, places);
    return beyond ? std::max(nearest, by_fit()) : nearest;
  }

  [[nodiscard]] static detail::node_state state_of(const detail::layer_table& layer, const detail::grid_point& p) {
    const std::array<detail::axis_place, 3> places = layer.grid.find(p);
    const detail::node_state state = layer.states[layer.grid.upper_node(places)];
    if (state == detail::node_state::out_of_memory || layer.has_failed(p)) return detail::node_state::out_of_memory;
    return places[0].beyond || places[1].beyond || places[2].beyond ? detail::node_state::outside : state;
  }

  fitted_cost fit_;
  table_options options_;
  std::string source_;
  std::array<std::array<detail::layer_table, recompute_names.size()>, layer_kind_names.size()> layers_;
  std::vector<table_remark> holes_;
  std::vector<table_remark> spikes_;
};

static_assert(split_cost_model<table_cost>);

}  // namespace dynapipe
