#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <dynapipe/batch/sample.hpp>
#include <dynapipe/core/ids.hpp>

namespace dynapipe {

namespace detail {

/// What samples are ordered by, ascending: `major`, then `minor`, then the id.
struct order_key {
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
};

/// Ids by their keys, `keys[id]`, equal keys by id.
///
/// Method: where the bits that keys and ids need fit one word, a radix sort of words that end in the id (least
/// significant digit first, ids begin ascending, so that it is a total order); otherwise a sort by comparison. The
/// order is the same. O(n) or O(n log n); 20 bytes a sample beside the keys.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> sort_keys(std::span<const order_key> keys) {
  // A type that depends on the parameter: what is done with it is compiled where it is called.
  using word_type = std::conditional_t<std::is_void_v<Lazy>, std::uint64_t, Lazy>;
  const std::size_t n = keys.size();
  std::vector<sample_id> order(n);
  std::uint64_t majors = 0;
  std::uint64_t minors = 0;
  for (const order_key& key : keys) {
    majors |= key.major;
    minors |= key.minor;
  }
  const auto minor_bits = static_cast<unsigned>(std::bit_width(minors));
  const auto id_bits = static_cast<unsigned>(std::bit_width(n));
  const unsigned key_bits = static_cast<unsigned>(std::bit_width(majors)) + minor_bits;
  if (key_bits + id_bits > 64 || minor_bits == 64) {
    for (std::size_t i = 0; i < n; ++i)
      order[i] = to_id<sample_id>(i);
    std::sort(order.begin(), order.end(), [&](sample_id a, sample_id b) {
      const order_key& x = keys[index(a)];
      const order_key& y = keys[index(b)];
      if (x.major != y.major) return x.major < y.major;
      return x.minor != y.minor ? x.minor < y.minor : a < b;
    });
    return order;
  }

  std::vector<word_type> words(n);
  for (std::size_t i = 0; i < n; ++i)
    words[i] = (keys[i].major << minor_bits | keys[i].minor) << id_bits | i;
  constexpr std::size_t few = 256;
  constexpr unsigned widest_digit = 11;
  if (n < few) {
    std::sort(words.begin(), words.end());
  } else if (key_bits > 0) {
    const unsigned passes = (key_bits + widest_digit - 1) / widest_digit;
    const unsigned digit = (key_bits + passes - 1) / passes;
    const std::uint64_t mask = (std::uint64_t{1} << digit) - 1;
    std::vector<word_type> other(n);
    std::vector<std::size_t> begins(std::size_t{1} << digit);
    for (unsigned shift = id_bits; shift < id_bits + key_bits; shift += digit) {
      std::fill(begins.begin(), begins.end(), std::size_t{0});
      for (const std::uint64_t word : words)
        ++begins[word >> shift & mask];
      std::size_t sum = 0;
      for (std::size_t& begin : begins)
        sum += std::exchange(begin, sum);
      for (const std::uint64_t word : words)
        other[begins[word >> shift & mask]++] = word;
      words.swap(other);
    }
  }
  const std::uint64_t id_mask = (std::uint64_t{1} << id_bits) - 1;
  for (std::size_t i = 0; i < n; ++i)
    order[i] = to_id<sample_id>(words[i] & id_mask);
  return order;
}

/// How far `value` lies below `most`.
[[nodiscard]] constexpr std::uint64_t below(std::int64_t most, std::int64_t value) {
  return static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(value);
}

/// The longest input and the longest target, each by itself; the loss is 0.
template <class Lazy = void>
[[nodiscard]] sample_lengths longest_of(std::span<const sample_lengths> lengths) {
  sample_lengths longest = lengths.empty() ? sample_lengths{} : lengths.front();
  for (const sample_lengths& s : lengths)
    longest = {std::max(longest.input, s.input), std::max(longest.target, s.target), 0};
  return longest;
}

/// Lengths in multiples of the padding: samples of equal cells pad alike. A target of 0 stays 0.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_lengths> cells_of(std::span<const sample_lengths> lengths,
                                                   const shape_options& shapes) {
  std::vector<sample_lengths> cells;
  cells.reserve(lengths.size());
  for (const sample_lengths& s : lengths)
    cells.push_back({padded_length(s.input, shapes) / shapes.padding_multiple,
                     s.target > 0 ? padded_length(s.target, shapes) / shapes.padding_multiple : 0, 0});
  return cells;
}

/// The place of a cell on Hilbert's curve through the square of 2^bits cells a side that has it, bits <= 32.
[[nodiscard]] constexpr std::uint64_t hilbert_place(std::uint64_t x, std::uint64_t y, unsigned bits) {
  std::uint64_t place = 0;
  for (unsigned level = bits; level-- > 0;) {
    const std::uint64_t right = x >> level & 1U;
    const std::uint64_t upper = y >> level & 1U;
    place = place << 2U | ((3 * right) ^ upper);
    const std::uint64_t mask = (std::uint64_t{1} << level) - 1;
    x &= mask;
    y &= mask;
    if (upper != 0) continue;
    if (right != 0) {
      x = mask - x;
      y = mask - y;
    }
    std::swap(x, y);
  }
  return place;
}

}  // namespace detail

/// Sample ids by length, longest first: by input, then target. Equal lengths keep the order of their ids, so that the
/// result is the same everywhere. Neighbours have similar lengths, which is what a contiguous partition needs.
///
/// O(n), and O(n log n) for lengths whose bits do not fit a word beside the ids; never throws. Source: DynaPipe (arXiv
/// 2311.10418), section 4.1.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_length(std::span<const sample_lengths> lengths) {
  const sample_lengths most = detail::longest_of(lengths);
  std::vector<detail::order_key> keys;
  keys.reserve(lengths.size());
  for (const sample_lengths& s : lengths)
    keys.push_back({detail::below(most.input, s.input), detail::below(most.target, s.target)});
  return detail::sort_keys(keys);
}

/// Sample ids by target, longest first, then by input; equal lengths by id. Complexity as `order_by_length`.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_target(std::span<const sample_lengths> lengths) {
  const sample_lengths most = detail::longest_of(lengths);
  std::vector<detail::order_key> keys;
  keys.reserve(lengths.size());
  for (const sample_lengths& s : lengths)
    keys.push_back({detail::below(most.target, s.target), detail::below(most.input, s.input)});
  return detail::sort_keys(keys);
}

/// Sample ids by input + target, longest first, then by input; equal lengths by id. Complexity as `order_by_length`.
/// For lengths of 0 to 2^31.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_sum(std::span<const sample_lengths> lengths) {
  const sample_lengths most = detail::longest_of(lengths);
  std::vector<detail::order_key> keys;
  keys.reserve(lengths.size());
  for (const sample_lengths& s : lengths)
    keys.push_back({detail::below(most.input + most.target, s.input + s.target), detail::below(most.input, s.input)});
  return detail::sort_keys(keys);
}

/// As many strips as make a snake short where `samples` points lie evenly in a square: about sqrt(samples / 3).
[[nodiscard]] constexpr std::size_t snake_strips(std::size_t samples) {
  std::size_t strips = 1;
  while (3 * (strips + 1) * (strips + 1) <= samples)
    ++strips;
  return strips;
}

/// Sample ids strip by strip: strips of nearly equal numbers of samples by padded input, longest first, and inside a
/// strip by padded target, downwards in the first strip, upwards in the second, and so on, then by padded input.
///
/// Samples of equal padded input stay in one strip, samples of equal padded lengths stand side by side, by id. `strips`
/// is the number of strips wanted. For lengths of 0 to 2^31; O(n) as `order_by_length`, never throws.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_snake(std::span<const sample_lengths> lengths,
                                                    const shape_options& shapes, std::size_t strips) {
  const std::vector<sample_lengths> cells = detail::cells_of(lengths, shapes);
  const sample_lengths most = detail::longest_of(cells);
  const auto input_bits = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(most.input)));
  const std::size_t each = std::max<std::size_t>(1, cells.size() / std::max<std::size_t>(1, strips));
  std::vector<detail::order_key> keys(cells.size());
  std::uint64_t strip = 0;
  std::size_t in_strip = 0;
  std::int64_t last = most.input;
  for (const sample_id id : order_by_length(cells)) {
    const sample_lengths& cell = cells[index(id)];
    if (in_strip >= each && cell.input != last) {
      ++strip;
      in_strip = 0;
    }
    ++in_strip;
    last = cell.input;
    const std::uint64_t target =
        strip % 2 == 0 ? detail::below(most.target, cell.target) : static_cast<std::uint64_t>(cell.target);
    keys[index(id)] = {strip, target << input_bits | detail::below(most.input, cell.input)};
  }
  return detail::sort_keys(keys);
}

/// Sample ids along Hilbert's curve through the plane of padded input and padded target, so that neighbours are alike
/// in both lengths, from the long inputs to the short. Samples of equal padded lengths stand side by side, by id. For
/// lengths of 0 to 2^31; O(n) as `order_by_length`, never throws.
template <class Lazy = void>
[[nodiscard]] std::vector<sample_id> order_by_hilbert(std::span<const sample_lengths> lengths,
                                                      const shape_options& shapes) {
  const std::vector<sample_lengths> cells = detail::cells_of(lengths, shapes);
  const sample_lengths most = detail::longest_of(cells);
  const auto bits = static_cast<unsigned>(
      std::bit_width(static_cast<std::uint64_t>(most.input) | static_cast<std::uint64_t>(most.target)));
  std::vector<detail::order_key> keys;
  keys.reserve(cells.size());
  std::uint64_t last = 0;
  for (const sample_lengths& cell : cells) {
    keys.push_back({0, detail::hilbert_place(static_cast<std::uint64_t>(cell.input),
                                             static_cast<std::uint64_t>(cell.target), bits)});
    last = std::max(last, keys.back().minor);
  }
  for (detail::order_key& key : keys)
    key.minor = last - key.minor;
  return detail::sort_keys(keys);
}

}  // namespace dynapipe
