#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <dynapipe/core/ids.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/schedule/kinds.hpp>
#include <dynapipe/schedule/problem.hpp>

namespace dynapipe {

/// A compute operation: the forward or the whole backward of a micro-batch on a stage.
enum class pass_kind : std::uint8_t { forward, backward };

struct compute_pass {
  pass_kind kind = pass_kind::forward;
  micro_batch_id mb{0};
  stage_id stage{0};

  friend constexpr bool operator==(const compute_pass&, const compute_pass&) = default;
};

/// The order of compute operations on every device.
using schedule = std::vector<std::vector<compute_pass>>;

/// One entry of a device's program. `stage` is the device's own: of a transfer, the sending stage for `send` and
/// `wait_send`, the receiving one for `recv` and `wait_recv`.
struct program_step {
  enum class action : std::uint8_t { forward, backward, send, recv, wait_send, wait_recv };

  action what = action::forward;
  tensor_kind tensor = tensor_kind::activation;
  micro_batch_id mb{0};
  stage_id stage{0};

  [[nodiscard]] constexpr bool computes() const { return what == action::forward || what == action::backward; }
  [[nodiscard]] constexpr bool sends() const { return what == action::send || what == action::wait_send; }
  friend constexpr bool operator==(const program_step&, const program_step&) = default;
};

/// What every device does, in issue order: compute operations, starts of transfers, and waits for their ends.
using program = std::vector<std::vector<program_step>>;

/// Start and end of one operation.
struct time_span {
  nanoseconds start{0};
  nanoseconds end{0};

  friend constexpr bool operator==(const time_span&, const time_span&) = default;
};

/// Numbers of a problem's operations: compute operations first (forwards, then backwards, by micro-batch and stage),
/// then transfers (activations by sending stage, then gradients by receiving stage). Boundaries inside a device have a
/// number too, and no transfer.
class operation_index {
 public:
  explicit operation_index(const pipeline_problem& problem)
      : stages_{problem.stages()},
        cells_{problem.micro_batches * problem.stages()},
        borders_{problem.micro_batches * (problem.stages() - 1)} {}

  [[nodiscard]] std::size_t forward(std::size_t mb, std::size_t stage) const { return mb * stages_ + stage; }
  [[nodiscard]] std::size_t backward(std::size_t mb, std::size_t stage) const { return cells_ + mb * stages_ + stage; }
  [[nodiscard]] std::size_t pass(const compute_pass& p) const {
    return p.kind == pass_kind::forward ? forward(index(p.mb), index(p.stage)) : backward(index(p.mb), index(p.stage));
  }
  /// The activation from `stage` to `stage` + 1.
  [[nodiscard]] std::size_t activation(std::size_t mb, std::size_t stage) const {
    return 2 * cells_ + mb * (stages_ - 1) + stage;
  }
  /// The gradient from `stage` + 1 to `stage`.
  [[nodiscard]] std::size_t gradient(std::size_t mb, std::size_t stage) const {
    return 2 * cells_ + borders_ + mb * (stages_ - 1) + stage;
  }
  /// The operation that a step is, starts or waits for.
  [[nodiscard]] std::size_t of(const program_step& step) const {
    const std::size_t mb = index(step.mb);
    const std::size_t stage = index(step.stage);
    if (step.what == program_step::action::forward) return forward(mb, stage);
    if (step.what == program_step::action::backward) return backward(mb, stage);
    if (step.tensor == tensor_kind::activation) return activation(mb, step.sends() ? stage : stage - 1);
    return gradient(mb, step.sends() ? stage - 1 : stage);
  }
  [[nodiscard]] std::size_t passes() const { return 2 * cells_; }
  [[nodiscard]] std::size_t count() const { return 2 * (cells_ + borders_); }

 private:
  std::size_t stages_;
  std::size_t cells_;
  std::size_t borders_;
};

/// When every operation of a program runs, by `operation_index`, and the end of the last.
struct timeline {
  std::vector<time_span> spans;
  nanoseconds makespan{0};
};

}  // namespace dynapipe
