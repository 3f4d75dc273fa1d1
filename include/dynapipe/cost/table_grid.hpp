#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <dynapipe/core/arithmetic.hpp>

/// Grids of three axes (rows, query length, key length) for `table_cost`.

namespace dynapipe::detail {

/// log2 of a number >= 1, in 2^-16; exact in integers.
[[nodiscard]] constexpr std::int64_t log2_fixed(std::int64_t value) {
  int whole = 0;
  while ((value >> whole) > 1)
    ++whole;
  std::uint64_t mantissa = whole <= 30 ? static_cast<std::uint64_t>(value) << (30 - whole)
                                       : static_cast<std::uint64_t>(value) >> (whole - 30);
  std::int64_t result = whole;
  for (int bit = 0; bit < 16; ++bit) {
    mantissa = (mantissa * mantissa) >> 30;
    const bool above = mantissa >= (std::uint64_t{2} << 30);
    mantissa >>= above ? 1 : 0;
    result = 2 * result + (above ? 1 : 0);
  }
  return result;
}

inline constexpr int weight_shift = 20;

/// a + (b - a) * weight / 2^20: rises with both ends, and with the weight where b >= a.
[[nodiscard]] constexpr std::int64_t blend(std::int64_t a, std::int64_t b, std::int64_t weight) {
  return a + static_cast<std::int64_t>((static_cast<wide_int>(b - a) * weight) >> weight_shift);
}

/// Where a value lies on an axis: between points `at` and `at + 1`, or on `at` where `weight` is 0.
struct axis_place {
  std::size_t at = 0;
  std::int64_t weight = 0;
  bool beyond = false;  ///< above the last point

  [[nodiscard]] std::size_t upper() const { return at + (weight > 0 ? 1 : 0); }
};

/// Rising points of an axis, found in O(1): buckets say where to begin.
class table_axis {
 public:
  table_axis() = default;
  explicit table_axis(std::vector<std::int64_t> points) : points_{std::move(points)} {
    constexpr std::int64_t most_buckets = 4096;
    while ((span() >> shift_) >= most_buckets)
      ++shift_;
    start_.resize(static_cast<std::size_t>(span() >> shift_) + 1);
    for (std::size_t bucket = 0, i = 0; bucket < start_.size(); ++bucket) {
      const std::int64_t low = points_[0] + (static_cast<std::int64_t>(bucket) << shift_);
      while (i + 1 < points_.size() && points_[i + 1] <= low)
        ++i;
      start_[bucket] = static_cast<std::uint32_t>(i);
    }
    for (std::size_t i = 0; i + 1 < points_.size(); ++i)
      inverse_.push_back((std::int64_t{1} << (2 * weight_shift)) / (points_[i + 1] - points_[i]));
  }

  [[nodiscard]] const std::vector<std::int64_t>& points() const { return points_; }
  [[nodiscard]] std::size_t size() const { return points_.size(); }

  /// Values below the first point lie on it.
  [[nodiscard]] axis_place find(std::int64_t value) const {
    if (value <= points_.front()) return {};
    if (value >= points_.back()) return {size() - 1, 0, value > points_.back()};
    std::size_t i = start_[static_cast<std::size_t>((value - points_[0]) >> shift_)];
    while (points_[i + 1] <= value)
      ++i;
    // Rounded up: between two points the weight is never 0.
    return {i, ((value - points_[i]) * inverse_[i] + (std::int64_t{1} << weight_shift) - 1) >> weight_shift, false};
  }

  /// As `find`, with weights linear in the logarithm.
  [[nodiscard]] axis_place find_by_log(std::int64_t value) const {
    axis_place place = find(value);
    if (place.weight == 0) return place;
    const std::int64_t low = log2_fixed(points_[place.at]);
    const std::int64_t high = log2_fixed(points_[place.at + 1]);
    place.weight =
        std::max<std::int64_t>(1, ((log2_fixed(value) - low) << weight_shift) / std::max<std::int64_t>(1, high - low));
    return place;
  }

  /// This axis with each gap cut into parts of at most a quarter of its lower end, and 64 parts at most.
  [[nodiscard]] table_axis refined() const {
    std::vector<std::int64_t> finer;
    for (std::size_t i = 0; i + 1 < size(); ++i) {
      const std::int64_t gap = points_[i + 1] - points_[i];
      const std::int64_t parts =
          std::clamp<std::int64_t>(ceil_div(4 * gap, std::max<std::int64_t>(1, points_[i])), 1, 64);
      for (std::int64_t k = 0; k < parts; ++k) {
        const std::int64_t point = points_[i] + gap * k / parts;
        if (finer.empty() || point > finer.back()) finer.push_back(point);
      }
    }
    finer.push_back(points_.back());
    return table_axis{std::move(finer)};
  }

 private:
  [[nodiscard]] std::int64_t span() const { return points_.back() - points_.front(); }

  std::vector<std::int64_t> points_;
  std::vector<std::uint32_t> start_;
  std::vector<std::int64_t> inverse_;
  int shift_ = 0;
};

/// Rows, query length and key length.
using grid_point = std::array<std::int64_t, 3>;

/// Whether every coordinate of `a` is at most that of `b`.
[[nodiscard]] constexpr bool dominates(const grid_point& b, const grid_point& a) {
  return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2];
}

/// Three axes, and the numbers of their nodes: the last axis runs fastest.
class table_grid {
 public:
  table_grid() = default;
  explicit table_grid(std::array<table_axis, 3> axes) : axes_{std::move(axes)} {
    stride_ = {axes_[1].size() * axes_[2].size(), axes_[2].size(), 1};
  }

  [[nodiscard]] const std::array<table_axis, 3>& axes() const { return axes_; }
  [[nodiscard]] std::size_t nodes() const { return axes_[0].size() * stride_[0]; }
  [[nodiscard]] std::size_t stride(std::size_t axis) const { return stride_[axis]; }
  [[nodiscard]] std::size_t place_on(std::size_t node, std::size_t axis) const {
    return node / stride_[axis] % axes_[axis].size();
  }
  [[nodiscard]] grid_point point(std::size_t node) const {
    grid_point p{};
    for (std::size_t a = 0; a < 3; ++a)
      p[a] = axes_[a].points()[place_on(node, a)];
    return p;
  }
  [[nodiscard]] std::size_t node(const std::array<axis_place, 3>& places) const {
    return places[0].at * stride_[0] + places[1].at * stride_[1] + places[2].at;
  }
  /// The node at the upper corner of the cell.
  [[nodiscard]] std::size_t upper_node(const std::array<axis_place, 3>& places) const {
    return places[0].upper() * stride_[0] + places[1].upper() * stride_[1] + places[2].upper();
  }

  [[nodiscard]] std::array<axis_place, 3> find(const grid_point& p) const {
    return {axes_[0].find(p[0]), axes_[1].find(p[1]), axes_[2].find(p[2])};
  }
  [[nodiscard]] std::array<axis_place, 3> find_by_log(const grid_point& p) const {
    return {axes_[0].find_by_log(p[0]), axes_[1].find_by_log(p[1]), axes_[2].find_by_log(p[2])};
  }

  /// The value between the nodes of a cell, linear along each axis; nodes of weight 0 are not read.
  [[nodiscard]] std::int64_t between(std::span<const std::int64_t> values,
                                     const std::array<axis_place, 3>& places) const {
    const std::size_t corner = node(places);
    const auto along_keys = [&](std::size_t i) {
      return places[2].weight == 0 ? values[i] : blend(values[i], values[i + 1], places[2].weight);
    };
    const auto along_queries = [&](std::size_t i) {
      return places[1].weight == 0 ? along_keys(i) : blend(along_keys(i), along_keys(i + stride_[1]), places[1].weight);
    };
    return places[0].weight == 0 ? along_queries(corner)
                                 : blend(along_queries(corner), along_queries(corner + stride_[0]), places[0].weight);
  }

  /// Calls `take(node, neighbour)` for every pair of nodes next to each other along an axis, in rising order of nodes
  /// (or in falling order, with the neighbour above).
  template <class Take>
  void for_each_step(bool rising, Take take) const {
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (std::size_t k = 0; k < nodes(); ++k) {
        const std::size_t i = rising ? k : nodes() - 1 - k;
        const std::size_t place = place_on(i, axis);
        if (rising ? place > 0 : place + 1 < axes_[axis].size())
          take(i, rising ? i - stride_[axis] : i + stride_[axis]);
      }
  }

 private:
  std::array<table_axis, 3> axes_;
  std::array<std::size_t, 3> stride_{};
};

}  // namespace dynapipe::detail
