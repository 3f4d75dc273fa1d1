#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <dynapipe/plan/plan.hpp>

namespace dynapipe {

/// A 64-bit hash of a sequence of 64-bit words.
///
/// It starts at 0x64796E6170697065. A word w turns the state h into m(h xor w), where m is the finisher of splitmix64
/// (Steele, Lea, Flood, OOPSLA 2014) after the addition of 0x9E3779B97F4A7C15: each step can be undone, so two
/// sequences of equal length that differ in one word never meet. Not for defence against an adversary.
class word_hash {
 public:
  constexpr void add(std::uint64_t word) {
    std::uint64_t h = (state_ ^ word) + 0x9E3779B97F4A7C15U;
    h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9U;
    h = (h ^ (h >> 27U)) * 0x94D049BB133111EBU;
    state_ = h ^ (h >> 31U);
  }

  [[nodiscard]] constexpr std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x64796E6170697065U;
};

namespace detail {

/// Feeds values to a hash, every field of them.
///
/// Structures are taken apart by bindings that name each of their fields: one that gets another field does not compile
/// here until that is hashed as well.
class plan_hasher {
 public:
  [[nodiscard]] std::uint64_t value() const { return hash_.value(); }

  template <class Part>
  void add(const Part& part) {
    if constexpr (std::is_same_v<Part, double>)
      hash_.add(std::bit_cast<std::uint64_t>(part));
    else if constexpr (requires {
                         part.value();
                         part.has_value();
                       })
      optional(part);
    else if constexpr (requires { part.value(); })
      hash_.add(static_cast<std::uint64_t>(part.value()));
    else if constexpr (std::is_convertible_v<const Part&, std::string_view>)
      text(part);
    else if constexpr (requires { part.begin(); })
      list(part);
    else if constexpr (std::is_enum_v<Part> || std::is_integral_v<Part>)
      hash_.add(static_cast<std::uint64_t>(static_cast<std::int64_t>(part)));
    else
      fields(part);
  }

 private:
  template <class... Parts>
  void all(const Parts&... parts) {
    (add(parts), ...);
  }
  template <class Optional>
  void optional(const Optional& part) {
    hash_.add(part ? 1 : 0);
    if (part) add(*part);
  }
  /// Its length, then its bytes, eight a word, the first lowest.
  void text(std::string_view part) {
    hash_.add(part.size());
    for (std::size_t k = 0; k < part.size(); k += 8) {
      std::uint64_t word = 0;
      for (std::size_t b = k; b < std::min(k + 8, part.size()); ++b)
        word |= static_cast<std::uint64_t>(static_cast<unsigned char>(part[b])) << (8 * (b - k));
      hash_.add(word);
    }
  }
  template <class List>
  void list(const List& part) {
    hash_.add(part.size());
    for (const auto& item : part)
      add(item);
  }

  template <class A, class B>
  void fields(const std::pair<A, B>& part) {
    all(part.first, part.second);
  }
  template <class Part>
    requires std::is_same_v<Part, latent_spec>
  void fields(const Part& part) {
    const auto& [q_rank, kv_rank, nope_dim, rope_dim, value_dim] = part;
    all(q_rank, kv_rank, nope_dim, rope_dim, value_dim);
  }
  template <class Part>
    requires std::is_same_v<Part, model_spec>
  void fields(const Part& part) {
    const auto& [name, encoder_layers, decoder_layers, cross_attention, hidden, heads, kv_heads, head_dim, ffn, gated,
                 vocabulary, tied_head, experts, experts_per_token, shared_experts, expert_ffn, window, latent,
                 attention, kernel, type] = part;
    all(name, encoder_layers, decoder_layers, cross_attention, hidden, heads, kv_heads, head_dim, ffn, gated,
        vocabulary, tied_head, experts, experts_per_token, shared_experts, expert_ffn, window, latent, attention,
        kernel, type);
  }
  template <class Part>
    requires std::is_same_v<Part, link_spec>
  void fields(const Part& part) {
    const auto& [latency, gbps, ranks_per_link, overlap_slowdown] = part;
    all(latency, gbps, ranks_per_link, overlap_slowdown);
  }
  template <class Part>
    requires std::is_same_v<Part, cluster_spec>
  void fields(const Part& part) {
    const auto& [name, devices_per_node, memory, reserve, matmul_tflops, memory_gbps, efficiency, launch_floor,
                 intra_node, inter_node] = part;
    all(name, devices_per_node, memory, reserve, matmul_tflops, memory_gbps, efficiency, launch_floor, intra_node,
        inter_node);
  }
  template <class Part>
    requires std::is_same_v<Part, plan_provenance>
  void fields(const Part& part) {
    const auto& [version, model, cluster, cost_source, cost_epoch, options] = part;
    auto sorted = options;  // files list options by name
    std::sort(sorted.begin(), sorted.end());
    all(version, model, cluster, cost_source, cost_epoch, sorted);
  }
  template <class Part>
    requires std::is_same_v<Part, sample_lengths>
  void fields(const Part& part) {
    const auto& [input, target, loss] = part;
    all(input, target, loss);
  }
  template <class Part>
    requires std::is_same_v<Part, layer_range>
  void fields(const Part& part) {
    const auto& [from, to] = part;
    all(from, to);
  }
  template <class Part>
    requires std::is_same_v<Part, stage_spec>
  void fields(const Part& part) {
    const auto& [encoder, decoder, embedding, head] = part;
    all(encoder, decoder, embedding, head);
  }
  template <class Part>
    requires std::is_same_v<Part, pipeline_plan>
  void fields(const Part& part) {
    const auto& [devices, stages, type, stage_device, schedule, recompute, tensor_parallel, context_parallel, queues] =
        part;
    all(devices, stages, type, stage_device, schedule, recompute, tensor_parallel, context_parallel, queues);
  }
  template <class Part>
    requires std::is_same_v<Part, stage_cost>
  void fields(const Part& part) {
    const auto& [forward, backward, weight, stored, weight_stored, forward_peak, backward_peak, recompute] = part;
    all(forward, backward, weight, stored, weight_stored, forward_peak, backward_peak, recompute);
  }
  template <class Part>
    requires std::is_same_v<Part, boundary_cost>
  void fields(const Part& part) {
    const auto& [tensors, forward_bytes, forward, backward_bytes, backward] = part;
    all(tensors, forward_bytes, forward, backward_bytes, backward);
  }
  template <class Part>
    requires std::is_same_v<Part, planned_micro_batch>
  void fields(const Part& part) {
    const auto& [samples, rows, input_length, target_length, loss_tokens, dummy, cost, boundary] = part;
    all(samples, rows, input_length, target_length, loss_tokens, dummy, cost, boundary);
  }
  template <class Part>
    requires std::is_same_v<Part, instruction>
  void fields(const Part& part) {
    const auto& [op, mb, stage, peer, tensor, in, out, size, offset, grads_ready, start, end] = part;
    all(op, mb, stage, peer, tensor, in, out, size, offset, grads_ready, start, end);
  }
  template <class Part>
    requires std::is_same_v<Part, device_plan>
  void fields(const Part& part) {
    const auto& [capacity, fixed, peak, arena, instructions] = part;
    all(capacity, fixed, peak, arena, instructions);
  }
  template <class Part>
    requires std::is_same_v<Part, replica_plan>
  void fields(const Part& part) {
    const auto& [predicted, micro_batches, devices] = part;
    all(predicted, micro_batches, devices);
  }
  template <class Part>
    requires std::is_same_v<Part, plan>
  void fields(const Part& part) {
    const auto& [provenance, lengths, source_rows, dropped, layout, pipeline, predicted, sync, iteration, lower_bound,
                 replicas] = part;
    all(provenance, lengths, source_rows, dropped, layout, pipeline, predicted, sync, iteration, lower_bound, replicas);
  }

  word_hash hash_;
};

}  // namespace detail

/// A number that stands for `p`: ranks compare it before they run.
///
/// Every field counts, in the order of its structure: integers, enumerations and identifiers as 64-bit words, doubles
/// by their IEEE bits, texts and lists after their length, an optional value after 1 or alone as 0. Options of the
/// provenance count in the order of their names, as files hold them.
///
/// Guarantee: equal for equal plans on every machine, also for a plan that comes back from a file; different for two
/// plans that differ in the value of one integer, flag or rate, and but for chance (2^-64) for all others. Complexity:
/// linear.
template <class Lazy = void>
[[nodiscard]] std::uint64_t digest(const plan& p) {
  detail::plan_hasher hasher;
  hasher.add(p);
  return hasher.value();
}

}  // namespace dynapipe
