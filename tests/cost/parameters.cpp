#include <cstdint>
#include <utility>

#include <doctest/doctest.h>

#include <dynapipe/cost/model.hpp>
#include <dynapipe/cost/parameters.hpp>

using namespace dynapipe;

TEST_CASE("parameters of every preset against the published sizes") {
  // Sizes of the models' own papers and cards where there are any; DynaPipe's names are rounded, hence the 3 % there.
  // DeepSeek-V3's first three layers are dense, ours are not: + 33e9.
  const std::pair<const char*, std::pair<double, double>> published[] = {
      {"gpt-3.35b", {3.35e9, 0.03}},  {"gpt-6.7b", {6.65e9, 0.02}},      {"gpt-13b", {12.85e9, 0.02}},
      {"gpt-29b", {29e9, 0.03}},      {"t5-5.5b", {5.5e9, 0.05}},        {"t5-11b", {11.3e9, 0.02}},
      {"t5-22b", {22e9, 0.05}},       {"t5-44b", {44e9, 0.05}},          {"llama-2-7b", {6.738e9, 0.02}},
      {"llama-3-8b", {8.03e9, 0.02}}, {"llama-3-70b", {70.6e9, 0.02}},   {"qwen2.5-7b", {7.62e9, 0.02}},
      {"mistral-7b", {7.24e9, 0.01}}, {"qwen3-30b-a3b", {30.5e9, 0.01}}, {"deepseek-v3", {671e9 + 33e9, 0.01}}};
  CHECK(std::size(published) == presets::models().size());
  for (const auto& [name, size] : published) {
    const double ours = static_cast<double>(parameters(presets::model(name).value()));
    CAPTURE(name);
    CAPTURE(ours);
    CHECK(ours > size.first * (1 - size.second));
    CHECK(ours < size.first * (1 + size.second));
  }
}

TEST_CASE("parameters of layers, by hand") {
  const model_spec gqa{.name = "m",
                       .decoder_layers = 3,
                       .hidden = 10,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 3,
                       .ffn = 7,
                       .gated = true,
                       .vocabulary = 100};
  // Queries and output 2 x 10 x 12, keys and values 2 x 10 x 6, three matrices of 10 x 7, two norms of 2 x 10.
  CHECK(parameters(gqa, layer_kind::decoder) == 240 + 120 + 210 + 40);
  CHECK(parameters(gqa, layer_kind::encoder) == parameters(gqa, layer_kind::decoder));
  CHECK(parameters(gqa, layer_kind::cross_decoder) == 2 * (240 + 120 + 20) + 210 + 20);
  CHECK(parameters(gqa, layer_kind::embedding) == 1'000);
  CHECK(parameters(gqa, layer_kind::head) == 1'020);
  CHECK(parameters(gqa) == 3 * 610 + 1'000 + 1'020);
  model_spec tied = gqa;
  tied.tied_head = true;
  CHECK(parameters(tied) == 3 * 610 + 1'000 + 20);
  model_spec plain = gqa;
  plain.gated = false;
  CHECK(parameters(plain, layer_kind::decoder) == 240 + 120 + 140 + 40);
}

TEST_CASE("parameters of mixtures and latent attention, by hand") {
  model_spec model{.name = "m",
                   .decoder_layers = 2,
                   .hidden = 10,
                   .heads = 4,
                   .kv_heads = 4,
                   .head_dim = 3,
                   .ffn = 7,
                   .vocabulary = 100,
                   .experts = 6,
                   .experts_per_token = 2,
                   .shared_experts = 1,
                   .expert_ffn = 5};
  // Four projections of 10 x 12, norms; a router of 10 x 6 and seven experts of two matrices of 10 x 5.
  CHECK(parameters(model, layer_kind::decoder) == 480 + 40 + 60 + 7 * 2 * 50);
  model.latent = {.q_rank = 8, .kv_rank = 9, .nope_dim = 3, .rope_dim = 2, .value_dim = 6};
  // Queries 10 x 8 and 8 x (4 x 5); keys and values 10 x (9 + 2) and 9 x (4 x 9); output (4 x 6) x 10; narrow norms.
  CHECK(parameters(model, layer_kind::decoder) == 80 + 160 + 110 + 324 + 240 + 2 * 17 + 40 + 60 + 700);
  model.latent->q_rank = 0;
  CHECK(parameters(model, layer_kind::decoder) == 200 + 110 + 324 + 240 + 2 * 9 + 40 + 60 + 700);
}

TEST_CASE("bytes of training state for one parameter") {
  // Weight, gradient and two moments; a copy in fp32 for 16-bit training: 2 + 2 + 4 + 4 + 4.
  CHECK(state_bytes_per_parameter(dtype::bf16) == 16);
  CHECK(state_bytes_per_parameter(dtype::fp16) == 16);
  CHECK(state_bytes_per_parameter(dtype::fp32) == 4 * 4);
  CHECK(state_bytes_per_parameter(dtype::fp64) == 4 * 8);
}
