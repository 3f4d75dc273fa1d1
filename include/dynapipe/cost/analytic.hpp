#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/flops.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/layer_sizes.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

/// Options of `analytic_cost`.
struct analytic_options {
  std::int64_t tensor_parallel = 1;
  /// Activations around tensor-parallel blocks divide over the ranks as well (Korthikanti et al., section 4.2.2).
  bool sequence_parallel = false;
  std::int64_t zero = 0;           ///< stage of ZeRO, 0..3: what of the state divides over data-parallel ranks
  std::int64_t data_parallel = 1;  ///< ranks that ZeRO divides over
  /// Bytes of state for each parameter; not given: Adam's (`adam`).
  std::optional<parameter_bytes> state{};
};

/// A roofline of transformer layers: a `cost_model` from sizes and peak rates alone, for padded and varlen shapes.
///
/// Time of a layer and pass is max(launch floor, arithmetic / (peak x efficiency) + collectives, traffic / memory
/// bandwidth), with
/// - arithmetic, forward: 2 FLOPs for each weight that a token meets, and for attention 2 x heads x (key_dim +
///   value_dim) for each pair of query and key. With a fused kernel half of it under a causal mask, and without the
///   pairs outside of a window; the unfused kernel computes what masks hide;
/// - backward: twice the forward, plus attention's inside again under `selective` recomputation, plus the whole forward
///   again under `full`. Its input half holds the gradients of activations (as much as the forward's matrices, and
///   twice its attention) and all recomputation, its weight half the gradients of weights;
/// - traffic: the weights (of a mixture all experts': any may be asked for), and twice (once written, once read) what
///   an unrecomputed forward stores; of a split backward each half once;
/// - collectives: under tensor parallelism two ring all-reduces of the hidden states for each block pair and pass;
///   under sequence parallelism each is a reduce-scatter and an all-gather of the same bytes, and the backward gathers
///   inputs once more for the weights' gradients.
///
/// Stored bytes follow Korthikanti et al. (arXiv 2205.05198, section 4), term by term so that other head counts, gated
/// feed-forwards (no dropout), mixtures, latent attention and cross-attention come out too: for GPT in 16 bits
/// 34 s b h + 5 a s^2 b, the second term only with the unfused kernel (the fused one keeps 4 bytes for each token and
/// head). Under tensor parallelism t the inputs of blocks stay whole and the insides divide: s b h (10 + 24 / t +
/// 5 a s / (h t)); with sequence parallelism all of it divides.
/// `selective` drops attention's inside, `full` keeps the layer's input alone. A running forward needs 8 s b h (hidden
/// states in four places) on top; a backward needs the gradients of its widest insides, and what it recomputes: see
/// `docs/roofline.md`. The head keeps its logits in fp32.
///
/// `weight_stored` is what the weight half needs of it, held at `stored`. Under `full` a split backward keeps more than
/// was stored - what the input half computed again - which no term counts: do not split there.
///
/// One rank holds all experts of its layers (no expert parallelism), each divided by `tensor_parallel`. Weights that
/// ZeRO's stage 3 gathers for a layer count no time and no memory.
///
/// Coefficients are quantised to 2^-40 ns when the model is built, and shapes are evaluated in integers, each of a
/// shape's equal rows rounded up by itself: results are exactly linear in rows but for the floors, and
/// equal on every machine and under any compiler flag. They are held at the largest int64 for all rows and lengths.
/// O(1) for each call, never throws after construction.
class analytic_cost {
 public:
  /// @throws error naming the field, where the model or cluster is unsound, `tensor_parallel` does not divide the
  /// heads, or another option is out of its range.
  analytic_cost(const model_spec& model, const cluster_spec& cluster, analytic_options options = {})
      : window_{skipped_window(model)}, floor_{cluster.launch_floor.value()} {
    build(model, cluster, options);
  }

  /// What plans name as the source of their costs.
  [[nodiscard]] static constexpr const char* source() { return "roofline"; }

  /// Of one length, every time is the largest of a few lines in rows.
  [[nodiscard]] static constexpr bool convex_rows() { return true; }

  template <micro_batch_shape Shape = shape>
  [[nodiscard]] nanoseconds forward(layer_kind kind, const Shape& s, recompute_mode) const {
    return time(layer(kind).forward, kind, s);
  }
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] nanoseconds backward(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return time(layer(kind).backward[mode(recompute)], kind, s);
  }
  /// The half that makes the gradient to send, recomputation included.
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] nanoseconds backward_input(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return time(layer(kind).backward_input[mode(recompute)], kind, s);
  }
  /// The half that makes the weights' gradients.
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] nanoseconds backward_weight(layer_kind kind, const Shape& s, recompute_mode) const {
    return time(layer(kind).backward_weight, kind, s);
  }
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] bytes stored(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return bytes{layer(kind).stored[mode(recompute)].at(counts(kind, s))};
  }
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] bytes weight_stored(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return bytes{layer(kind).weight_stored[mode(recompute)].at(counts(kind, s))};
  }
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] bytes forward_peak(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return layer(kind).forward_peak[mode(recompute)].at(counts(kind, s));
  }
  template <micro_batch_shape Shape = shape>
  [[nodiscard]] bytes backward_peak(layer_kind kind, const Shape& s, recompute_mode recompute) const {
    return layer(kind).backward_peak[mode(recompute)].at(counts(kind, s));
  }
  [[nodiscard]] bytes state(layer_kind kind) const { return layer(kind).state; }

 private:
  static constexpr int shift = 40;
  using polynomial = detail::polynomial;
  using quantised_time = detail::quantised<shift>;
  using quantised_bytes = detail::quantised<>;

  struct pass_time {
    quantised_time arithmetic;
    quantised_time traffic;
  };
  struct peak_memory {
    quantised_bytes feed_forward;
    quantised_bytes attention;

    peak_memory() = default;
    explicit peak_memory(const detail::layer_sizes::moments& most)
        : feed_forward{most.feed_forward}, attention{most.attention} {}
    [[nodiscard]] bytes at(const row_counts& n) const { return bytes{larger_at(feed_forward, attention, n)}; }
  };
  struct layer_cost {
    pass_time forward;
    std::array<pass_time, 3> backward;
    std::array<pass_time, 3> backward_input;
    pass_time backward_weight;
    std::array<quantised_bytes, 3> stored;
    std::array<quantised_bytes, 3> weight_stored;
    std::array<peak_memory, 3> forward_peak;
    std::array<peak_memory, 3> backward_peak;
    bytes state{0};
  };

  static std::size_t mode(recompute_mode recompute) { return static_cast<std::size_t>(recompute); }
  [[nodiscard]] const layer_cost& layer(layer_kind kind) const { return layers_[static_cast<std::size_t>(kind)]; }

  template <class Shape>
  [[nodiscard]] row_counts counts(layer_kind kind, const Shape& s) const {
    return row_counts_of(kind, s, window_);
  }
  template <class Shape>
  [[nodiscard]] nanoseconds time(const pass_time& pass, layer_kind kind, const Shape& s) const {
    const row_counts n = counts(kind, s);
    return nanoseconds{std::max(floor_, larger_at(pass.arithmetic, pass.traffic, n))};
  }

  template <class Lazy = void>
  void build(const model_spec& model, const cluster_spec& cluster, const analytic_options& options) {
    require_sound(model);
    require_sound(cluster);
    if (options.tensor_parallel < 1 || model.heads % options.tensor_parallel != 0)
      throw error{"tensor_parallel must divide the model's " + std::to_string(model.heads) + " heads, it is " +
                  std::to_string(options.tensor_parallel)};
    require_within("", "zero", options.zero, 0, 3);
    require_within("", "data_parallel", options.data_parallel, 1, 1'000'000);
    if (options.state) {
      require_within("state.", "weight", options.state->weight, 0, 1'000);
      require_within("state.", "gradient", options.state->gradient, 0, 1'000);
      require_within("state.", "optimizer", options.state->optimizer, 0, 1'000);
    }
    for (std::size_t k = 0; k < layers_.size(); ++k)
      layers_[k] = make_layer(model, cluster, options, static_cast<layer_kind>(k));
  }

  template <class Lazy = void>
  [[nodiscard]] layer_cost make_layer(const model_spec& model, const cluster_spec& cluster,
                                      const analytic_options& options, layer_kind kind) const {
    const std::int64_t t = options.tensor_parallel;
    const wide_int one = wide_int{1} << shift;
    const wide_int flops_per_ms = std::max<wide_int>(
        1, static_cast<wide_int>(nearest(cluster.matmul_tflops * 1e6)) * nearest(cluster.efficiency * 1e6) / 1000);
    const wide_int bytes_per_ms = std::max<wide_int>(1, static_cast<wide_int>(nearest(cluster.memory_gbps * 1e6)));
    const auto compute = [&](const polynomial& flops) { return flops.scaled(one * 1'000'000, flops_per_ms * t); };
    const auto memory = [&](const polynomial& moved) { return moved.scaled(one * 1'000'000, bytes_per_ms); };
    const auto pass = [](const polynomial& arithmetic, const polynomial& moved) {
      return pass_time{quantised_time{arithmetic}, quantised_time{moved}};
    };

    const bool skips = detail::is_causal(model, kind) && model.kernel == attention_kernel::fused;
    const polynomial matrices = detail::matrix_flops(model, kind);
    const polynomial attention = detail::attention_flops(model, kind, skips);
    const detail::layer_sizes size{model, kind, t, options.sequence_parallel};
    const polynomial reduced = collectives(model, cluster, kind, t, 2);
    const polynomial gathered_again =
        options.sequence_parallel ? collectives(model, cluster, kind, t, 1) : polynomial{};
    const polynomial weights{.constant = ceil_div(parameters(model, kind) * size_of(model.type), t)};
    const polynomial moved = memory(size.kept() * 2 + weights);
    const polynomial once = compute(matrices + attention) + reduced;
    const polynomial twice = compute((matrices + attention) * 2) + reduced + gathered_again;
    const polynomial input_half = compute(matrices + attention * 2) + reduced;

    layer_cost cost;
    cost.forward = pass(once, moved);
    cost.backward_weight = pass(compute(matrices) + gathered_again, moved);
    for (std::size_t m = 0; m < 3; ++m) {
      const auto recompute = static_cast<recompute_mode>(m);
      polynomial again;
      polynomial moved_again;
      polynomial kept = size.kept();
      if (detail::is_block(kind) && recompute == recompute_mode::selective) {
        again = compute(attention);
        kept = size.kept_outside_attention();
      }
      if (detail::is_block(kind) && recompute == recompute_mode::full) {
        again = once;
        moved_again = moved;
        kept = size.input();
      }
      cost.backward[m] = pass(twice + again, moved * 2 + moved_again);
      cost.backward_input[m] = pass(input_half + again, moved + moved_again);
      cost.stored[m] = quantised_bytes{kept};
      cost.weight_stored[m] = quantised_bytes{lesser(kept, size.weight_inputs())};
      cost.forward_peak[m] = peak_memory{size.forward_moments(recompute)};
      cost.backward_peak[m] = peak_memory{size.backward_moments(recompute)};
    }
    cost.state = total_state_of(parameters(model, kind), options.state.value_or(adam(model.type)),
                                {t, options.zero, options.data_parallel});
    return cost;
  }

  /// `steps` ring passes of the hidden states for each block of the layer (two are an all-reduce, or a reduce-scatter
  /// and an all-gather): each moves (t - 1) / t of the bytes over the slowest link.
  template <class Lazy = void>
  [[nodiscard]] static polynomial collectives(const model_spec& model, const cluster_spec& cluster, layer_kind kind,
                                              std::int64_t t, std::int64_t steps) {
    if (t == 1) return {};
    const link_spec& link = t <= cluster.devices_per_node ? cluster.intra_node : cluster.inter_node;
    const std::int64_t blocks = kind == layer_kind::cross_decoder ? 3 : detail::is_block(kind) ? 2 : 1;
    const auto megabits = std::max<std::int64_t>(1, nearest(link.gbps * 1000));
    const wide_int one = wide_int{1} << shift;
    const wide_int per_token =
        static_cast<wide_int>(blocks) * steps * (t - 1) * model.hidden * size_of(model.type) * 8000;
    return {.constant = one * blocks * steps * (t - 1) * link.latency.value(),
            .queries = per_token * one / (static_cast<wide_int>(megabits) * t)};
  }

  std::int64_t window_;
  std::int64_t floor_;
  std::array<layer_cost, 5> layers_;
};

static_assert(split_cost_model<analytic_cost>);
static_assert(split_cost_model<analytic_cost, varlen_shape>);

}  // namespace dynapipe
