#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// A shape of a micro-batch: padded or varlen.
template <class Shape>
concept micro_batch_shape = std::same_as<Shape, shape> || std::same_as<Shape, varlen_shape>;

/// What a layer's cost is a polynomial of: tokens that query, tokens whose keys cross-attention reads, and pairs of
/// query and key in self-attention (all of a square: masks are the coefficients' matter, windows are taken off as in
/// `seen_squares`) and in cross-attention. Each is held at the largest int64.
struct token_counts {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t self_pairs = 0;
  std::int64_t cross_pairs = 0;

  friend constexpr bool operator==(const token_counts&, const token_counts&) = default;
};

/// The window that a kernel skips pairs outside of: the unfused one computes every pair and masks afterwards.
[[nodiscard]] inline std::int64_t skipped_window(const model_spec& model) {
  return model.kernel == attention_kernel::fused ? model.window : 0;
}

namespace detail {

/// Whether the counts of `s` are plain products, far from any limit.
[[nodiscard]] constexpr bool is_small(const shape& s) {
  return ((static_cast<std::uint64_t>(s.rows) | static_cast<std::uint64_t>(s.input) |
           static_cast<std::uint64_t>(s.target)) >>
          20) == 0;
}

template <bool Small>
[[nodiscard]] constexpr std::int64_t product(std::int64_t a, std::int64_t b) {
  return Small ? a * b : saturating_mul(a, b);
}

/// length^2 less what a window hides.
template <bool Small>
[[nodiscard]] constexpr std::int64_t squares(std::int64_t length, std::int64_t window) {
  if constexpr (Small) return seen_squares(length, window);
  const wide_int hidden = window > 0 ? std::max<std::int64_t>(0, length - window) : 0;
  return saturate(static_cast<wide_int>(length) * length - hidden * hidden);
}

template <bool Small>
[[nodiscard]] constexpr token_counts counts_of(layer_kind kind, const shape& s, std::int64_t window) {
  const std::int64_t inputs = product<Small>(s.rows, s.input);
  switch (kind) {
    case layer_kind::cross_decoder: {
      const std::int64_t targets = product<Small>(s.rows, s.target);
      return {targets, inputs, product<Small>(s.rows, squares<Small>(s.target, 0)), product<Small>(targets, s.input)};
    }
    case layer_kind::head: return {.queries = s.target > 0 ? product<Small>(s.rows, s.target) : inputs};
    case layer_kind::embedding: return {.queries = inputs};
    case layer_kind::encoder:
    case layer_kind::decoder: break;
  }
  return {.queries = inputs, .self_pairs = product<Small>(s.rows, squares<Small>(s.input, window))};
}

}  // namespace detail

/// Counts of a layer of `kind` for padded rows; `window` is that of decoder-only models (0: none): cross-attending
/// layers have none. O(1), never throws.
[[nodiscard]] constexpr token_counts counts_of(layer_kind kind, const shape& s, std::int64_t window = 0) {
  return detail::is_small(s) ? detail::counts_of<true>(kind, s, window) : detail::counts_of<false>(kind, s, window);
}

/// Counts of a layer of `kind` for concatenated samples. Their squares have windows taken off already, so that none is
/// asked for. One sample counts as one padded row does. O(1), never throws.
[[nodiscard]] constexpr token_counts counts_of(layer_kind kind, const varlen_shape& s, std::int64_t = 0) {
  switch (kind) {
    case layer_kind::cross_decoder: return {s.target_tokens, s.tokens, s.target_squares, s.cross_pairs};
    case layer_kind::head: return {.queries = s.target_tokens > 0 ? s.target_tokens : s.tokens};
    case layer_kind::embedding: return {.queries = s.tokens};
    case layer_kind::encoder:
    case layer_kind::decoder: break;
  }
  return {.queries = s.tokens, .self_pairs = s.squares};
}

/// Rows that are alike, and the counts of one: what costs of padded shapes are computed from, so that they are exactly
/// linear in rows (a rounding of all rows together would not be). A varlen shape counts as one row.
struct row_counts {
  token_counts one;
  std::int64_t rows = 0;
};

/// Counts of a layer of `kind` by row. O(1), never throws.
[[nodiscard]] constexpr row_counts row_counts_of(layer_kind kind, const shape& s, std::int64_t window = 0) {
  return {counts_of(kind, shape{1, s.input, s.target}, window), s.rows};
}
[[nodiscard]] constexpr row_counts row_counts_of(layer_kind kind, const varlen_shape& s, std::int64_t = 0) {
  return {counts_of(kind, s), 1};
}

namespace detail {

/// constant + queries * q + keys * k + self_pairs * s + cross_pairs * x, with coefficients >= 0. Adds, scales and is
/// made into a `quantised` to be evaluated.
struct polynomial {
  wide_int constant = 0;
  wide_int queries = 0;
  wide_int keys = 0;
  wide_int self_pairs = 0;
  wide_int cross_pairs = 0;

  friend polynomial operator+(const polynomial& a, const polynomial& b) {
    return {a.constant + b.constant, a.queries + b.queries, a.keys + b.keys, a.self_pairs + b.self_pairs,
            a.cross_pairs + b.cross_pairs};
  }
  friend polynomial operator*(const polynomial& a, std::int64_t n) {
    return {a.constant * n, a.queries * n, a.keys * n, a.self_pairs * n, a.cross_pairs * n};
  }
  /// Every coefficient of the one or the other, whichever is less.
  [[nodiscard]] friend polynomial lesser(const polynomial& a, const polynomial& b) {
    return {std::min(a.constant, b.constant), std::min(a.queries, b.queries), std::min(a.keys, b.keys),
            std::min(a.self_pairs, b.self_pairs), std::min(a.cross_pairs, b.cross_pairs)};
  }
  /// Every coefficient times n over d, rounded up.
  [[nodiscard]] polynomial scaled(wide_int n, wide_int d) const {
    const auto scale = [&](wide_int c) { return (c * n + d - 1) / d; };
    return {scale(constant), scale(queries), scale(keys), scale(self_pairs), scale(cross_pairs)};
  }
};

__extension__ typedef unsigned __int128 unsigned_wide_int;

/// A polynomial in fixed point, ready to be evaluated: its constant, and for each row its other terms, divided by
/// 2^Shift and rounded up. Exact in integers, held at the largest int64.
template <int Shift = 0>
class quantised {
 public:
  quantised() = default;
  explicit quantised(const polynomial& exact)
      : queries_{static_cast<std::uint64_t>(exact.queries)},
        keys_{static_cast<std::uint64_t>(exact.keys)},
        self_pairs_{static_cast<std::uint64_t>(exact.self_pairs)},
        cross_pairs_{static_cast<std::uint64_t>(exact.cross_pairs)},
        narrow_{((exact.queries | exact.keys | exact.self_pairs | exact.cross_pairs) >> 62) == 0},
        constant_{saturate((exact.constant + rounding) >> Shift)},
        exact_{exact} {}

  [[nodiscard]] std::int64_t at(const row_counts& n) const {
    return saturating_add(constant_, saturating_mul(n.rows, row(n.one)));
  }

  /// The larger of two polynomials' values.
  [[nodiscard]] friend std::int64_t larger_at(const quantised& a, const quantised& b, const row_counts& n) {
    return std::max(a.at(n), b.at(n));
  }

 private:
  static constexpr wide_int rounding = (wide_int{1} << Shift) - 1;

  /// What one row adds. Below 2^62, products are single multiplications and their sum cannot overflow.
  [[nodiscard]] std::int64_t row(const token_counts& n) const {
    if (!narrow_ || ((n.queries | n.keys | n.self_pairs | n.cross_pairs) >> 62) != 0) [[unlikely]]
      return row_beyond(n);
    const auto product = [](std::uint64_t coefficient, std::int64_t count) {
      return static_cast<wide_int>(static_cast<unsigned_wide_int>(coefficient) * static_cast<std::uint64_t>(count));
    };
    return saturate((rounding + product(queries_, n.queries) + product(keys_, n.keys) +
                     product(self_pairs_, n.self_pairs) + product(cross_pairs_, n.cross_pairs)) >>
                    Shift);
  }
  [[nodiscard]] std::int64_t row_beyond(const token_counts& n) const {
    wide_int sum = rounding;
    // A count at the largest int64 stands for any above it.
    const auto add = [&sum](wide_int coefficient, std::int64_t count) {
      wide_int product = 0;
      return coefficient == 0 || (count < int64_limit && !__builtin_mul_overflow(coefficient, count, &product) &&
                                  !__builtin_add_overflow(sum, product, &sum));
    };
    if (!add(exact_.queries, n.queries) || !add(exact_.keys, n.keys) || !add(exact_.self_pairs, n.self_pairs) ||
        !add(exact_.cross_pairs, n.cross_pairs))
      return int64_limit;
    return saturate(sum >> Shift);
  }

  std::uint64_t queries_ = 0;
  std::uint64_t keys_ = 0;
  std::uint64_t self_pairs_ = 0;
  std::uint64_t cross_pairs_ = 0;
  bool narrow_ = true;
  std::int64_t constant_ = 0;
  polynomial exact_;
};

}  // namespace detail

}  // namespace dynapipe
