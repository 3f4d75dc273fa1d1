#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>
#include <dynapipe/plan/validate_program.hpp>
#include <dynapipe/plan/violation.hpp>

namespace dynapipe::validation {

/// Live intervals of an arena, for the question which of them meets a new one.
///
/// A tree of maxima over all offsets that buffers will ever have: its leaf holds the end of the live buffer that
/// begins there. Some live buffer meets [from, to) exactly where the largest end among those that begin below `to` lies
/// above `from`. Complexity: log n for each call; n log n to build.
template <class Lazy>
class arena_intervals {
 public:
  explicit arena_intervals(std::vector<std::int64_t> offsets) : offsets_{std::move(offsets)} {
    std::sort(offsets_.begin(), offsets_.end());
    offsets_.erase(std::unique(offsets_.begin(), offsets_.end()), offsets_.end());
    tree_.resize(2 * offsets_.size());
  }

  /// The buffer of a live interval that shares a byte with [from, to); `none` if there is none.
  [[nodiscard]] buffer_id meeting(wide_int from, wide_int to) const {
    interval last;
    std::size_t low = offsets_.size();
    std::size_t high =
        low + static_cast<std::size_t>(std::lower_bound(offsets_.begin(), offsets_.end(), to) - offsets_.begin());
    for (; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) last = later(last, tree_[low++]);
      if (high % 2 == 1) last = later(last, tree_[--high]);
    }
    return last.end > from ? last.buffer : buffer_id::none;
  }
  void insert(std::int64_t from, wide_int to, buffer_id buffer) { set(from, {to, buffer}); }
  void erase(std::int64_t from) { set(from, {}); }

 private:
  struct interval {
    wide_int end = -1;
    buffer_id buffer = buffer_id::none;
  };

  static const interval& later(const interval& a, const interval& b) { return b.end > a.end ? b : a; }
  void set(std::int64_t from, interval value) {
    std::size_t node =
        offsets_.size() +
        static_cast<std::size_t>(std::lower_bound(offsets_.begin(), offsets_.end(), from) - offsets_.begin());
    tree_[node] = value;
    for (node /= 2; node > 0; node /= 2)
      tree_[node] = later(tree_[2 * node], tree_[2 * node + 1]);
  }

  std::vector<std::int64_t> offsets_;
  std::vector<interval> tree_;
};

/// What a device has started and not waited for, and what has arrived; by `transfer_of`. One table serves all devices
/// of a replica, as each end of a transfer belongs to one of them.
template <class Lazy>
struct transfer_states {
  std::vector<std::size_t> sending, receiving;  ///< slot of the buffer in use, `nowhere` if there is none
  std::vector<bool> arrived;

  explicit transfer_states(const replica_view& view)
      : sending(view.batches() * (view.stages() - 1) * 2, nowhere),
        receiving(sending),
        arrived(sending.size(), false) {}
};

/// Follows one device's list and judges the life of its buffers, its waits, its memory and its `grads_ready`. All its
/// instructions must name what exists (`check_instruction`).
///
/// Complexity: n log n in the list's instructions and the buffers that they name.
template <class Lazy>
class memory_walk {
 public:
  memory_walk(const replica_view& view, std::size_t device, const program_index& at, transfer_states<Lazy>& transfers,
              findings& found)
      : view_{view},
        device_{device},
        plan_{view.replica().devices[device]},
        at_{at},
        transfers_{transfers},
        found_{found},
        arena_{offsets()},
        ids_{names()},
        buffers_(ids_.size()),
        last_gradient_(view.stages(), nowhere),
        ready_(view.stages(), nowhere),
        memory_{static_cast<wide_int>(plan_.fixed.value()) + (plan_.arena ? plan_.arena->value() : 0)},
        peak_{memory_} {}

  void run() {
    if (plan_.fixed.value() < 0) found_.add(view_.place(device_), "static_bytes is negative: ", plan_.fixed);
    if (plan_.arena && plan_.arena->value() < 0)
      found_.add(view_.place(device_), "arena_bytes is negative: ", *plan_.arena);
    const wide_int start = memory_;
    if (peak_ > plan_.capacity.value()) {
      beyond_ = true;
      found_.add(view_.place(device_), "needs ", peak_, " bytes before its first instruction, the device has ",
                 plan_.capacity);
    }
    for (now_ = 0; now_ < plan_.instructions.size() && !found_.full(); ++now_)
      step(plan_.instructions[now_]);
    if (found_.full()) return;
    finish(start);
  }

 private:
  enum class content : std::uint8_t { input, activation, gradient };
  struct buffer {
    bool live = false;
    bool filled = false;
    bool needed = false;  ///< by the backward of the (micro-batch, stage) that it is for
    std::int32_t sends = 0;
    content holds = content::input;
    std::size_t cell = 0;  ///< the (micro-batch, stage) that reads it
    bytes size{0};
    std::optional<bytes> offset;
  };

  static constexpr std::string_view name(content what) {
    return what == content::input ? "input" : what == content::activation ? "activation" : "gradient";
  }

  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> all;
    if (plan_.arena)
      for (const instruction& i : plan_.instructions)
        if (i.offset) all.push_back(i.offset->value());
    return all;
  }
  std::vector<buffer_id> names() const {
    std::vector<buffer_id> all;
    for (const instruction& i : plan_.instructions) {
      all.insert(all.end(), i.in.begin(), i.in.end());
      if (i.out != buffer_id::none) all.push_back(i.out);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  std::size_t slot(buffer_id id) const {
    return static_cast<std::size_t>(std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin());
  }

  template <class... Parts>
  void fail(const Parts&... parts) {
    found_.add(view_.place(device_, now_), parts...);
  }
  std::string reader(std::size_t cell) const {
    return text("micro-batch ", cell / view_.stages(), " stage ", cell % view_.stages());
  }

  void create(const instruction& i, bytes size, content what, std::size_t cell, bool filled) {
    if (static_cast<std::int32_t>(i.out) < 0) return fail("makes no valid buffer: ", i.out);
    buffer& b = buffers_[slot(i.out)];
    if (b.live) return fail("buffer ", i.out, " is still in use");
    if (size.value() < 0) return fail("a buffer of ", size, " bytes");
    b = {.live = true,
         .filled = filled,
         .needed = false,
         .sends = 0,
         .holds = what,
         .cell = cell,
         .size = size,
         .offset = {}};
    if (i.offset.has_value() != plan_.arena.has_value()) {
      fail("buffer ", i.out, i.offset ? " has an offset and the device no arena" : " has no offset in the arena");
    } else if (i.offset) {
      const std::int64_t from = i.offset->value();
      const wide_int to = static_cast<wide_int>(from) + size.value();
      if (from < 0 || to > plan_.arena->value())
        fail("buffer ", i.out, " at [", from, ", ", to, ") lies outside the arena of ", *plan_.arena, " bytes");
      if (size.value() > 0) {
        if (const buffer_id other = arena_.meeting(from, to); other != buffer_id::none)
          fail("buffer ", i.out, " at [", from, ", ", to, ") overlaps the live buffer ", other);
        arena_.insert(from, to, i.out);
        b.offset = i.offset;
      }
    }
    if (!plan_.arena) memory_ += size.value();
    peak_ = std::max(peak_, memory_);
  }

  /// The buffer that an operation reads, if it is there and filled with what the operation is to read.
  buffer* use(buffer_id id, content what, std::size_t cell) {
    buffer* b = live(id);
    if (b == nullptr) {
      fail("buffer ", id, " does not exist here");
    } else if (!b->filled) {
      fail("buffer ", id, " is used before its receive is waited for");
    } else if (b->holds != what || b->cell != cell) {
      fail("buffer ", id, " holds the ", name(b->holds), " of ", reader(b->cell), ", not the ", name(what), " of ",
           reader(cell));
    } else {
      return b;
    }
    return nullptr;
  }
  buffer* live(buffer_id id) {
    if (id == buffer_id::none) return nullptr;
    buffer& b = buffers_[slot(id)];
    return b.live ? &b : nullptr;
  }

  void release(buffer_id id) {
    buffer* b = live(id);
    if (b == nullptr) return fail("buffer ", id, " is freed and not in use");
    if (b->sends > 0) fail("buffer ", id, " is freed while it is being sent");
    if (!b->filled) fail("buffer ", id, " is freed while it is being received");
    if (b->needed) fail("buffer ", id, " is freed while the backward of ", reader(b->cell), " still needs it");
    if (b->offset) arena_.erase(b->offset->value());
    if (!plan_.arena) memory_ -= b->size.value();
    b->live = false;
  }

  void step(const instruction& i) {
    switch (i.op) {
      case opcode::load: create(i, i.size, content::input, view_.cell(i), true); break;
      case opcode::forward: forward(i); break;
      case opcode::backward:
      case opcode::backward_input:
      case opcode::backward_weight: backward(i); break;
      case opcode::send:
      case opcode::recv: transfer(i); break;
      case opcode::wait_send:
      case opcode::wait_recv: wait(i); break;
      case opcode::free:
        for (const buffer_id id : i.in)
          release(id);
        break;
    }
    if (!beyond_ && peak_ > plan_.capacity.value()) {
      beyond_ = true;
      fail("needs ", peak_, " bytes, the device has ", plan_.capacity);
    }
  }

  void require_arrival(const instruction& i, std::size_t boundary, std::size_t other, tensor_kind tensor) {
    if (view_.device_of(other) != device_ && !transfers_.arrived[transfer_of(view_, index(i.mb), boundary, tensor)])
      fail("runs before a wait_recv of its ", to_string(tensor));
  }

  void forward(const instruction& i) {
    const std::size_t stage = index(i.stage);
    const bool last = stage + 1 == view_.stages();
    bool has_input = false;
    bool has_activation = false;
    for (const buffer_id id : i.in) {
      const buffer* there = live(id);
      const content what = there != nullptr && there->holds == content::input ? content::input : content::activation;
      bool& has = what == content::input ? has_input : has_activation;
      if (has) fail("reads two buffers of ", name(what));
      has = true;
      if (buffer* b = use(id, what, view_.cell(i))) b->needed = true;
    }
    if (i.in.empty()) fail("reads no buffer");
    if (has_activation != (stage > 0)) fail(stage > 0 ? "reads no activation" : "reads an activation at stage 0");
    if (stage > 0) require_arrival(i, stage - 1, stage - 1, tensor_kind::activation);

    if (last != (i.out == buffer_id::none)) fail("`out` is null at the last stage and only there");
    make_out(i, last ? nowhere : stage, content::activation, last ? 0 : view_.cell(i) + 1);
    const stage_cost& c = view_.cost(i);
    peak_ = std::max(peak_, memory_ + c.forward_peak.value());
    memory_ += c.stored.value();
  }

  void backward(const instruction& i) {
    const std::size_t stage = index(i.stage);
    const stage_cost& c = view_.cost(i);
    if (i.op == opcode::backward_weight) {
      memory_ -= c.weight_stored.value();
    } else {
      const bool last = stage + 1 == view_.stages();
      if (i.in.size() != (last ? 0U : 1U))
        fail("reads one gradient, and none at the last stage; it lists ", i.in.size());
      for (const buffer_id id : i.in)
        use(id, content::gradient, view_.cell(i));
      if (!last) require_arrival(i, stage, stage + 1, tensor_kind::gradient);
      if ((stage == 0) != (i.out == buffer_id::none)) fail("`out` is null at stage 0 and only there");
      make_out(i, stage == 0 ? nowhere : stage - 1, content::gradient, stage == 0 ? 0 : view_.cell(i) - 1);
      peak_ = std::max(peak_, memory_ + c.backward_peak.value());
      memory_ -= c.stored.value();
      if (i.op == opcode::backward_input) memory_ += c.weight_stored.value();
      if (i.op == opcode::backward_input) return;
    }
    if (const std::size_t position = at_.forward[view_.cell(i)]; position != nowhere)
      for (const buffer_id id : plan_.instructions[position].in)
        if (buffer* b = live(id); b != nullptr && b->cell == view_.cell(i)) b->needed = false;
    last_gradient_[stage] = now_;
    if (!i.grads_ready) return;
    if (ready_[stage] != nowhere)
      fail("grads_ready of stage ", stage, " stands at instruction ", ready_[stage], " already");
    ready_[stage] = now_;
  }

  /// The buffer that a compute operation makes for `boundary`; `nowhere` if it should make none.
  void make_out(const instruction& i, std::size_t boundary, content what, std::size_t cell) {
    if (i.out == buffer_id::none) {
      if (i.offset) fail("has an offset and no buffer");
    } else if (boundary != nowhere) {
      const boundary_cost& b = view_.replica().micro_batches[index(i.mb)].boundary[boundary];
      create(i, what == content::activation ? b.forward_bytes : b.backward_bytes, what, cell, true);
    }
  }

  void transfer(const instruction& i) {
    const content what = i.tensor == tensor_kind::activation ? content::activation : content::gradient;
    const std::size_t id = transfer_of(view_, i);
    if (i.op == opcode::recv) {
      create(i, i.size, what, view_.cell(i), false);
      transfers_.receiving[id] = i.out == buffer_id::none ? nowhere : slot(i.out);
    } else if (buffer* b = use(i.out, what, view_.cell(index(i.mb), route_of(view_, i).other))) {
      if (b->size != i.size) fail("sends ", i.size, " bytes of a buffer of ", b->size);
      ++b->sends;
      transfers_.sending[id] = slot(i.out);
    }
  }

  void wait(const instruction& i) {
    const std::size_t id = transfer_of(view_, i);
    std::size_t& open = i.op == opcode::wait_send ? transfers_.sending[id] : transfers_.receiving[id];
    if (open == nowhere) return fail("waits for a transfer that this device has not started, or again");
    buffer& b = buffers_[open];
    if (i.op == opcode::wait_send) {
      --b.sends;
    } else {
      b.filled = true;
      transfers_.arrived[id] = true;
    }
    open = nowhere;
  }

  void finish(wide_int start) {
    const std::string here = view_.place(device_);
    for (std::size_t k = 0; k < buffers_.size() && !found_.full(); ++k)
      if (buffers_[k].live) found_.add(here, "buffer ", ids_[k], " is never freed");
    for (std::size_t n = 0; n < plan_.instructions.size() && !found_.full(); ++n) {
      const instruction& i = plan_.instructions[n];
      if (is_transfer(i.op) &&
          (i.op == opcode::send ? transfers_.sending : transfers_.receiving)[transfer_of(view_, i)] != nowhere)
        found_.add(view_.place(device_, n), "is never waited for");
    }
    for (std::size_t s = 0; s < view_.stages(); ++s)
      if (view_.device_of(s) == device_ && ready_[s] != last_gradient_[s])
        found_.add(here, "the last gradients of stage ", s, " come at instruction ", last_gradient_[s],
                   ", grads_ready ", ready_[s] == nowhere ? text("stands nowhere") : text("stands at ", ready_[s]));
    const wide_int rest = memory_ - start;
    if (rest != 0) found_.add(here, rest, " bytes are left over at the end");
    if (peak_ != plan_.peak.value()) found_.add(here, "its peak is ", peak_, " bytes, the plan states ", plan_.peak);
  }

  const replica_view& view_;
  std::size_t device_;
  const device_plan& plan_;
  const program_index& at_;
  transfer_states<Lazy>& transfers_;
  findings& found_;
  arena_intervals<Lazy> arena_;
  std::vector<buffer_id> ids_;
  std::vector<buffer> buffers_;
  std::vector<std::size_t> last_gradient_, ready_;
  wide_int memory_;
  wide_int peak_;
  std::size_t now_ = 0;
  bool beyond_ = false;
};

}  // namespace dynapipe::validation
