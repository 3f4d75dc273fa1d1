#pragma once

#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/model.hpp>

namespace dynapipe::test {

/// A small decoder-only model: 8 layers of 64.
inline model_spec tiny_gpt() {
  return {.name = "tiny",
          .decoder_layers = 8,
          .hidden = 64,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 16,
          .ffn = 256,
          .vocabulary = 1000,
          .tied_head = true};
}

/// A small encoder-decoder model: 4 + 4 layers of 64.
inline model_spec tiny_t5() {
  model_spec model = tiny_gpt();
  model.encoder_layers = 4;
  model.decoder_layers = 4;
  model.cross_attention = true;
  return model;
}

/// Slow devices in nodes of four, so that times of the small models are not all alike.
inline cluster_spec tiny_cluster(bytes memory = gib(1)) {
  return {.name = "tiny",
          .devices_per_node = 4,
          .memory = memory,
          .matmul_tflops = 0.1,
          .memory_gbps = 10,
          .intra_node = {.latency = nanoseconds{100}, .gbps = 100},
          .inter_node = {.latency = nanoseconds{1000}, .gbps = 10, .ranks_per_link = 4}};
}

}  // namespace dynapipe::test
