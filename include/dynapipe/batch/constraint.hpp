#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <dynapipe/core/error.hpp>
#include <dynapipe/core/names.hpp>

namespace dynapipe {

/// What a way to build micro-batches may be asked to keep.
enum class batch_constraint : std::uint8_t {
  cap,             ///< no micro-batch above the cap
  micro_batches,   ///< every replica has a micro-batch, and every micro-batch a sample
  equal_counts,    ///< the same number of micro-batches on every replica
  count_multiple,  ///< a number of micro-batches on each replica that is a multiple
  groups,          ///< samples of a group in one micro-batch
  equal_samples,   ///< numbers of samples on the replicas that differ by one at most
  lock_step,       ///< the m-th micro-batches of all replicas alike
  shapes           ///< at most so many distinct shapes
};

inline constexpr name_table<batch_constraint, 8> batch_constraint_names{
    {{batch_constraint::cap, "cap"},
     {batch_constraint::micro_batches, "micro_batches"},
     {batch_constraint::equal_counts, "equal_counts"},
     {batch_constraint::count_multiple, "count_multiple"},
     {batch_constraint::groups, "groups"},
     {batch_constraint::equal_samples, "equal_samples"},
     {batch_constraint::lock_step, "lock_step"},
     {batch_constraint::shapes, "shapes"}}};

[[nodiscard]] constexpr std::string_view to_string(batch_constraint value) {
  return name_in(batch_constraint_names, value);
}

/// No micro-batches keep all that was asked. The text says why, with numbers, and what would help.
class unsatisfiable : public error {
 public:
  unsatisfiable(const std::string& text, batch_constraint relax) : error{text}, relax_{relax} {}

  /// The constraint to give up, or to loosen.
  [[nodiscard]] batch_constraint relax() const { return relax_; }

 private:
  batch_constraint relax_;
};

}  // namespace dynapipe
