#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/model.hpp>

using namespace dynapipe;

namespace {

std::string complaint(const model_spec& model) {
  try {
    require_sound(model);
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("presets are sound and found by their names, each its own") {
  std::set<std::string> names;
  for (const model_spec& preset : presets::models()) {
    CAPTURE(preset.name);
    CHECK(complaint(preset) == "none");
    CHECK(names.insert(preset.name).second);
    REQUIRE(presets::model(preset.name).has_value());
    CHECK(*presets::model(preset.name) == preset);
    CHECK(preset.heads % preset.kv_heads == 0);
  }
  for (const char* name :
       {"gpt-3.35b", "gpt-6.7b", "gpt-13b", "gpt-29b", "t5-5.5b", "t5-11b", "t5-22b", "t5-44b", "llama-2-7b",
        "llama-3-8b", "llama-3-70b", "qwen2.5-7b", "mistral-7b", "qwen3-30b-a3b", "deepseek-v3"})
    CHECK_MESSAGE(presets::model(name).has_value(), name);
  CHECK_FALSE(presets::model("gpt-6.7B").has_value());
  CHECK_FALSE(presets::model("").has_value());
}

TEST_CASE("the shapes of DynaPipe's evaluation") {
  const model_spec gpt = presets::gpt_6_7b();
  CHECK(gpt.layers() == 32);
  CHECK_FALSE(gpt.encoder_decoder());
  CHECK(gpt.decoder_kind() == layer_kind::decoder);
  CHECK(gpt.head_dim == 128);
  CHECK(gpt.ffn == 16'384);
  const model_spec t5 = presets::t5_11b();
  CHECK(t5.layers() == 48);
  CHECK(t5.encoder_decoder());
  CHECK(t5.decoder_kind() == layer_kind::cross_decoder);
  CHECK(t5.heads * t5.head_dim == 16'384);
}

TEST_CASE("an unsound model is refused by field and value") {
  using change = std::function<void(model_spec&)>;
  const std::vector<std::pair<change, const char*>> cases{
      {[](model_spec& m) { m.decoder_layers = 0; }, "decoder_layers must lie in 1..10000, it is 0"},
      {[](model_spec& m) { m.encoder_layers = -1; }, "encoder_layers must lie in 0..10000, it is -1"},
      {[](model_spec& m) { m.encoder_layers = 2'000'000'000; }, "encoder_layers"},
      {[](model_spec& m) { m.hidden = -7; }, "hidden must lie in 1..1000000, it is -7"},
      {[](model_spec& m) { m.heads = 0; }, "heads must lie in 1..1000000, it is 0"},
      {[](model_spec& m) { m.kv_heads = 0; }, "kv_heads must lie in 1..1000000, it is 0"},
      {[](model_spec& m) { m.head_dim = 1'000'000'001; }, "head_dim must lie in 1..1000000, it is 1000000001"},
      {[](model_spec& m) { m.heads = 1'000'000; }, "heads * head_dim must lie in 1..10000000, it is 128000000"},
      {[](model_spec& m) { m.ffn = 0; }, "ffn must lie in 1..100000000, it is 0"},
      {[](model_spec& m) { m.vocabulary = 0; }, "vocabulary must lie in 1..100000000, it is 0"},
      {[](model_spec& m) { m.kv_heads = 5; }, "heads (32) must be a multiple of kv_heads (5)"},
      {[](model_spec& m) { m.cross_attention = true; }, "cross_attention is for encoder-decoder models"},
      {[](model_spec& m) { m.encoder_layers = 2; }, "cross_attention is for encoder-decoder models"},
      {[](model_spec& m) { m.experts = -1; }, "experts must lie in 0..1000000, it is -1"},
      {[](model_spec& m) { m.experts = 8; }, "experts_per_token must lie in 1..8, it is 0"},
      {[](model_spec& m) { m.experts = m.experts_per_token = 8; }, "expert_ffn must lie in 1..100000000, it is 0"},
      {[](model_spec& m) { m.experts = 1, m.experts_per_token = 2; }, "experts_per_token must lie in 1..1, it is 2"},
      {[](model_spec& m) { m.experts = m.experts_per_token = m.expert_ffn = 100'000; },
       "(experts + shared_experts) * expert_ffn must lie in 1..100000000, it is 10000000000"},
      {[](model_spec& m) { m.expert_ffn = 5; }, "expert_ffn must be 0 where experts is 0, it is 5"},
      {[](model_spec& m) { m.shared_experts = 1; }, "shared_experts must be 0 where experts is 0, it is 1"},
      {[](model_spec& m) { m.experts_per_token = 2; }, "experts_per_token must be 0 where experts is 0, it is 2"},
      {[](model_spec& m) { m.window = -1; }, "window must lie in 0..1000000000, it is -1"},
      {[](model_spec& m) { m.window = 64, m.attention = attention_mask::bidirectional; },
       "a window (64) is for decoder-only models with causal attention"},
      {[](model_spec& m) { m.window = 64, m.encoder_layers = 2, m.cross_attention = true; },
       "a window (64) is for decoder-only models with causal attention"},
      {[](model_spec& m) { m.latent = latent_spec{}; }, "latent.kv_rank must lie in 1..1000000, it is 0"},
      {[](model_spec& m) { m.latent = {-1, 512, 128, 64, 128}; }, "latent.q_rank must lie in 0..1000000, it is -1"},
      {[](model_spec& m) { m.latent = {0, 512, 128, 64, 0}; }, "latent.value_dim must lie in 1..1000000, it is 0"},
      {[](model_spec& m) { m.latent = {0, 512, 1'000'000, 64, 128}; },
       "heads * (latent.nope_dim + latent.rope_dim) must lie in 1..10000000, it is 32002048"},
      {[](model_spec& m) { m.latent = {0, 512, 128, 64, 128}, m.kv_heads = 8; },
       "kv_heads (8) must equal heads (32) with latent attention"},
      {[](model_spec& m) { m.latent = {0, 512, 128, 64, 128}, m.encoder_layers = 2, m.cross_attention = true; },
       "latent attention is for decoder-only models"}};
  for (const auto& [apply, text] : cases) {
    model_spec model = presets::gpt_6_7b();
    apply(model);
    CAPTURE(text);
    CHECK(complaint(model).find("model 'gpt-6.7b': ") == 0);
    CHECK(complaint(model).find(text) != std::string::npos);
  }
}
