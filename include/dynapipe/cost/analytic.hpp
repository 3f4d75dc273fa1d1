#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/cost_model.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>
#include <dynapipe/cost/shape.hpp>

namespace dynapipe {

namespace detail {

/// Sizes that a layer's cost is a polynomial of: query tokens, key tokens of cross-attention, query x key pairs of
/// self-attention and of cross-attention. Not above 2^95 for rows and lengths up to 2^32.
struct token_counts {
  wide_int queries = 0;
  wide_int keys = 0;
  wide_int self_pairs = 0;
  wide_int cross_pairs = 0;

  [[nodiscard]] wide_int all_bits() const { return queries | keys | self_pairs | cross_pairs; }
};

/// constant + queries * q + keys * k + self_pairs * s + cross_pairs * x, with coefficients >= 0.
struct polynomial {
  wide_int constant = 0;
  wide_int queries = 0;
  wide_int keys = 0;
  wide_int self_pairs = 0;
  wide_int cross_pairs = 0;

  /// The value divided by 2^shift and rounded up; the largest int64 where that does not fit.
  [[nodiscard]] std::int64_t at(const token_counts& n, int shift = 0) const {
    const wide_int rounding = (wide_int{1} << shift) - 1;
    // Below 2^62, products are single multiplications and their sum cannot overflow.
    if (((all_bits() | n.all_bits()) >> 62) == 0) {
      const auto product = [](wide_int coefficient, wide_int count) {
        return static_cast<wide_int>(static_cast<std::int64_t>(coefficient)) * static_cast<std::int64_t>(count);
      };
      return saturate((constant + product(queries, n.queries) + product(keys, n.keys) +
                       product(self_pairs, n.self_pairs) + product(cross_pairs, n.cross_pairs) + rounding) >>
                      shift);
    }
    wide_int sum = constant;
    const auto add = [&sum](wide_int coefficient, wide_int count) {
      wide_int product = 0;
      return !__builtin_mul_overflow(coefficient, count, &product) && !__builtin_add_overflow(sum, product, &sum);
    };
    if (!add(queries, n.queries) || !add(keys, n.keys) || !add(self_pairs, n.self_pairs) ||
        !add(cross_pairs, n.cross_pairs) || __builtin_add_overflow(sum, rounding, &sum))
      return int64_limit;
    return saturate(sum >> shift);
  }

  [[nodiscard]] wide_int all_bits() const { return constant | queries | keys | self_pairs | cross_pairs; }
  friend polynomial operator+(const polynomial& a, const polynomial& b) {
    return {a.constant + b.constant, a.queries + b.queries, a.keys + b.keys, a.self_pairs + b.self_pairs,
            a.cross_pairs + b.cross_pairs};
  }
  friend polynomial operator*(const polynomial& a, std::int64_t n) {
    return {a.constant * n, a.queries * n, a.keys * n, a.self_pairs * n, a.cross_pairs * n};
  }
  /// Every coefficient times n over d, rounded up.
  [[nodiscard]] polynomial scaled(wide_int n, wide_int d) const {
    const auto scale = [&](wide_int c) { return (c * n + d - 1) / d; };
    return {scale(constant), scale(queries), scale(keys), scale(self_pairs), scale(cross_pairs)};
  }
};

}  // namespace detail

/// Options of `analytic_cost`.
struct analytic_options {
  std::int64_t tensor_parallel = 1;
};

/// A roofline of transformer layers: a `cost_model` from sizes and peak rates alone.
///
/// Time of a layer and pass is max(launch floor, arithmetic / (peak x efficiency) + collectives, traffic / memory
/// bandwidth), with
/// - arithmetic, forward: 2 FLOPs for each weight and token, and for attention 4 x heads x head_dim for each pair of
///   query and key (half of it under a causal mask with a fused kernel, which skips what the mask hides);
/// - backward: twice the forward, plus attention's inside again under `selective` recomputation, plus the whole forward
///   again under `full`;
/// - traffic: the weights, and twice (once written, once read) what an unrecomputed forward stores;
/// - collectives: under tensor parallelism two ring all-reduces of the hidden states for each block pair and pass.
///
/// Stored bytes follow Korthikanti et al. (arXiv 2205.05198, section 4), term by term so that other head counts, gated
/// feed-forwards (no dropout) and cross-attention come out too: for GPT in 16 bits 34 s b h + 5 a s^2 b, the second
/// term only with the unfused kernel (the fused one keeps 4 bytes for each token and head). Under tensor parallelism t
/// the inputs of blocks stay whole and the insides divide: s b h (10 + 24 / t + 5 a s / (h t)).
/// `selective` drops attention's inside, `full` keeps the layer's input alone. A running layer needs 8 s b h (hidden
/// states in four places) on top; a backward needs the gradients of its widest insides, and what it recomputes. The
/// head keeps its logits in fp32.
///
/// Coefficients are quantised to 2^-40 ns when the model is built, and shapes are evaluated in integers: results are
/// equal on every machine and under any compiler flag. They are held at the largest int64 for rows and lengths up to
/// 2^32. O(1) for each call, never throws after construction.
class analytic_cost {
 public:
  /// @throws error naming the field, where the model or cluster is unsound or `tensor_parallel` does not divide the
  /// heads.
  analytic_cost(const model_spec& model, const cluster_spec& cluster, analytic_options options = {})
      : tensor_{options.tensor_parallel}, floor_{cluster.launch_floor.value()} {
    require_sound(model);
    require_sound(cluster);
    if (tensor_ < 1 || model.heads % tensor_ != 0)
      throw error{"tensor_parallel must divide the model's " + std::to_string(model.heads) + " heads, it is " +
                  std::to_string(tensor_)};
    for (std::size_t k = 0; k < layers_.size(); ++k)
      layers_[k] = make_layer(model, cluster, static_cast<layer_kind>(k));
  }

  /// What plans name as the source of their costs.
  [[nodiscard]] static constexpr const char* source() { return "roofline"; }

  [[nodiscard]] nanoseconds forward(layer_kind kind, const shape& s, recompute_mode) const {
    return time(layer(kind).forward, kind, s);
  }
  [[nodiscard]] nanoseconds backward(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return time(layer(kind).backward[mode(recompute)], kind, s);
  }
  [[nodiscard]] bytes stored(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return bytes{layer(kind).stored[mode(recompute)].at(counts(kind, s))};
  }
  [[nodiscard]] bytes forward_peak(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return bytes{layer(kind).forward_peak[mode(recompute)].at(counts(kind, s))};
  }
  [[nodiscard]] bytes backward_peak(layer_kind kind, const shape& s, recompute_mode recompute) const {
    return bytes{layer(kind).backward_peak[mode(recompute)].at(counts(kind, s))};
  }
  [[nodiscard]] bytes state(layer_kind kind) const { return layer(kind).state; }

 private:
  static constexpr int shift = 40;
  using polynomial = detail::polynomial;

  struct pass_time {
    polynomial arithmetic;
    polynomial traffic;
  };
  struct layer_cost {
    pass_time forward;
    std::array<pass_time, 3> backward;
    std::array<polynomial, 3> stored;
    std::array<polynomial, 3> forward_peak;
    std::array<polynomial, 3> backward_peak;
    bytes state{0};
  };

  static std::size_t mode(recompute_mode recompute) { return static_cast<std::size_t>(recompute); }
  [[nodiscard]] const layer_cost& layer(layer_kind kind) const { return layers_[static_cast<std::size_t>(kind)]; }

  static detail::token_counts counts(layer_kind kind, const shape& s) {
    const wide_int rows = s.rows;
    switch (kind) {
      case layer_kind::cross_decoder:
        return {rows * s.target, rows * s.input, rows * s.target * s.target, rows * s.target * s.input};
      case layer_kind::head: return {.queries = rows * (s.target > 0 ? s.target : s.input)};
      case layer_kind::embedding: return {.queries = rows * s.input};
      case layer_kind::encoder:
      case layer_kind::decoder: break;
    }
    return {.queries = rows * s.input, .self_pairs = rows * s.input * s.input};
  }

  [[nodiscard]] nanoseconds time(const pass_time& pass, layer_kind kind, const shape& s) const {
    const detail::token_counts n = counts(kind, s);
    return nanoseconds{std::max({floor_, pass.arithmetic.at(n, shift), pass.traffic.at(n, shift)})};
  }

  [[nodiscard]] layer_cost make_layer(const model_spec& model, const cluster_spec& cluster, layer_kind kind) const {
    const wide_int one = wide_int{1} << shift;
    const wide_int flops_per_ms = std::max<wide_int>(
        1, static_cast<wide_int>(nearest(cluster.matmul_tflops * 1e6)) * nearest(cluster.efficiency * 1e6) / 1000);
    const wide_int bytes_per_ms = std::max<wide_int>(1, static_cast<wide_int>(nearest(cluster.memory_gbps * 1e6)));
    const auto compute = [&](const polynomial& flops) { return flops.scaled(one * 1'000'000, flops_per_ms * tensor_); };
    const auto memory = [&](const polynomial& moved) { return moved.scaled(one * 1'000'000, bytes_per_ms); };

    const layer_sizes size{model, kind, tensor_};
    const polynomial collectives = all_reduces(model, cluster, kind);
    const polynomial once = compute(size.flops()) + collectives;
    const polynomial weights{.constant = ceil_div(parameters(model, kind) * size_of(model.type), tensor_)};
    const polynomial traffic = memory(size.kept() * 2 + weights);

    layer_cost cost;
    cost.state =
        bytes{ceil_div(saturating_mul(parameters(model, kind), state_bytes_per_parameter(model.type)), tensor_)};
    cost.forward = {once, traffic};
    const polynomial twice = compute(size.flops() * 2) + collectives;
    const pass_time plain{twice, traffic * 2};
    cost.backward = {plain, plain, plain};
    if (size.has_layer()) {
      cost.backward[1].arithmetic = twice + compute(size.attention_flops());
      cost.backward[2] = {twice + once, traffic * 3};
    }
    const polynomial outside = size.kept_outside_attention();
    const polynomial input = size.input();
    cost.stored = {size.kept(), outside, size.has_layer() ? input : size.kept()};
    for (std::size_t m = 0; m < 3; ++m) {
      // While it runs, a forward holds all it would keep without recomputation, whatever it drops at its end.
      cost.forward_peak[m] = size.kept() + size.scratch();
      const polynomial again = m == 0 || !size.has_layer() ? polynomial{}
                               : m == 1                    ? size.attention_inside()
                                                           : size.kept();
      cost.backward_peak[m] = size.gradients() + again;
    }
    return cost;
  }

  /// Two ring all-reduces of the hidden states in each pass: 2 (t - 1) / t of the bytes over the slowest link.
  [[nodiscard]] polynomial all_reduces(const model_spec& model, const cluster_spec& cluster, layer_kind kind) const {
    if (tensor_ == 1) return {};
    const link_spec& link = tensor_ <= cluster.devices_per_node ? cluster.intra_node : cluster.inter_node;
    const std::int64_t blocks = kind == layer_kind::cross_decoder                           ? 3
                                : kind == layer_kind::head || kind == layer_kind::embedding ? 1
                                                                                            : 2;
    const auto megabits = std::max<std::int64_t>(1, nearest(link.gbps * 1000));
    const wide_int one = wide_int{1} << shift;
    const wide_int per_token =
        static_cast<wide_int>(blocks) * 2 * (tensor_ - 1) * model.hidden * size_of(model.type) * 8000;
    return {.constant = one * blocks * 2 * (tensor_ - 1) * link.latency.value(),
            .queries = per_token * one / (static_cast<wide_int>(megabits) * tensor_)};
  }

  /// Bytes and FLOPs of one layer as polynomials. Bytes are those of one of `t` tensor-parallel ranks, FLOPs of all.
  struct layer_sizes {
    layer_sizes(const model_spec& model, layer_kind layer, std::int64_t tensor)
        : kind{layer},
          t{tensor},
          e{size_of(model.type)},
          h{model.hidden},
          q{model.heads * model.head_dim},
          kv{model.kv_heads * model.head_dim},
          heads{model.heads},
          f{model.ffn},
          vocabulary{model.vocabulary},
          gated{model.gated},
          fused{model.kernel == attention_kernel::fused},
          causal{model.attention == attention_mask::causal && layer != layer_kind::encoder} {}

    [[nodiscard]] bool has_layer() const { return kind != layer_kind::embedding && kind != layer_kind::head; }
    [[nodiscard]] bool crosses() const { return kind == layer_kind::cross_decoder; }

    [[nodiscard]] polynomial attention_flops() const {
      if (!has_layer()) return {};
      const wide_int pair = wide_int{4} * q;
      return {.self_pairs = causal && fused ? pair / 2 : pair, .cross_pairs = crosses() ? pair : 0};
    }
    [[nodiscard]] polynomial flops() const {
      if (kind == layer_kind::embedding) return {};
      if (kind == layer_kind::head) return {.queries = wide_int{2} * h * vocabulary};
      const wide_int projections = wide_int{2} * h * (2 * q + 2 * kv);
      const wide_int feed_forward = wide_int{2} * h * f * (gated ? 3 : 2);
      const wide_int cross_queries = crosses() ? wide_int{2} * h * 2 * q : 0;
      return polynomial{.queries = projections + feed_forward + cross_queries,
                        .keys = crosses() ? wide_int{2} * h * 2 * kv : 0} +
             attention_flops();
    }

    [[nodiscard]] wide_int shared(wide_int count) const { return (count + t - 1) / t; }

    /// The layer's input.
    [[nodiscard]] polynomial input() const { return {.queries = wide_int{e} * h}; }
    /// Scores (unfused: softmax, its dropout mask and output) or row statistics (fused).
    [[nodiscard]] polynomial attention_inside() const {
      if (!has_layer()) return {};
      if (fused) return {.queries = shared(wide_int{4} * heads * (crosses() ? 2 : 1))};
      const wide_int pair = shared(heads * (gated ? wide_int{e} : wide_int{2} * e + 1));
      return {.self_pairs = pair, .cross_pairs = crosses() ? pair : 0};
    }
    [[nodiscard]] polynomial kept_outside_attention() const {
      const wide_int mask = gated ? 0 : h;
      if (kind == layer_kind::embedding) return {.queries = mask};
      if (kind == layer_kind::head) return {.queries = wide_int{2} * e * h + shared(wide_int{4} * vocabulary)};
      // Self-attention: norm input, projection input, queries, keys, values, output projection's input, dropout mask.
      polynomial kept{.queries = wide_int{2} * e * h + shared(wide_int{e} * (2 * q + 2 * kv)) + mask};
      // Feed-forward: norm input, first matrix's input, activation's input(s), second matrix's input, dropout mask.
      kept.queries += wide_int{2} * e * h + shared(wide_int{e} * f * (gated ? 3 : 2)) + mask;
      if (crosses()) {
        kept.queries += wide_int{2} * e * h + shared(wide_int{e} * 2 * q) + mask;
        kept.keys += shared(wide_int{e} * 2 * kv);
      }
      return kept;
    }
    [[nodiscard]] polynomial kept() const { return kept_outside_attention() + attention_inside(); }
    /// Hidden states in flight between operators.
    [[nodiscard]] polynomial scratch() const {
      if (kind == layer_kind::head) return {.queries = shared(wide_int{e} * vocabulary)};
      return {.queries = wide_int{4} * e * h};
    }
    /// Gradients alive at once: of hidden states, of the widest inside, and of the scores where there are any.
    [[nodiscard]] polynomial gradients() const {
      if (kind == layer_kind::embedding) return {.queries = wide_int{e} * h};
      if (kind == layer_kind::head) return {.queries = wide_int{2} * e * h + shared(wide_int{e} * vocabulary)};
      const wide_int widest = std::max<wide_int>(wide_int{f} * (gated ? 3 : 2), wide_int{2} * (q + kv));
      polynomial bytes_held{.queries = wide_int{4} * e * h + shared(e * widest),
                            .keys = crosses() ? wide_int{e} * h : 0};
      if (!fused) {
        bytes_held.self_pairs = shared(wide_int{2} * e * heads);
        bytes_held.cross_pairs = crosses() ? bytes_held.self_pairs : 0;
      }
      return bytes_held;
    }

    layer_kind kind;
    std::int64_t t, e, h, q, kv, heads, f, vocabulary;
    bool gated, fused, causal;
  };

  std::int64_t tensor_;
  std::int64_t floor_;
  std::array<layer_cost, 5> layers_;
};

static_assert(cost_model<analytic_cost>);

}  // namespace dynapipe
