#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <dynapipe/cost/shape.hpp>

namespace dynapipe::detail {

/// Values by shape, for shapes of at least one row: open addressing over a power of two. O(1) expected for each call.
template <class Value>
class shape_map {
 public:
  shape_map() : slots_(1024) {}

  /// The value of `s`, made by `make()` where there is none yet. Stays valid until the next call.
  template <class Make>
  Value& find_or(const shape& s, Make&& make) {
    if (2 * (filled_ + 1) > slots_.size()) grow();
    slot* place = &find(s);
    if (place->key.rows == 0) {
      Value made = make();
      place->key = s;
      place->value = std::move(made);
      ++filled_;
    }
    return place->value;
  }

 private:
  struct slot {
    shape key;
    Value value;
  };

  slot& find(const shape& s) {
    const auto mix = [](std::uint64_t h, std::int64_t x) {
      h = (h ^ static_cast<std::uint64_t>(x)) * 0x9E3779B97F4A7C15U;
      return h ^ (h >> 32U);
    };
    std::size_t at = mix(mix(mix(0, s.rows), s.input), s.target) & (slots_.size() - 1);
    while (slots_[at].key.rows != 0 && slots_[at].key != s)
      at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<slot> old(slots_.size() * 2);
    std::swap(old, slots_);
    for (slot& entry : old)
      if (entry.key.rows != 0) find(entry.key) = std::move(entry);
  }

  std::vector<slot> slots_;
  std::size_t filled_ = 0;
};

}  // namespace dynapipe::detail
