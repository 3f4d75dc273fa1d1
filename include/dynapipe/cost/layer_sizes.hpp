#pragma once

#include <algorithm>
#include <cstdint>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/cost/counts.hpp>
#include <dynapipe/cost/flops.hpp>
#include <dynapipe/cost/kinds.hpp>
#include <dynapipe/cost/model.hpp>

namespace dynapipe::detail {

/// Activations of one layer as polynomials, in bytes on one of `t` tensor-parallel ranks.
///
/// Tensors between two column- or row-parallel matrices divide over the ranks (`inside`). Those around them - inputs of
/// norms and blocks, dropout masks, narrow vectors of latent attention, what a router sorts - are whole on each rank,
/// or divide as well under sequence parallelism (`around`).
class layer_sizes {
 public:
  layer_sizes(const model_spec& model, layer_kind layer, std::int64_t tensor, bool sequence_parallel)
      : kind_{layer},
        t_{tensor},
        around_{sequence_parallel ? tensor : 1},
        e_{size_of(model.type)},
        h_{model.hidden},
        keys_{static_cast<wide_int>(model.kv_heads) * model.key_dim()},
        values_{static_cast<wide_int>(model.kv_heads) * model.value_dim()},
        queries_{static_cast<wide_int>(model.heads) * model.key_dim()},
        outputs_{static_cast<wide_int>(model.heads) * model.value_dim()},
        heads_{model.heads},
        ffn_{model.active_ffn()},
        vocabulary_{model.vocabulary},
        experts_{model.experts},
        routed_{model.experts > 0 ? model.experts_per_token : 0},
        q_rank_{model.latent ? model.latent->q_rank : 0},
        kv_rank_{model.latent ? model.latent->kv_rank : 0},
        rope_{model.latent ? model.latent->rope_dim : 0},
        gated_{model.gated},
        fused_{model.kernel == attention_kernel::fused} {}

  /// The layer's input.
  [[nodiscard]] polynomial input() const { return {.queries = around(e_ * h_)}; }

  /// Scores (unfused: softmax, its dropout mask and output) or row statistics (fused).
  [[nodiscard]] polynomial attention_inside() const {
    if (!is_block(kind_)) return {};
    if (fused_) return {.queries = inside(4 * heads_ * (crosses() ? 2 : 1))};
    return pairs(inside(heads_ * (gated_ ? e_ : 2 * e_ + 1)));
  }

  [[nodiscard]] polynomial kept_outside_attention() const {
    if (kind_ == layer_kind::embedding) return {.queries = around(mask())};
    if (kind_ == layer_kind::head) return {.queries = around(2 * e_ * h_) + inside(4 * vocabulary_)};
    // Self-attention: norm input, projection input, dropout mask; queries, keys, values, output projection's input.
    polynomial kept{.queries = around(2 * e_ * h_ + mask()) + inside(e_ * (queries_ + keys_ + values_ + outputs_))};
    // Latent attention: narrow vectors before and after their norms, and the keys' positioned part.
    kept.queries += around(e_ * (2 * (q_rank_ + kv_rank_) + rope_));
    // Feed-forward: norm input, first matrix's input, dropout mask; activation's input(s), second matrix's input.
    kept.queries += around(2 * e_ * h_ + mask()) + inside(e_ * ffn_ * (gated_ ? 3 : 2));
    // Mixture: routed copies of the input, the experts' outputs, the router's scores in fp32.
    kept.queries += around(2 * e_ * h_ * routed_ + 4 * experts_);
    if (crosses()) {
      kept.queries += around(2 * e_ * h_ + mask()) + inside(e_ * (queries_ + outputs_));
      kept.keys += inside(e_ * (keys_ + values_));
    }
    return kept;
  }

  [[nodiscard]] polynomial kept() const { return kept_outside_attention() + attention_inside(); }

  /// What the weight half of a backward needs: the matrices' inputs and the gradients of their outputs. For a GPT layer
  /// in 16 bits 32 s b h (Qi et al., arXiv 2401.10241, table 1).
  [[nodiscard]] polynomial weight_inputs() const {
    if (kind_ == layer_kind::embedding) return {.queries = around(e_ * h_)};
    if (kind_ == layer_kind::head) return {.queries = around(e_ * h_) + inside(e_ * vocabulary_)};
    polynomial held{.queries = around(2 * e_ * h_) + inside(e_ * (queries_ + keys_ + values_ + outputs_))};
    held.queries += around(e_ * (2 * (q_rank_ + kv_rank_) + rope_));
    held.queries += around(2 * e_ * h_ * (1 + routed_) + 4 * experts_) + inside(e_ * ffn_ * (gated_ ? 3 : 2));
    if (crosses()) {
      held.queries += around(2 * e_ * h_) + inside(e_ * (queries_ + outputs_));
      held.keys += inside(e_ * (keys_ + values_));
    }
    return held;
  }

  /// The most that a pass holds is the larger of two moments: in the feed-forward, and in attention.
  struct moments {
    polynomial feed_forward{};
    polynomial attention{};
  };

  /// What a running forward holds: all it would keep without recomputation, and hidden states between operators. With
  /// the unfused kernel scores that are not kept are dead before the feed-forward.
  [[nodiscard]] moments forward_moments(recompute_mode recompute) const {
    if (!is_block(kind_) || fused_ || recompute == recompute_mode::none) return {.feed_forward = kept() + scratch()};
    const polynomial attention{.queries = around(2 * e_ * h_ + mask() + e_ * (2 * (q_rank_ + kv_rank_) + rope_)) +
                                          inside(e_ * (queries_ + keys_ + values_ + outputs_)),
                               .keys = crosses() ? inside(e_ * (keys_ + values_)) : 0};
    return {.feed_forward = kept_outside_attention() + scratch(),
            .attention = attention + attention_inside() + scratch()};
  }

  /// What a backward holds on top of what is stored.
  [[nodiscard]] moments backward_moments(recompute_mode recompute) const {
    if (!is_block(kind_)) return {.feed_forward = gradients()};
    if (fused_) {
      polynomial held = gradients();
      if (recompute == recompute_mode::selective) held = held + attention_inside();
      if (recompute == recompute_mode::full) held = held + kept();
      return {.feed_forward = held};
    }
    // Unfused, as measured (docs/roofline.md). An activation function computed operator by operator holds seven tensors
    // of its width, while a mask and a hidden state are dead already. Where the layer is computed again it holds six,
    // beside all but the scores, its input, the mask and two hidden states. Attention holds one tensor of the scores'
    // width with dropout (two without), and beside it the scores, and queries, keys and values, that are computed
    // again.
    const polynomial scores = pairs(inside(heads_ * e_ * (gated_ ? 2 : 1)));
    const polynomial routed{.queries = e_ * h_ * routed_};
    if (recompute == recompute_mode::full) {
      polynomial held = kept_outside_attention() + routed;
      held.queries += inside(e_ * ffn_ * 6) - around(3 * e_ * h_ + mask());
      const polynomial projected{.queries = inside(e_ * (queries_ + keys_ + values_))};
      return {.feed_forward = held, .attention = scores + attention_inside() + projected};
    }
    const wide_int dead = around(e_ * h_ + mask());
    moments most{.feed_forward = routed, .attention = scores};
    most.feed_forward.queries += std::max<wide_int>(0, inside(e_ * ffn_ * 7) - dead);
    if (recompute == recompute_mode::selective) most.attention = most.attention + attention_inside();
    return most;
  }

 private:
  /// Hidden states in flight between operators; inputs of matrices are whole even under sequence parallelism.
  [[nodiscard]] polynomial scratch() const {
    if (kind_ == layer_kind::head) return {.queries = inside(e_ * vocabulary_)};
    return {.queries = 4 * e_ * h_};
  }

  /// Gradients alive at once with fused kernels: of hidden states and of the widest inside.
  [[nodiscard]] polynomial gradients() const {
    if (kind_ == layer_kind::embedding) return {.queries = e_ * h_};
    if (kind_ == layer_kind::head) return {.queries = 2 * e_ * h_ + inside(e_ * vocabulary_)};
    const wide_int widest = std::max<wide_int>(ffn_ * (gated_ ? 3 : 2), queries_ + keys_ + values_ + outputs_);
    return {.queries = e_ * h_ * (4 + routed_) + inside(e_ * widest), .keys = crosses() ? e_ * h_ : 0};
  }

  [[nodiscard]] bool crosses() const { return kind_ == layer_kind::cross_decoder; }
  [[nodiscard]] wide_int mask() const { return gated_ ? 0 : h_; }
  [[nodiscard]] wide_int inside(wide_int count) const { return (count + t_ - 1) / t_; }
  [[nodiscard]] wide_int around(wide_int count) const { return (count + around_ - 1) / around_; }
  [[nodiscard]] polynomial pairs(wide_int each) const {
    return {.self_pairs = each, .cross_pairs = crosses() ? each : 0};
  }

  layer_kind kind_;
  wide_int t_, around_, e_, h_, keys_, values_, queries_, outputs_, heads_, ffn_, vocabulary_, experts_, routed_;
  wide_int q_rank_, kv_rank_, rope_;
  bool gated_, fused_;
};

}  // namespace dynapipe::detail
